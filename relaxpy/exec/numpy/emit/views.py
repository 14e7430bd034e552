"""Emits affine accesses as views of arrays: slices and transpositions, never copies."""

from __future__ import annotations

import ast
from collections.abc import Container, Sequence

from relaxpy.exec.loops.nest.nodes import Axis
from relaxpy.exec.numpy.emit.scope import KernelScope
from relaxpy.exec.numpy.python_ast import attribute, call, code, item, path
from relaxpy.ir.arith.algebra.affine import Affine, IndexPoly, as_poly
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import Var
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """An array expression over the axes `dims`, in the order of a layout.

    Other axes of the layout after the first of these have dimensions of size 1.
    """

    node: ast.expr
    dims: tuple[Var, ...]


def view(
    scope: KernelScope,
    buffer: Buffer,
    sizes: Sequence[IndexPoly],
    maps: Sequence[Affine],
    layout: Sequence[Axis],
    *,
    whole: bool = False,
    flat: bool = False,
) -> View:
    """The elements of `buffer` at `maps` for all iterations of `layout`, in its order.

    `sizes` are the dimensions of the buffer at run time; a `flat` view has one, the number of
    elements. A `whole` view is a writable array, even if it has no dimension.
    """
    ranges = {a.var: a for a in layout}
    name = path(scope.buffer(buffer))
    if not _is_sliceable(maps, sizes, ranges):
        digits = _split(maps, sizes, ranges)
        if digits is None:
            name = call(attribute(name, "reshape"), -1) if flat else name
            return _strided(scope, name, maps, layout)
        sizes, maps = digits
        name = call(attribute(name, "reshape"), *map(scope.index, sizes))
    elif flat:
        name = call(attribute(name, "reshape"), -1)
    order = [v for m in maps for v in m.coefficients]
    used = [a.var for a in layout if a.var in order]
    indices = [_index(scope, m, size, ranges) for m, size in zip(maps, sizes, strict=True)]
    if order != used:
        node = _subscript(name, indices)
        node = _transposed(node, [order.index(v) for v in used])
        indices = [ast.Slice()] * len(used)
        name = node
        maps = [Affine({v: as_poly(1)}, as_poly(0)) for v in used]
    return View(_subscript(name, _with_new_axes(indices, maps, layout), whole=whole), tuple(used))


def _is_sliceable(
    maps: Sequence[Affine], sizes: Sequence[IndexPoly], ranges: dict[Var, Axis]
) -> bool:
    """True if slices suffice: each axis is in one dimension, with at most one in each."""
    sliced: list[Var] = []
    for m, size in zip(maps, sizes, strict=True):
        if len(m.coefficients) > 1:
            return False
        for var, factor in m.coefficients.items():
            step = factor.constant
            if step is None or (step < 1 and not _reverses(m, step, ranges[var], size)):
                return False
            sliced.append(var)
    return len(set(sliced)) == len(sliced)


def _split(
    maps: Sequence[Affine], sizes: Sequence[IndexPoly], ranges: dict[Var, Axis]
) -> tuple[list[IndexPoly], list[Affine]] | None:
    """The dimensions and maps, where a dimension indexed by several digits is split; or None."""
    dimensions: list[tuple[IndexPoly, Affine]] = []
    for m, size in zip(maps, sizes, strict=True):
        if len(m.coefficients) < 2:
            dimensions.append((size, m))
            continue
        digits = _digits(m, size, ranges)
        if digits is None:
            return None
        dimensions += digits
    new_sizes, new_maps = [s for s, _ in dimensions], [m for _, m in dimensions]
    return (new_sizes, new_maps) if _is_sliceable(new_maps, new_sizes, ranges) else None


def _digits(
    m: Affine, size: IndexPoly, ranges: dict[Var, Axis]
) -> list[tuple[IndexPoly, Affine]] | None:
    """The extent of each axis by decreasing stride; None unless they cover the dimension."""
    remaining = dict(m.coefficients)
    digits: list[tuple[IndexPoly, Affine]] = []
    below = as_poly(1)
    while remaining:
        var = next((v for v, factor in remaining.items() if factor.same(below)), None)
        if var is None or not as_poly(ranges[var].start).same(0):
            return None
        del remaining[var]
        extent = ranges[var].extent
        digits.insert(0, (extent, Affine({var: as_poly(1)}, as_poly(0))))
        below = below * extent
    return digits if m.offset.same(0) and below.same(size) else None


