"""Result shapes, inverses and equality of index maps, by iterator map detection."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.errors import MisuseError
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.arith.tvm.iter_map import detected_map, inverse_affine_iter_map, values_of_marks
from relaxpy.ir.arith.tvm.iter_reader import IterMapLevel, IterSumExpr
from relaxpy.ir.core.dtype import BOOL, INT64
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.expr import ExprLike, IntImm, PrimExpr, Var
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.substitution import substitute


def shape_of(
    index_map: IndexMap, shape: Sequence[ExprLike | Range], analyzer: Analyzer | None = None
) -> list[PrimExpr]:
    """The shape that contains all final indices of an array with this shape.

    Errors:
        MisuseError: the rank differs, or an index is not bounded.
    """
    iters = index_map.iters(shape)
    empty = {var: Var(var.name, var.dtype) for var, dom in iters.items() if _is_empty(dom)}
    if empty:  # a variable stands for the extent 0, which is substituted at the end
        domains = [
            Range.from_min_extent(dom.min, empty.get(var, dom.extent)) for var, dom in iters.items()
        ]
        none = {size: ops.const(0, size.dtype) for size in empty.values()}
        sizes = shape_of(index_map, domains, analyzer)
        return [Analyzer().simplify(substitute(size, none)) for size in sizes]
    detected = detected_map(
        index_map.final_indices, iters, True, IterMapLevel.Surjective, False, analyzer
    )
    analyzer = analyzer or Analyzer()
    if not detected.errors:
        return [analyzer.simplify(stop_of(index)) for index in detected.indices]
    sizes = []
    for index in index_map.final_indices:
        covered = analyzer.int_set(index, iters)
        if not covered.has_upper_bound():
            raise MisuseError(f"the index `{index}` has no bound", about=shape)
        sizes.append(analyzer.simplify(covered.max_value + 1))
    return sizes


def inverse_of(
    index_map: IndexMap,
    shape: Sequence[ExprLike | Range],
    analyzer: Analyzer | None,
    *,
    padded: bool,
) -> tuple[IndexMap, PrimExpr]:
    """The inverse map, and the predicate over its indices that is true on padding.

    Errors:
        MisuseError: the map is not injective, or it is not surjective and `padded` is false.
    """
    level = IterMapLevel.Surjective if padded else IterMapLevel.Bijective
    iters = index_map.iters(shape)
    detected = detected_map(index_map.final_indices, iters, True, level, False, analyzer)
    if detected.errors:
        raise MisuseError(f"{index_map} cannot be inverted: {detected.errors[0]}", about=shape)
    dtype = index_map.final_indices[0].dtype if index_map.final_indices else INT64
    names = [f"axis{k}" for k in range(len(index_map.final_indices))]
    outputs = tuple(
        Var(i.name if isinstance(i, Var) and i.name not in names else name, dtype)
        for i, name in zip(index_map.final_indices, names, strict=True)
    )
    values = inverse_affine_iter_map(detected.indices, outputs)
    analyzer = analyzer.clone() if analyzer else Analyzer()
    final = tuple(analyzer.simplify(values.get(var, domain.min)) for var, domain in iters.items())
    for output, index in zip(outputs, detected.indices, strict=True):
        analyzer.bind(output, Range(minimum_of(index), stop_of(index)))
    if padded and not detected.one_to_one:
        raise MisuseError(f"{index_map} cannot be inverted: it loses indices", about=shape)
    marks = values_of_marks(detected.indices, outputs)
    conditions = [
        side for p in detected.padded for side in p.sides(marks[p.mark], analyzer.simplify)
    ]
    padding = ops.any_of(*conditions) if conditions else ops.const(False, BOOL)
    return IndexMap(outputs, final), padding


def are_equal(
    first: Sequence[PrimExpr], second: Sequence[PrimExpr], analyzer: Analyzer | None
) -> bool:
    """True if all indices are provably equal."""
    return all(map((analyzer or Analyzer()).can_prove_equal, first, second))


def _is_empty(domain: Range) -> bool:
    return isinstance(domain.extent, IntImm) and not domain.extent.value


def minimum_of(index: IterSumExpr) -> PrimExpr:
    """The minimum of a detected index."""
    least: PrimExpr = index.base
    for arg in index.args:
        if isinstance(arg.scale, IntImm) and arg.scale.value < 0:
            least = least + arg.scale * ops.sub(arg.extent, 1)
    return least


def stop_of(index: IterSumExpr) -> PrimExpr:
    """One more than the maximum of a detected index."""
    greatest: PrimExpr = index.base
    for arg in index.args:
        if not (isinstance(arg.scale, IntImm) and arg.scale.value < 0):
            greatest = greatest + ops.mul(arg.scale, ops.sub(arg.extent, 1))
    return greatest + 1
