"""Accumulations start from their initial value instead of storing it first."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from relaxpy.exec.kernel.nest.bounds import is_inside
from relaxpy.exec.kernel.nest.domain import nonempty
from relaxpy.exec.kernel.nest.nodes import Axis, loads
from relaxpy.exec.kernel.plan.parts import Statement
from relaxpy.exec.kernel.plan.steps import (
    Contract,
    Map,
    Reduce,
    Scalar,
    Serial,
    Step,
    accesses,
    parts_in,
)
from relaxpy.ir.arith.algebra.affine import Affine, affine, as_poly
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.substitution import mentions, substitute


def fold_initial(
    steps: Sequence[Step],
    sizes: Container[Var],
    roots: Mapping[Buffer, Buffer],
    serial: tuple[Var, ...] = (),
) -> tuple[Step, ...]:
    """`steps` with each store of an initial value drawn into the accumulation that it is for.

    `roots` are the buffers whose memory others are laid over, `serial` the loops around.
    """
    found: list[Step] = []
    for step in steps:
        if isinstance(step, Serial):
            inner = fold_initial(step.steps, sizes, roots, (*serial, step.axis.var))
            found.append(replace(step, steps=inner))
            continue
        if isinstance(step, (Reduce, Contract)) and _takes_all(step, sizes):
            source = _initial(found, step, sizes, roots, serial)
            if source is not None:
                place, value, always = source
                step = replace(step, initial=value, begins_always=always)
                del found[place]
        found.append(step)
    return tuple(found)


def _takes_all(step: Reduce | Contract, sizes: Container[Var]) -> bool:
    """Whether each element takes part, whatever the guards leave over for it to accumulate."""
    statement = step.statement
    axes = (*step.axes, *step.over)
    variables = {a.var for a in axes}
    return not statement.guards or (
        all(mentions(guard, variables) for guard in statement.guards)
        and all(
            is_inside(index, size, axes, sizes)
            for index, size in zip(statement.indices, statement.target.shape, strict=True)
        )
    )


def _initial(
    steps: Sequence[Step],
    step: Reduce | Contract,
    sizes: Container[Var],
    roots: Mapping[Buffer, Buffer],
    serial: tuple[Var, ...],
) -> tuple[int, PrimExpr, bool] | None:
    """The place in `steps` of what only stores the initial value of `step` after them, and it.

    And whether it does so even where the accumulation has no round.
    """
    target = step.statement.target
    memory = roots.get(target, target)
    for place, before in reversed([*enumerate(steps)]):
        if all(roots.get(a.buffer, a.buffer) is not memory for a in accesses(before)):
            continue
        match before:
            case Map(statement=store, axes=axes):
                pass
            case Scalar(part=Statement() as store):
                axes = ()
            case _:
                return None
        always = not store.guards
        if store.target is not target or not (always or _same_guards(store, step, sizes)):
            return None
        if not _same_rounds(store, step.statement, serial):
            return None
        renamed = _same_places(store, axes, step.statement, step.axes)
        between = {w.buffer for s in steps[place + 1 :] for p in parts_in(s) for w in p.writes}
        written = {memory, *(roots.get(b, b) for b in between)}
        if renamed is None or any(
            roots.get(load.buffer, load.buffer) in written for load in loads(store.value)
        ):
            return None
        return place, substitute(store.value, renamed), always
    return None


def _same_rounds(store: Statement, update: Statement, serial: Container[Var]) -> bool:
    """Whether both take part in the same rounds of the loops `serial` around them."""
    own = {axis.var: axis for axis in update.axes}
    return all(_run_alike(axis, own[axis.var]) for axis in store.axes if axis.var in serial)


def _same_guards(store: Statement, step: Reduce | Contract, sizes: Container[Var]) -> bool:
    """Whether the store is performed just where the accumulation has a round."""
    found = (nonempty(axis, sizes) for axis in step.over)
    tests = {test for test in found if test is not None}
    guards = set(store.guards)
    if not tests or not tests <= guards:
        return False
    analyzer = Analyzer()
    with analyzer.constraint_scope(ops.all_of(*tests)):
        return all(analyzer.can_prove(guard) for guard in guards - tests)


def _same_places(
    store: Statement,
    store_axes: Sequence[Axis],
    update: Statement,
    update_axes: Sequence[Axis],
) -> Mapping[Var, PrimExpr] | None:
    """The update's axes for the store's, if both write the same elements."""
    renamed: dict[Var, PrimExpr] = {}
    if len(store_axes) != len(update_axes):
        return None
    for x, y in zip(store.indices, update.indices, strict=True):
        f = affine(x, {a.var for a in store_axes})
        g = affine(y, {a.var for a in update_axes})
        assert f is not None
        assert g is not None
        if not f.offset.same(g.offset):
            return None
        pair = _pair(f, g, store_axes, update_axes)
        if pair is None:
            return None
        for old, new in pair.items():
            if renamed.setdefault(old, new) is not new:
                return None
    return renamed if len(renamed) == len(store_axes) else None


def _pair(
    f: Affine, g: Affine, f_axes: Sequence[Axis], g_axes: Sequence[Axis]
) -> Mapping[Var, PrimExpr] | None:
    """The axis of g for that of f, if there is at most one of each and they run alike."""
    if not f.coefficients and not g.coefficients:
        return {}
    if len(f.coefficients) != 1 or len(g.coefficients) != 1:
        return None
    [(x, p)], [(y, q)] = f.coefficients.items(), g.coefficients.items()
    a = next(axis for axis in f_axes if axis.var is x)
    b = next(axis for axis in g_axes if axis.var is y)
    return {x: ops.cast_to(y, x.dtype)} if _run_alike(a, b) and p.same(q) else None


def _run_alike(a: Axis, b: Axis) -> bool:
    return as_poly(a.start).same(as_poly(b.start)) and as_poly(a.stop).same(as_poly(b.stop))
