"""The attributes of operators as classes, by TVM's names: `op_attrs.Conv2DAttrs`.

A class describes the attributes of an operator: `isinstance` tells whether a table of attributes
has them, and a call builds the table from them and the operator's defaults. Operators with the same
attributes have the same instances.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from relaxpy.errors import MisuseError, close_names
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.ops.definition.registry import OpDef, registered_ops

_SHARED = {
    "AdaptivePool": "relax.nn.adaptive_avg_pool",
    "AllClassNonMaximumSuppression": "relax.vision.all_class_non_max_suppression",
    "ArgmaxArgmin": "relax.argmax",
    "Distribution": "relax.dist.annotate_sharding",
    "Init": "relax.full",
    "Pool": "relax.nn.max_pool",
    "Scanop": "relax.cumsum",
    "ScatterCollective": "relax.ccl.scatter_from_worker0",
    "Statistical": "relax.sum",
    "Trilu": "relax.triu",
}
"""One operator of those that share the attributes, for names that are not the operator's."""
_NAME = re.compile(r"(\w+?)([123]D)?(Transpose)?Attrs")


class _AttrsType(type):
    """A class whose instances are tables with the attributes of one operator."""

    operator: OpDef
    axes: int | None

    @override
    def __instancecheck__(cls, instance: object) -> bool:
        names = cls.operator.signature.attributes.keys()
        if not isinstance(instance, Attrs) or instance.keys() != names:
            return False
        layout = instance.get("data_layout", instance.get("layout"))
        count = len(re.findall("[A-Z]", layout)) - 2 if isinstance(layout, str) else None
        return None in (cls.axes, count) or cls.axes == count

    @override
    def __call__(cls, **attributes: Any) -> Attrs:
        """The table of these attributes, and of the defaults of the others."""
        parameters = cls.operator.signature.attributes
        for name in attributes.keys() - parameters.keys():
            raise MisuseError(
                f"{cls.__name__} has no attribute {name!r}",
                hint=close_names(name, parameters),
                about=name,
            )
        missing = [n for n, p in parameters.items() if p.required and n not in attributes]
        if missing:
            raise MisuseError(f"{cls.__name__} needs {', '.join(missing)}")
        return Attrs({n: attributes.get(n, p.default) for n, p in parameters.items()})


def _operator(name: str) -> OpDef | None:
    """The operator whose attributes a class of this name describes."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    stem, axes, transposed = found[1], (found[2] or "").lower(), "_transpose" if found[3] else ""
    operators: Mapping[str, OpDef] = registered_ops()
    if stem in _SHARED:
        return operators.get(_SHARED[stem] + axes)
    wanted = (stem.lower() + axes + transposed).replace("_", "")
    by_name = {n.rpartition(".")[2].replace("_", ""): op for n, op in operators.items()}
    return by_name.get(wanted)


def attributes(module: str, name: str) -> type:
    """The class of attributes that a module has under this name.

    Errors:
        AttributeError: no operator has attributes of this name.
    """
    operator = _operator(name)
    if operator is None or not operator.signature.attributes:
        raise AttributeError(f"{module}: no operator has attributes of the name {name}")
    made = re.search("([123])D", name)
    members = {
        "operator": operator,
        "axes": int(made[1]) if made else None,
        "__doc__": f"The attributes of {operator.name}.",
    }
    return _AttrsType(name, (), members)
