"""Python's operators on Relax expressions, as calls of the operators of Relax."""

from __future__ import annotations

from typing import Any

from relaxpy.errors import MisuseError
from relaxpy.ir.relax.nodes import Expr, Tuple, TupleGetItem, TupleStructInfo
from relaxpy.ir.relax.op.binary import BINARY
from relaxpy.ir.relax.op.datatype import astype
from relaxpy.ir.relax.op.linear_algebra import matmul
from relaxpy.ir.relax.op.unary import UNARY

_BINARY = {op_def.record.sign: op_def for op_def in (*BINARY.values(), matmul)}


def apply(sign: str, left: object, right: object) -> Any:
    """`left sign right`, one of them being an expression; tuples are joined by `+`.

    Errors:
        MisuseError (also TypeError, ValueError): `%`, whose sign must be chosen.
        StructInfoError: the operands do not fit together.
    """
    if sign == "%":
        raise MisuseError(
            "% leaves the sign of the remainder open",
            hint="use R.floor_mod (as Python's %) or R.mod (as C's)",
        )
    if sign == "+":
        fields = _fields(left), _fields(right)
        if fields[0] is not None and fields[1] is not None:
            return fields[0] + fields[1]
    return _BINARY[sign](left, right)


def _fields(value: object) -> tuple[object, ...] | None:
    """The fields of a tuple, of the program or of Python."""
    if isinstance(value, Tuple):
        return value.fields
    sinfo = value.struct_info if isinstance(value, Expr) else None
    if isinstance(sinfo, TupleStructInfo):
        return tuple(TupleGetItem(value, i) for i in range(len(sinfo.fields)))  # type: ignore[arg-type]
    return tuple(value) if isinstance(value, (list, tuple)) else None


def negative(operand: Expr) -> Expr:
    """-operand."""
    return UNARY["negative"](operand)


def convert(operand: Expr, dtype: str) -> Expr:
    """The elements of `operand` in another datatype."""
    return astype(operand, dtype)
