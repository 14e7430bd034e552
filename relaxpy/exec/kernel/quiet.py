"""Which kernels could make NumPy warn where the program just goes on."""

from __future__ import annotations

from relaxpy.exec.kernel.nest import every, expressions, outside_calls
from relaxpy.exec.kernel.parts import Statement
from relaxpy.exec.kernel.plan import Plan, Scalar, Step, flat, parts_in
from relaxpy.ir.tir.expr import (
    Add,
    Call,
    Cast,
    CmpExpr,
    Div,
    FloorDiv,
    FloorMod,
    Max,
    Min,
    Mod,
    Mul,
    PrimExpr,
    Sub,
)
from relaxpy.ir.traverse import walk


def may_warn(plan: Plan) -> bool:
    """Whether anything in the plan overflows, divides or converts in a way that NumPy reports."""
    return any(_reports(step) for step in flat(plan.steps))


def calls_out(plan: Plan) -> bool:
    """Whether functions outside the kernel are called, which see NumPy's settings."""
    return any(
        True for i in every(plan.nest.items) for e in expressions(i) for _ in outside_calls(e)
    )


def _reports(step: Step) -> bool:
    if isinstance(step, Scalar):
        # Scalars report integers that wrap, too.
        return True
    for part in parts_in(step):
        if not isinstance(part, Statement):
            continue
        for node in walk(part.value):
            if isinstance(node, PrimExpr) and _operation_reports(node):
                return True
    return False


def _operation_reports(node: PrimExpr) -> bool:
    match node:
        case Add(a=a) | Sub(a=a) | Mul(a=a):
            return a.dtype.is_float
        case Min(a=a) | Max(a=a) | CmpExpr(a=a):
            # Of these only the small floats' loops report NaN.
            return a.dtype.is_float and a.dtype.bits < 32
        case Div() | Mod() | FloorDiv() | FloorMod() | Call():
            return True
        case Cast(value=value):
            return value.dtype.is_float
        case _:
            return False
