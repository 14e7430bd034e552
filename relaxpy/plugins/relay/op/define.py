"""Registration of operators that are translated to expressions of Relax."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import CodeType, SimpleNamespace
from typing import Any, Final, TypeAlias

import numpy as np

from relaxpy.ir.core.node import Attrs
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.known import shape_of
from relaxpy.plugins.relay.op.registry import REQUIRED, Compute, KnownDims, Op, OpRecord, Results
from relaxpy.plugins.relay.op.relations import RELATIONS, RelationError, identity_of_tensors
from relaxpy.plugins.relay.op.struct_info import struct_info_relation
from relaxpy.plugins.relay.ty import Type
from relaxpy.support.dataclass import replace

Args: TypeAlias = tuple[rx.Expr, ...]
Implementation: TypeAlias = Callable[..., rx.Expr]
"""The Relax expression of a call, of its operands and, by name, its attributes."""
_OF_TENSORS: Final = {"Identity": identity_of_tensors}


def define(
    names: str,
    function: Implementation,
    operands: str = "",
    attributes: Mapping[str, object] | None = None,
    *,
    makers: Mapping[str, object] | None = None,
    relation: str = "",
    results: Results = 1,
    known_dims: KnownDims | None = None,
) -> None:
    """Register operators with these names, which are separated by blanks.

    The positional parameters of `function` are the operands, unless they are named, and its
    keyword-only ones the attributes with their defaults, unless these are given. `makers` are the
    defaults of the Python functions where they differ from those of the text.
    """
    named = tuple(operands.split()) or _operands(function)
    for name in names.split():
        Op.enter(
            OpRecord(
                name,
                named,
                attributes=_attributes(function) if attributes is None else attributes,
                maker_defaults=makers or {},
                relation=_OF_TENSORS.get(relation, RELATIONS.get(relation)),
                relation_name=relation,
                translate=lambda args, attrs: function(*args, **attrs),
                results=results,
                known_dims=known_dims,
            )
        )


def define_all(table: Mapping[str, Implementation], relation: str = "") -> None:
    """Register the operators of a table, by their names."""
    for names, function in table.items():
        define(names, function, relation=relation)


def define_te(
    table: Mapping[str, Callable[..., Any]], makers: Mapping[str, object] | None = None
) -> None:
    """Register operators that functions of `te` tensors and attributes compute.

    The type is that of the tensor which the function returns, or of the tensors in its list.
    """
    for name, function in table.items():
        record = OpRecord(
            name,
            _operands(function),
            attributes=_attributes(function),
            maker_defaults=makers or {},
            compute=_compute(function),
        )
        Op.enter(replace(record, relation=struct_info_relation(record)))


def signature(operands: str, **attributes: object) -> Callable[[Callable[[Any], Any]], Any]:
    """Decorate an implementation that takes a namespace of its operands and attributes."""
    names = tuple(operands.split())

    def decorated(function: Callable[[Any], Any]) -> Any:
        def implementation(*args: Any, **attrs: Any) -> Any:
            return function(SimpleNamespace(**dict(zip(names, args, strict=True)), **attrs))

        implementation.signature = names, attributes  # type: ignore[attr-defined]
        return implementation

    return decorated


def _compute(function: Callable[..., Any]) -> Compute:
    def tensors(attrs: Attrs, inputs: Sequence[Any], ty: Type | None) -> Sequence[Any]:
        result = function(*inputs, **attrs)
        return result if isinstance(result, list) else [result]

    return tensors


def _operands(function: Callable[..., Any]) -> tuple[str, ...]:
    code: CodeType = function.__code__
    names, _ = getattr(function, "signature", (code.co_varnames[: code.co_argcount], {}))
    return names


def _attributes(function: Callable[..., Any]) -> Mapping[str, object]:
    code: CodeType = function.__code__
    names = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    defaults: Mapping[str, object] = function.__kwdefaults__ or {}
    plain = {name: defaults.get(name, REQUIRED) for name in names}
    _, attributes = getattr(function, "signature", ((), plain))
    return attributes


def results_of_topk(call: object, attrs: Mapping[str, Any]) -> int:
    """The number of results of `topk`: both values and indices, or one of them."""
    return 2 if attrs["ret_type"] == "both" else 1


def dims(expr: rx.Expr) -> tuple[Any, ...]:
    """The dimensions of an operand.

    Errors:
        RelationError: its rank is not known.
    """
    shape = shape_of(expr)
    if shape is None:
        raise RelationError("the rank of an operand is not known")
    return tuple(shape)


def number(value: float, dtype: str) -> rx.Expr:
    """A scalar constant."""
    return rx.Constant(np.array(value, dtype))


def dtype_of(expr: rx.Expr) -> str:
    """The datatype of an operand.

    Errors:
        RelationError: the operand is not a tensor.
    """
    sinfo = expr.struct_info
    if not isinstance(sinfo, rx.TensorStructInfo):
        raise RelationError(f"expected a tensor, found {sinfo}")
    return str(sinfo.dtype)


def axes_of(value: Any, rank: int, *, exclude: bool = False) -> list[int]:
    """Axes as numbers from 0; None means all, and with `exclude` the others are returned.

    Errors:
        RelationError: an axis is out of range.
    """
    if value is None:
        chosen = list(range(rank))
        exclude = False
    else:
        chosen = [int(axis) for axis in (value if isinstance(value, tuple) else (value,))]
    for axis in chosen:
        if not -rank <= axis < rank:
            raise RelationError(f"axis {axis} is out of range for rank {rank}")
    chosen = [axis % rank for axis in chosen]
    return [axis for axis in range(rank) if axis not in chosen] if exclude else chosen


def listed(value: Any) -> list[Any]:
    """The value of an attribute that is a number or a list as a list."""
    return list(value) if isinstance(value, tuple) else [value]


def fields_of(expr: rx.Expr) -> list[rx.Expr]:
    """The fields of a tuple operand.

    Errors:
        RelationError: the operand is not a tuple.
    """
    sinfo = expr.struct_info
    if not isinstance(sinfo, rx.TupleStructInfo):
        raise RelationError(f"expected a tuple of tensors, found {sinfo}")
    return [rx.TupleGetItem(expr, index) for index in range(len(sinfo.fields))]
