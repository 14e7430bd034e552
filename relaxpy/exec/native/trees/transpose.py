"""Tiled transposes: elementwise runs that read along one axis and write along another one."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from relaxpy.exec.loops.nest.buffers import position_of
from relaxpy.exec.loops.nest.nodes import Axis
from relaxpy.exec.loops.plan.tree import Run
from relaxpy.exec.machine.tuning import Vectors
from relaxpy.ir.arith.algebra.affine import IndexPoly, affine, as_poly
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.substitution import mentions
from relaxpy.support.dataclass import dataclass

_SIDES = (16, 8, 4)
"""The sides of the squares that are transposed in registers."""
_LARGEST_BITS = 512


@dataclass(frozen=True, slots=True, eq=False)
class Transpose:
    """The axis `along` which targets are consecutive, and the axis `across` for the `loads`.

    Squares of `side` iterations of both are read, transposed in registers, and written.
    """

    along: Axis
    across: Axis
    loads: tuple[tuple[Buffer, tuple[PrimExpr, ...]], ...]
    side: int


@lru_cache(maxsize=1 << 6)
def transpose_of(run: Run, root: Callable[[Buffer], Buffer]) -> Transpose | None:
    """The transpose of a run; None if it is not one, or if elements must be stored exactly once.

    `root` is the buffer whose memory a buffer uses.
    """
    if run.over or run.after or run.is_scalar or run.is_serial or len(run.axes) < 2:
        return None
    if any(
        m.combine is not None or sum(1 for _ in walk(m.value)) > Vectors.TRANSPOSED_NODES
        for m in run.assignments
    ):
        return None
    own = {a.var for a in run.axes}
    fixed = [a for a in run.axes if not mentions(a.start, own) and not mentions(a.stop, own)]
    stored: dict[tuple[Buffer, tuple[PrimExpr, ...]], None] = {}
    read: dict[tuple[Buffer, tuple[PrimExpr, ...]], None] = {}
    for member in run.assignments:
        read |= dict.fromkeys(access for access in member.read_elements() if access not in stored)
        stored[member.target, member.indices] = None
    along = [a for a in fixed if all(_is_consecutive(*access, a.var) for access in stored)]
    if len(along) != 1 or {root(b) for b, _ in read} & {root(b) for b, _ in stored}:
        return None
    strides = {access: _stride(*access, along[0].var) for access in read}
    loads = tuple(
        access for access, n in strides.items() if n is None or n.constant not in (0, 1, -1)
    )
    across = [a for a in fixed if loads and all(_is_consecutive(*x, a.var, -1) for x in loads)]
    if len(across) != 1 or any(strides[access] is None for access in loads):
        return None
    bits = max(8 * buffer.dtype.itemsize for buffer, _ in (*loads, *stored))
    extents = [a.extent.constant for a in (along[0], across[0])]
    for side in _SIDES:
        if side * bits <= _LARGEST_BITS and all(n is None or n >= side for n in extents):
            return Transpose(along[0], across[0], loads, side)
    return None


def _stride(buffer: Buffer, indices: tuple[PrimExpr, ...], var: Var) -> IndexPoly | None:
    """The stride of consecutive iterations; None if it varies."""
    linear = affine(position_of(buffer, indices), {var})
    return None if linear is None else linear.coefficients.get(var, as_poly(0))


def _is_consecutive(buffer: Buffer, indices: tuple[PrimExpr, ...], var: Var, *others: int) -> bool:
    """True if the stride of consecutive iterations is 1 or one of the others."""
    stride = _stride(buffer, indices, var)
    return stride is not None and stride.constant in (1, *others)
