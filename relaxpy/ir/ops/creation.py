"""Operators that create tensors."""

from __future__ import annotations

import numbers
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from relaxpy.errors import unexpected
from relaxpy.ir.core.dtype import FLOAT32, FLOAT64, INT64, DataType
from relaxpy.ir.ops.definition import rules
from relaxpy.ir.ops.definition.gradients import is_differentiable, no_gradient
from relaxpy.ir.ops.definition.registry import R, family, register, rows
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.known import tensor_of, tensor_sinfo
from relaxpy.ir.te import topi
from relaxpy.ir.te.topi.transform import range_length as te_range_length
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import FloatImm, IntImm, PrimExpr

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder


#: The maximum length of ranges that become constants.
MAX_LISTED = 4096

range_length = partial(te_range_length, refuse=rules.refuse)


def _require_scalar(fill_value: rx.TensorStructInfo) -> None:
    if fill_value.ndim != 0:
        raise rules.refuse_type(f"fill_value has rank 0, found {fill_value}", fill_value)


def _filled(builder: BlockBuilder, call: rx.Call, value: object) -> rx.Expr:
    """Build a kernel that fills the result with `value`."""
    sinfo = tensor_of(builder.struct_info_of(call))
    name = call.op.name.removeprefix("relax.").removesuffix("_like")  # type: ignore[union-attr]
    return rules.te_kernel(builder, topi.full, name, sinfo.shape, str(sinfo.dtype), value)


