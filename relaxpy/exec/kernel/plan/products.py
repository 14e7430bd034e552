"""Matmuls: the axes along which threads may divide them, and the signs of zeros."""

from __future__ import annotations

import math
from collections.abc import Sequence

from relaxpy.exec.kernel.nest.nodes import Axis, loads
from relaxpy.exec.kernel.plan.tree import Contraction, Run
from relaxpy.ir.arith.algebra.affine import IndexPoly, as_poly
from relaxpy.ir.tir.expr import FloatImm, PrimExpr
from relaxpy.ir.tir.substitution import mentions


def is_product(run: Run) -> bool:
    """True if a run is a matmul: several rows of one factor use the same matrix.

    If all factors mention all axes, it is a batch of dot products.
    """
    match run.idiom:
        case Contraction(factors=factors):
            return not all(mentions(f, {a.var}) for f in factors for a in run.axes)
        case _:
            return False


def keeps_negative_zero(run: Run) -> bool:
    """True if -0.0 remains if no product is added; NumPy's sum of no products is 0.0."""
    if not isinstance(run.idiom, Contraction) or run.accumulation is None:
        return False
    match run.accumulation.initial:
        case FloatImm(value=initial):
            return initial == 0 and math.copysign(1, initial) < 0
        case _:
            return run.accumulation.target.dtype.is_float


def batch_axes(run: Run) -> list[Axis]:
    """The batch axes of a matmul, which are in all factors."""
    assert isinstance(run.idiom, Contraction)
    factors = run.idiom.factors
    return [a for a in run.axes if all(mentions(f, {a.var}) for f in factors)]


def divided_axes(run: Run) -> Sequence[Axis]:
    """The axes along which to divide a matmul into blocks, the best first.

    These are batch axes. In a convolution, whose windows are copied (im2col), they are those of the
    images and of their windows, unless the kernels are larger: the copies of a block stay in the
    cache. Other matmuls have none, since BLAS divides them as well.
    """
    assert isinstance(run.idiom, Contraction)
    factors = run.idiom.factors
    if run.idiom.regrouped or len(factors) != 2:
        return ()
    batch = batch_axes(run)
    for windows, kernels in (factors, factors[::-1]):
        inside = [a for a in run.axes if a not in batch and mentions(windows, {a.var})]
        if any(_slides(windows, axis, run.over) for axis in inside):
            outside = [a for a in run.axes if a not in batch and mentions(kernels, {a.var})]
            more = (_size(outside) - _size(inside)).constant
            return batch if more is not None and more > 0 else [*batch, *inside]
    return batch


def _slides(factor: PrimExpr, axis: Axis, over: Sequence[Axis]) -> bool:
    """True if an index of `factor` is the sum of `axis` and an axis of the sum."""
    summed = {a.var for a in over}
    return any(
        mentions(index, {axis.var}) and mentions(index, summed)
        for load in loads(factor)
        for index in load.indices
    )


def _size(axes: Sequence[Axis]) -> IndexPoly:
    """The number of iterations."""
    return math.prod((a.extent for a in axes), start=as_poly(1))