def _reverses(index: Affine, step: int, axis: Axis, size: IndexPoly) -> bool:
    """True if `index` runs backwards through the whole dimension."""
    first = index.offset - as_poly(axis.start)
    return step == -1 and axis.extent.same(size) and first.same(size - 1)


def _index(scope: KernelScope, index: Affine, size: IndexPoly, ranges: dict[Var, Axis]) -> ast.expr:
    if not index.coefficients:
        return scope.index(index.offset)
    [(var, factor)] = index.coefficients.items()
    step = factor.constant
    assert step is not None
    if step < 0:
        return ast.Slice(None, None, code(-1))
    axis = ranges[var]
    start = as_poly(axis.start) * step + index.offset
    stop = as_poly(axis.stop) * step + index.offset
    lower = None if start.same(0) else scope.index(start)
    # The stop of a slice may exceed the dimension.
    upper = None if (stop - size).is_at_least(0, scope.shape_vars) else scope.index(stop)
    return ast.Slice(lower, upper, None if step == 1 else code(step))


def _with_new_axes(
    indices: list[ast.expr], maps: Sequence[Affine], layout: Sequence[Axis]
) -> list[ast.expr]:
    """The indices, with None for each axis of `layout` that is missing after the first."""
    subscripts: list[ast.expr] = []
    order = [a.var for a in layout]
    last: int | None = None
    for index, m in zip(indices, maps, strict=True):
        for var in m.coefficients:
            position = order.index(var)
            if last is not None:
                subscripts += [code(None)] * (position - last - 1)
            last = position
        subscripts.append(index)
    if last is not None:
        subscripts += [code(None)] * (len(order) - last - 1)
    return subscripts


def _subscript(name: ast.expr, indices: Sequence[ast.expr], *, whole: bool = False) -> ast.expr:
    subscripts = list(indices)
    while subscripts and _is_full(subscripts[-1]):
        subscripts.pop()
    scalar = bool(indices) and not any(isinstance(i, ast.Slice) for i in indices)
    if scalar and whole:
        subscripts.append(code(...))
    if not indices and not whole:
        return item(name)
    return item(name, *subscripts) if subscripts else name


def _is_full(index: ast.expr) -> bool:
    return isinstance(index, ast.Slice) and not (index.lower or index.upper or index.step)


def _transposed(node: ast.expr, order: list[int]) -> ast.expr:
    if order == [1, 0]:
        return attribute(node, "T")
    return call(attribute(node, "transpose"), *order)


def _strided(
    scope: KernelScope, name: ast.expr, maps: Sequence[Affine], layout: Sequence[Axis]
) -> View:
    """An arbitrary affine access, as a view with computed strides."""
    used = [a for a in layout if any(a.var in m.coefficients for m in maps)]
    order = [a.var for a in layout]
    offsets = []
    for m in maps:
        offset = m.offset
        for axis in used:
            factor = m.coefficients.get(axis.var)
            if factor is not None:
                offset = offset + factor * as_poly(axis.start)
        offsets.append(scope.index(offset))
    shape = [scope.index(a.extent) for a in used]
    steps = [
        code(tuple(scope.index(m.coefficients.get(a.var, as_poly(0))) for m in maps)) for a in used
    ]
    node: ast.expr = call("rt.strided", name, tuple(offsets), tuple(shape), tuple(steps))
    positions = [order.index(a.var) for a in used]
    if positions and positions != list(range(positions[0], len(order))):
        indices: list[ast.expr] = []
        for position, following in zip(positions, [*positions[1:], len(order)], strict=True):
            indices += [ast.Slice(), *[code(None)] * (following - position - 1)]
        node = _subscript(node, indices)
    return View(node, tuple(a.var for a in used))


def index_range(
    index: Affine, layout: Sequence[Axis], shape_vars: Container[Var]
) -> tuple[IndexPoly, IndexPoly]:
    """The least and the largest value of `index` in all iterations of `layout`."""
    low = high = index.offset
    for axis in layout:
        factor = index.coefficients.get(axis.var)
        if factor is None:
            continue
        ends = factor * as_poly(axis.start), factor * (as_poly(axis.stop) - 1)
        if factor.is_at_least(0, shape_vars):
            least, most = ends
        elif (factor * -1).is_at_least(0, shape_vars):
            most, least = ends
        else:
            both = ends[0].expr(), ends[1].expr()
            least, most = as_poly(ops.minimum(*both)), as_poly(ops.maximum(*both))
        low, high = low + least, high + most
    return low, high
