"""Statements that carry a running value along a loop, `C[i] = op(C[i - 1], e)`."""

from __future__ import annotations

from collections.abc import Container, Mapping

from relaxpy.exec.kernel.nest.bounds import is_one_to_one
from relaxpy.exec.kernel.nest.nodes import Axis, loads
from relaxpy.exec.kernel.plan.parts import Statement
from relaxpy.exec.kernel.plan.steps import Scan
from relaxpy.exec.kernel.plan.updates import update_from
from relaxpy.ir.arith.algebra.affine import Affine, affine
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import Var


def scan_of(
    statement: Statement,
    axes: tuple[Axis, ...],
    sizes: Container[Var],
    roots: Mapping[Buffer, Buffer],
) -> Scan | None:
    """The scan that `statement` is over `axes`, or None; `roots` as in `edges`."""
    target = roots.get(statement.target, statement.target)
    own = {v for v in loads(statement.value) if roots.get(v.buffer, v.buffer) is target}
    if len(own) != 1 or statement.guards or statement.ordered or statement.target.dtype.is_bool:
        return None
    [before] = own
    if before.buffer is not statement.target:
        return None
    update = update_from(statement.value, before)
    axis = _carrier(statement, before, axes)
    if update is None or axis is None or update.combine in ("and", "or"):
        return None
    variables = {a.var for a in axes}
    maps = [affine(i, variables) for i in statement.indices]
    known = [m for m in maps if m is not None]
    if len(known) != len(maps) or not is_one_to_one(known, axes, sizes):
        return None
    if {v for m in known for v in m.coefficients} != variables:
        return None
    return Scan(statement, axes, axis, update, before)


def _carrier(statement: Statement, before: BufferLoad, axes: tuple[Axis, ...]) -> Axis | None:
    """The axis along which `before` is the element stored in the round before."""
    variables = {a.var for a in axes}
    found: Axis | None = None
    for write, read in zip(statement.indices, before.indices, strict=True):
        if write is read:
            continue
        to, of = affine(write, variables), affine(read, variables)
        if to is None or of is None or found is not None or not _one_before(of, to):
            return None
        [var] = to.coefficients
        found = next(a for a in axes if a.var is var)
    if found is None:
        return None
    using = sum(
        m is not None and found.var in m.coefficients
        for m in (affine(i, variables) for i in statement.indices)
    )
    return found if using == 1 else None


def _one_before(of: Affine, to: Affine) -> bool:
    alone = len(to.coefficients) == 1 and all(c.same(1) for c in to.coefficients.values())
    return alone and (to.poly() - of.poly()).same(1)
