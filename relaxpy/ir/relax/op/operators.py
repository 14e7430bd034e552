"""Python's operators on Relax expressions, as calls of the operators of Relax."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxpy.errors import MisuseError
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo
from relaxpy.ir.relax.op.binary import BINARY
from relaxpy.ir.relax.op.datatype import astype
from relaxpy.ir.relax.op.definition.registry import OpDef
from relaxpy.ir.relax.op.linear_algebra import matmul
from relaxpy.ir.relax.op.unary import UNARY
from relaxpy.ir.tir.prim_expr import PrimExpr

_BINARY: dict[str, OpDef] = {op_def.record.sign: op_def for op_def in (*BINARY.values(), matmul)}
_BINARY |= {"<<": BINARY["left_shift"], ">>": BINARY["right_shift"]}
_LOGICAL = {"&": "and", "|": "or", "^": "xor", "~": "not"}
#: The meanings of an operator on integers and on Booleans.
_BY_DTYPE = {
    sign: (BINARY[f"bitwise_{name}"], BINARY[f"logical_{name}"])
    for sign, name in _LOGICAL.items()
    if sign != "~"
}


def apply(sign: str, left: object, right: object) -> Any:
    """`left sign right`, one of them being an expression; tuples are joined by `+`.

    Errors:
        MisuseError (also TypeError, ValueError): `%`, whose rounding must be chosen; `&`, `|` or
            `^` of other operands than Booleans, or integers.
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
    if sign in _BY_DTYPE:
        return _BY_DTYPE[sign][_holds_truth(sign, left, right)](left, right)
    return _BINARY[sign](left, right)


def apply_unary(sign: str, operand: rx.Expr) -> rx.Call:
    """`sign operand`, or `abs(operand)`.

    Errors:
        MisuseError (also TypeError, ValueError): `~` of floats or an unknown datatype; `+`.
        StructInfoError: the operator is not defined on the operand.
    """
    match sign:
        case "-":
            return UNARY["negative"](operand)
        case "abs":
            return UNARY["abs"](operand)
        case "~":
            truth = _holds_truth(sign, operand)
            return UNARY["logical_not" if truth else "bitwise_not"](operand)
        case _:
            raise MisuseError(
                f"{sign} is not defined on Relax expressions", hint=f"write {_shown(operand)}"
            )


def _holds_truth(sign: str, *operands: object) -> bool:
    """True if operands are Booleans, where `&` is logical as in NumPy; False for integers."""
    dtypes = [dtype for dtype in map(_dtype, operands) if dtype is not None]
    booleans = [dtype.is_bool for dtype in dtypes]
    if all(dtype.is_int for dtype in dtypes) and (all(booleans) or not any(booleans)):
        return bool(booleans) and booleans[0]
    found = " and ".join("an unknown datatype" if d.is_void else str(d) for d in dtypes)
    args, name = ", ".join(map(_shown, operands)), _LOGICAL[sign]
    raise MisuseError(
        f"{sign} is for Booleans or for integers, found {found}",
        hint=f"write R.logical_{name}({args}), or R.bitwise_{name}({args}) for the bits of "
        "integers",
    )


def _shown(operand: object) -> str:
    """The name or number of an operand, for a hint."""
    return (
        operand.name_hint
        if isinstance(operand, rx.Var)
        else "..."
        if isinstance(operand, rx.Expr)
        else str(operand)
    )


def _dtype(operand: object) -> DataType | None:
    """The datatype of a tensor or scalar; None of a number, which takes that of the other."""
    sinfo = operand.struct_info if isinstance(operand, rx.Expr) else None
    if isinstance(sinfo, (rx.TensorStructInfo, rx.PrimStructInfo, DTensorStructInfo)):
        return sinfo.dtype
    return DataType(operand.dtype) if isinstance(operand, (np.ndarray, PrimExpr)) else None


def _fields(value: object) -> tuple[object, ...] | None:
    """The fields of a tuple, of the program or of Python."""
    if isinstance(value, rx.Tuple):
        return value.fields
    sinfo = value.struct_info if isinstance(value, rx.Expr) else None
    if isinstance(sinfo, rx.TupleStructInfo):
        return tuple(rx.TupleGetItem(value, i) for i in range(len(sinfo.fields)))  # type: ignore[arg-type]
    return tuple(value) if isinstance(value, (list, tuple)) else None


def convert(operand: rx.Expr, dtype: str) -> rx.Expr:
    """The elements of `operand` in another datatype."""
    return astype(operand, dtype)
