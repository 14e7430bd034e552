"""Operators on the elements of two operands that broadcast."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from relaxpy.errors import MisuseError
from relaxpy.ir.core.dtype import BOOL, DataType
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo
from relaxpy.ir.relax.op.definition import rules
from relaxpy.ir.relax.op.definition.gradients import elementwise, masked, no_gradient
from relaxpy.ir.relax.op.definition.layouts import elementwise_layout
from relaxpy.ir.relax.op.definition.registry import R, Rows, family
from relaxpy.ir.relax.op.definition.sharding import broadcast_axes
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import as_dtype
from relaxpy.ir.tir import ops
from relaxpy.support.dataclass import replace

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

_NAMES = ("x1", "x2")
_DIVISIONS = frozenset(("divide", "floor_divide", "mod", "floor_mod"))
Numbers: TypeAlias = rx.TensorStructInfo | rx.PrimStructInfo


def _operand(sinfo: Numbers) -> rx.TensorStructInfo:
    """Convert a scalar operand to a tensor of rank 0."""
    return sinfo if isinstance(sinfo, rx.TensorStructInfo) else rules.tensor((), sinfo.dtype)


def _of_known_shapes(*sinfos: rx.TensorStructInfo) -> Sequence[rx.TensorStructInfo]:
    """The tensors, with the dimensions that different shape variables are known to have."""
    if not any(isinstance(s.shape, rx.Var) for s in sinfos) or sinfos[0].shape is sinfos[-1].shape:
        return sinfos
    return [rules.tensor(s.get_shape(), s.dtype, s.vdevice, s.ndim) for s in sinfos]


def _broadcast(x1: Numbers, x2: Numbers, dtype: DataType) -> Numbers:
    if isinstance(x1, rx.PrimStructInfo) and isinstance(x2, rx.PrimStructInfo):
        return rx.PrimStructInfo(dtype)
    operands = _of_known_shapes(_operand(x1), _operand(x2))
    shape, ndim = rules.broadcast(operands, _NAMES)
    return rules.tensor(shape, dtype, rules.joint_vdevice(operands, strict=True), ndim)


def _infer_arithmetic(x1: Numbers, x2: Numbers) -> Numbers:
    return _broadcast(x1, x2, rules.joint_dtype(x1, x2, _NAMES))


def _infer_atan2(x1: Numbers, x2: Numbers) -> Numbers:
    for sinfo, name in zip((x1, x2), _NAMES, strict=True):
        rules.require_float(_operand(sinfo), name)
    return _infer_arithmetic(x1, x2)


def _infer_comparison(x1: Numbers, x2: Numbers) -> Numbers:
    return _broadcast(x1, x2, BOOL)


def literal(value: object, dtype: DataType) -> rx.Constant:
    """Convert a Python number to a tensor of rank 0 with the datatype of the other operand.

    Errors:
        MisuseError: the datatype is open, or has no such value.
    """
    if dtype.is_void:
        raise MisuseError(
            f"the datatype of {value!r} is open beside a tensor of unknown datatype",
            hint="write R.const(value, dtype)",
            about=value,
        )
    is_integral = isinstance(value, (numbers.Integral, np.bool_))
    if dtype.is_int:
        low, high = ops.int_range(dtype)
        if not is_integral or not low <= int(value) <= high:  # type: ignore[call-overload]
            raise MisuseError(
                f"{value!r} is not a value of {dtype}",
                about=value,
                hint=None if is_integral else "convert the other operand with R.astype",
            )
    return rx.const(value, dtype)


def fit_numbers(arguments: dict[str, Any]) -> None:
    """Convert a Python number among two operands to the datatype of the other one.

    An array keeps its datatype where the other operand has it; else `const` converts it.
    """
    if isinstance(arguments["x1"], rx.Expr) and isinstance(arguments["x2"], rx.Expr):
        return
    for name, other in (_NAMES, _NAMES[::-1]):
        array, other_value = arguments[name], arguments[other]
        if isinstance(array, np.ndarray):
            sinfo = other_value.struct_info if isinstance(other_value, rx.Expr) else None
            same = isinstance(sinfo, rx.TensorStructInfo) and sinfo.dtype == DataType(array.dtype)
            arguments[name] = rx.Constant(array) if same else rx.const(array)
    for name, other in (_NAMES, _NAMES[::-1]):
        value, other_value = arguments[name], arguments[other]
        if isinstance(value, rx.Expr) or not isinstance(value, (bool, numbers.Real, np.bool_)):
            continue
        sinfo = other_value.struct_info if isinstance(other_value, rx.Expr) else None
        if isinstance(sinfo, rx.TensorStructInfo):
            arguments[name] = literal(value, sinfo.dtype)
        elif isinstance(sinfo, (rx.PrimStructInfo, DTensorStructInfo)):
            number = literal(value, sinfo.dtype).data.item()
            arguments[name] = rx.PrimValue(ops.const(number, sinfo.dtype))
        elif isinstance(other_value, rx.Expr) and sinfo is None:
            raise MisuseError(
                f"the datatype of {value!r} is open: nothing is known yet about the other operand",
                hint="write R.const(value, dtype)",
                about=value,
            )


def _is_zero(operand: rx.Expr) -> bool:
    """Return whether a scalar is the literal 0."""
    return isinstance(operand, rx.PrimValue) and getattr(operand.value, "value", None) == 0


def _legalization(name: str) -> rules.Legalize:
    """A scalar literal becomes part of the kernel; a call on two known scalars is evaluated."""

    def function(x1: Any, x2: Any) -> Any:
        return getattr(topi, name)(x1, x2)

    def kernel(x1: Any, x2: Any, dtype: str) -> Tensor:
        return as_dtype(function(x1, x2), DataType(dtype))

    def legalize(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
        result = builder.struct_info_of(call)
        operands = [builder.struct_info_of(a) for a in call.args]
        if isinstance(result, rx.PrimStructInfo):
            values = [v.value for v in operands if isinstance(v, rx.PrimStructInfo)]
            return (
                call
                if None in values
                else rx.PrimValue(ops.cast_to(function(*values), result.dtype))
            )
        assert isinstance(result, rx.TensorStructInfo)
        args: list[object] = list(call.args)
        if name in _DIVISIONS and _is_zero(call.args[1]):
            args[1] = rx.const(0, operands[1].dtype)  # type: ignore[attr-defined]
        for k in (1, 0):
            value = rules.scalar_literal(call.args[k])
            if k == 1 and name in _DIVISIONS and getattr(value, "value", None) == 0:
                value = None  # TIR refuses a literal divisor 0, even where it never runs
            if value is not None and isinstance(operands[1 - k], rx.TensorStructInfo):
                args[k] = value
                break
        return rules.te_kernel(builder, kernel, name, *args, dtype=str(result.dtype))

    return legalize


_ARITHMETIC = """Element by element: {}.

