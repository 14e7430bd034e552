"""Loop fusion: neighbouring runs over the same loops become one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import TypeAlias

from relaxpy.exec.loops.nest.nodes import Axis
from relaxpy.exec.loops.plan.dependence import common_indices, meets_itself
from relaxpy.exec.loops.plan.statements import Assignment
from relaxpy.exec.loops.plan.tree import Plan, Run, Tree
from relaxpy.exec.native.maths.by_name import LONG
from relaxpy.exec.native.trees.lanes import lane_axis, shared_axis
from relaxpy.exec.native.trees.product import product_of
from relaxpy.exec.native.trees.repeated import repeated_loads
from relaxpy.ir.arith.algebra.affine import as_poly
from relaxpy.ir.core.traverse import occurrences
from relaxpy.ir.op import Op
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import Call, IntImm, PrimExpr, Var
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.support.dataclass import replace


def fused(trees: Iterable[Tree], plan: Plan) -> Iterator[Tree]:
    """The trees, with neighbouring runs fused where iterations only depend on themselves."""
    last: Tree | None = None
    users = _Users(plan)
    for tree in trees:
        both = None
        if isinstance(last, Run) and isinstance(tree, Run):
            both = _joined(last, tree, plan, users)
        if both is None:
            users = _Users(plan)
            if last is not None:
                yield last
        last = both or tree
    if last is not None:
        yield last


class _Users:
    """The statements of a run by the elements that they use, one for each set of elements."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.guarded: set[Buffer] = set()
        """The memory that statements with guards store in."""
        self._used: dict[Buffer, _Table] = {}
        self._written: dict[Buffer, _Table] = {}
        self._accumulated: dict[Buffer, _Table] = {}
        """The elements that a reduction accumulates into."""

    @property
    def is_empty(self) -> bool:
        """True if no statement is known yet."""
        return not self._used

    def enter(self, statements: Iterable[Assignment], over: Sequence[Axis]) -> None:
        """Add statements of the run, which reduces `over` some axes."""
        root, reduced = self.plan.root, {axis.var for axis in over}
        for s in statements:
            elements = tuple(s.elements())
            axes = tuple((a.var, a.start, a.stop) for a in s.axes)
            key = s.target, s.indices, axes, elements
            for element in elements:
                self._used.setdefault(root(element[0]), _Table()).enter(element, key, s)
            own = s.target, s.indices
            self._written.setdefault(root(s.target), _Table()).enter(own, key, s)
            if reduced and not any(mentions(index, reduced) for index in s.indices):
                self._accumulated.setdefault(root(s.target), _Table()).enter(own, key, s)
            if s.guards:
                self.guarded.add(root(s.target))

    def may_depend_on(self, other: Assignment, loops: Set[Var]) -> set[Assignment]:
        """The statements with a dependence on another iteration of `other`, or vice versa.

        Neither constant indices nor equal variables of `loops` rule these out.
        """
        root, none = self.plan.root, _Table()
        written = self._used.get(root(other.target), none)
        found = {*written.meeting((other.target, other.indices), loops)}
        for element in other.elements():
            found.update(self._written.get(root(element[0]), none).meeting(element, loops))
        return found

    def some_iterations_share(self, other: Assignment) -> bool:
        """True if one of `other` and the run uses what the other only stores sometimes."""
        root = self.plan.root
        if other.guards and root(other.target) in self._used:
            return True
        return any(root(buffer) in self.guarded for buffer, _ in other.elements())

    def reads_a_sum(self, other: Assignment, loops: Set[Var]) -> bool:
        """True if `other` reads a reduction of the run, which is stored after its loop.

        That is so also for a loop of one iteration, which shares nothing with others.
        """
        none = _Table()
        tables = ((self._accumulated.get(self.plan.root(e[0]), none), e) for e in other.elements())
        return any(True for table, element in tables for _ in table.meeting(element, loops))


_Element: TypeAlias = tuple[Buffer, tuple[PrimExpr, ...]]
_Form: TypeAlias = tuple[tuple[PrimExpr, ...], tuple[bool, ...]]
"""The shape of a buffer and which indices are constants."""
_Constants: TypeAlias = tuple[int | None, ...]
_Statements: TypeAlias = dict[object, Assignment]


class _Table:
    """Statements by the elements of one memory that they use."""

    def __init__(self) -> None:
        self._forms: dict[_Form, dict[_Constants, dict[tuple[PrimExpr, ...], _Statements]]] = {}

    def enter(self, element: _Element, key: object, statement: Assignment) -> None:
        """Add a statement that uses an element, unless there is one of this key."""
        form, constants = _constants(element)
        by_indices = self._forms.setdefault(form, {}).setdefault(constants, {})
        by_indices.setdefault(element[1], {}).setdefault(key, statement)

    def meeting(self, element: _Element, loops: Set[Var]) -> Iterator[Assignment]:
        """The statements that may access that element in another iteration."""
        own, constants = _constants(element)
        for form, by_constants in self._forms.items():
            same = [by_constants.get(constants, {})] if form == own else by_constants.values()
            for by_indices in same:
                for indices, statements in by_indices.items():
                    if not loops <= common_indices(indices, element[1]):
                        yield from statements.values()


def _constants(element: _Element) -> tuple[_Form, _Constants]:
    buffer, indices = element
    constants = tuple(i.value if isinstance(i, IntImm) else None for i in indices)
    return (buffer.shape, tuple(c is not None for c in constants)), constants


def _joined(first: Run, second: Run, plan: Plan, users: _Users) -> Run | None:
    """One run of both, or None if that changes a result, or if one is a matmul.

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
    if users.is_empty:
        users.enter(first.assignments, first.over)
    variables = {axis.var for axis in first.loops}
    for other in later:
        if users.some_iterations_share(other) or users.reads_a_sum(other, variables):
            return None
        for one in users.may_depend_on(other, variables):
            if not meets_itself(one, other, first.loops, plan.shape_vars, plan.shared):
                return None
    if any(product_of(r) or repeated_loads(r, plan) for r in (first, second)):
        return None
    # The reorder window of a CPU is limited: several functions in sequence would fill it with
    # dependent instructions of one vector.
    if _has_functions(second) and (_has_functions(first) or _shares(first)):
        return None
    count = len(second.axes if reduces else first.axes)
    axes, over = first.loops[:count], first.loops[count:]
    independent = first.independent & {renamed.get(v, v) for v in second.independent}
    statements = (*first.statements, *later)
    users.enter(later, over)
    return Run(statements, axes, over, tests=first.tests, independent=independent)


def _in_order_of(second: Run, first: Run) -> Run:
    """`first` with its axes in the order in which `second` accesses the elements that it stores.

    Mathematical functions are not fused: several of them in an iteration need too many registers.
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
    """True if an iteration computes functions of many instructions."""
    calls = (n for m in run.assignments for n in occurrences(m.value, Call))
    return any(isinstance(n.op, Op) and n.op.name.removeprefix("tir.") in LONG for n in calls)


def _shares(run: Run) -> bool:
    """True if iterations are unrolled and jammed, as they read the same elements."""
    along = lane_axis(run)
    return along is not None and shared_axis(run, along) is not None
