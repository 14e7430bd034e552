"""What must hold for a kernel to run natively, and is not proved.

That are indices inside their dimensions, divisors other than zero, and assertions. They are tested
before the first write, or, if they depend on what the kernel itself computes, before the statement
that needs them. Where one fails, the kernel of NumPy runs instead, which reports the error.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from relaxpy.dataclass import dataclass, replace
from relaxpy.exec.kernel.nest.bounds import obliged, obliging, unproved
from relaxpy.exec.kernel.nest.domain import conjuncts
from relaxpy.exec.kernel.nest.nodes import (
    Axis,
    Bind,
    Branch,
    Check,
    Item,
    Jump,
    Loop,
    Store,
    WhileLoop,
    expressions,
    loads,
    walk_items,
)
from relaxpy.exec.kernel.plan.statements import Assignment, Compound, Statement
from relaxpy.exec.kernel.plan.tree import For, Plan, Run, Tile, Tree
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, walk
from relaxpy.ir.op import Op
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import And, Call, Or, PrimExpr, Select, Var
from relaxpy.ir.tir.substitution import mentions, substitute


@dataclass(frozen=True, slots=True, eq=False)
class Obligation:
    """In each iteration of `axes` where all of `path` holds: 0 <= `index` < `size`.

    Without a size, `index` is a divisor, which is not zero, or an assertion, which holds.
    """

    axes: tuple[Axis, ...]
    path: tuple[PrimExpr, ...]
    index: PrimExpr
    size: PrimExpr | None

    def reads(self) -> Iterator[Buffer]:
        """The buffers that a test of the obligation reads."""
        bounds = (bound for axis in self.axes for bound in (axis.start, axis.stop))
        sizes = () if self.size is None else (self.size,)
        for expr in (*bounds, *self.path, self.index, *sizes):
            yield from (load.buffer for load in loads(expr))


@dataclass(frozen=True, slots=True, eq=False)
class Obligations:
    """The obligations that can be tested first, and for each tree those that it has to test."""

    early: tuple[Obligation, ...]
    late: Mapping[Tree, tuple[Obligation, ...]]


def obligations(plan: Plan, written: Container[Buffer]) -> Obligations:
    """The obligations of a plan; `written` are what the kernel writes, and its own buffers."""
    buffers = [*plan.func.buffer_map.values(), *(entry.buffer for entry in plan.nest.local)]
    shapes = [size for buffer in buffers for size in buffer.shape]
    early = [o for size in shapes for o in of_value(size, (), (), plan.shape_vars)]
    late: dict[Tree, tuple[Obligation, ...]] = {}
    for tree, own in _of_trees(plan.trees, (), plan.shape_vars):
        known = [] if _may_jump(tree) else [_early(o, written) for o in own]
        if own and (not known or any(o is None for o in known)):
            late[tree] = _once(replace(o, axes=_needed(o.axes, (o.index, *o.path))) for o in own)
        else:
            early += [o for o in known if o is not None]
    return Obligations(_once(early), late)


def _once(obligations: Iterable[Obligation]) -> tuple[Obligation, ...]:
    """The obligations that differ."""
    return tuple({(_loops(o), o.path, o.index, o.size): o for o in obligations}.values())


def _loops(obligation: Obligation) -> tuple[object, ...]:
    return tuple((a.var, a.start, a.stop) for a in obligation.axes)


def _needed(axes: Sequence[Axis], exprs: Iterable[PrimExpr]) -> tuple[Axis, ...]:
    """The axes on which expressions depend, or the bounds of such axes.

    A test in these alone also fails where the others have no iteration, which NumPy decides.
    """
    needed: list[Axis] = []
    uses = [*exprs]
    for axis in reversed(axes):
        if any(mentions(use, {axis.var}) for use in uses):
            needed.insert(0, axis)
            uses += (axis.start, axis.stop)
    return tuple(needed)


def _may_jump(tree: Tree) -> bool:
    """Whether an iteration of a tree may skip others, so that nothing is tested for these."""
    match tree:
        case Run(statement=Compound(items=items)):
            return any(isinstance(item, Jump) for item in walk_items(items))
        case _:
            return False


def _early(obligation: Obligation, written: Container[Buffer]) -> Obligation | None:
    """The obligation without conditions on what the kernel computes, in the loops that matter.

    It is None if the obligation itself depends on what the kernel computes.
    """

    def is_known(expr: PrimExpr) -> bool:
        return not any(load.buffer in written for load in loads(expr))

    if not is_known(obligation.index):
        return None
    path = tuple(filter(is_known, obligation.path))
    needed = _needed(obligation.axes, (obligation.index, *path))
    bounds = [bound for axis in needed for bound in (axis.start, axis.stop)]
    if not all(map(is_known, bounds)):
        return None
    variables = {axis.var for axis in needed}
    unknown = {axis.var for axis in obligation.axes} - variables
    path = tuple(test for test in path if not mentions(test, unknown))
    return Obligation(needed, path, obligation.index, obligation.size)


def _of_trees(
    trees: Iterable[Tree], outer: tuple[Axis, ...], shape_vars: Container[Var]
) -> Iterator[tuple[Tree, list[Obligation]]]:
    for tree in trees:
        match tree:
            case For(axis=axis, body=body):
                bounds = (axis.start, axis.stop)
                yield tree, [o for e in bounds for o in of_value(e, outer, (), shape_vars)]
                yield from _of_trees(body, (*outer, axis), shape_vars)
            case Tile(body=body):
                yield from _of_trees(body, outer, shape_vars)
            case Run(statement=statement):
                yield tree, list(_of_statement(statement, outer, shape_vars))
            case _:
                pass


def _of_statement(
    statement: Statement, outer: tuple[Axis, ...], shape_vars: Container[Var]
) -> Iterator[Obligation]:
    own, serial = {a.var: a for a in statement.axes}, {a.var for a in outer}
    inner = (a for a in statement.axes if a.var not in serial)
    axes = (*(own.get(a.var, a) for a in outer), *inner)
    match statement:
        case Assignment():
            yield from _of_assignment(statement, axes, shape_vars)
        case Compound(items=items):
            yield from _of_items(items, axes, (), {}, shape_vars)


def _of_assignment(
    statement: Assignment, axes: tuple[Axis, ...], shape_vars: Container[Var]
) -> Iterator[Obligation]:
    for number, axis in enumerate(axes):
        for bound in (axis.start, axis.stop):
            yield from of_value(bound, axes[:number], (), shape_vars)
    path: tuple[PrimExpr, ...] = ()
    for guard in statement.guards:
        yield from of_value(guard, axes, path, shape_vars)
        path = (*path, *conjuncts(guard))
    for expr in (*statement.indices, statement.value):
        yield from of_value(expr, axes, path, shape_vars)
    yield from of_access(statement.target, statement.indices, axes, path, shape_vars)
    if statement.initial is not None:
        yield from of_value(statement.initial, axes, (), shape_vars)


def of_access(
    buffer: Buffer,
    indices: Sequence[PrimExpr],
    axes: tuple[Axis, ...],
    path: tuple[PrimExpr, ...],
    shape_vars: Container[Var],
) -> Iterator[Obligation]:
    """The obligations of an access: each index that is not proved to be inside."""
    for dimension, index in unproved(buffer, indices, axes, shape_vars).items():
        yield Obligation(axes, path, index, buffer.shape[dimension])


def of_value(
    expr: PrimExpr, axes: tuple[Axis, ...], path: tuple[PrimExpr, ...], shape_vars: Container[Var]
) -> Iterator[Obligation]:
    """The obligations of evaluating `expr`, whose choices and conditions evaluate one side."""
    own: dict[Node, tuple[tuple[PrimExpr, PrimExpr | None], ...]] = {
        part: tuple(obliged(part, axes, shape_vars)) for part in obliging(expr)
    }
    if not any(own.values()):
        return
    needing: set[Node] = set()
    for part in walk(expr):
        if own.get(part) or any(child in needing for child in children(part)):
            needing.add(part)
    seen: set[PrimExpr] = set()
    pending: list[tuple[PrimExpr, tuple[PrimExpr, ...]]] = [(expr, path)]
    while pending:
        node, conditions = pending.pop()
        if node not in needing:
            continue
        if not conditions or conditions is path:
            if node in seen:
                continue
            seen.add(node)
        inner: Iterable[tuple[PrimExpr, tuple[PrimExpr, ...]]]
        match node:
            case (
                Select(condition=test, true_value=yes, false_value=no)
                | Call(op=Op(name="tir.if_then_else"), args=(test, yes, no))
            ):
                opposite = ops.logical_not(test)
                inner = (
                    (test, conditions),
                    (yes, (*conditions, *conjuncts(test))),
                    (no, (*conditions, opposite)),
                )
            case And(a=a, b=b):
                inner = ((a, conditions), (b, (*conditions, a)))
            case Or(a=a, b=b):
                inner = ((a, conditions), (b, (*conditions, ops.logical_not(a))))
            case _:
                inner = [(c, conditions) for c in children(node) if isinstance(c, PrimExpr)]
        pending += inner
        for index, size in own.get(node, ()):
            yield Obligation(axes, conditions, index, size)


def _of_items(
    items: Sequence[Item],
    axes: tuple[Axis, ...],
    path: tuple[PrimExpr, ...],
    bound: Mapping[Var, PrimExpr],
    shape_vars: Container[Var],
) -> Iterator[Obligation]:
    bound = dict(bound)
    for item in items:
        for expr in expressions(item):
            yield from of_value(substitute(expr, bound), axes, path, shape_vars)
        match item:
            case Loop(axis=axis, body=body):
                start, stop = (substitute(e, bound) for e in (axis.start, axis.stop))
                inner = (*axes, Axis(axis.var, start, stop))
                yield from _of_items(body, inner, path, bound, shape_vars)
            case Branch(condition=condition, body=body, orelse=orelse):
                test = substitute(condition, bound)
                yes, no = (*path, *conjuncts(test)), (*path, ops.logical_not(test))
                yield from _of_items(body, axes, yes, bound, shape_vars)
                yield from _of_items(orelse, axes, no, bound, shape_vars)
            case WhileLoop(body=body):
                yield from _of_items(body, axes, path, bound, shape_vars)
            case Store(buffer=buffer, indices=indices):
                resolved = [substitute(i, bound) for i in indices]
                yield from of_access(buffer, resolved, axes, path, shape_vars)
            case Bind(var=var, value=value):
                bound[var] = substitute(value, bound)
            case Check(condition=condition):
                yield Obligation(axes, path, substitute(condition, bound), None)
            case _:
                pass
