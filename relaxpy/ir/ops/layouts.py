"""The operator that converts a tensor to another layout."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, cast

from relaxpy.errors import MisuseError, counted
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.ops.definition.gradients import of_operand, require_shape
from relaxpy.ir.ops.definition.registry import R, register
from relaxpy.ir.ops.definition.rules import known_shape, refuse, refuse_type, same, tensor
from relaxpy.ir.relax.known import tensor_of
from relaxpy.ir.relax.nodes import Call, Expr, PrimValue, TensorStructInfo
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.transform import inverse_index_map, transform_layout
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.expr import IntImm, PrimExpr
from relaxpy.support.dataclass import replace

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder


def _take_function(arguments: dict[str, Any]) -> None:
    """Take an index map from a function and a padding from a scalar; [] means no separators."""
    index_map, x = arguments["index_map"], arguments["x"]
    if callable(index_map):
        sinfo = x.struct_info if isinstance(x, Expr) else None
        ndim = sinfo.ndim if isinstance(sinfo, TensorStructInfo) and sinfo.ndim >= 0 else None
        arguments["index_map"] = IndexMap.from_func(index_map, _number_of_indices(index_map, ndim))
    if isinstance(arguments["pad_value"], PrimValue):
        arguments["pad_value"] = arguments["pad_value"].value
    for name in ("axis_separators", "input_axis_separators"):
        arguments[name] = arguments[name] or None


def _number_of_indices(function: Any, ndim: int | None) -> int | None:
    """The rank, if the function has `*args` and so needs it."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    return ndim if any(p.kind is p.VAR_POSITIONAL for p in parameters) else None


def _padding(call: Call, dtype: DataType) -> PrimExpr:
    """The value of the padding."""
    value = cast("PrimExpr | float | None", call.attrs["pad_value"])
    if isinstance(value, PrimExpr):
        return value
    return ops.const(value or 0, dtype)


def of_sizes(index_map: IndexMap) -> IndexMap:
    """The map on indices of the datatype of sizes, so that symbolic sizes are not converted."""
    inverse = index_map.inverse_index_map
    if all(var.dtype == INT64 for var in index_map.initial_indices):
        return index_map
    return IndexMap.from_func(
        lambda *indices: index_map.map_indices(indices),
        len(index_map.initial_indices),
        None if inverse is None else of_sizes(inverse),
    )


def _legalize(builder: BlockBuilder, call: Call) -> Expr:
    [x] = call.args
    index_map = of_sizes(cast("IndexMap", call.attrs["index_map"]))
    if inverse_index_map(index_map, known_shape(builder, x)) is None:
        return call
    sinfo = tensor_of(builder.struct_info_of(x))
    value = _padding(call, sinfo.dtype)
    name = "te_layout_transform"
    if call.attrs["pad_value"] is not None:
        name += "_with_pad"
    if call.attrs["axis_separators"] or call.attrs["input_axis_separators"]:
        name += "_axis_separator"

    def kernel(data: Tensor) -> Tensor:
        return transform_layout(data, index_map, value)

    return builder.call_te(kernel, x, primfunc_name_hint=name)


def _gradient(g: Any, x: Any, y: Any, call: Call) -> Any:
    """The gradient in the layout of the operand, without that of padding."""
    shape = require_shape(x, "layout_transform")
    index_map = of_sizes(cast("IndexMap", call.attrs["index_map"]))
    inverse = inverse_index_map(index_map, shape)
    if inverse is None:
        raise refuse(
            f"the gradient of layout_transform needs the inverse of {index_map}",
            call,
            hint="pass a T.index_map with inverse_index_map",
        )
    back = R.layout_transform(g, replace(inverse, inverse_index_map=index_map))
    back_shape = require_shape(back, "layout_transform")
    padded = [
        a for a, (old, new) in enumerate(zip(shape, back_shape, strict=True)) if not same(old, new)
    ]
    if not padded:
        return back
    starts = [ops.const(0, "int64")] * len(padded)
    return R.strided_slice(back, padded, starts, [shape[a] for a in padded], assume_inbound=True)


def _check_separators(separators: tuple[int, ...] | None, rank: int, name: str) -> None:
    positions = separators or ()
    if list(positions) != sorted({s for s in positions if 0 <= s <= rank}):
        raise refuse(
            f"{name} are ascending positions of {rank} axes at most, found {list(positions)}",
            positions,
        )


@register(
    "relax.layout_transform",
    precision_policy=1,
    pure=True,
    legalize=_legalize,
    gradient=of_operand(_gradient),
    adapt=_take_function,
)
def layout_transform(
    x: TensorStructInfo,
    index_map: IndexMap,
    pad_value: PrimExpr | int | float | None = None,
    axis_separators: tuple[int, ...] | None = None,
    input_axis_separators: tuple[int, ...] | None = None,
) -> TensorStructInfo:
    """The elements of x at the indices that a map returns for theirs; padding is `pad_value`.

    `index_map` is a function from indices, as `lambda i, j: (i, j // 4, j % 4)`, or a T.index_map.
    Axis separators group the axes in memory; elements do not depend on them.

    Shapes:
        x       as many axes as the map takes indices
        result  the smallest shape that contains all indices of the map
    Errors:
        StructInfoError: x has another rank, `pad_value` another datatype, the map is known to map
            two indices to one or its inverse is not found, or separators are not positions.
    """
    rank = len(index_map.initial_indices)
    if 0 <= x.ndim != rank:
        raise refuse(f"index_map takes {counted(rank, 'index', 'indices')}, x is {x}", x)
    _check_padding(x, pad_value)
    _check_separators(axis_separators, len(index_map.final_indices), "axis_separators")
    _check_separators(input_axis_separators, rank, "input_axis_separators")
    shape = x.get_shape()
    if shape is None:
        return tensor(None, x.dtype, x.vdevice, len(index_map.final_indices))
    try:
        sizes = of_sizes(index_map).map_shape(shape)
    except MisuseError as error:
        raise refuse(
            f"index_map has no shape for x {x}: {error.diagnostic.message}", index_map
        ) from None
    if all(isinstance(n, IntImm) for n in shape) and inverse_index_map(index_map, shape) is None:
        raise refuse(
            f"{index_map} loses elements of x {x}, or its inverse is not found",
            index_map,
            hint="for another inverse pass a T.index_map with inverse_index_map",
        )
    return tensor(sizes, x.dtype, x.vdevice)


def _check_padding(x: TensorStructInfo, value: PrimExpr | float | None) -> None:
    if isinstance(value, PrimExpr):
        if value.dtype != x.dtype and not x.dtype.is_void:
            raise refuse_type(f"pad_value has the datatype of x {x}, found {value.dtype}", value)
    elif value is not None and x.dtype.is_int and not float(value).is_integer():
        raise refuse_type(f"pad_value is an integer for x {x}, found {value}", value)
