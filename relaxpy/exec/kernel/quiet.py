"""Which kernels could make NumPy warn where the program just goes on."""

from __future__ import annotations

from collections.abc import Iterable

from relaxpy.exec.kernel.nest import every, expressions, outside_calls
from relaxpy.exec.kernel.parts import Group, Part, Statement
from relaxpy.exec.kernel.plan import (
    Contract,
    Plan,
    Reduce,
    Scalar,
    Scatter,
    Step,
    flat,
    parts_in,
)
from relaxpy.ir.node import Node
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
    if isinstance(step, Scatter) and step.update is not None:
        # So do minima and maxima where places may repeat, which report NaN.
        return True
    sources = [e for part in parts_in(step) for e in _sources(part)]
    if isinstance(step, (Reduce, Contract)) and step.initial is not None:
        sources.append(step.initial)
    return any(_operation_reports(node) for source in sources for node in walk(source))


def _sources(part: Part) -> Iterable[PrimExpr]:
    match part:
        case Statement(indices=indices, value=value, guards=guards):
            return (*indices, value, *guards)
        case Group(items=items):
            return (e for item in every(items) for e in expressions(item))


def _operation_reports(node: Node) -> bool:
    match node:
        case Add(a=a) | Sub(a=a) | Mul(a=a):
            return a.dtype.is_float
        case Min(a=a) | Max(a=a) | CmpExpr(a=a):
            # Of these only the small floats' loops report NaN.
            return a.dtype.is_float and a.dtype.bits < 32
        case Div() | Mod() | FloorDiv() | FloorMod() | Call():
            return True
        case Cast(value=value, dtype=dtype):
            return value.dtype.is_float or (dtype.is_float and dtype.bits < 32)
        case _:
            return False
