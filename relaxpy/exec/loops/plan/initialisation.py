"""Hoists the inits of blocks out of their reduction loops, or folds them into accumulations.

An init runs in the first iteration of its loops, and also if one of them is empty. Where hoisting
is visible to other items of the loops, it stays, and a copy runs after an empty loop.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import TypeAlias

from relaxpy.exec.loops.nest.bounds import is_one_to_one, may_fail, unproved
from relaxpy.exec.loops.nest.domain import empty_condition, is_implied
from relaxpy.exec.loops.nest.nodes import (
    Alloc,
    Axis,
    Bind,
    Branch,
    Check,
    Item,
    Loop,
    Nest,
    Store,
    WhileLoop,
    expressions,
    external_calls,
    loads,
    passed_memory,
    substituted,
    walk_items,
)
from relaxpy.exec.loops.plan.dependence import aligned_axes
from relaxpy.exec.loops.plan.statements import Assignment
from relaxpy.exec.loops.plan.tree import For, Run, Tree, accesses, written_memory
from relaxpy.ir.arith.algebra.affine import affine
from relaxpy.ir.arith.algebra.folding import conjuncts
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.support.dataclass import dataclass, replace

Step: TypeAlias = Loop | Bind | Alloc | PrimExpr
"""A node that encloses or precedes an init: a loop, a value, memory, or a condition."""


def with_initialisation(nest: Nest, shape_vars: Container[Var], *, may_alias: bool = False) -> Nest:
    """`nest` with inits that are not tied to loops; unless `may_alias`, they are hoisted."""
    if not any(_is_init(item) for item in walk_items(nest.items)):
        return nest
    items = _Initialiser(nest, shape_vars, may_alias=may_alias).items(nest.items)
    return replace(nest, items=items, allows_aliasing=nest.allows_aliasing and may_alias)


def _is_init(item: Item) -> bool:
    return isinstance(item, Branch) and bool(item.init_loops)


@dataclass(frozen=True, slots=True, eq=False)
class _Init:
    """An init inside a loop: `steps` lead from the body of the loop to it."""

    branch: Branch
    steps: tuple[Step, ...]

    def loops(self, outermost: Axis) -> tuple[Axis, ...]:
        """Its reduction loops from `outermost` to the innermost one."""
        own = {axis.var for axis in self.branch.init_loops}
        inner = (step.axis for step in self.steps if isinstance(step, Loop))
        return tuple(axis for axis in (outermost, *inner) if axis.var in own)

    def expressions(self) -> Iterator[PrimExpr]:
        """The conditions that lead to it, and the bounds of loops."""
        for step in self.steps:
            match step:
                case Loop(axis=axis):
                    yield from (axis.start, axis.stop)
                case PrimExpr():
                    yield step
                case _:
                    pass


class _Initialiser:
    def __init__(self, nest: Nest, shape_vars: Container[Var], *, may_alias: bool) -> None:
        self.nest, self.shape_vars, self.may_alias = nest, shape_vars, may_alias
        self._seen: set[Branch] = set()
        """The inits that have been handled."""
        self._moved: set[Branch] = set()

    def items(self, items: Iterable[Item]) -> tuple[Item, ...]:
        """`items` with the inits inside them in their places."""
        return tuple(result for item in items for result in self._item(item))

    def _item(self, item: Item) -> Iterator[Item]:
        match item:
            case Loop():
                yield from self._loop(item)
            case Branch() if item in self._moved:
                pass
            case Branch(condition=condition, body=body, orelse=orelse):
                yield Branch(condition, self.items(body), self.items(orelse))
            case WhileLoop(body=body):
                yield replace(item, body=self.items(body))
            case _:
                yield item

    def _loop(self, loop: Loop) -> Iterator[Item]:
        inits = [i for i in _inits(loop.body, ()) if loop.axis in i.loops(loop.axis)]
        for init in inits:
            if init.branch not in self._seen and self._is_movable(init, loop):
                self._moved.add(init.branch)
                yield from self._copy(init, loop.axis, is_empty=False)
        self._seen |= {init.branch for init in inits}
        yield Loop(loop.axis, self.items(loop.body))
        has_none = empty_condition(loop.axis, self.shape_vars)
        for init in inits:
            if has_none is not None and init.branch not in self._moved:
                copy = self._copy(init, loop.axis, is_empty=True)
                yield Branch(has_none, self.items(copy))

    def _copy(self, init: _Init, outermost: Axis, *, is_empty: bool) -> tuple[Item, ...]:
        """The init in the first iteration of its loops from `outermost`, in the other loops.

        Conditions on an empty loop are not evaluated, nor are bindings that mention it. One loop
        `is_empty` itself. Loops whose iterators start in another iteration, such as
        `T.axis.reduce(n, k - 2)`, are run.
        """
        loops = init.loops(outermost)
        known = {_is_start(axis) for axis in loops}
        own_tests = list(conjuncts(init.branch.condition))
        starts: dict[Var, PrimExpr] = {}
        axes: list[Axis] = []
        for axis in loops:
            first, stop = (substitute(bound, starts) for bound in (axis.start, axis.stop))
            if axis is outermost or _is_start(axis) in own_tests:
                starts[axis.var] = ops.cast_to(first, axis.var.dtype)
            axes.append(replace(axis, start=first, stop=stop))
        others = (test for test in own_tests if test not in known)
        conditions = (step for step in init.steps if isinstance(step, PrimExpr))
        tests = [
            part
            for test in (*others, *conditions)
            for part in self._at_start(test, axes, starts, is_empty=is_empty)
        ]
        items = init.branch.body
        if tests:
            items = (Branch(ops.all_of(*tests), items),)
        for step in reversed(init.steps):
            match step:
                case Loop(axis=axis):
                    if axis.var not in starts:
                        items = self._all_iterations(axis, items, is_reduced=axis in loops)
                case Bind(var=var, value=value):
                    items = substituted(items, {var: value})
                case Alloc():
                    items = (step, *items)
                case _:
                    pass
        return tuple(map(_with_own_variables, substituted(items, starts)))

    def _all_iterations(
        self, axis: Axis, items: tuple[Item, ...], *, is_reduced: bool
    ) -> tuple[Item, ...]:
        """`items` in a loop over `axis`, and once at its start if a reduction is empty."""
        loop = Loop(axis, items)
        has_none = empty_condition(axis, self.shape_vars)
        if not is_reduced or has_none is None:
            return (loop,)
        at_start = substituted(items, {axis.var: ops.cast_to(axis.start, axis.var.dtype)})
        return (loop, Branch(has_none, at_start))

    def _at_start(
        self, test: PrimExpr, axes: list[Axis], starts: Mapping[Var, PrimExpr], *, is_empty: bool
    ) -> Iterator[PrimExpr]:
        """The rest of the condition `test` in the first iteration of the axes in `starts`.

        If one of the `axes` that it mentions is empty, the others are at their starts.
        """
        for part in conjuncts(test):
            mentioned = [axis for axis in axes if mentions(part, {axis.var})]
            if not mentioned:
                yield part
                continue
            others = [_is_start(axis) for axis in mentioned if axis.var not in starts]
            if is_empty and mentioned[0] is axes[0]:
                yield from others
                continue
            at_start = substitute(part, starts)
            stops = may_fail(at_start, mentioned, self.shape_vars)
            if stops or not is_implied(at_start, mentioned, self.shape_vars):
                tests = (empty_condition(axis, self.shape_vars) for axis in mentioned)
                has_none = ops.any_of(False, *(test for test in tests if test is not None))
                if others:
                    at_start = ops.all_of(ops.logical_not(has_none), at_start)
                yield ops.any_of(ops.all_of(has_none, *others), at_start)

    def _is_movable(self, init: _Init, loop: Loop) -> bool:
        """True if hoisting `init` out of `loop` is invisible to its items."""
        branch, loops = init.branch, init.loops(loop.axis)
        own, every = [*walk_items(branch.body)], [*walk_items((loop,))]
        if self.may_alias or len(loops) < len(branch.init_loops) or not all(map(_is_plain, every)):
            return False
        if set(conjuncts(branch.condition)) != set(map(_is_start, branch.init_loops)):
            return False
        if not all(isinstance(i, Loop | Branch | Store) and not _is_init(i) for i in own):
            return False
        used = [*init.expressions(), *(e for i in own for e in expressions(i))]
        if any(mentions(e, {i.var for i in every if isinstance(i, Bind)}) for e in used):
            return False
        targets = self._stored(own)
        before = [*takewhile(lambda item: item is not branch, every)]
        earlier = self._stored(before) | self._loaded(e for i in before for e in expressions(i))
        if not (targets.isdisjoint(earlier) and self._loaded(used).isdisjoint(self._stored(every))):
            return False
        around = [s.axis for s in init.steps if isinstance(s, Loop) and s.axis not in loops]
        return not around or all(
            self._is_own_element(item, buffer, indices, around, {a.var for a in loops})
            for item in own
            for buffer, indices in _accesses(every)
            if isinstance(item, Store) and self.nest.memory(buffer) is self.nest.memory(item.buffer)
        )

    def _stored(self, items: Iterable[Item]) -> set[Buffer]:
        """The memory that `items` themselves store to."""
        return {self.nest.memory(i.buffer) for i in items if isinstance(i, Store)}

    def _loaded(self, exprs: Iterable[PrimExpr]) -> set[Buffer]:
        return {self.nest.memory(load.buffer) for e in exprs for load in loads(e)}

    def _is_own_element(
        self,
        store: Store,
        buffer: Buffer,
        indices: Sequence[PrimExpr],
        around: Sequence[Axis],
        reduced: Container[Var],
    ) -> bool:
        """True if no access is to elements stored by other iterations of loops `around`."""
        if buffer is not store.buffer:
            return False
        variables = {axis.var for axis in around}
        same = (x for x, y in zip(store.indices, indices, strict=True) if x is y)
        fixed = (x for x in same if next(loads(x), None) is None and not mentions(x, reduced))
        maps = [m for x in fixed if (m := affine(x, variables)) is not None]
        found = {var for m in maps for var in m.coefficients}
        return found == variables and is_one_to_one(maps, around, self.shape_vars)


def _inits(items: Sequence[Item], steps: tuple[Step, ...]) -> Iterator[_Init]:
    """The inits in `items`, to which `steps` lead; not those in loops of unknown length."""
    for item in items:
        match item:
            case Branch() if item.init_loops:
                yield _Init(item, steps)
            case Branch(condition=condition, body=body, orelse=orelse):
                yield from _inits(body, (*steps, condition))
                yield from _inits(orelse, (*steps, ops.logical_not(condition)))
            case Loop(body=body):
                yield from _inits(body, (*steps, item))
            case Bind() | Alloc():
                steps = (*steps, item)
            case _:
                pass


def _with_own_variables(item: Item) -> Item:
    """`item` with fresh loop variables."""
    match item:
        case Loop(axis=axis, body=body):
            var = axis.var.renamed(axis.var.name)
            inner = tuple(map(_with_own_variables, body))
            return Loop(replace(axis, var=var), substituted(inner, {axis.var: var}))
        case Branch(body=body, orelse=orelse):
            yes, no = (tuple(map(_with_own_variables, side)) for side in (body, orelse))
            return replace(item, body=yes, orelse=no)
        case WhileLoop(body=body):
            return replace(item, body=tuple(map(_with_own_variables, body)))
        case _:
            return item


def _is_start(axis: Axis) -> PrimExpr:
    return ops.convert(axis.var.equal(axis.start))


def _is_plain(item: Item) -> bool:
    """True if an item has neither jumps nor effects other than stores."""
    called = any(True for e in expressions(item) for _ in (*external_calls(e), *passed_memory(e)))
    return not called and isinstance(item, Loop | Branch | WhileLoop | Store | Bind | Check)


def _accesses(items: Iterable[Item]) -> Iterator[tuple[Buffer, tuple[PrimExpr, ...]]]:
    """The elements that `items` read and store."""
    for item in items:
        if isinstance(item, Store):
            yield item.buffer, item.indices
        for expr in expressions(item):
            yield from ((load.buffer, load.indices) for load in loads(expr))


def fold_initial(
    trees: Sequence[Tree],
    shape_vars: Container[Var],
    roots: Mapping[Buffer, Buffer],
    serial: tuple[Var, ...] = (),
) -> tuple[Tree, ...]:
    """`trees` with each store of an initial value folded into its accumulation.

    `roots` maps buffers to the owners of their memory, and `serial` are the enclosing loops.
    """
    result: list[Tree] = []
    for tree in trees:
        match tree:
            case For(axis=axis, body=body):
                inner = fold_initial(body, shape_vars, roots, (*serial, axis.var))
                tree = replace(tree, body=inner)
            case Run(accumulation=Assignment() as update) if _initialises_all(
                tree, update, shape_vars, roots
            ):
                init = _initial(result, tree, update, roots, serial)
                if init is not None:
                    position, value = init
                    update = replace(update, initial=value)
                    tree = replace(tree, statements=(update,))
                    del result[position]
            case _:
                pass
        result.append(tree)
    return tuple(result)


def _initialises_all(
    run: Run, update: Assignment, shape_vars: Container[Var], roots: Mapping[Buffer, Buffer]
) -> bool:
    """True if an accumulation initialises all elements, also those for which no guard holds.

    Elements of a view, or at unproved indices, may be out of bounds.
    """
    variables = {a.var for a in run.loops}
    return not update.guards or (
        all(mentions(guard, variables) for guard in update.guards)
        and update.target not in roots
        and not unproved(update.target, update.indices, run.loops, shape_vars)
    )


def _initial(
    trees: Sequence[Tree],
    run: Run,
    update: Assignment,
    roots: Mapping[Buffer, Buffer],
    serial: tuple[Var, ...],
) -> tuple[int, PrimExpr] | None:
    """The position in `trees` of the store of the initial value of `update`, and this value."""
    target = update.target
    memory = roots.get(target, target)
    operands = (update.value, *update.guards, *update.indices)
    if any(roots.get(load.buffer, load.buffer) is memory for e in operands for load in loads(e)):
        return None  # it may read an initial value, which may only be in a register
    for position, before in reversed([*enumerate(trees)]):
        if all(roots.get(a.buffer, a.buffer) is not memory for a in accesses(before)):
            continue
        match before:
            case Run(statement=Assignment() as store, over=(), ordered=()):
                pass
            case _:
                return None
        if store.target is not target or store.guards:
            return None
        if not _same_iterations(store, update, serial):
            return None
        renamed = aligned_axes(store.indices, before.axes, update.indices, run.axes)
        written = {memory, *written_memory(trees[position + 1 :], lambda b: roots.get(b, b))}
        read = {roots.get(load.buffer, load.buffer) for load in loads(store.value)}
        if renamed is None or not read.isdisjoint(written):
            return None
        return position, substitute(store.value, renamed)
    return None


def _same_iterations(store: Assignment, update: Assignment, serial: Container[Var]) -> bool:
    """True if both run in the same iterations of the enclosing loops `serial`."""
    axes = {axis.var: axis for axis in update.axes}
    return all(axis.has_bounds_of(axes[axis.var]) for axis in store.axes if axis.var in serial)
