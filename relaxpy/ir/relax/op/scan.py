"""Running sums and products along an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax.nodes import Call, Expr, TensorStructInfo
from relaxpy.ir.relax.op.definition import rules
from relaxpy.ir.relax.op.definition.gradients import of_operand, shape_like
from relaxpy.ir.relax.op.definition.layouts import along
from relaxpy.ir.relax.op.definition.registry import R, Rows, family
from relaxpy.ir.te import topi
from relaxpy.ir.te.topi.shapes import product

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder


def _infer_scan(
    data: TensorStructInfo,
    axis: int | None = None,
    dtype: DataType | None = None,
    exclusive: bool = False,
) -> TensorStructInfo:
    kind = dtype or data.dtype
    if kind.is_bool:
        raise rules.refuse_type(
            f"data holds numbers, found {data}", data, hint='pass a datatype: dtype="int64"'
        )
    if axis is not None:
        if data.ndim >= 0:
            rules.normal_axis(axis, data.ndim)
        return rules.tensor(data.shape, kind, data.vdevice, data.ndim)
    shape = rules.literal_shape(data)
    return rules.tensor(None if shape is None else (product(shape),), kind, data.vdevice, 1)


def _legalization(name: str) -> Any:
    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        sinfo = builder.struct_info_of(call)
        assert isinstance(sinfo, TensorStructInfo)
        attrs = {**call.attrs, "dtype": str(sinfo.dtype)}
        return rules.te_kernel(builder, getattr(topi, name), name, *call.args, **attrs)

    return legalize


def _backwards(g: Any, axis: int, *, exclusive: bool) -> Any:
    """The cumulative sum from the end."""
    return R.flip(R.cumsum(R.flip(g, axis), axis, exclusive=exclusive), axis)


def _as_operand(g: Any, x: Any) -> Any:
    """The gradient in the datatype of the operand."""
    dtype = x.struct_info.dtype
    return g if g.struct_info is not None and g.struct_info.dtype == dtype else R.astype(g, dtype)


def _gradient_cumsum(g: Any, x: Any, y: Any, call: Call) -> Any:
    axis, exclusive = cast("int | None", call.attrs["axis"]), bool(call.attrs["exclusive"])
    g = _as_operand(g, x)
    if axis is not None:
        return _backwards(g, axis, exclusive=exclusive)
    return R.reshape(_backwards(g, 0, exclusive=exclusive), shape_like(x))


def _gradient_cumprod(g: Any, x: Any, y: Any, call: Call) -> Any:
    axis, exclusive = cast("int | None", call.attrs["axis"]), bool(call.attrs["exclusive"])
    g = _as_operand(g, x)
    if axis is not None:
        return R.grad.cumprod_backward(g, x, axis, exclusive)
    total = R.grad.cumprod_backward(g, R.flatten(x), 0, exclusive)
    return R.reshape(total, shape_like(x))


_DOC = """The {} of the elements up to each one along an axis; `exclusive` leaves the element out.

Without an axis, the elements are taken in row-major order.

Shapes:
    data    any
    result  as data, in `dtype` where it is passed; without an axis (size of data,)
Errors:
    StructInfoError: the axis is out of range, or data holds Booleans and `dtype` is missing.
Rule:
    Floats narrower than float32 are accumulated in float32; each result is rounded once.
"""
_scan = Rows(_infer_scan, _DOC, _legalization, layout=along("axis"))
SCANS = family(
    _scan("cumsum", "sum", gradient=of_operand(_gradient_cumsum)),
    _scan("cumprod", "product", gradient=of_operand(_gradient_cumprod)),
)