Shapes:
    x1, x2  tensors that broadcast, or scalars of one datatype (or one Bool); a number takes the
            datatype of the other one
    result  what they broadcast to, in the datatype of x1; a scalar where both are, else a scalar
            has rank 0
Errors:
    StructInfoError: a known size differs and is not 1, or the datatypes do.
"""
_COMPARISON = """Element by element: {}.

Shapes:
    x1, x2  tensors that broadcast, or scalars; a number takes the datatype of the other one
    result  what they broadcast to, Bool; a scalar where both are, else a scalar has rank 0
Errors:
    StructInfoError: a known size differs and is not 1.
"""


_arithmetic = Rows(
    _infer_arithmetic,
    _ARITHMETIC,
    _legalization,
    fit_numbers,
    no_gradient,
    precision_policy=1,
    layout=elementwise_layout,
    sharding=broadcast_axes,
)
_comparison = replace(_arithmetic, rule=_infer_comparison, doc=_COMPARISON)
_bitwise = replace(_arithmetic, kernel=lambda name: rules.of_bits(_legalization(name)))


def _power_base(g: Any, a: Any, b: Any, y: Any) -> Any:
    derivative = g * b * R.power(a, b - 1)
    if isinstance(b, rx.Constant) and np.all(np.asarray(b.data, "float64") != 0):
        return derivative
    return masked(derivative, R.not_equal(b, 0))


def _power_exponent(g: Any, a: Any, b: Any, y: Any) -> Any:
    return masked(g * y * R.log(a), R.not_equal(a, 0))


def _atan2_gradient(g: Any, a: Any, b: Any) -> Any:
    """g * a / (a * a + b * b), where the squares may be too large or too small."""
    scale = 1 / R.maximum(R.abs(a), R.abs(b))
    return g * (a * scale) / (R.square(a * scale) + R.square(b * scale)) * scale


def _chosen(g: Any, a: Any, b: Any, is_other: Any) -> Any:
    """The gradient of an operand that is chosen unless `is_other`; equal ones get half of it."""
    return R.where(R.equal(a, b), g * 0.5, masked(g, R.logical_not(is_other)))


BINARY = family(
    _arithmetic(
        "add",
        "x1 + x2",
        takes_twice=True,
        in_place=True,
        sign="+",
        commutative=True,
        gradient=elementwise(lambda g, a, b, y: g, lambda g, a, b, y: g, exact=True),
    ),
    _arithmetic(
        "subtract",
        "x1 - x2",
        takes_twice=True,
        in_place=True,
        sign="-",
        gradient=elementwise(lambda g, a, b, y: g, lambda g, a, b, y: -g, exact=True),
    ),
    _arithmetic(
        "multiply",
        "x1 * x2",
        takes_twice=True,
        in_place=True,
        sign="*",
        commutative=True,
        gradient=elementwise(lambda g, a, b, y: g * b, lambda g, a, b, y: g * a),
    ),
    _arithmetic(
        "divide",
        "x1 / x2, on integers rounded toward zero",
        in_place=True,
        sign="/",
        gradient=elementwise(lambda g, a, b, y: g / b, lambda g, a, b, y: -g * y / b),
    ),
    _arithmetic(
        "power",
        "x1 to the power x2, on integers modulo their range",
        precision_policy=2,
        sign="**",
        gradient=elementwise(_power_base, _power_exponent),
    ),
    _arithmetic("floor_divide", "x1 / x2 rounded down", sign="//"),
    _arithmetic(
        "mod",
        "the remainder of x1 / x2 rounded toward zero, with the sign of x1",
        gradient=elementwise(lambda g, a, b, y: g, lambda g, a, b, y: -g * R.round((a - y) / b)),
    ),
    _arithmetic(
        "floor_mod",
        "the remainder of x1 / x2 rounded down, with the sign of x2",
        gradient=elementwise(lambda g, a, b, y: g, lambda g, a, b, y: -g * R.floor_divide(a, b)),
    ),
    _arithmetic(
        "log_add_exp",
        "log(exp(x1) + exp(x2)), without overflow",
        gradient=elementwise(
            lambda g, a, b, y: g * R.sigmoid(a - b), lambda g, a, b, y: g * R.sigmoid(b - a)
        ),
    ),
    replace(_arithmetic, rule=_infer_atan2)(
        "atan2",
        "the angle of the point (x2, x1) from the positive x axis, in [-pi, pi], of floats",
        gradient=elementwise(
            lambda g, a, b, y: _atan2_gradient(g, b, a),
            lambda g, a, b, y: _atan2_gradient(-g, a, b),
        ),
    ),
    _arithmetic(
        "maximum",
        "the larger one; NaN if one is",
        takes_twice=True,
        gradient=elementwise(
            lambda g, a, b, y: _chosen(g, a, b, R.less(a, b)),
            lambda g, a, b, y: _chosen(g, a, b, R.less(b, a)),
            exact=True,
        ),
    ),
    _arithmetic(
        "minimum",
        "the smaller one; NaN if one is",
        takes_twice=True,
        gradient=elementwise(
            lambda g, a, b, y: _chosen(g, a, b, R.greater(a, b)),
            lambda g, a, b, y: _chosen(g, a, b, R.greater(b, a)),
            exact=True,
        ),
    ),
    _arithmetic("logical_and", "whether both are other than 0"),
    _arithmetic("logical_or", "whether one is other than 0"),
    _arithmetic("logical_xor", "whether exactly one is other than 0"),
    _bitwise("bitwise_and", "the bits that both have"),
    _bitwise("bitwise_or", "the bits that one has"),
    _bitwise("bitwise_xor", "the bits that exactly one has"),
    _bitwise("left_shift", "the bits of x1 moved up by x2 places"),
    _bitwise("right_shift", "the bits of x1 moved down by x2 places, its sign repeated"),
    _comparison("equal", "x1 == x2", sign="=="),
    _comparison("not_equal", "x1 != x2", sign="!="),
    _comparison("less", "x1 < x2", sign="<", ordering=True),
    _comparison("less_equal", "x1 <= x2", sign="<=", ordering=True),
    _comparison("greater", "x1 > x2", sign=">", ordering=True),
    _comparison("greater_equal", "x1 >= x2", sign=">=", ordering=True),
)
"""The operators of this family by their names without `relax.`"""
