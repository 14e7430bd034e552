"""Which kernels may cause warnings of NumPy about values that are correct."""

from __future__ import annotations

from collections.abc import Container

from relaxpy.exec.kernel.nest.nodes import expressions, external_calls, loads, walk_items
from relaxpy.exec.kernel.plan.statements import Assignment, expressions_of
from relaxpy.exec.kernel.plan.tree import Plan, Run, runs
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
    """Whether an operation of the plan may overflow, divide or convert with a warning."""
    return any(map(_reports, runs(plan.trees)))


def calls_external(plan: Plan) -> bool:
    """Whether the kernel calls external functions, which see NumPy's settings."""
    return any(
        True for i in walk_items(plan.nest.items) for e in expressions(i) for _ in external_calls(e)
    )


def _reports(run: Run) -> bool:
    statement = run.statement
    if not run.loops:
        # NumPy warns of scalar integers that wrap, too.
        return True
    sources = [*expressions_of(statement)]
    if isinstance(statement, Assignment) and statement.update is not None:
        if run.ordered and run.idiom is None:
            # `ufunc.at` of minima and maxima warns of NaN.
            return True
        # An operand that is subtracted has been negated.
        sources.append(statement.update.operand)
    variables = {a.var for a in run.loops}
    return any(_operation_reports(node, variables) for source in sources for node in walk(source))


def _operation_reports(node: Node, variables: Container[Var]) -> bool:
    match node:
        case Add(a=a) | Sub(a=a) | Mul(a=a):
            # An expression that is invariant in the loops is computed as a scalar.
            return a.dtype.is_float or (not mentions(node, variables) and _may_wrap(node))
        case Min(a=a) | Max(a=a) | CmpExpr(a=a):
            # Among these only the ufuncs of small floats warn of NaN.
            return a.dtype.is_float and a.dtype.bits < 32
        case Div() | Mod() | FloorDiv() | FloorMod() | Call():
            return True
        case Cast(value=value, dtype=dtype):
            return value.dtype.is_float or (dtype.is_float and dtype.bits < 32)
        case _:
            return False


def _may_wrap(node: Add | Sub | Mul) -> bool:
    """Whether the integer `node` may overflow. Sums of shape dimensions and indices do not."""
    dtype = node.a.dtype
    narrow = dtype.family == "uint" or dtype.bits < (64 if isinstance(node, Mul) else 32)
    large = 1 << (dtype.bits - 2)
    return (
        narrow
        or any(
            isinstance(operand, IntImm) and abs(operand.value) >= large for operand in walk(node)
        )
        or any(True for _ in loads(node))
    )
