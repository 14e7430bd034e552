"""Operators on images and volumes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from relaxpy.errors import MisuseError
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.op_record import OpRecord
from relaxpy.ir.relax.nodes import Call, Expr, ShapeStructInfo, TensorStructInfo, Var
from relaxpy.ir.relax.op.definition.gradients import of_operand, require_shape
from relaxpy.ir.relax.op.definition.layouts import AttributeLayout
from relaxpy.ir.relax.op.definition.parameter import number_literal
from relaxpy.ir.relax.op.definition.registry import R, enter
from relaxpy.ir.relax.op.definition.rules import Legalize, literal_shape, refuse, te_kernel, tensor
from relaxpy.ir.relax.op.grid import affine_grid as affine_grid, grid_sample as grid_sample
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.image import CROP
from relaxpy.ir.tir.expr import IntImm, PrimExpr
from relaxpy.ir.tir.layout import Layout

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

Method: TypeAlias = Literal["nearest_neighbor", "linear", "cubic"]
Coordinates: TypeAlias = Literal[
    "half_pixel",
    "align_corners",
    "asymmetric",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
]
Rounding: TypeAlias = Literal["round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
#: The names of attributes in topi.
_NAMES = {"cubic_alpha": "bicubic_alpha", "cubic_exclude": "bicubic_exclude"}


def _spatial_axes(layout: str, letters: str, data: TensorStructInfo) -> list[int]:
    """The axes of data with these letters in the layout.

    Errors:
        StructInfoError: the layout has other axes than N, C and these, or blocks of one of these;
            or data has another rank.
    """
    example = f"NC{letters}"
    try:
        order = Layout.of(layout).names
    except MisuseError:
        order = ()
    capitals = sorted(axis for axis in order if axis.isupper())
    if capitals != sorted(example) or any(letter.lower() in order for letter in letters):
        raise refuse(f"layout has the axes of {example!r}, found {layout!r}", layout)
    if data.ndim not in (-1, len(order)):
        raise refuse(f"data has rank {len(order)} for layout {layout!r}, found {data}", data)
    return [order.index(letter) for letter in letters]


def _require_region(
    roi: tuple[float, ...] | None, coordinate_transformation_mode: str, count: int
) -> None:
    if roi is not None and len(roi) != 2 * count:
        raise refuse(f"roi is one number or {2 * count}, found {list(roi)}", roi)
    if roi is None and coordinate_transformation_mode == CROP:
        raise refuse(
            f"{CROP!r} needs a region",
            coordinate_transformation_mode,
            hint=f"pass roi=[...] with {count} starts and {count} ends from 0 to 1",
        )


def _complete(count: int) -> Callable[[dict[str, Any]], None]:
    """Repeat a single number for all axes; a region of zeros, as TVM has it, is none."""

    def adapt(arguments: dict[str, Any]) -> None:
        size, roi = arguments.get("size"), arguments.get("roi")
        mode = arguments.get("coordinate_transformation_mode")
        if isinstance(size, (int, PrimExpr)) and not isinstance(size, bool):
            arguments["size"] = (size,) * count
        if isinstance(roi, (int, float)) and not isinstance(roi, bool):
            roi = (roi,) * (2 * count)
        if isinstance(roi, (list, tuple)):
            bounds = tuple(map(number_literal, roi))
            if bounds == (0,) * (2 * count) and mode != CROP:
                arguments["roi"] = None
            else:
                arguments["roi"] = tuple(float(v) if isinstance(v, int) else v for v in bounds)

    return adapt


def _infer_resize(letters: str) -> Callable[..., TensorStructInfo]:
    def resize(
        data: TensorStructInfo,
        size: ShapeStructInfo,
        roi: tuple[float, ...] | None = None,
        layout: str = f"NC{letters}",
        method: Method = "linear",
        coordinate_transformation_mode: Coordinates = "half_pixel",
        rounding_method: Rounding = "round",
        cubic_alpha: float = -0.75,
        cubic_exclude: int = 0,
        extrapolation_value: float = 0.0,
        out_dtype: DataType | None = None,
    ) -> TensorStructInfo:
        axes = _spatial_axes(layout, letters, data)
        _require_region(roi, coordinate_transformation_mode, len(letters))
        if size.ndim not in (-1, len(letters)):
            raise refuse(f"size has {len(letters)} members, found {size}", size)
        dtype = data.dtype if out_dtype is None or out_dtype.is_void else out_dtype
        sizes = literal_shape(data)
        if sizes is None or size.values is None:
            return tensor(None, dtype, data.vdevice, len(Layout.of(layout)))
        if any(isinstance(new, IntImm) and new.value < 0 for new in size.values):
            raise refuse(f"size is at least 0, found {size}", size)
        new = dict(zip(axes, size.values, strict=True))
        shape = [new.get(axis, old) for axis, old in enumerate(sizes)]
        return tensor(shape, dtype, data.vdevice)

    return resize


def _infer_backward(letters: str) -> Callable[..., TensorStructInfo]:
    def backward(
        output_grad: TensorStructInfo,
        data: TensorStructInfo,
        roi: tuple[float, ...] | None = None,
        layout: str = f"NC{letters}",
        method: Method = "linear",
        coordinate_transformation_mode: Coordinates = "half_pixel",
        rounding_method: Rounding = "round",
        cubic_alpha: float = -0.75,
        cubic_exclude: int = 0,
        extrapolation_value: float = 0.0,
    ) -> TensorStructInfo:
        _spatial_axes(layout, letters, data)
        _spatial_axes(layout, letters, output_grad)
        _require_region(roi, coordinate_transformation_mode, len(letters))
        return data

    return backward


def _attrs(call: Call, count: int) -> dict[str, Any]:
    attrs = {_NAMES.get(name, name): value for name, value in call.attrs.items()}
    return {**attrs, "roi": attrs["roi"] or (0.0,) * (2 * count)}


def _legalize_resize(count: int) -> Legalize:
    function = getattr(topi.image, f"resize{count}d")

    def resized(data: Tensor, size: Sequence[PrimExpr], roi: Any, **attrs: Any) -> Tensor:
        return cast("Tensor", function(data, roi, size, **attrs))

    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        attrs = _attrs(call, count)
        if (out_dtype := attrs["out_dtype"]) is not None:
            attrs["out_dtype"] = str(out_dtype)
        return te_kernel(builder, resized, f"resize{count}d", *call.args, **attrs)

    return legalize


def _legalize_backward(letters: str) -> Legalize:
    count = len(letters)

    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        attrs = {**_attrs(call, count), "letters": letters}
        name = f"resize{count}d_backward"
        return te_kernel(builder, topi.image.resize_grad, name, *call.args, **attrs)

    return legalize


def _gradient_resize(count: int) -> Any:
    def derivative(g: Any, x: Any, y: Any, call: Call) -> Any:
        attrs = {name: value for name, value in call.attrs.items() if name != "out_dtype"}
        return getattr(R.grad, f"resize{count}d_backward")(g, x, **attrs)

    return of_operand(derivative)


def _gradient_backward(letters: str) -> Any:
    """The backward operator is linear, and its transpose is the resize itself."""

    def rule(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
        output_grad, data = call.args
        name = f"resize{len(letters)}d"
        sizes = require_shape(output_grad, f"relax.grad.{name}_backward")
        order = Layout.of(cast("str", call.attrs["layout"])).names
        size = [sizes[order.index(letter)] for letter in letters]
        dtype = cast("Any", output_grad.struct_info).dtype
        attrs = {**call.attrs, "out_dtype": dtype}
        return [getattr(R.image, name)(gradient, size, **attrs), R.grad.no_grad(data)]

    return rule


_DOC = """data with {count} other sizes, elements between those of data by a method.

