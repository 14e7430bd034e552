"""The Python functions that build calls of operators: `relay.add(x, y)`, `relay.nn.dense(x, w)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError, UnknownAttributeError, close_names, counted
from relaxpy.ir.relay.expr import Call, RelayExpr, Tuple
from relaxpy.ir.relay.op.registry import REQUIRED, Op, is_op_name, list_op_names


class Makers:
    """The functions that build calls of a family of operators, such as `relay.qnn`."""

    __slots__ = ("_family",)

    def __init__(self, family: str) -> None:
        self._family = family

    def __getattr__(self, name: str) -> Callable[..., Call] | Makers:
        return maker(f"{self._family}.{name}")


def maker(name: str) -> Callable[..., Call] | Makers:
    """Return the function that builds calls of the operator `name`, or those of a family.

    Errors:
        UnknownAttributeError (also AttributeError): there is no such operator.
    """
    if not is_op_name(name):
        if any(other.startswith(f"{name}.") for other in list_op_names()):
            return Makers(name)
        raise UnknownAttributeError(
            f"relay has no attribute {name}", hint=close_names(name, list_op_names())
        )
    op = Op.get(name)
    short = name.rpartition(".")[2]
    signature = _signature(op)

    def make(*args: Any, **kwargs: Any) -> Call:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise MisuseError(f"{name}: {error}", rule="RLY-94") from None
        bound.apply_defaults()
        given = [bound.arguments.pop(o) for o in op.record.operands]
        values = given[0] if op.record.is_variadic else given
        operands = [_operand(name, value) for value in values]
        return Call(op, operands, op.record.maker_attrs(bound.arguments))  # type: ignore[arg-type]

    make.__name__ = make.__qualname__ = short
    number = counted(len(op.record.operands), "operand")
    make.__doc__ = op.record.description or f"Return a call of the operator `{name}`: {number}."
    make.__signature__ = signature  # type: ignore[attr-defined]
    return user_facing(make)


def _signature(op: Op) -> inspect.Signature:
    record = op.record
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    defaults = {**record.attributes, **record.maker_defaults}
    required = [n for n, value in defaults.items() if value is REQUIRED]
    optional = [n for n in defaults if n not in required]
    first = [inspect.Parameter(n, kind) for n in (*record.operands, *required)]
    if record.is_variadic:
        first = [inspect.Parameter(record.operands[0], inspect.Parameter.VAR_POSITIONAL)]
        kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature(
        [*first, *(inspect.Parameter(n, kind, default=defaults[n]) for n in optional)]
    )


def _operand(name: str, value: Any) -> RelayExpr:
    if isinstance(value, (tuple, list)) and all(isinstance(v, RelayExpr) for v in value):
        return Tuple(value)  # type: ignore[arg-type]
    if not isinstance(value, RelayExpr):
        raise MisuseError(
            f"{name} takes Relay expressions, found {value!r:.60}",
            hint=f"write relay.const({value!r:.60})",
            about=value,
        )
    return value
