"""Symbolic bounds of indices over the iterations of loops, and proofs that follow from them."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from relaxpy.exec.loops.nest.nodes import Axis
from relaxpy.ir.arith.algebra.affine import Affine, IndexPoly, affine, as_poly
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import occurrences
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import Div, FloorDiv, FloorMod, IntImm, Max, Min, Mod, PrimExpr, Var
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.ops import may_divide_by_zero


def bounds_of(
    f: Affine, axes: Sequence[Axis], shape_vars: Container[Var]
) -> tuple[IndexPoly, IndexPoly] | None:
    """The minimum and maximum of `f` over all iterations, or None if a sign is unknown.

    Bounds that depend on outer axes are substituted outward, so the result contains no axis.
    """
    if not f.coefficients:
        return f.offset, f.offset
    loops = {a.var for a in axes}
    if not loops.issuperset(f.coefficients):
        return None
    low = high = f
    for axis in reversed(axes):
        if axis.var not in low.coefficients and axis.var not in high.coefficients:
            continue
        ends = (
            _eliminated(low, axis, loops, shape_vars, upper=False),
            _eliminated(high, axis, loops, shape_vars, upper=True),
        )
        if ends[0] is None or ends[1] is None:
            return None
        low, high = ends[0], ends[1]
    return low.offset, high.offset


def bounds_of_axis(
    axis: Axis, axes: Sequence[Axis], shape_vars: Container[Var]
) -> tuple[IndexPoly, IndexPoly] | None:
    """The minimum and maximum of one of `axes` over all iterations of the enclosing loops."""
    start, stop = as_poly(axis.start), as_poly(axis.stop)
    if start.constant is not None and stop.constant is not None:
        return start, stop - 1
    return bounds_of(Affine({axis.var: as_poly(1)}, as_poly(0)), axes, shape_vars)


def is_inside(
    index: PrimExpr, size: PrimExpr | IndexPoly, axes: Sequence[Axis], shape_vars: Container[Var]
) -> bool:
    """True if `index` is provably in a dimension of `size` in every iteration of `axes`."""
    for axis in axes:
        if axis.var is index and isinstance(axis.start, IntImm) and axis.start.value >= 0:
            if as_poly(axis.stop).same(as_poly(size)):
                return True
            break
    match index:
        case IntImm(value=number) if isinstance(size, IntImm):
            return 0 <= number < size.value
        case FloorDiv(a=a, b=IntImm(value=divisor)) if divisor > 0:
            return is_inside(a, as_poly(size) * divisor, axes, shape_vars)
        case FloorMod(b=IntImm(value=divisor)) if divisor > 0:
            return as_poly(size).is_at_least(divisor, shape_vars)
        case Min() | Max():
            return _is_clamped(index, size, axes, shape_vars)
        case _:
            pass
    index_map = affine(index, {a.var for a in axes})
    return index_map is not None and is_affine_inside(index_map, size, axes, shape_vars)


def _is_clamped(
    index: PrimExpr, size: PrimExpr | IndexPoly, axes: Sequence[Axis], shape_vars: Container[Var]
) -> bool:
    """The same as `is_inside`, for the minimum or the maximum of indices that may be outside."""

    def bounded(expr: PrimExpr, *, above: bool) -> bool:
        if isinstance(expr, (Min, Max)):
            decide = any if isinstance(expr, Min) == above else all
            return decide(bounded(operand, above=above) for operand in (expr.a, expr.b))
        index_map = affine(expr, {a.var for a in axes})
        ends = None if index_map is None else bounds_of(index_map, axes, shape_vars)
        if ends is None:
            return False
        if above:
            return as_poly(size).exceeds(ends[1], 1, shape_vars)
        return ends[0].is_at_least(0, shape_vars)

    return bounded(index, above=False) and bounded(index, above=True)


def is_range_inside(
    domain: Range, size: PrimExpr, axes: Sequence[Axis], shape_vars: Container[Var]
) -> bool:
    """True if `domain` is provably in a dimension of `size` in every iteration of `axes`."""
    loops = {a.var for a in axes}
    found = []
    for value in (domain.min, domain.extent, domain.stop):
        form = affine(value, loops)
        bounds = None if form is None else bounds_of(form, axes, shape_vars)
        if bounds is None:
            return False
        found.append(bounds)
    (first, _), (extent, _), (_, stop) = found
    starts = first.is_at_least(0, shape_vars) and extent.is_at_least(0, shape_vars)
    return starts and as_poly(size).exceeds(stop, 0, shape_vars)


def unproved(
    buffer: Buffer, indices: Sequence[PrimExpr], axes: Sequence[Axis], shape_vars: Container[Var]
) -> dict[int, PrimExpr]:
    """The indices that are not provably in bounds in all iterations, by their dimensions."""
    return {
        dimension: index
        for dimension, (index, size) in enumerate(zip(indices, buffer.shape, strict=True))
        if not is_inside(index, size, axes, shape_vars)
    }


def obliged(
    node: Node, axes: Sequence[Axis], shape_vars: Container[Var]
) -> Iterator[tuple[PrimExpr, int]]:
    """The unproved obligations of `node` itself, without those of its operands.

    They are the indices of a load with their dimensions, or a divisor, which must not be zero.
    """
    if isinstance(node, BufferLoad):
        for dimension, index in unproved(node.buffer, node.indices, axes, shape_vars).items():
            yield index, dimension
    elif may_divide_by_zero(node):
        is_signed = node.b.dtype.family == "int"
        if not (is_signed and as_poly(node.b).is_at_least(1, shape_vars)):
            yield node.b, 0


def obliging(expr: PrimExpr) -> Iterator[PrimExpr]:
    """The nodes in `expr` for which `obliged` may have a result."""
    return occurrences(expr, BufferLoad, *_DIVISIONS)


def may_fail(expr: PrimExpr, axes: Sequence[Axis], shape_vars: Container[Var]) -> bool:
    """True if a load in `expr` may be out of bounds, or an integer divisor may be zero."""
    return any(True for node in obliging(expr) for _ in obliged(node, axes, shape_vars))


def keeps_divisions(expr: PrimExpr, result: PrimExpr, axes: Sequence[Axis] = ()) -> bool:
    """True if `result`, equal to `expr`, still fails where `expr` divides by zero.

    While a loop in `axes` runs, neither its extent nor a factor of its extent is zero.
    """
    lost = {node.b for node in occurrences(expr, *_DIVISIONS) if may_divide_by_zero(node)}
    if lost:
        lost -= {node.b for node in occurrences(result, *_DIVISIONS) if may_divide_by_zero(node)}
    if not lost:
        return True
    extents = [axis.extent for axis in axes]
    factors = {atom for extent in extents if len(extent.terms) == 1 for atom in extent.atoms()}
    return all(
        any(as_poly(divisor).same(extent) for extent in extents)
        or (len(as_poly(divisor).terms) == 1 and factors.issuperset(as_poly(divisor).atoms()))
        for divisor in lost
    )


_DIVISIONS = (Div, Mod, FloorDiv, FloorMod)


def is_affine_inside(
    index: Affine, size: PrimExpr | IndexPoly, axes: Sequence[Axis], shape_vars: Container[Var]
) -> bool:
    """The same as `is_inside`, for an affine map."""
    bounds = bounds_of(index, axes, shape_vars)
    if bounds is None:
        return False
    low, high = bounds
    return low.is_at_least(0, shape_vars) and as_poly(size).exceeds(high, 1, shape_vars)


def _eliminated(
    index: Affine, axis: Axis, loops: set[Var], shape_vars: Container[Var], *, upper: bool
) -> Affine | None:
    """The upper (or lower) bound of `index` over `axis`, or None if a sign is unknown."""
    factor = index.coefficients.get(axis.var)
    if factor is None:
        return index
    rising = factor.is_at_least(0, shape_vars)
    if not rising and not (factor * -1).is_at_least(0, shape_vars):
        return None
    end = as_poly(axis.stop) - 1 if rising == upper else as_poly(axis.start)
    bound = Affine({}, end) if end.constant is not None else affine(end, loops)
    if bound is None:
        return None
    others = {var: c for var, c in index.coefficients.items() if var is not axis.var}
    offset = index.offset + factor * bound.offset if bound.offset.terms else index.offset
    result = Affine(others, offset)
    if not bound.coefficients:
        return result
    return affine(result.poly() + factor * (bound.poly() - bound.offset), loops)


def is_injective(f: Affine, axes: Sequence[Axis], shape_vars: Container[Var]) -> bool:
    """True if the map provably takes no value twice, as the digits of a number do not."""
    width = as_poly(0)
    ordered = sorted(f.coefficients.items(), key=lambda item: _weight(item[1]))
    for var, factor in ordered:
        if not factor.exceeds(width, 1, shape_vars):
            return False
        ends = bounds_of_axis(next(a for a in axes if a.var is var), axes, shape_vars)
        if ends is None:
            return False
        width = width + factor * (ends[1] - ends[0])
    return True


def _weight(factor: IndexPoly) -> tuple[int, int]:
    constant = factor.constant
    return max(map(len, factor.terms), default=0), constant if constant is not None else 0


def is_one_to_one(maps: Sequence[Affine], axes: Sequence[Axis], shape_vars: Container[Var]) -> bool:
    """True if different iterations of the axes in `maps` provably have different indices."""
    unknown = {v for m in maps for v in m.coefficients}
    while unknown:
        determined: set[Var] = set()
        for m in maps:
            terms = {v: c for v, c in m.coefficients.items() if v in unknown}
            alone = len(terms) == 1 and next(iter(terms.values())).constant is not None
            if alone or (terms and is_injective(Affine(terms, as_poly(0)), axes, shape_vars)):
                determined |= set(terms)
        if not determined:
            return False
        unknown -= determined
    return True
