"""Random numbers. A node without a seed has one that its place in the graph decides."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from relaxpy.exec.runtime.registry import register_func
from relaxpy.ir.relax.nodes import Expr, PrimValue, ShapeExpr, const
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.plugins.importing.tensors import (
    as_size,
    dtype_of,
    is_float,
    scalar,
    shape_of,
    tensor_of,
)
from relaxpy.plugins.onnx.context import Context
from relaxpy.plugins.onnx.registry import Value, converter
from relaxpy.plugins.onnx.view import dtype_of as dtype_of_code

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
#: The names of the packed functions below.
PREFIX = "relaxpy.onnx."


def _drawn(cx: Context, name: str, sizes: Sequence[Any], seed: float | None) -> Expr:
    """Numbers of float64 of a shape."""
    if seed is None:
        seed = zlib.crc32(f"{cx.node.index} {' '.join(cx.node.outputs)}".encode())
    shape = ShapeExpr(tuple(map(as_size, sizes)))
    number = PrimValue(as_size(int(seed) % (1 << 32)))
    info = tensor_of(list(sizes), "float64")
    return cx.emit(R.call_pure_packed(PREFIX + name, shape, number, sinfo_args=[info]))


def _scaled(x: Expr, scale: float, offset: float, dtype: str) -> Expr:
    moved = R.add(R.multiply(x, const(scale, "float64")), const(offset, "float64"))
    return R.astype(moved, dtype)


def _like(x: Expr, dtype: int | None) -> str:
    return dtype_of_code(dtype) if dtype else dtype_of(x) if is_float(x) else "float32"


@converter("RandomNormal")
def random_normal(
    cx: Context,
    *,
    shape: Sequence[int],
    dtype: int = 1,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Expr:
    return _scaled(_drawn(cx, "normal", shape, seed), scale, mean, dtype_of_code(dtype))


@converter("RandomNormalLike")
def random_normal_like(
    cx: Context,
    x: Expr,
    *,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Expr:
    return _scaled(_drawn(cx, "normal", shape_of(x), seed), scale, mean, _like(x, dtype))


@converter("RandomUniform")
def random_uniform(
    cx: Context,
    *,
    shape: Sequence[int],
    dtype: int = 1,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
) -> Expr:
    return _scaled(_drawn(cx, "uniform", shape, seed), high - low, low, dtype_of_code(dtype))


@converter("RandomUniformLike")
def random_uniform_like(
    cx: Context,
    x: Expr,
    *,
    dtype: int | None = None,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
) -> Expr:
    return _scaled(_drawn(cx, "uniform", shape_of(x), seed), high - low, low, _like(x, dtype))


@converter("Bernoulli")
def bernoulli(cx: Context, x: Expr, *, dtype: int | None = None, seed: float | None = None) -> Expr:
    hit = R.less(_drawn(cx, "uniform", shape_of(x), seed), R.astype(x, "float64"))
    return R.astype(hit, dtype_of_code(dtype) if dtype else dtype_of(x))


@converter("Multinomial")
def multinomial(
    cx: Context, x: Expr, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None
) -> Expr:
    batch, classes = shape_of(x, 2)
    shares = R.cumsum(R.nn.softmax(R.astype(x, "float64"), -1), 1)
    draws = R.expand_dims(_drawn(cx, "uniform", [batch, sample_size], seed), 2)
    below = R.astype(R.greater_equal(draws, R.expand_dims(shares, 1)), "int64")
    last = R.subtract(R.sum(R.ones((classes,), "int64")), const(1, "int64"))
    return R.astype(R.minimum(R.sum(below, [2]), last), dtype_of_code(dtype))


@converter("Dropout", since=12)
def dropout(
    cx: Context,
    x: Expr,
    ratio: Value = None,
    training_mode: Value = None,
    *,
    seed: int | None = None,
) -> tuple[Expr, Expr]:
    everything = R.ones_like(x, "bool")
    known = np.zeros((), bool) if training_mode is None else cx.array(training_mode)
    if known is not None and not known.any():
        return x, everything
    share = R.reshape(cx.tensor(ratio), ()) if ratio is not None else const(0.5, "float32")
    share = R.astype(share, "float64")
    kept = R.greater_equal(_drawn(cx, "uniform", shape_of(x), 0 if seed is None else seed), share)
    scale = R.astype(
        R.divide(const(1.0, "float64"), R.subtract(const(1.0, "float64"), share)), dtype_of(x)
    )
    if training_mode is not None and known is None:
        training = R.reshape(cx.tensor(training_mode), ())
        kept = R.where(training, kept, everything)
        scale = R.where(training, scale, scalar(1, x))
    mask = cx.emit(kept)
    return R.where(mask, R.multiply(x, scale), scalar(0, x)), mask


def uniform(shape: Any, seed: int) -> Array:
    """Numbers from 0 to 1 in float64."""
    return np.random.RandomState(seed).uniform(0.0, 1.0, tuple(map(int, shape)))


def normal(shape: Any, seed: int) -> Array:
    """Numbers of mean 0 and deviation 1 in float64."""
    return np.random.RandomState(seed).normal(0.0, 1.0, tuple(map(int, shape)))


for _function in (uniform, normal):
    register_func(PREFIX + _function.__name__, _function, override=True, pure=True)
