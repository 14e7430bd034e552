"""Parameters of operators: operands of certain kinds, and attributes of certain types."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import get_args, get_origin

import numpy as np

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.core.device import Device, device, split_device
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.global_info import VDevice
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo, Placement
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import dataclass

_KIND_NAMES = {
    rx.TensorStructInfo: "a tensor",
    rx.ShapeStructInfo: "a shape",
    rx.PrimStructInfo: "a scalar",
    rx.TupleStructInfo: "a tuple",
    DTensorStructInfo: "a tensor over several devices",
    rx.ObjectStructInfo: "an object",
}
_FROM_TEXT: Mapping[object, Callable[[str], object]] = {
    Device: device,
    VDevice: lambda text: VDevice(*split_device(text)),
    Placement: Placement.from_text,
}
"""The conversion of a string to an attribute of these types."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of an operator: an operand of certain kinds, or an attribute."""

    name: str
    kinds: tuple[type[rx.StructInfo], ...]
    choices: tuple[object, ...]
    variadic: bool
    default: object

    @property
    def is_operand(self) -> bool:
        """True if the parameter takes an expression."""
        return bool(self.kinds)

    @property
    def required(self) -> bool:
        """True if a call must pass it."""
        return self.default is inspect.Parameter.empty and not self.variadic

    def expected(self) -> str:
        """The description of the accepted operands in messages."""
        return " or ".join(_KIND_NAMES.get(kind, kind.__name__) for kind in self.kinds)

    def operand(self, value: object) -> rx.Expr:
        """Convert `value` to an expression of a kind that this parameter takes, if possible."""
        if isinstance(value, rx.Expr):
            return value
        if rx.ShapeStructInfo in self.kinds and isinstance(value, (list, tuple)):
            return rx.ShapeExpr(tuple(value))
        scalar = isinstance(value, (bool, int, float, np.number, np.bool_))
        if isinstance(value, np.ndarray) or (scalar and self.kinds == (rx.TensorStructInfo,)):
            return rx.const(value)
        return rx.convert_to_expr(value)

    def placeholder(self) -> rx.Expr:
        """Unit, which keeps the position of this operand in a call that omits it.

        Errors:
            MisuseError (also TypeError): the operand is required, or unit is a value of it.
        """
        if self.required:
            raise MisuseError(f"{self.name} is {self.expected()}, found None")
        if self._takes_unit:
            raise MisuseError(
                f"{self.name} cannot be omitted before a later operand: it takes tuples, "
                "so an empty tuple in its position would be its value"
            )
        return rx.Tuple(())

    def is_absent(self, sinfo: rx.StructInfo | None) -> bool:
        """Return whether a value of this struct info keeps the position of an omitted operand."""
        if not isinstance(sinfo, rx.TupleStructInfo) or sinfo.fields:
            return False
        return not (self.required or self.variadic or self._takes_unit)

    @property
    def _takes_unit(self) -> bool:
        return any(issubclass(rx.TupleStructInfo, kind) for kind in self.kinds)

    def attribute(self, value: object) -> object:
        """`value` converted to the attribute's type.

        Errors:
            MisuseError (also TypeError): it has another type.
        """
        if type(value) in self.choices:
            return None if _is_open(value) and type(None) in self.choices else value
        number = number_literal(value)
        for choice in self.choices:
            if choice is DataType and isinstance(value, (str, type, np.dtype)):
                dtype = _datatype(value)
                return None if _is_open(dtype) and type(None) in self.choices else dtype
            if isinstance(value, str) and choice in _FROM_TEXT:
                return _FROM_TEXT[choice](value)
            if choice is int and (integer := integer_literal(_plain(value))) is not None:
                return integer
            if choice is bool and _is_truth_value(number):
                return bool(number)
            if choice is float and isinstance(number, (int, float, np.integer, np.floating)):
                return float(number)
            if get_origin(choice) is tuple:
                members = _as_members(value, get_args(choice)[0])
                if members is not None:
                    return members
                continue
            if choice not in (int, float, DataType) and _is_instance(value, choice):
                return value
        names = list(map(_name_of, self.choices))
        names = [n for n in names if f"{n}{_OR_MORE}" not in names]
        raise unexpected(value, f"{self.name} is {' or '.join(names)}")


def _is_open(value: object) -> bool:
    """True if a datatype is unknown, which as an optional attribute means that it is missing."""
    return isinstance(value, DataType) and value.is_void


def _plain(value: object) -> object:
    """The scalar that a prim value is, also as a variable whose value is known; else `value`."""
    if isinstance(value, rx.PrimValue):
        return value.value
    sinfo = value.struct_info if isinstance(value, rx.Var) else None
    return (
        sinfo.value if isinstance(sinfo, rx.PrimStructInfo) and sinfo.value is not None else value
    )


def number_literal(value: object) -> object:
    """The number that a literal is, as `R.prim_value(1)` and `T.float32(0.5)`; else `value`."""
    literal = _plain(value)
    return literal.value if isinstance(literal, (tir.IntImm, tir.FloatImm)) else value


def _is_truth_value(number: object) -> bool:
    """Return whether a number is a Boolean, or the integer 0 or 1, which stands for one."""
    return isinstance(number, (bool, np.bool_, int, np.integer)) and number in (0, 1)


def integer_literal(value: object) -> int | None:
    """The integer that a number or a literal expression is; None for anything else."""
    if isinstance(value, tir.PrimExpr):
        return value.value if isinstance(value, tir.IntImm) and not value.dtype.is_bool else None
    is_int = isinstance(value, (int, np.integer)) and type(value) is not bool
    return int(value) if is_int else None  # type: ignore[call-overload]


def _is_instance(value: object, choice: object) -> bool:
    origin = get_origin(choice)
    if origin is typing.Literal:
        return value in get_args(choice)
    kind = origin or choice
    if kind in (list, Sequence):
        return isinstance(value, (list, tuple))
    return not isinstance(kind, type) or isinstance(value, kind)


def _datatype(value: str | type | np.dtype[np.generic]) -> DataType:
    try:
        return DataType(value)
    except MisuseError as error:
        error.about = value
        raise


_OR_MORE = " or a list of them"


def _name_of(choice: object) -> str:
    """The name of an attribute type in messages."""
    if choice is type(None):
        return "None"
    if get_origin(choice) is tuple:
        return f"{_name_of(get_args(choice)[0])}{_OR_MORE}"
    if get_origin(choice) is typing.Literal:
        return " or ".join(map(repr, get_args(choice)))
    return str(getattr(choice, "__name__", choice))


def _as_members(value: object, member: object) -> tuple[object, ...] | None:
    """The members of a list, or a single value, if all are of type `member`."""
    if type(value) is tuple and all(type(v) is member for v in value):
        return value
    values = value if isinstance(value, (list, tuple)) else (value,)
    if member is float:
        values = [number_literal(v) for v in values]
    if member is int:
        values = [v if (number := integer_literal(v)) is None else number for v in values]
    if any(isinstance(v, bool) or not _is_instance(v, member) for v in values):
        return None
    return tuple(values)