def _legalize_full(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
    value = rules.scalar_literal(call.args[1])
    return _filled(builder, call, call.args[1] if value is None else value)


def _gradient_full(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    shape, value = call.args
    if not is_differentiable(value) or not is_differentiable(var):
        return no_gradient(var, call, gradient, builder)
    total = R.sum(gradient)
    sinfo = tensor_of(value)
    return [R.grad.no_grad(shape), R.astype(total, sinfo.dtype)]


def _fit_fill_value(arguments: dict[str, Any]) -> None:
    """Convert a number that a literal without a datatype rounds to the datatype of the result."""
    value, dtype = arguments["fill_value"], arguments["dtype"]
    if isinstance(value, rx.Expr) or not isinstance(value, numbers.Real):
        return
    if dtype is None and isinstance(arguments.get("x"), rx.Expr):
        sinfo = tensor_sinfo(arguments["x"])
        dtype = None if sinfo is None or sinfo.dtype.is_void else sinfo.dtype
    is_wide = dtype is not None and DataType(dtype) in (FLOAT64, INT64)
    if is_wide and isinstance(value, numbers.Integral) >= DataType(dtype).is_int:
        arguments["fill_value"] = rx.const(value, dtype)


_fill: dict[str, Any] = {
    "pure": True,
    "legalize": _legalize_full,
    "adapt": _fit_fill_value,
    "gradient": _gradient_full,
}


@register("relax.full", **_fill)
def full(
    shape: rx.ShapeStructInfo,
    fill_value: rx.TensorStructInfo,
    call: rx.Call,
    dtype: DataType | None = None,
) -> rx.TensorStructInfo:
    """A tensor of `shape` with `fill_value` in every element.

    Shapes:
        fill_value  rank 0
        result      `shape`, in `dtype`, or else in the datatype of `fill_value`
    Errors:
        StructInfoError: `fill_value` is not known to have rank 0.
    """
    _require_scalar(fill_value)
    sizes = rules.shape_operand(call.args[0], shape)
    return rules.tensor(sizes, dtype or fill_value.dtype, fill_value.vdevice, shape.ndim)


@register("relax.full_like", **_fill)
def full_like(
    x: rx.TensorStructInfo, fill_value: rx.TensorStructInfo, dtype: DataType | None = None
) -> rx.TensorStructInfo:
    """A tensor of the shape of x with `fill_value` in every element.

    Shapes:
        x           any
        fill_value  rank 0
        result      as x, in `dtype` where it is passed
    Errors:
        StructInfoError: `fill_value` is not known to have rank 0.
    """
    _require_scalar(fill_value)
    return rules.with_dtype(x, dtype or x.dtype)


def _infer_create(shape: rx.ShapeStructInfo, dtype: DataType, call: rx.Call) -> rx.TensorStructInfo:
    if dtype.is_void:
        raise rules.refuse_type("a tensor is created in a datatype, found none", dtype)
    return rules.tensor(rules.shape_operand(call.args[0], shape), dtype, None, shape.ndim)


def _infer_create_like(
    x: rx.TensorStructInfo, dtype: DataType | None = None
) -> rx.TensorStructInfo:
    return rules.with_dtype(x, dtype or x.dtype)


_DOC = """A tensor of `shape` with {} in every element.

Shapes:
    result  `shape`, in `dtype`
Errors:
    StructInfoError: `dtype` is Void.
"""
_LIKE_DOC = """A tensor of the shape of x with {} in every element.

Shapes:
    result  the shape of x, in `dtype`, by default in that of x
Errors:
    StructInfoError: x is not a tensor.
"""


def _legalize_constant(name: str) -> rules.Legalize:
    value = ops.const(int(name.startswith("ones")), "int32")
    return lambda builder, call: _filled(builder, call, value)


_create = rows(_infer_create, _DOC, _legalize_constant, gradient=no_gradient)
_create_like = rows(_infer_create_like, _LIKE_DOC, _legalize_constant, gradient=no_gradient)

CONSTANTS = family(
    _create("ones", "1"),
    _create("zeros", "0"),
    _create_like("ones_like", "1"),
    _create_like("zeros_like", "0"),
)


def _complete_range(arguments: dict[str, Any]) -> None:
    """A single bound is the end; by default, integers give int64 and other numbers float32."""
    if arguments["end"] is None:
        arguments["start"], arguments["end"] = 0, arguments["start"]
    all_integers = True
    for name in ("start", "end", "step"):
        value = arguments[name]
        if isinstance(value, bool) or not isinstance(value, (numbers.Real, PrimExpr, rx.Expr)):
            raise unexpected(value, f"{name} is a number")
        if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral):
            wide = arguments["dtype"] is not None and DataType(arguments["dtype"]) == FLOAT64
            value = FloatImm(FLOAT64 if wide else FLOAT32, float(value))
        elif isinstance(value, np.integer):
            value = int(value)
        expr = arguments[name] = rx.convert_to_expr(value)
        sinfo = expr.struct_info
        all_integers = all_integers and isinstance(sinfo, rx.PrimStructInfo) and sinfo.dtype.is_int
    if arguments["dtype"] is None:
        arguments["dtype"] = INT64 if all_integers else FLOAT32


def _range_bounds(sinfos: tuple[rx.StructInfo, ...]) -> list[PrimExpr] | None:
    values = [sinfo.value for sinfo in sinfos if isinstance(sinfo, rx.PrimStructInfo)]
    bounds = [v for v in values if v is not None]
    return bounds if len(bounds) == len(sinfos) else None


def _legalize_arange(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
    sinfo = builder.struct_info_of(call)
    bounds = _range_bounds(tuple(builder.struct_info_of(a) for a in call.args))
    if bounds is None:
        return call
    assert isinstance(sinfo, rx.TensorStructInfo)
    dtype = str(sinfo.dtype)
    length = range_length(*bounds)
    is_constant = all(isinstance(v, IntImm) for v in (*bounds, length)) and sinfo.dtype.is_int
    if is_constant and length.value <= MAX_LISTED:  # type: ignore[attr-defined]
        first, last, step = (v.value for v in bounds)  # type: ignore[attr-defined]
        return rx.const(np.arange(first, last, step), dtype)
    return rules.te_kernel(builder, topi.arange, "arange", *bounds, dtype, length)


@register(
    "relax.arange",
    pure=True,
    legalize=_legalize_arange,
    adapt=_complete_range,
    gradient=no_gradient,
)
def arange(
    start: rx.PrimStructInfo,
    end: rx.PrimStructInfo | None = None,
    step: rx.PrimStructInfo = 1,  # type: ignore[assignment]
    dtype: DataType | None = None,
) -> rx.TensorStructInfo:
    """start, start + step, … before `end`; `arange(end)` begins at 0.

    Shapes:
        result  (ceil((end - start) / step),), in int64 where all three are integers, else float32
    Errors:
        StructInfoError: the step is 0, or one of the three is not a finite number.
    """
    if end is None or dtype is None:  # of a call that was built by hand
        raise rules.refuse_type("takes start, end and step, and a dtype")
    bounds = _range_bounds((start, end, step))
    if bounds is None:
        return rules.tensor(None, dtype, ndim=1)
    return rules.tensor((range_length(*bounds),), dtype)


def _require_integers(**operands: rx.PrimStructInfo) -> None:
    for name, sinfo in operands.items():
        if not sinfo.dtype.is_int or sinfo.dtype.is_bool:
            raise rules.refuse_type(f"{name} is an integer, found {sinfo}", sinfo)


def _complete_square(arguments: dict[str, Any]) -> None:
    """The number of columns defaults to the number of rows."""
    if arguments["m"] is None:
        arguments["m"] = arguments["n"]


@register(
    "relax.eye",
    pure=True,
    legalize=rules.by_te("eye", "eye"),
    adapt=_complete_square,
    gradient=no_gradient,
)
def eye(
    n: rx.PrimStructInfo,
    m: rx.PrimStructInfo | None = None,
    k: rx.PrimStructInfo = 0,  # type: ignore[assignment]
    dtype: DataType = FLOAT32,
) -> rx.TensorStructInfo:
    """1 on diagonal k of a matrix of n rows and m columns, and 0 elsewhere.

    Shapes:
        n, m    numbers of rows and columns; m is n by default
        k       the number of the diagonal: 0 the main one, above it positive
        result  (n, m), in `dtype`
    Errors:
        StructInfoError: n, m or k is not an integer, or `dtype` is Void.
    """
    columns = n if m is None else m
    _require_integers(n=n, m=columns, k=k)
    if dtype.is_void:
        raise rules.refuse_type("a tensor is created in a datatype, found none", dtype)
    if n.value is None or columns.value is None:
        return rules.tensor(None, dtype, ndim=2)
    return rules.tensor([ops.cast_to(v, INT64) for v in (n.value, columns.value)], dtype)


def _legalize_eye_like(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
    sinfo = tensor_of(builder.struct_info_of(call))
    shape = rules.known_shape(builder, call)
    return rules.te_kernel(builder, topi.eye, "eye", *shape, call.args[1], dtype=str(sinfo.dtype))


@register("relax.eye_like", pure=True, legalize=_legalize_eye_like, gradient=no_gradient)
def eye_like(
    x: rx.TensorStructInfo,
    k: rx.PrimStructInfo = 0,  # type: ignore[assignment]
    dtype: DataType | None = None,
) -> rx.TensorStructInfo:
    """1 on diagonal k of a matrix of the shape of x, and 0 elsewhere.

    Shapes:
        x       rank 2
        k       the number of the diagonal: 0 the main one, above it positive
        result  as x, in `dtype` where it is passed
    Errors:
        StructInfoError: x is known to have another rank than 2, or k is not an integer.
    """
    if x.ndim not in (-1, 2):
        raise rules.refuse(f"x has rank 2, found {x}", x)
    _require_integers(k=k)
    return rules.with_dtype(x, dtype or x.dtype)


@register(
    "relax.hamming_window",
    pure=True,
    legalize=rules.by_te("hamming_window", "hamming_window"),
    gradient=no_gradient,
)
def hamming_window(
    window_size: rx.PrimStructInfo,
    periodic: rx.PrimStructInfo = True,  # type: ignore[assignment]
    alpha: rx.PrimStructInfo = 0.54,  # type: ignore[assignment]
    beta: rx.PrimStructInfo = 0.46,  # type: ignore[assignment]
    dtype: DataType = FLOAT32,
) -> rx.TensorStructInfo:
    """The window alpha - beta * cos(2 * pi * i / n): n is its size, one less unless `periodic`.

    Shapes:
        window_size  a positive integer
        result       (window_size,), in `dtype`
    Errors:
        StructInfoError: the size is not an integer or known not to be positive, or `dtype` holds no
            floats.
    """
    _require_integers(window_size=window_size)
    if not dtype.is_float:
        raise rules.refuse_type(f"dtype is one of floats, found {dtype}", dtype)
    size = window_size.value
    if size is None:
        return rules.tensor(None, dtype, ndim=1)
    if isinstance(size, IntImm) and size.value < 1:
        raise rules.refuse(f"window_size is positive, found {size.value}", size)
    return rules.tensor((ops.cast_to(size, INT64),), dtype)