Of each element, `coordinate_transformation_mode` says where it lies among those of data. There,
"nearest_neighbor" takes the one that `rounding_method` selects, and "linear" and "cubic" weigh the
two and four nearest ones along each axis; `cubic_alpha` is the slope of the weights. Elements
outside of data are those of its border, or of weight 0 under `cubic_exclude`. Under
"tf_crop_and_resize" data is the region `roi` of itself, which has {count} starts and {count} ends
from 0 to 1, and what lies outside of data is `extrapolation_value`.

Shapes:
    data    {rank} axes in `layout`, in which {axes} have no blocks
    size    those of {axes}; one number for all
    result  as data with these sizes, in `out_dtype` if it is passed
Errors:
    StructInfoError: data has another rank than the layout, `size` another number of members, or
        the region.
    MisuseError: an attribute has a value that it does not have.
Rule:
    Coordinates are rounded once, so "round" takes the even index of two equally near ones, and the
    other methods never miss an integer. Sums are taken in float32, or float64 for wider numbers,
    and rounded once; for integers toward zero (ONNX, Resize).
"""
_BACKWARD_DOC = """The gradient of data in `image.resize{count}d`, from that of the result.

Shapes:
    output_grad  {rank} axes in `layout`, as the result
    data         {rank} axes in `layout`
    result       as data
Errors:
    StructInfoError: an operand has another rank than the layout, or the region has.
    MisuseError: an attribute has a value that it does not have.
"""

for _letters in ("HW", "DHW"):
    _count = len(_letters)
    _texts = {
        "count": _count,
        "rank": _count + 2,
        "axes": f"{', '.join(_letters[:-1])} and {_letters[-1]}",
    }
    enter(
        OpRecord(
            f"relax.image.resize{_count}d",
            _infer_resize(_letters),
            _DOC.format(**_texts),
            pure=True,
            precision_policy=1,
            adapt=_complete(_count),
            legalize=_legalize_resize(_count),
            layout=AttributeLayout(("layout",), "layout", desirable=True),
            gradient=_gradient_resize(_count),
        )
    )
    enter(
        OpRecord(
            f"relax.grad.resize{_count}d_backward",
            _infer_backward(_letters),
            _BACKWARD_DOC.format(**_texts),
            pure=True,
            adapt=_complete(_count),
            legalize=_legalize_backward(_letters),
            gradient=_gradient_backward(_letters),
        )
    )
resize2d, resize3d = R.image.resize2d, R.image.resize3d
