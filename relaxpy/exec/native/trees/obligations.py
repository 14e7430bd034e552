"""Run-time checks of unproved obligations: bounds, divisors, assertions.

They are tested before the first write. Conditions on values that the kernel computes are then
unknown: where a test fails, the NumPy kernel runs instead and decides. Obligations that depend on
such values are tested before the statement that needs them; the error is reported by its number
(`values/failures`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from relaxpy.exec.loops.nest import nodes as nest
from relaxpy.exec.loops.nest.bounds import obliged, obliging, unproved
from relaxpy.exec.loops.plan.statements import Assignment, Compound, Statement
from relaxpy.exec.loops.plan.tree import For, Plan, Run, Tile, Tree
from relaxpy.exec.machine.fast_paths import LENIENT_TESTS
from relaxpy.ir.arith.algebra.folding import conjuncts
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, walk
from relaxpy.ir.op import Op
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import LT, And, Call, Or, PrimExpr, Select, Var
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.support.dataclass import dataclass, replace

if TYPE_CHECKING:
    from relaxpy.errors import Span


@dataclass(frozen=True, slots=True, eq=False)
class Obligation:
    """In each iteration of `axes` where all of `path` holds, `index` is in bounds of `buffer`.

    Without a buffer, `index` is a non-zero divisor, or with a `message` an assertion.
    """

    axes: tuple[nest.Axis, ...]
    path: tuple[PrimExpr, ...]
    index: PrimExpr
    buffer: Buffer | None = None
    dimension: int = 0
    message: str | None = None
    span: Span | None = None

    @property
    def size(self) -> PrimExpr | None:
        """The size of the dimension of an index."""
        return None if self.buffer is None else self.buffer.shape[self.dimension]

    def reads(self) -> Iterator[Buffer]:
        """The buffers that a test of the obligation reads."""
        bounds = (bound for axis in self.axes for bound in (axis.start, axis.stop))
        sizes = () if self.size is None else (self.size,)
        for expr in (*bounds, *self.path, self.index, *sizes):
            yield from (load.buffer for load in nest.loads(expr))


@dataclass(frozen=True, slots=True, eq=False)
class Obligations:
    """The obligations that can be hoisted to the start, and those that each tree has to test."""

    early: tuple[Obligation, ...]
    late: Mapping[Tree, tuple[Obligation, ...]]


def obligations(plan: Plan, written: Container[Buffer]) -> Obligations:
    """The obligations of a plan; `written` are the buffers it writes, and local ones."""
    buffers = [*plan.func.buffer_map.values(), *(entry.buffer for entry in plan.nest.local)]
    shapes = [size for buffer in buffers for size in buffer.shape]
    early = [o for size in shapes for o in of_value(size, (), (), plan.shape_vars)]
    late: dict[Tree, tuple[Obligation, ...]] = {}
    for tree, own in _of_trees(plan.trees, (), plan.shape_vars):
        known = [] if _may_jump(tree) else [_early(o, written, plan.shape_vars) for o in own]
        if own and (not known or any(o is None for o in known)):
            late[tree] = _once(_late(o, plan.shape_vars) for o in own)
        else:
            early += [o for o in known if o is not None]
    return Obligations(_once(early), late)


def _once(obligations: Iterable[Obligation]) -> tuple[Obligation, ...]:
    """The distinct obligations, each in its first form."""
    found: dict[object, Obligation] = {}
    for o in obligations:
        found.setdefault((_loops(o), o.path, o.index, o.size), o)
    return tuple(found.values())


def _loops(obligation: Obligation) -> tuple[object, ...]:
    return tuple((a.var, a.start, a.stop) for a in obligation.axes)


def _needed(axes: Sequence[nest.Axis], exprs: Iterable[PrimExpr]) -> tuple[nest.Axis, ...]:
    """The axes on which expressions depend, directly or through bounds.

    A test in these alone may also fail where the others are empty.
    """
    needed: list[nest.Axis] = []
    uses = [*exprs]
    for axis in reversed(axes):
        if any(mentions(use, {axis.var}) for use in uses):
            needed.insert(0, axis)
            uses += (axis.start, axis.stop)
    return tuple(needed)


def _late(obligation: Obligation, shape_vars: Container[Var]) -> Obligation:
    """The obligation in the loops that matter, where all others have an iteration."""
    axes: list[nest.Axis] = []
    path = list(obligation.path)
    for axis in reversed(obligation.axes):
        bounds = (bound for a in axes for bound in (a.start, a.stop))
        if any(mentions(use, {axis.var}) for use in (obligation.index, *path, *bounds)):
            axes.insert(0, axis)
        elif not axis.extent.is_at_least(1, shape_vars):
            path.insert(0, ops.compare(LT, axis.start, axis.stop))
    return replace(obligation, axes=tuple(axes), path=tuple(path))


def _may_jump(tree: Tree) -> bool:
    """True if an iteration of a tree may skip others, for which nothing is tested."""
    match tree:
        case Run(statement=Compound(items=items)):
            return any(isinstance(item, nest.Jump) for item in nest.walk_items(items))
        case _:
            return False


def _early(
    obligation: Obligation, written: Container[Buffer], shape_vars: Container[Var]
) -> Obligation | None:
    """The obligation without conditions on computed values, in the loops that matter.

    None if the obligation itself depends on computed values.
    """

    def is_known(expr: PrimExpr) -> bool:
        return not any(load.buffer in written for load in nest.loads(expr))

    if not LENIENT_TESTS:
        exact = _late(obligation, shape_vars)
        bounds = [bound for axis in exact.axes for bound in (axis.start, axis.stop)]
        return exact if all(map(is_known, (exact.index, *exact.path, *bounds))) else None
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
    return replace(obligation, axes=needed, path=path)


def _of_trees(
    trees: Iterable[Tree], outer: tuple[nest.Axis, ...], shape_vars: Container[Var]
) -> Iterator[tuple[Tree, list[Obligation]]]:
    for tree in trees:
        match tree:
            case For(axis=axis, body=body):
                yield tree, list(_of_bounds(axis, outer, shape_vars))
                yield from _of_trees(body, (*outer, axis), shape_vars)
            case Tile(body=body):
                yield from _of_trees(body, outer, shape_vars)
            case Run(statement=statement, over=over):
                yield tree, list(_of_statement(statement, outer, over, shape_vars))
            case _:
                pass


def _of_statement(
    statement: Statement,
    outer: tuple[nest.Axis, ...],
    over: Sequence[nest.Axis],
    shape_vars: Container[Var],
) -> Iterator[Obligation]:
    own, serial = {a.var: a for a in statement.axes}, {a.var for a in outer}
    inner = (a for a in statement.axes if a.var not in serial)
    axes = (*(own.get(a.var, a) for a in outer), *inner)
    match statement:
        case Assignment():
            summed = {a.var for a in over}
            found = _of_assignment(statement, axes, summed, shape_vars)
            yield from (replace(o, span=o.span or statement.span) for o in found)
        case Compound(items=items):
            yield from _of_items(items, axes, (), {}, shape_vars)


def _of_bounds(
    axis: nest.Axis, outer: tuple[nest.Axis, ...], shape_vars: Container[Var]
) -> Iterator[Obligation]:
    for bound in (axis.start, axis.stop):
        for obligation in of_value(bound, outer, (), shape_vars):
            yield replace(obligation, span=axis.span)


def _of_assignment(
    statement: Assignment,
    axes: tuple[nest.Axis, ...],
    summed: Container[Var],
    shape_vars: Container[Var],
) -> Iterator[Obligation]:
    for number, axis in enumerate(axes):
        yield from _of_bounds(axis, axes[:number], shape_vars)
    path: tuple[PrimExpr, ...] = ()
    for guard in statement.guards:
        yield from of_value(guard, axes, path, shape_vars)
        path = (*path, *conjuncts(guard))
    if statement.combine is None:
        yield from of_value(statement.value, axes, path, shape_vars)
    for expr in statement.indices:
        yield from of_value(expr, axes, path, shape_vars)
    yield from of_access(statement.target, statement.indices, axes, path, shape_vars)
    if statement.combine is not None:
        yield from of_value(statement.value, axes, path, shape_vars)
    if statement.initial is not None:
        elements = tuple(a for a in axes if a.var not in summed)
        yield from of_value(statement.initial, elements, (), shape_vars)


def of_access(
    buffer: Buffer,
    indices: Sequence[PrimExpr],
    axes: tuple[nest.Axis, ...],
    path: tuple[PrimExpr, ...],
    shape_vars: Container[Var],
) -> Iterator[Obligation]:
    """The obligations of an access: each index that is not proved to be in bounds."""
    for dimension, index in unproved(buffer, indices, axes, shape_vars).items():
        yield Obligation(axes, path, index, buffer, dimension)


def of_value(
    expr: PrimExpr,
    axes: tuple[nest.Axis, ...],
    path: tuple[PrimExpr, ...],
    shape_vars: Container[Var],
) -> Iterator[Obligation]:
    """The obligations of evaluating `expr`; selects and conditions evaluate only one side."""
    own: dict[Node, tuple[tuple[PrimExpr, int], ...]] = {
        part: tuple(obliged(part, axes, shape_vars)) for part in obliging(expr)
    }
    if not any(own.values()):
        return
    needing: dict[Node, None] = {}
    for part in walk(expr):
        if own.get(part) or any(child in needing for child in children(part)):
            needing[part] = None
    paths: defaultdict[Node, dict[tuple[PrimExpr, ...], None]] = defaultdict(dict)
    paths[expr][path] = None
    known: dict[Node, tuple[PrimExpr, ...]] = {}
    for node in reversed(needing):  # each after all that use it
        known[node] = conditions = _either(paths[node])
        for operand, more in _evaluated(node):
            paths[operand][*conditions, *more] = None
    for node, conditions in reversed(known.items()):  # in the order of evaluation
        buffer = node.buffer if isinstance(node, BufferLoad) else None
        for index, dimension in own.get(node, ()):
            yield Obligation(axes, conditions, index, buffer, dimension)


def _evaluated(node: Node) -> Iterator[tuple[Node, Iterable[PrimExpr]]]:
    """The operands of a node, and the conditions under which each is evaluated."""
    match node:
        case (
            Select(condition=test, true_value=yes, false_value=no)
            | Call(op=Op(name="tir.if_then_else"), args=(test, yes, no))
        ):
            yield test, ()
            yield yes, conjuncts(test)
            yield no, (ops.logical_not(test),)
        case And(a=a, b=b):
            yield a, ()
            yield b, (a,)
        case Or(a=a, b=b):
            yield a, ()
            yield b, (ops.logical_not(a),)
        case _:
            yield from ((child, ()) for child in children(node))


def _either(paths: Iterable[tuple[PrimExpr, ...]]) -> tuple[PrimExpr, ...]:
    """The conditions that hold where all those of one of `paths` do."""
    first, *others = paths
    pairs = enumerate(zip(first, *others, strict=False))
    shortest = min(map(len, (first, *others)))
    count = next((n for n, tests in pairs if len({*tests}) > 1), shortest)
    if count == shortest:  # one path has no more conditions
        return first[:count]
    tests = dict.fromkeys(reduce(And, path[count:]) for path in paths)
    if any(ops.logical_not(test) in tests for test in tests):
        return first[:count]
    return (*first[:count], reduce(Or, tests))


def _of_items(
    items: Sequence[nest.Item],
    axes: tuple[nest.Axis, ...],
    path: tuple[PrimExpr, ...],
    bound: Mapping[Var, PrimExpr],
    shape_vars: Container[Var],
) -> Iterator[Obligation]:
    bound = dict(bound)
    for item in items:
        span = getattr(item, "span", None)
        for expr in nest.expressions(item):
            for obligation in of_value(substitute(expr, bound), axes, path, shape_vars):
                yield replace(obligation, span=span)
        match item:
            case nest.Loop(axis=axis, body=body):
                start, stop = (substitute(e, bound) for e in (axis.start, axis.stop))
                inner = (*axes, replace(axis, start=start, stop=stop))
                yield from _of_items(body, inner, path, bound, shape_vars)
            case nest.Branch(condition=condition, body=body, orelse=orelse):
                test = substitute(condition, bound)
                yes, no = (*path, *conjuncts(test)), (*path, ops.logical_not(test))
                yield from _of_items(body, axes, yes, bound, shape_vars)
                yield from _of_items(orelse, axes, no, bound, shape_vars)
            case nest.WhileLoop(body=body):
                yield from _of_items(body, axes, path, bound, shape_vars)
            case nest.Store(buffer=buffer, indices=indices):
                resolved = [substitute(i, bound) for i in indices]
                yield from of_access(buffer, resolved, axes, path, shape_vars)
            case nest.Bind(var=var, value=value):
                bound[var] = substitute(value, bound)
            case nest.Check(condition=condition, message=message):
                yield Obligation(axes, path, substitute(condition, bound), message=message)
            case _:
                pass
