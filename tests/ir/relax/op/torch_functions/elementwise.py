"""Operators on elements, creation of tensors, and reductions, by PyTorch."""

from __future__ import annotations

from typing import Any

from tests.ir.relax.op.torch_functions.base import (
    NoCounterpartError,
    Table,
    number,
    of_dtype,
    torch,
)


def _divide(x: Any, y: Any) -> Any:
    """A quotient of integers is truncated."""
    whole = not (torch.is_floating_point(number(x)) or torch.is_floating_point(number(y)))
    return torch.div(x, y, rounding_mode="trunc" if whole else None)


def _by_axes(function: str, unbiased: bool = True) -> Any:
    def reduced(x: Any, axis: Any, keepdims: bool) -> Any:
        if function in ("mean", "var", "std") and not x.is_floating_point():
            raise NoCounterpartError("integers")
        axes = tuple(range(x.ndim)) if axis is None else tuple(axis)
        more = {} if unbiased else {"correction": 0}
        return getattr(torch, function)(x, dim=axes, keepdim=keepdims, **more)

    return reduced


def _prod(x: Any, axis: Any, keepdims: bool) -> Any:
    for k in sorted(range(x.ndim) if axis is None else (a % x.ndim for a in axis))[::-1]:
        x = torch.prod(x, k, keepdim=keepdims)
    return x


def _arg(function: str) -> Any:
    def reduced(x: Any, axis: int | None, keepdims: bool) -> Any:
        found = getattr(torch, function)(x, dim=axis, keepdim=keepdims and axis is not None)
        return found.reshape([1] * x.ndim) if keepdims and axis is None else found

    return reduced


def _scan(function: str) -> Any:
    def scanned(data: Any, axis: int | None, dtype: Any, exclusive: bool) -> Any:
        data = (data.flatten() if axis is None else data).to(of_dtype(dtype, data.dtype))
        axis = axis or 0
        out = getattr(torch, function)(data, axis, dtype=data.dtype)
        if not exclusive:
            return out
        first = torch.full_like(
            data.narrow(axis, 0, min(1, data.shape[axis])), 0 + (function == "cumprod")
        )
        return torch.cat([first, out.narrow(axis, 0, max(data.shape[axis] - 1, 0))], axis)

    return scanned


_SAME_NAME = """
    abs acos acosh add asin asinh atan atanh bitwise_and bitwise_not bitwise_or bitwise_xor ceil cos
    cosh erf exp floor floor_divide isfinite isinf isnan log logical_and logical_not logical_or
    logical_xor maximum minimum multiply negative round rsqrt sigmoid sin sinh sqrt
    square subtract tan tanh trunc where
"""

TABLE: Table = {
    **{name: lambda *x, _n=name: getattr(torch, _n)(*x) for name in _SAME_NAME.split()},
    **{
        name: lambda x, y, _n=short: getattr(torch, _n)(x, y)
        for name, short in {
            "equal": "eq",
            "greater": "gt",
            "greater_equal": "ge",
            "less": "lt",
            "less_equal": "le",
            "not_equal": "ne",
            "floor_mod": "remainder",
            "mod": "fmod",
            "left_shift": "bitwise_left_shift",
            "right_shift": "bitwise_right_shift",
            "log_add_exp": "logaddexp",
            "atan2": "atan2",
        }.items()
    },
    "sign": lambda x: torch.where(torch.isnan(x), x, torch.sign(x)),
    "power": lambda x, y: torch.pow(x, y),
    "clip": lambda x, low, high: torch.clamp(x, low, high),
    "divide": _divide,
    "ewise_fma": lambda x, y, z: x * y + z,
    "astype": lambda x, dtype: x.to(of_dtype(dtype, x.dtype)),
    "wrap_param": lambda x, dtype: x.to(of_dtype(dtype, x.dtype)),
    **{name: _by_axes(name) for name in ("sum", "mean")},
    "max": _by_axes("amax"),
    "min": _by_axes("amin"),
    "variance": _by_axes("var", False),
    "std": _by_axes("std", False),
    "prod": _prod,
    **{name: _arg(name) for name in ("argmax", "argmin")},
    **{name: _scan(name) for name in ("cumsum", "cumprod")},
    "arange": lambda *x, dtype: torch.arange(*x, dtype=of_dtype(dtype)),
    "eye": lambda n, m, k, dtype: torch.diag_embed(torch.ones(max(n, m) + abs(k) + 1), offset=k)[
        :n, :m
    ].to(of_dtype(dtype)),
    "eye_like": lambda x, k, dtype: torch.diag_embed(
        torch.ones(max(x.shape) + abs(k) + 1), offset=k
    )[: x.shape[0], : x.shape[1]],
    "full": lambda shape, value, dtype: value.to(of_dtype(dtype, value.dtype)).expand(shape),
    "full_like": lambda x, value, dtype: value.to(of_dtype(dtype, x.dtype)).expand(x.shape),
    "zeros": lambda shape, dtype: torch.zeros(shape, dtype=of_dtype(dtype)),
    "ones": lambda shape, dtype: torch.ones(shape, dtype=of_dtype(dtype)),
    "zeros_like": lambda x, dtype: torch.zeros_like(x, dtype=of_dtype(dtype, x.dtype)),
    "ones_like": lambda x, dtype: torch.ones_like(x, dtype=of_dtype(dtype, x.dtype)),
    "hamming_window": lambda n, periodic, alpha, beta, dtype: torch.hamming_window(
        n, bool(periodic), alpha, beta, dtype=of_dtype(dtype)
    ),
}
