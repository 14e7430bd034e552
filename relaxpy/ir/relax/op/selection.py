"""Legalisations of operators that select elements, for targets that run loops natively."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax.nodes import Call, Expr, TensorStructInfo, TupleGetItem
from relaxpy.ir.relax.op.definition import rules
from relaxpy.ir.relax.op.sorting import FEW
from relaxpy.ir.te.topi.ranked_suppression import suppressed_by_class
from relaxpy.ir.te.topi.selection import selected
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import IntImm

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

_MOST: Final = 128
"""The maximum k for which selection by loops is faster than sorting."""
_SHORT: Final = 16
"""The maximum size for which loops are faster for every k."""
_FIELDS: Final = {"values": 0, "indices": 1}


def _topk(builder: BlockBuilder, call: Call) -> Expr:
    """The kernel that selects a few of many elements; others are a call of the runtime."""
    attrs: Any = call.attrs
    [data], k = call.args, attrs["k"]
    sinfo = builder.struct_info_of(data)
    assert isinstance(sinfo, TensorStructInfo)
    shape = rules.literal_shape(sinfo)
    if shape is None or not _has_key(sinfo.dtype) or not 0 < k <= _MOST:
        return call
    axis = rules.normal_axis(attrs["axis"], len(shape))
    size = shape[axis]
    if not isinstance(size, IntImm) or size.value < k:
        return call
    if _SHORT < size.value < max(FEW * k, k * k // FEW):
        return call
    options = {"largest": attrs["largest"], "dtype": str(attrs["dtype"])}
    operands = data, k, axis
    both = rules.te_kernel(builder, selected, "topk", *operands, **options)
    field = _FIELDS.get(attrs["ret_type"])
    return both if field is None else TupleGetItem(builder.emit(both), field)


def _has_key(dtype: DataType) -> bool:
    """Return whether native code compares elements by integers; it has no floats of a byte."""
    return not dtype.is_float or dtype.bits >= 16


def _suppressed(builder: BlockBuilder, call: Call) -> Expr:
    """The kernel that looks at boxes until enough remain; others are a call of the runtime."""
    shapes = []
    for arg in call.args:
        sinfo = builder.struct_info_of(arg)
        if not isinstance(sinfo, TensorStructInfo) or sinfo.dtype.is_void:
            return call
        shape = rules.literal_shape(sinfo)
        if shape is None:
            return call
        shapes.append(shape)
    boxes, scores, *limits = shapes
    if not all(map(rules.same, boxes, (scores[0], scores[2], ops.const(4, "int64")))):
        return call
    if not all(rules.same(size, rules.one()) for shape in limits for size in shape):
        return call
    by_image = call.attrs["output_format"] == "tensorflow"
    function, name = suppressed_by_class, "non_max_suppression"
    return rules.te_kernel(builder, function, name, *call.args, by_image=by_image)


IN_LOOPS: Final[Mapping[str, Callable[[BlockBuilder, Call], Expr]]] = {
    "relax.topk": _topk,
    "relax.vision.all_class_non_max_suppression": _suppressed,
}
"""The legalisations, by operator."""
