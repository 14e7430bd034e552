"""Joins neighbouring runs over the same loops, which then run in turn in each iteration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from relaxpy.dataclass import replace
from relaxpy.exec.kernel.plan.dependence import meets_itself
from relaxpy.exec.kernel.plan.statements import Assignment
from relaxpy.exec.kernel.plan.tree import Plan, Run, Tree
from relaxpy.exec.native.maths import LONG
from relaxpy.exec.native.trees.product import product_of
from relaxpy.exec.native.trees.repeated import repeated_loads
from relaxpy.ir.arith.algebra.affine import as_poly
from relaxpy.ir.core.traverse import occurrences
from relaxpy.ir.op import Op
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import Call, Var
from relaxpy.ir.tir.substitution import substitute


def fused(trees: Iterable[Tree], plan: Plan) -> Iterator[Tree]:
    """The trees, with neighbouring runs joined where each iteration only meets its own elements."""
    last: Tree | None = None
    users: _Users = {}
    for tree in trees:
        both = None
        if isinstance(last, Run) and isinstance(tree, Run):
            both = _joined(last, tree, plan, users)
        if both is None:
            users = {}
            if last is not None:
                yield last
        last = both or tree
    if last is not None:
        yield last


_Users: TypeAlias = dict[Buffer, dict[object, Assignment]]
"""The statements of a run by the memory that they use, one for each set of elements."""


def _enter(users: _Users, statements: Iterable[Assignment], plan: Plan) -> None:
    for s in statements:
        elements = tuple(s.elements())
        axes = tuple((a.var, a.start, a.stop) for a in s.axes)
        key = s.target, s.indices, axes, bool(s.guards), elements
        for root in {plan.root(buffer) for buffer, _ in elements}:
            users.setdefault(root, {}).setdefault(key, s)


def _joined(first: Run, second: Run, plan: Plan, users: _Users) -> Run | None:
    """One run of both, or None if that changes a result, or if one is a product of matrices.

    `users` are those of `first`, or empty, and then those of both.
    """
    if first.is_scalar or second.is_scalar:
        return None
    if len(first.loops) != len(second.loops) or len(first.tests) != len(second.tests):
        return None
    if not all(a is b for a, b in zip(first.tests, second.tests, strict=True)):
        return None
    reduces = bool(second.over)
    first = _in_order_of(second, first)
    if first.over and reduces and len(first.axes) != len(second.axes):
        return None
    pairs = list(zip(first.loops, second.loops, strict=True))
    renamed = {b.var: a.var for a, b in pairs if a.var is not b.var}
    if any(a.var.dtype != b.var.dtype for a, b in pairs):
        return None
    if not all(
        as_poly(x).same(as_poly(substitute(y, renamed)))
        for a, b in pairs
        for x, y in ((a.start, b.start), (a.stop, b.stop))
    ):
        return None
    later = [s.substituted(renamed) for s in second.assignments]
    if not users:
        _enter(users, first.assignments, plan)
    for other in later:
        roots = {plan.root(buffer) for buffer, _ in other.elements()}
        for one in {s for root in roots for s in users.get(root, {}).values()}:
            if not meets_itself(one, other, first.loops, plan.shape_vars, plan.shared):
                return None
            if _is_optional(one, other, plan) or _is_optional(other, one, plan):
                return None
    if any(product_of(r) or repeated_loads(r, plan) for r in (first, second)):
        return None
    # Processors look ahead a limited number of instructions: with several functions one after the
    # other these would be of one vector, which wait for each other.
    if _has_functions(second) and _has_functions(first):
        return None
    count = len(second.axes if reduces else first.axes)
    axes, over = first.loops[:count], first.loops[count:]
    independent = first.independent & {renamed.get(v, v) for v in second.independent}
    statements = (*first.statements, *later)
    _enter(users, later, plan)
    return Run(statements, axes, over, tests=first.tests, independent=independent)


def _in_order_of(second: Run, first: Run) -> Run:
    """`first` with its axes in the order in which `second` meets the elements that it stores.

    Functions of maths remain apart: several of them in each iteration need too many registers.
    """
    if first.over or first.is_serial or not second.over:
        return first
    if any(True for m in first.assignments for _ in occurrences(m.value, Call)):
        return first
    axes = {a.var: a for a in first.axes}
    for member in first.assignments:
        for buffer, indices in (e for m in second.assignments for e in m.read_elements()):
            if buffer is not member.target:
                continue
            pairs = zip(indices, member.indices, strict=True)
            found = {a: axes[b] for a, b in pairs if isinstance(b, Var) and b in axes}
            order = tuple(found[a.var] for a in second.loops if a.var in found)
            if len({a.var for a in order}) == len(axes):
                return replace(first, axes=order)
    return first


def _has_functions(run: Run) -> bool:
    """Whether an iteration computes functions of many instructions."""
    calls = (n for m in run.assignments for n in occurrences(m.value, Call))
    return any(isinstance(n.op, Op) and n.op.name.removeprefix("tir.") in LONG for n in calls)


def _is_optional(writer: Assignment, other: Assignment, plan: Plan) -> bool:
    """Whether `other` uses what `writer` only stores in some iterations."""
    written = plan.root(writer.target)
    return bool(writer.guards) and any(plan.root(b) is written for b, _ in other.elements())
