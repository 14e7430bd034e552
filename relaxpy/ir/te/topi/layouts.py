"""Conversion of tensors to other layouts."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.errors import MisuseError
from relaxpy.ir import arith
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import injective
from relaxpy.ir.te.topi.padding import pad
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.expr import ExprLike, PrimExpr
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.layout import BijectiveLayout

__all__ = ["layout_transform"]


def layout_transform(
    array: Tensor, src_layout: str, dst_layout: str, schedule_rule: str = "None"
) -> Tensor:
    """Convert a tensor to another layout, such as NCHW16c; incomplete blocks are padded with 0.

    `schedule_rule` has no effect.

    Errors:
        MisuseError: a layout does not exist, or the axes of the layouts and of `array` differ.
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
    """The inverse of a map on the indices of a shape; None if it is not known."""
    if index_map.inverse_index_map is not None:
        return index_map.inverse_index_map
    sizes = [tir.IntImm(n.dtype, 1) if ops.is_const(n, 0) else n for n in shape]
    try:
        return index_map.non_surjective_inverse(sizes)[0]
    except MisuseError:
        return None


def transform_layout(
    data: Tensor, index_map: IndexMap, pad_value: ExprLike = 0, name: str = "te_layout_transform"
) -> Tensor:
    """Move each element of data to the index that the map returns; `pad_value` elsewhere.

    Errors:
        MisuseError: the map is not known to be invertible.
    """
    inverse = inverse_index_map(index_map, data.shape)
    if inverse is None:
        raise MisuseError(f"the inverse of {index_map} is not known", about=index_map)
    shape = index_map.map_shape(data.shape)
    fill = ops.cast_to(pad_value, data.dtype)
    if any(ops.is_const(n, 0) for n in data.shape):
        return injective(shape, lambda *i: fill, name)
    data = _with_padding(data, index_map, inverse, shape, fill)

    def element(*index: PrimExpr) -> PrimExpr:
        analyzer = arith.Analyzer()
        for i, size in zip(index, shape, strict=True):
            assert isinstance(i, tir.Var)
            analyzer.bind(i, Range(0, size))
        source = inverse.map_indices(index)
        conditions = []
        for position, size in zip(source, data.shape, strict=True):
            conditions.append(ops.compare(tir.GE, position, ops.const(0, position.dtype)))
            conditions.append(ops.compare(tir.LT, position, size))
        for i, mapped in zip(index, index_map.map_indices(source), strict=True):
            conditions.append(ops.compare(tir.EQ, mapped, i))
        undecided = [c for c in map(analyzer.simplify, conditions) if not _is_true(c)]
        value = data(*source)
        return intrin.if_then_else(ops.all_of(*undecided), value, fill) if undecided else value

    return injective(shape, element, name)


def _with_padding(
    data: Tensor, index_map: IndexMap, inverse: IndexMap, shape: Sequence[PrimExpr], fill: PrimExpr
) -> Tensor:
    """The data with padding up to whole blocks, which the map takes to the same shape.

    Then the elements of the result need no condition, and are those of a transposed view.
    """
    padded_shape = inverse.map_shape(shape)
    same_size = list(map(prove_equal, padded_shape, data.shape))
    if all(same_size) or not all(map(prove_equal, index_map.map_shape(padded_shape), shape)):
        return data
    zero = ops.const(0, "int64")
    widths = [
        zero if same else ops.sub(new, old)
        for same, new, old in zip(same_size, padded_shape, data.shape, strict=True)
    ]
    return pad(data, [zero] * data.ndim, widths, fill)


def _is_true(condition: PrimExpr) -> bool:
    return isinstance(condition, tir.IntImm) and bool(condition.value)
