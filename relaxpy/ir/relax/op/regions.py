"""Operators on regions of images: ROI pooling and alignment, and non-maximum suppression."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from relaxpy.ir.core.dtype import INT32, INT64, VOID
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.op.definition import rules
from relaxpy.ir.relax.op.definition.parameter import integer_literal
from relaxpy.ir.relax.op.definition.registry import R, register
from relaxpy.ir.te.topi.regions import averaged, averaged_gradients, maxima, maxima_gradient
from relaxpy.ir.te.topi.suppression import suppressed
from relaxpy.ir.tir import ops

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder


def _require_images(
    data: rx.TensorStructInfo, rois: rx.TensorStructInfo, pooled_size: tuple[int, ...]
) -> tuple[int, int]:
    """The rows and columns of the bins.

    Errors:
        StructInfoError: an operand has another rank, datatype or shape, or bins are not two numbers
            of at least 1.
    """
    for name, sinfo, ndim in (("data", data, 4), ("rois", rois, 2)):
        rules.require_float(sinfo, name)
        if sinfo.ndim not in (-1, ndim):
            raise rules.refuse(f"{name} has rank {ndim}, found {sinfo}", sinfo)
    shape = rules.literal_shape(rois)
    if shape is not None and rules.differ(shape[1], ops.const(5, INT64)):
        raise rules.refuse(
            f"a region is five numbers, those of the image and of the borders; found {rois}", rois
        )
    if len(pooled_size) not in (1, 2) or min(pooled_size) < 1:
        raise rules.refuse(
            f"pooled_size is one number of at least 1, or two, found {list(pooled_size)}", data
        )
    return pooled_size[0], pooled_size[-1]


def _pooled(
    data: rx.TensorStructInfo, rois: rx.TensorStructInfo, bins: tuple[int, int], channels_at: int
) -> rx.TensorStructInfo:
    images, boxes = rules.literal_shape(data), rules.literal_shape(rois)
    vdevice = rules.joint_vdevice((data, rois), strict=False)
    if images is None or boxes is None:
        return rules.tensor(None, data.dtype, vdevice, 4)
    sizes = [boxes[0], *(ops.const(n, INT64) for n in bins)]
    sizes.insert(channels_at, images[channels_at])
    return rules.tensor(tuple(sizes), data.dtype, vdevice)


def _operands(
    builder: BlockBuilder, call: rx.Call, order: list[int] | None, *results: rx.Expr
) -> list[Any]:
    """Images with channels first, as results are, and regions, in at least 32 bits."""
    data, rois = call.args
    sinfo: Any = builder.struct_info_of(data)
    wide = "float64" if str(sinfo.dtype) == "float64" else "float32"
    images = [*results, data]
    if order is not None:
        images = [builder.emit(R.permute_dims(image, order)) for image in images]
    return [builder.emit(R.astype(x, wide)) for x in (*images, rois)]


def _legalize_align(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
    attrs: Any = call.attrs
    last = attrs["layout"] == "NHWC"
    size = attrs["pooled_size"]
    found: Any = builder.emit_te(
        averaged,
        *_operands(builder, call, [0, 3, 1, 2] if last else None),
        attrs["spatial_scale"],
        (size[0], size[-1]),
        attrs["sample_ratio"],
        least=None if attrs["aligned"] else 1.0,
        greatest="values" if attrs["mode"] == "max" else "",
        primfunc_name_hint="roi_align",
    )
    if last:
        found = builder.emit(R.permute_dims(found, [0, 2, 3, 1]))
    return _as_operand(builder, call, 0, found)


def _as_operand(builder: BlockBuilder, call: rx.Call, place: int, found: rx.Expr) -> rx.Expr:
    """The result in the datatype of an operand."""
    sinfo: Any = builder.struct_info_of(call.args[place])
    result: rx.Expr = R.astype(found, sinfo.dtype)
    return result


def _gradient_align(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    attrs: Any = call.attrs
    last = attrs["layout"] == "NHWC"
    both: Any = builder.emit_te(
        averaged_gradients,
        *_operands(builder, call, [0, 3, 1, 2] if last else None, gradient),
        attrs["spatial_scale"],
        attrs["sample_ratio"],
        least=None if attrs["aligned"] else 1.0,
        greatest=attrs["mode"] == "max",
        primfunc_name_hint="roi_align_backward",
    )
    by_data, by_rois = (builder.emit(rx.TupleGetItem(both, k)) for k in (0, 1))
    if last:
        by_data = builder.emit(R.permute_dims(by_data, [0, 2, 3, 1]))
    return [_as_operand(builder, call, k, x) for k, x in enumerate((by_data, by_rois))]


@register("relax.vision.roi_align", pure=True, legalize=_legalize_align, gradient=_gradient_align)
def roi_align(
    data: rx.TensorStructInfo,
    rois: rx.TensorStructInfo,
    pooled_size: tuple[int, ...],
    spatial_scale: float,
    sample_ratio: int = -1,
    aligned: bool = False,
    layout: Literal["NCHW", "NHWC"] = "NCHW",
    mode: Literal["avg", "max"] = "avg",
) -> rx.TensorStructInfo:
    """ROI align: the mean or maximum of interpolated values in each bin of regions.

    A region is divided into `pooled_size` bins. Each has `sample_ratio` points along both axes, or
    as many as it has rows and columns, rounded up, if that is not above 0. The value at a point is
    interpolated bilinearly; points more than a pixel outside are 0. Unless `aligned`, a region has
    at least one row and one column.

    Shapes:
        data    in `layout`, floats
        rois    (n, 5), floats: the image, and the left, upper, right and lower border, which are
                multiplied by `spatial_scale`
        result  (n, channels, rows, columns), or channels last as data
    Errors:
        StructInfoError: an operand has another rank, datatype or shape, or bins are not one or two
            numbers of at least 1.
    Source:
        Mask R-CNN (He et al., 2017), as TVM computes it.
    """
    bins = _require_images(data, rois, pooled_size)
    return _pooled(data, rois, bins, layout.index("C"))


def _maxima(builder: BlockBuilder, call: rx.Call, operands: list[Any]) -> Any:
    size: Any = call.attrs["pooled_size"]
    scale = call.attrs["spatial_scale"]
    bins = (scale, size[0], size[-1])
    return builder.emit_te(maxima, *operands, *bins, primfunc_name_hint="roi_pool")


def _legalize_pool(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
    both = _maxima(builder, call, _operands(builder, call, None))
    return _as_operand(builder, call, 0, builder.emit(rx.TupleGetItem(both, 0)))


def _gradient_pool(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    result, *operands = _operands(builder, call, None, gradient)
    places = builder.emit(rx.TupleGetItem(_maxima(builder, call, operands), 1))
    by_data: Any = builder.emit_te(
        maxima_gradient, result, places, *operands, primfunc_name_hint="roi_pool_backward"
    )
    return [_as_operand(builder, call, 0, by_data), R.grad.no_grad(call.args[1])]


@register("relax.vision.roi_pool", pure=True, legalize=_legalize_pool, gradient=_gradient_pool)
def roi_pool(
    data: rx.TensorStructInfo,
    rois: rx.TensorStructInfo,
    pooled_size: tuple[int, ...],
    spatial_scale: float,
    layout: Literal["NCHW"] = "NCHW",
) -> rx.TensorStructInfo:
    """ROI pooling: the maximum of each bin of regions, or 0 where a bin has no pixels.

    Borders are rounded to pixels, and belong to the region.

    Shapes:
        data    (batch, channels, height, width), floats
        rois    (n, 5), floats, as for `roi_align`
        result  (n, channels, rows, columns)
    Errors:
        StructInfoError: as for `roi_align`.
    Source:
        Fast R-CNN (Girshick, 2015); ONNX, MaxRoiPool.
    """
    return _pooled(data, rois, _require_images(data, rois, pooled_size), layout.index("C"))


def _legalize_suppression(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
    attrs: Any = {str(name): call.attrs[name] for name in call.attrs}
    hint = {"primfunc_name_hint": "non_max_suppression"}
    found: Any = builder.emit_te(suppressed, *call.args, **attrs, **hint)
    boxes, *rest = (builder.emit(rx.TupleGetItem(found, k)) for k in range(3))
    if not attrs["return_indices"]:
        return boxes
    return rx.Tuple((boxes, *rest) if attrs["soft_nms_sigma"] > 0 else tuple(rest))


@register("relax.vision.non_max_suppression", pure=True, legalize=_legalize_suppression)
def non_max_suppression(
    data: rx.TensorStructInfo,
    valid_count: rx.TensorStructInfo,
    indices: rx.TensorStructInfo,
    max_output_size: int = -1,
    iou_threshold: float = 0.5,
    force_suppress: bool = False,
    top_k: int = -1,
    coord_start: int = 2,
    score_index: int = 1,
    id_index: int = 0,
    return_indices: bool = True,
    invalid_to_bottom: bool = False,
    soft_nms_sigma: float = 0.0,
    score_threshold: float = 0.0,
) -> rx.StructInfo:
    """Non-maximum suppression: the boxes of each image, best first, without overlapping ones.

    The first `valid_count` boxes are considered, of these the `top_k` best if that is above 0, and
    `max_output_size` remain at most if that is. Boxes overlap too much if the ratio of the areas of
    their intersection and their union is at least `iou_threshold`, and they are of the same class,
    `id_index` is -1, or `force_suppress`. If `soft_nms_sigma` is above 0, the scores of others that
    overlap decay by exp(-ratio ** 2 / (2 * soft_nms_sigma)), the best one is chosen anew each time,
    and boxes remain whose score is above `score_threshold`.

    Shapes:
        data         (batch, n, fields), floats: four coordinates of opposite corners from
                     `coord_start` on, a score and a class
        valid_count  (batch,), int32
        indices      (batch, n), int32: what the positions in data stand for
        result       with `return_indices` the tuple of (batch, n), those that remain and then -1,
                     and (batch, 1), how many, in int32; as data before these if scores decay.
                     Otherwise as data: rows that do not remain are -1, and last with
                     `invalid_to_bottom`
    Errors:
        StructInfoError: an operand has another rank, datatype or shape, or an index is not that of
            a field.
    Source:
        TVM; Soft-NMS (Bodla et al., 2017).
    """
    rules.require_float(data, "data")
    for name, sinfo, ndim in (
        ("data", data, 3),
        ("valid_count", valid_count, 1),
        ("indices", indices, 2),
    ):
        if sinfo.ndim not in (-1, ndim):
            raise rules.refuse(f"{name} has rank {ndim}, found {sinfo}", sinfo)
        if sinfo is not data and sinfo.dtype not in (INT32, VOID):
            raise rules.refuse(f"{name} is int32, found {sinfo}", sinfo)
    shape = rules.literal_shape(data)
    fields = None if shape is None else integer_literal(shape[2])
    for name, index, least, width in (
        ("score_index", score_index, 0, 1),
        ("id_index", id_index, -1, 1),
        ("coord_start", coord_start, 0, 4),
    ):
        if index < least or (fields is not None and index + width > fields):
            raise rules.refuse(
                f"{name} is at least {least} and that of a field, found {index} for {data}", data
            )
    for name, sinfo in (("valid_count", valid_count), ("indices", indices)):
        sizes = rules.literal_shape(sinfo)
        if shape is not None and sizes is not None and any(map(rules.differ, sizes, shape)):
            raise rules.refuse(f"{name} has the sizes of data, {data}, found {sinfo}", sinfo)
    if not return_indices:
        return data
    vdevice = rules.joint_vdevice((data, valid_count, indices), strict=False)
    listed = rules.tensor(None if shape is None else shape[:2], INT32, vdevice, 2)
    one = None if shape is None else (shape[0], ops.const(1, INT64))
    total = rules.tensor(one, INT32, vdevice, 2)
    return rx.TupleStructInfo((*([data] if soft_nms_sigma > 0 else []), listed, total))
