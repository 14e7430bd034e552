"""Which kernels could make NumPy warn where the program just goes on."""

from __future__ import annotations

from collections.abc import Container

from relaxpy.exec.kernel.nest.nodes import every, expressions, loads, outside_calls
from relaxpy.exec.kernel.plan.parts import expressions_of
from relaxpy.exec.kernel.plan.steps import (
    Blocked,
    Contract,
    Plan,
    Reduce,
    Scalar,
    Scatter,
    Serial,
    Step,
    flat,
    parts_in,
)
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.tir.expr import (
    Add,
    Call,
    Cast,
    CmpExpr,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mod,
    Mul,
    Sub,
    Var,
)
from relaxpy.ir.tir.substitution import mentions


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
    if isinstance(step, Scatter) and step.update is not None:
        # So do minima and maxima where places may repeat, which report NaN.
        return True
    sources = [e for part in parts_in(step) for e in expressions_of(part)]
    if isinstance(step, (Reduce, Contract)) and step.initial is not None:
        sources.append(step.initial)
    if isinstance(step, Reduce):
        # What is subtracted is negated first.
        sources.append(step.update.operand)
    over = step.over if isinstance(step, (Reduce, Contract)) else ()
    axes = () if isinstance(step, (Serial, Blocked)) else (*step.axes, *over)
    variables = {a.var for a in axes}
    return any(_operation_reports(node, variables) for source in sources for node in walk(source))


def _operation_reports(node: Node, variables: Container[Var]) -> bool:
    match node:
        case Add(a=a) | Sub(a=a) | Mul(a=a):
            # What is the same in all rounds is computed as a scalar.
            return a.dtype.is_float or (not mentions(node, variables) and _may_wrap(node))
        case Min(a=a) | Max(a=a) | CmpExpr(a=a):
            # Of these only the small floats' loops report NaN.
            return a.dtype.is_float and a.dtype.bits < 32
        case Div() | Mod() | FloorDiv() | FloorMod() | Call():
            return True
        case Cast(value=value, dtype=dtype):
            return value.dtype.is_float or (dtype.is_float and dtype.bits < 32)
        case _:
            return False


def _may_wrap(node: Add | Sub | Mul) -> bool:
    """Whether the integer `node` may leave its datatype: unlike sums of sizes, of which it is."""
    dtype = node.a.dtype
    narrow = dtype.family == "uint" or dtype.bits < (64 if isinstance(node, Mul) else 32)
    large = 1 << (dtype.bits - 2)
    return (
        narrow
        or any(isinstance(part, IntImm) and abs(part.value) >= large for part in walk(node))
        or any(True for _ in loads(node))
    )
