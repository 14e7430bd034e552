"""Passes that replace calls of operators by others that compute the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from typing_extensions import override

from relaxpy.dataclass import dataclass, replace
from relaxpy.errors import MisuseError
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relay import expr as rl
from relaxpy.ir.relay.analysis.scopes import is_atom
from relaxpy.ir.relay.op.makers import build
from relaxpy.ir.relay.transform.rewriting import (
    CallRewriter,
    Uses,
    attributes,
    called,
    keeps_elements,
    numbers,
    shape_of,
    typed,
)
from relaxpy.ir.relay.ty import TensorType


@dataclass(frozen=True)
class SimplifyExpr(CallRewriter):
    """Merge reshapes, transposes, casts and layouts, and remove those without effect.

    `reshape(reshape(x, a), b)` becomes `reshape(x, b)`. Products and quotients by one and
    differences with zero are their operand, and sums of integers with zero. Results are the same
    bit by bit.

    Example:
        >>> from relaxpy import relay
        >>> mod = relay.parse("fn(%x: Tensor[(2, 3), float32])"
        ...                   " { transpose(transpose(%x)) / 1f }")
        >>> new = relay.transform.SimplifyExpr()(mod)
        >>> print(new["main"].astext(annotate=lambda _: ""))
        fn (%x: Tensor[(2, 3), float32]) -> Tensor[(2, 3), float32] {
          %x
        }

    """

    @override
    def rewritten(self, call: rl.Call, name: str, uses: Uses) -> rl.RelayExpr | None:
        rule = _SIMPLER.get(name)
        return None if rule is None else rule(call)


_RESHAPES: Final = (
    *("reshape", "contrib_reverse_reshape", "expand_dims", "squeeze", "nn.batch_flatten"),
)


def _reshape(call: rl.Call) -> rl.RelayExpr | None:
    shape, data = shape_of(call), call.args[0]
    if shape is None:
        return None
    if shape_of(data) == shape:
        return data
    if called(data, *_RESHAPES) and 0 not in shape:
        assert isinstance(data, rl.Call)
        inner = data.args[0]
        same = shape_of(inner) == shape
        return inner if same else typed(call.checked_type_, "reshape", inner, newshape=shape)
    return None


def _permutation(call: rl.RelayExpr) -> list[int] | None:
    ty = call.checked_type_
    if not isinstance(ty, TensorType) or not isinstance(ty.shape, tuple):
        return None
    rank, axes = len(ty.shape), attributes(call)["axes"]
    return [*range(rank)][::-1] if axes is None else [axis % rank for axis in numbers(axes)]


def _transpose(call: rl.Call) -> rl.RelayExpr | None:
    outer, data = _permutation(call), call.args[0]
    if outer is None:
        return None
    if called(data, "transpose"):
        assert isinstance(data, rl.Call)
        inner = _permutation(data)
        assert inner is not None
        axes = [inner[axis] for axis in outer]
        source = data.args[0]
        identity = axes == sorted(axes)
        return source if identity else typed(call.checked_type_, "transpose", source, axes=axes)
    return data if outer == sorted(outer) else None


def _layout_transform(call: rl.Call) -> rl.RelayExpr | None:
    attrs, data = attributes(call), call.args[0]
    if attrs["src_layout"] == attrs["dst_layout"]:
        return data
    if not called(data, "layout_transform"):
        return None
    assert isinstance(data, rl.Call)
    inner = attributes(data)
    if inner["dst_layout"] != attrs["src_layout"] or not keeps_elements(data):
        return None  # the axes get other names in between, or elements are added
    first, last, source = inner["src_layout"], attrs["dst_layout"], data.args[0]
    if first == last:
        return source
    return typed(call.checked_type_, "layout_transform", source, src_layout=first, dst_layout=last)


def _cast_like(call: rl.Call) -> rl.RelayExpr | None:
    data, like = call.args
    same = data.checked_type_ == call.checked_type_
    return data if same and is_atom(like) else None


def _cast(call: rl.Call) -> rl.RelayExpr | None:
    data = call.args[0]
    if data.checked_type_ == call.checked_type_:
        return data
    if not called(data, "cast"):
        return None
    assert isinstance(data, rl.Call)
    between, source = data.checked_type_, data.args[0].checked_type_
    if isinstance(between, TensorType) and isinstance(source, TensorType):
        one, other = (_numpy(ty.dtype) for ty in (source, between))
        if one is not None and other is not None and _is_exact(one, other):
            dtype = attributes(call)["dtype"]
            return typed(call.checked_type_, "cast", data.args[0], dtype=dtype)
    return None


def _is_exact(one: np.dtype[Any], other: np.dtype[Any]) -> bool:
    """Return whether a datatype has all values of another; NumPy casts int64 to float64, too."""
    rounded = other.kind == "f" and one.kind in "iu" and one.itemsize == 8
    return np.can_cast(one, other, "safe") and not rounded


def _numpy(dtype: object) -> np.dtype[Any] | None:
    return np.dtype(str(dtype)) if isinstance(dtype, DataType) and str(dtype) in _NUMPY else None


_NUMPY: Final = {"bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
                 "float16", "float32", "float64"}  # fmt: skip


def _is_filled(expr: rl.RelayExpr, value: int) -> bool:
    """Return whether all elements of a tensor are a number; its evaluation does nothing else."""
    if isinstance(expr, rl.Constant):
        data = np.asarray(expr.data)
        return bool(np.all(data == value)) and not np.signbit(data).any()
    if not isinstance(expr, rl.Call) or not all(map(is_atom, expr.args)):
        return False
    if called(expr, "full", "full_like"):
        return _is_filled(expr.args[-1], value)
    return called(expr, *(("ones", "ones_like") if value else ("zeros", "zeros_like")))


def _neutral(value: int, *, swapped: bool, of_floats: bool) -> Callable[[rl.Call], Any]:
    def rule(call: rl.Call) -> rl.RelayExpr | None:
        one, other = call.args
        for kept, constant in ((one, other), (other, one))[: 1 + swapped]:
            ty = kept.checked_type_
            known = isinstance(ty, TensorType) and shape_of(kept) is not None
            if known and ty == call.checked_type_ and _is_filled(constant, value):
                assert isinstance(ty, TensorType)
                if of_floats or not str(ty.dtype).startswith("float"):
                    return kept
        return None

    return rule


_SIMPLER: Final[dict[str, Callable[[rl.Call], rl.RelayExpr | None]]] = {
    "reshape": _reshape,
    "contrib_reverse_reshape": _reshape,
    "transpose": _transpose,
    "layout_transform": _layout_transform,
    "cast": _cast,
    "cast_like": _cast_like,
    # The sum of -0.0 and 0.0 is 0.0.
    "add": _neutral(0, swapped=True, of_floats=False),
    "subtract": _neutral(0, swapped=False, of_floats=True),
    "multiply": _neutral(1, swapped=True, of_floats=True),
    "divide": _neutral(1, swapped=False, of_floats=True),
}


@dataclass(frozen=True)
class FastMath(CallRewriter):
    """Replace exp, tanh, erf and softmax by the operators that may approximate them.

    Example:
        >>> from relaxpy import relay
        >>> mod = relay.parse("fn(%x: float32) { exp(%x) }")
        >>> new = relay.transform.FastMath()(mod)
        >>> print(new["main"].astext(annotate=lambda _: ""))
        fn (%x: float32) -> float32 {
          fast_exp(%x)
        }

    """

    @override
    def rewritten(self, call: rl.Call, name: str, uses: Uses) -> rl.RelayExpr | None:
        fast = _FAST.get(name)
        return None if fast is None else build(fast, *call.args, **call.attrs)


_FAST: Final = {
    "exp": "fast_exp",
    "tanh": "fast_tanh",
    "erf": "fast_erf",
    "nn.softmax": "nn.fast_softmax",
}


@dataclass(frozen=True)
class CanonicalizeOps(CallRewriter):
    """Replace bias_add by a sum with the bias, which gets dimensions of size 1.

    Example:
        >>> from relaxpy import relay
        >>> mod = relay.parse("fn(%x: Tensor[(2, 3), float32], %b: Tensor[(3,), float32])"
        ...                   " { nn.bias_add(%x, %b) }")
        >>> new = relay.transform.CanonicalizeOps()(mod)
        >>> print(new["main"].astext(annotate=lambda _: ""))
        fn (%x: Tensor[(2, 3), float32], %b: Tensor[(3,), float32]) -> Tensor[(2, 3), float32] {
          add(%x, %b)
        }

    """

    @override
    def rewritten(self, call: rl.Call, name: str, uses: Uses) -> rl.RelayExpr | None:
        ty = call.checked_type_
        if name != "nn.bias_add" or not isinstance(ty, TensorType):
            return None
        if not isinstance(ty.shape, tuple):
            return None
        data, bias = call.args
        after = len(ty.shape) - 1 - int(attributes(call)["axis"]) % len(ty.shape)
        if after:
            bias = build("expand_dims", bias, axis=1, num_newaxis=after)
        return build("add", data, bias)


@dataclass(frozen=True)
class CanonicalizeCast(CallRewriter):
    """Give each call that uses a cast with several uses a cast of its own.

    FuseOps then puts each cast into the function of its user.

    Example:
        >>> from relaxpy import relay
        >>> mod = relay.parse('fn(%n: int32)'
        ...                   ' { %0 = cast(%n, dtype="float32"); (exp(%0), log(%0)) }')
        >>> new = relay.transform.CanonicalizeCast()(mod)
        >>> print(new["main"].astext(annotate=lambda _: ""))
        fn (%n: int32) -> (float32, float32) {
          %0 = cast(%n, dtype="float32");
          %1 = exp(%0);
          %2 = cast(%n, dtype="float32");
          %3 = log(%2);
          (%1, %3)
        }

    """

    @override
    def rewritten(self, call: rl.Call, name: str, uses: Uses) -> rl.RelayExpr | None:
        args = tuple(
            replace(arg) if called(arg, "cast") and not uses.is_single(arg) else arg  # type: ignore[type-var]
            for arg in call.args
        )
        same = all(new is old for new, old in zip(args, call.args, strict=True))
        return None if same else replace(call, args=args)


@dataclass(frozen=True)
class DivToMul(CallRewriter):
    """Replace quotients by a constant of floats by products with its reciprocal.

    Results may differ in the last bit, unless the constant is a power of two.

    Example:
        >>> from relaxpy import relay
        >>> mod = relay.parse("fn(%x: float32) { %x / 4f }")
        >>> new = relay.transform.DivToMul()(mod)
        >>> print(new["main"].astext(annotate=lambda _: ""))
        fn (%x: float32) -> float32 {
          multiply(%x, 0.25f)
        }

    """

    @override
    def rewritten(self, call: rl.Call, name: str, uses: Uses) -> rl.RelayExpr | None:
        if name != "divide" or not isinstance(call.args[1], rl.Constant):
            return None
        divisor = np.asarray(call.args[1].data)
        if divisor.dtype.kind != "f" or not divisor.all():
            return None
        with np.errstate(over="ignore"):
            reciprocal = np.reciprocal(divisor)
        if not np.isfinite(reciprocal).all():  # 0 / 1e-40 is 0
            return None
        return build("multiply", call.args[0], rl.const(reciprocal))


@dataclass(frozen=True)
class SplitArgs(CallRewriter):
    """Write concatenations of many tensors as concatenations of concatenations.

    Example:
        >>> from relaxpy import relay
        >>> mod = relay.parse("fn(%x: Tensor[(2,), int8]) { concatenate((%x, %x, %x)) }")
        >>> new = relay.transform.SplitArgs(2)(mod)
        >>> print(new["main"].astext(annotate=lambda _: ""))
        fn (%x: Tensor[(2,), int8]) -> Tensor[(6,), int8] {
          %0 = (%x, %x);
          %1 = concatenate(%0);
          %2 = annotation.stop_fusion(%1);
          %3 = (%2, %x);
          concatenate(%3)
        }

    Errors:
        MisuseError (also TypeError, ValueError): `max_function_args` is not an integer, or less
            than 2.

    """

    max_function_args: int

    def __post_init__(self) -> None:
        number = self.max_function_args
        if isinstance(number, bool) or not isinstance(number, int) or number < 2:
            raise MisuseError(
                f"max_function_args is an integer of at least 2, found {number!r:.60}",
                about=number,
            )

    @override
    def rewritten(self, call: rl.Call, name: str, uses: Uses) -> rl.RelayExpr | None:
        fields = call.args[0] if name == "concatenate" else None
        if not isinstance(fields, rl.Tuple) or len(fields) <= self.max_function_args:
            return None
        waiting, axis = list(fields), attributes(call)["axis"]
        while len(waiting) > self.max_function_args:
            groups = range(0, len(waiting), self.max_function_args)
            waiting = [
                _joined(waiting[first : first + self.max_function_args], axis) for first in groups
            ]
        return build("concatenate", rl.Tuple(tuple(waiting)), axis=axis)


def _joined(fields: list[rl.RelayExpr], axis: int) -> rl.RelayExpr:
    if len(fields) == 1:
        return fields[0]
    joined = build("concatenate", rl.Tuple(tuple(fields)), axis=axis)
    return build("annotation.stop_fusion", joined)
