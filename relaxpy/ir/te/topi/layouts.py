"""Tensors in other layouts."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.errors import MisuseError
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.padding import pad
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.buffer import Range
from relaxpy.ir.tir.expr import ExprLike, PrimExpr
from relaxpy.ir.tir.layout import BijectiveLayout

__all__ = ["layout_transform"]

INJECTIVE = "injective"


def layout_transform(array: Tensor, src_layout: str, dst_layout: str) -> Tensor:
    """The elements of a tensor in another layout, such as NCHW16c; blocks are filled up by 0.

    Errors:
        MisuseError: a layout does not exist, they have other axes, or there are others in `array`.
    """
    layouts = BijectiveLayout(src_layout, dst_layout)
    if len(layouts.src_layout) != array.ndim:
        raise MisuseError(
            f"layout_transform: {src_layout!r} has {len(layouts.src_layout)} axes, the tensor has "
            f"{array.ndim}",
            about=src_layout,
        )
    index = tuple(tir.Var(f"i{k}", "int64") for k in range(array.ndim))
    index_map = IndexMap(index, tuple(layouts.forward_index(index)))
    return transform_layout(array, index_map, name="T_layout_trans")


def inverse_index_map(index_map: IndexMap, shape: Sequence[PrimExpr]) -> IndexMap | None:
    """The inverse of a map on the indices of a shape; None if it has none that can be found."""
    if index_map.inverse_index_map is not None:
        return index_map.inverse_index_map
    sizes = [tir.IntImm(n.dtype, 1) if _is_zero(n) else n for n in shape]
    try:
        return index_map.non_surjective_inverse(sizes)[0]
    except MisuseError:
        return None


def _is_zero(size: PrimExpr) -> bool:
    return isinstance(size, tir.IntImm) and not size.value


def transform_layout(
    data: Tensor, index_map: IndexMap, pad_value: ExprLike = 0, name: str = "te_layout_transform"
) -> Tensor:
    """The elements of data at the indices that the map returns for theirs; `pad_value` elsewhere.

    Errors:
        MisuseError: the map is not known to be invertible.
    """
    inverse = inverse_index_map(index_map, data.shape)
    if inverse is None:
        raise MisuseError(f"the inverse of {index_map} is not found", about=index_map)
    shape = index_map.map_shape(data.shape)
    fill = ops.cast_to(pad_value, data.dtype)
    if any(map(_is_zero, data.shape)):
        empty: Tensor = te.compute(shape, lambda *i: fill, name=name, tag=INJECTIVE)
        return empty
    data = _with_padding(data, index_map, inverse, shape, fill)

    def element(*index: PrimExpr) -> PrimExpr:
        analyzer = Analyzer()
        for i, size in zip(index, shape, strict=True):
            assert isinstance(i, tir.Var)
            analyzer.bind(i, Range(0, size))
        source = inverse.map_indices(index)
        within = []
        for place, size in zip(source, data.shape, strict=True):
            within.append(ops.compare(tir.GE, place, ops.const(0, place.dtype)))
            within.append(ops.compare(tir.LT, place, size))
        for i, again in zip(index, index_map.map_indices(source), strict=True):
            within.append(ops.compare(tir.EQ, again, i))
        open_ones = [c for c in map(analyzer.simplify, within) if not _is_true(c)]
        value = data(*source)
        return intrin.if_then_else(ops.all_of(*open_ones), value, fill) if open_ones else value

    made: Tensor = te.compute(shape, element, name=name, tag=INJECTIVE)
    return made


def _with_padding(
    data: Tensor,
    index_map: IndexMap,
    inverse: IndexMap,
    shape: Sequence[PrimExpr],
    fill: PrimExpr,
) -> Tensor:
    """The data with padding up to whole blocks, which the map takes to the same shape.

    Then the elements of the result need no condition, and are those of a transposed view.
    """
    whole = inverse.map_shape(shape)
    same_size = list(map(prove_equal, whole, data.shape))
    if all(same_size) or not all(map(prove_equal, index_map.map_shape(whole), shape)):
        return data
    zero = ops.const(0, "int64")
    more = [
        zero if same else ops.sub(new, old)
        for same, new, old in zip(same_size, whole, data.shape, strict=True)
    ]
    return pad(data, [zero] * data.ndim, more, fill)


def _is_true(condition: PrimExpr) -> bool:
    return isinstance(condition, tir.IntImm) and bool(condition.value)
