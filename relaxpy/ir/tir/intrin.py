"""Functions that build calls of the intrinsics of TIR."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from relaxpy.errors import MisuseError, check_type, unexpected
from relaxpy.ir.core.dtype import BOOL, FLOAT32, HANDLE, INT32, VOID, DataType
from relaxpy.ir.core.node import Node
from relaxpy.ir.op import Op
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import EQ, Call, ExprLike, FloatImm, IntImm, PrimExpr, Select, StringImm


def _unary(name: str) -> Callable[[ExprLike], PrimExpr]:
    def intrinsic(x: ExprLike) -> PrimExpr:
        value = ops.number(x)
        return Call(value.dtype, f"tir.{name}", (value,))

    intrinsic.__name__ = intrinsic.__qualname__ = name
    intrinsic.__doc__ = f"{name} of x, in the datatype of x."
    return intrinsic


exp, exp2, exp10 = map(_unary, ("exp", "exp2", "exp10"))
log, log2, log10, log1p = map(_unary, ("log", "log2", "log10", "log1p"))
sqrt, rsqrt = map(_unary, ("sqrt", "rsqrt"))
sin, cos, tan = map(_unary, ("sin", "cos", "tan"))
asin, acos, atan = map(_unary, ("asin", "acos", "atan"))
sinh, cosh, tanh = map(_unary, ("sinh", "cosh", "tanh"))
asinh, acosh, atanh = map(_unary, ("asinh", "acosh", "atanh"))
erf, sigmoid = map(_unary, ("erf", "sigmoid"))


def popcount(x: ExprLike) -> PrimExpr:
    """The number of bits set in x, in the datatype of x. Errors: MisuseError on floats."""
    value = ops.number(x)
    if not value.dtype.is_int:
        raise MisuseError(f"popcount needs an integer, found {value.dtype}", about=value)
    return Call(value.dtype, "tir.popcount", (value,))


#: Results for literals; round and nearbyint both choose the even one of two nearest integers.
_ROUNDED: dict[str, Callable[[float], float]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "round": builtins.round,
    "nearbyint": builtins.round,
    "trunc": math.trunc,
}


def _rounding(name: str) -> Callable[[ExprLike], PrimExpr]:
    on_floats = _unary(name)

    def intrinsic(x: ExprLike) -> PrimExpr:
        value = ops.number(x)
        if isinstance(value, FloatImm) and math.isfinite(value.value):
            return FloatImm(value.dtype, float(_ROUNDED[name](value.value)))
        return value if value.dtype.is_int else on_floats(value)

    intrinsic.__name__ = intrinsic.__qualname__ = name
    intrinsic.__doc__ = f"{name} of x; an integer is returned as it is, and a literal is rounded."
    return intrinsic


floor, ceil, round, nearbyint, trunc = map(
    _rounding, ("floor", "ceil", "round", "nearbyint", "trunc")
)


def _binary(name: str) -> Callable[[ExprLike, ExprLike], PrimExpr]:
    def intrinsic(x1: ExprLike, x2: ExprLike) -> PrimExpr:
        left, right = ops.convert(x1), ops.convert(x2)
        return Call(left.dtype, f"tir.{name}", (left, right))

    intrinsic.__name__ = intrinsic.__qualname__ = name
    intrinsic.__doc__ = f"{name} of x1 and x2, in the datatype of x1."
    return intrinsic


atan2, hypot, copysign, ldexp, fmod = map(_binary, ("atan2", "hypot", "copysign", "ldexp", "fmod"))


def nextafter(x1: ExprLike, x2: ExprLike) -> PrimExpr:
    """The float after x1 toward x2. Errors: MisuseError on integers."""
    left, right = ops.convert(x1), ops.convert(x2)
    if not left.dtype.is_float:
        raise MisuseError(f"nextafter needs floats, found {left.dtype}", about=left)
    return Call(left.dtype, "tir.nextafter", (left, right))


def pow(x: ExprLike, y: ExprLike) -> PrimExpr:
    """x to the power y, on floats. Errors: MisuseError on integers."""
    left, right = ops.match_dtypes(x, y)
    if not left.dtype.is_float:
        raise MisuseError(f"pow needs floats, found {left.dtype}")
    return Call(left.dtype, "tir.pow", (left, right))


def logaddexp(a: ExprLike, b: ExprLike) -> PrimExpr:
    """log(exp(a) + exp(b)) = m + log(1 + exp(-|a - b|)) with m = max(a, b): no overflow.

    Integers and floats that are narrower than float32 are computed in that.
    """
    x, y = ops.match_dtypes(a, b)
    if x.dtype.is_int or x.dtype.bits < FLOAT32.bits:
        wide = DataType(FLOAT32 + x.dtype.vector)
        return ops.cast_to(logaddexp(cast(x, wide), cast(y, wide)), x.dtype)
    gap = abs(x - y) * ops.const(-1.0, x.dtype)
    different = ops.maximum(x, y) + log1p(exp(gap))
    equal = x + ops.const(math.log(2), x.dtype)
    return Select(ops.compare(EQ, x, y), equal, different)


def _bitwise(name: str) -> Callable[[ExprLike, ExprLike], PrimExpr]:
    def intrinsic(x: ExprLike, y: ExprLike) -> PrimExpr:
        return ops.bitwise(f"tir.{name}", x, y)

    intrinsic.__name__ = intrinsic.__qualname__ = name
    intrinsic.__doc__ = f"{name} of two integers, folded on literals."
    return intrinsic


bitwise_and, bitwise_or, bitwise_xor = map(_bitwise, ("bitwise_and", "bitwise_or", "bitwise_xor"))
shift_left, shift_right = map(_bitwise, ("shift_left", "shift_right"))


def bitwise_not(x: ExprLike) -> PrimExpr:
    """The bitwise complement of an integer."""
    return ~ops.convert(x)


def clz(x: ExprLike) -> PrimExpr:
    """The number of leading zero bits as int32. Errors: MisuseError on floats."""
    value = ops.number(x)
    if not value.dtype.is_int:
        raise MisuseError(f"clz needs an integer, found {value.dtype}", about=x)
    return Call(INT32, "tir.clz", (value,))


def abs(x: ExprLike) -> PrimExpr:
    """The absolute value; an unsigned integer is returned unchanged."""
    value = ops.number(x)
    if value.dtype.family == "uint":
        return value
    if value.dtype.is_int:
        zero = ops.const(0, value.dtype)
        if isinstance(value, IntImm):
            return value if value.value >= 0 else ops.sub(zero, value)
        return Select(value >= zero, value, ops.sub(zero, value))
    return Call(value.dtype, "tir.fabs", (value,))


def isnullptr(x: ExprLike) -> PrimExpr:
    """True if a pointer is null."""
    return Call(BOOL, "tir.isnullptr", (x,))


def isnan(x: ExprLike) -> PrimExpr:
    """True if x is NaN; false for integers."""
    value = ops.number(x)
    if value.dtype.is_int:
        return ops.const(False, _truth_type(value))
    truth = _truth_type(value)
    if value.dtype.family == "float" and value.dtype.bits == 16:
        value = ops.cast_to(value, DataType(FLOAT32 + value.dtype.vector))
    return Call(truth, "tir.isnan", (value,))


def isinf(x: ExprLike) -> PrimExpr:
    """True if x is infinite; false for datatypes without infinities."""
    value = ops.number(x)
    if not has_infinity(value.dtype):
        return ops.const(False, _truth_type(value))
    return ops.all_of(abs(value) == infinity(value.dtype), ops.logical_not(isnan(value)))


def isfinite(x: ExprLike) -> PrimExpr:
    """True if x is neither infinite nor NaN."""
    value = ops.number(x)
    return ops.all_of(ops.logical_not(isinf(value)), ops.logical_not(isnan(value)))


def _truth_type(value: PrimExpr) -> DataType:
    return DataType(BOOL + value.dtype.vector)


def if_then_else(cond: ExprLike, t: ExprLike, f: ExprLike) -> PrimExpr:
    """`t` if `cond` holds, else `f`; only that operand is evaluated.

    Errors: MisuseError if the condition is not a scalar Boolean.
    """
    test = ops.truth(cond)
    if test.dtype.vector:
        raise MisuseError(
            f"if_then_else takes one condition, found {test.dtype}", hint="T.Select takes vectors"
        )
    yes, no = ops.match_dtypes(t, f)
    if isinstance(test, IntImm):
        return yes if test.value else no
    return Call(yes.dtype, "tir.if_then_else", (test, yes, no))


def likely(cond: ExprLike) -> PrimExpr:
    """Mark `cond` as usually true."""
    test = ops.convert(cond)
    return test if isinstance(test, IntImm) else Call(test.dtype, "tir.likely", (test,))


def reinterpret(dtype: str, value: ExprLike) -> PrimExpr:
    """Reinterpret the bits of `value` as `dtype`. Errors: MisuseError if the sizes differ."""
    kind, source = DataType(dtype), ops.convert(value)
    if kind == source.dtype:
        return source
    if isinstance(source, StringImm):
        raise unexpected(value, "reinterpret takes a number or a pointer")
    if kind.bits * kind.lanes != source.dtype.bits * source.dtype.lanes:
        raise MisuseError(f"reinterpret keeps the bits: {source.dtype} to {kind}")
    return Call(kind, "tir.reinterpret", (source,))


def min_value(dtype: str) -> PrimExpr:
    """The least finite value of `dtype`."""
    kind = DataType(dtype)
    if kind.is_int:
        return ops.const(ops.int_range(kind)[0], kind)
    return ops.const(ops.float_range(kind.element)[0], kind)


def max_value(dtype: str) -> PrimExpr:
    """The largest finite value of `dtype`."""
    kind = DataType(dtype)
    if kind.is_int:
        return ops.const(ops.int_range(kind)[1], kind)
    return ops.const(ops.float_range(kind.element)[1], kind)


def has_infinity(dtype: DataType) -> bool:
    """True if a datatype has infinities."""
    return dtype.is_float and bool(np.isinf(dtype.element.numpy().type(math.inf)))


def infinity(dtype: str) -> PrimExpr:
    """Positive infinity. Errors: MisuseError for a datatype without infinities."""
    kind = DataType(dtype)
    if not has_infinity(kind):
        raise MisuseError(f"{kind} has no infinity", about=dtype)
    return ops.const(math.inf, kind)


def call_intrin(dtype: str, func_name: str | Op, *args: ExprLike | Node) -> PrimExpr:
    """Call the intrinsic `func_name` with a result of `dtype`."""
    check_type(func_name, (str, Op), "an intrinsic is an Op or its name")
    return Call(dtype, func_name, [pointer_or_value(a) for a in args])


def call_extern(dtype: str, func_name: str, *args: ExprLike | Node) -> PrimExpr:
    """Call the external function `func_name`, which may have effects."""
    return Call(dtype, "tir.call_extern", [StringImm(func_name), *map(pointer_or_value, args)])


def call_pure_extern(dtype: str, func_name: str, *args: ExprLike | Node) -> PrimExpr:
    """Call the external function `func_name`, which has no effects."""
    return Call(dtype, "tir.call_pure_extern", [StringImm(func_name), *map(pointer_or_value, args)])


def call_packed(*args: Any) -> PrimExpr:
    """Call the packed function named by the first argument."""
    return Call(INT32, "tir.tvm_call_packed", _with_name("call_packed", args))


def call_cpacked(*args: Any) -> PrimExpr:
    """Call a packed function with the C calling convention."""
    return Call(INT32, "tir.tvm_call_cpacked", _with_name("call_cpacked", args))


def _with_name(intrinsic: str, args: tuple[Any, ...]) -> list[PrimExpr]:
    """The arguments of a call of a packed function, the first of which is its name."""
    if not args or not isinstance(args[0], (str, StringImm)):
        found = f"{type(args[0]).__name__} {args[0]!r:.60}" if args else "no argument"
        raise MisuseError(
            f"{intrinsic} takes the name of a packed function first, found {found}",
            about=args[0] if args else None,
        )
    return [pointer_or_value(arg) for arg in args]


def pointer_or_value(value: Any) -> PrimExpr:
    """The data of a buffer, and another value as an expression."""
    return value.data if isinstance(value, Buffer) else ops.convert(value)


def ret(val: ExprLike) -> PrimExpr:
    """Return from the function with this value."""
    result = ops.convert(val)
    if isinstance(result, StringImm):
        raise MisuseError(f"a kernel returns a scalar, found {result.value!r:.60}", about=val)
    return Call(result.dtype, "tir.ret", (result,))


def continue_loop() -> PrimExpr:
    """Continue with the next iteration of the innermost loop."""
    return Call(VOID, "tir.continue_loop", ())


def break_loop() -> PrimExpr:
    """Exit the innermost loop."""
    return Call(VOID, "tir.break_loop", ())


def assume(cond: ExprLike) -> PrimExpr:
    """Assume that `cond` holds: that it is true, or an integer other than 0."""
    test = ops.convert(cond)
    is_number = test.dtype.is_int and not test.dtype.is_bool
    return Call(BOOL, "tir.assume", (test != 0 if is_number else ops.truth(test),))


def undef() -> PrimExpr:
    """An undefined int32 value."""
    return Call(INT32, "tir.undef", ())


def address_of(obj: Buffer | BufferLoad) -> PrimExpr:
    """The address of an element, or of the first element of a buffer."""
    if isinstance(obj, Buffer):
        obj = BufferLoad(obj, [ops.const(0, s.dtype) for s in obj.shape])
    elif not isinstance(obj, BufferLoad):
        raise MisuseError(f"only elements of buffers have addresses, not {obj!r:.60}", about=obj)
    return Call(HANDLE, "tir.address_of", (obj,))


def cast(src: ExprLike, dtype: str) -> PrimExpr:
    """Cast `src` to `dtype`, as `ops.cast_to` does."""
    return ops.cast_to(src, dtype)


def vscale() -> PrimExpr:
    """The factor of the hardware's vector length over its minimum; at least 1."""
    return Call(INT32, "tir.vscale", ())
