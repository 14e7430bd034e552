"""Intrinsics of integers: which of them are refused, and what the others compute."""

from __future__ import annotations

from typing import Final, cast

from relaxpy.errors import CompileError
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import occurrences, rewrite
from relaxpy.ir.op import Op
from relaxpy.ir.tir.expr import Call, Cast, PrimExpr
from relaxpy.ir.tir.intrin import BITWISE, UNARY_MATH
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.ir.tir.stmt import Stmt

_OF_INTEGERS: Final = frozenset(Op(f"tir.{n}") for n in (*BITWISE, "popcount", "clz"))
_EXACT: Final = frozenset(
    ("popcount", "clz", "fabs", "floor", "ceil", "round", "nearbyint", "trunc")
)
_OF_FLOATS: Final = frozenset(
    Op(f"tir.{n}") for n in (*UNARY_MATH, "atan2", "hypot", "pow") if n not in _EXACT
)


def check_datatypes(func: PrimFunc, name: str) -> None:
    """Check the elements of the parameters, and the operands of the operations on bits.

    Errors:
        CompileError: the elements are vectors, or an operand is not an integer.
    """
    for buffer in func.buffer_map.values():
        if buffer.dtype.lanes != 1:
            raise CompileError(
                f"{name}: buffer {buffer.name} holds vectors of {buffer.dtype}",
                span=func.span,
                hint="add a dimension for the lanes, and load them by T.Ramp",
            )
    for call in occurrences(func.body, Call):
        if isinstance(call.op, Op) and call.op in _OF_INTEGERS:
            for arg in call.args:
                if not (isinstance(arg, PrimExpr) and arg.dtype.is_int):
                    raise CompileError(
                        f"{name}: {call.op.name} takes integers, found `{arg}`",
                        span=func.span,
                        hint='for the bits of a float write T.reinterpret("int32", x)',
                    )


def with_float_intrinsics(func: PrimFunc) -> PrimFunc:
    """`func`, where functions of floats on integers are computed in float64 and truncated."""
    if not any(map(_is_truncated, occurrences(func.body, Call))):
        return func
    return func.with_body(cast("Stmt", rewrite(func.body, _on_floats)))


def _is_truncated(call: Call) -> bool:
    return call.dtype.is_int and call.op in _OF_FLOATS


def _on_floats(node: Node) -> Node | None:
    if not (isinstance(node, Call) and _is_truncated(node)):
        return None
    wide = DataType(f"float64{node.dtype.vector}")
    return Cast(node.dtype, Call(wide, node.op, [Cast(wide, arg) for arg in node.args]))
