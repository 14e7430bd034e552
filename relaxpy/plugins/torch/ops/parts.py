"""Composite operators: slices along axes, more axes, tensor contractions."""

from __future__ import annotations

import itertools
from typing import Any

from relaxpy.ir.relax.nodes import Expr, const
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.plugins.importing import tensors
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.torch.context import Context
from relaxpy.plugins.torch.registry import converter


@converter("tensor_split.indices", "tensor_split.tensor_indices_or_sections")
def tensor_split(cx: Context, x: Expr, places: Any, axis: int = 0) -> list[Expr]:
    at = cx.axis(axis, x)
    if isinstance(places, Expr):
        return _between(cx, x, at, places)
    size = tensors.shape_of(x)[at]
    edges = [0, *places, size]
    if isinstance(size, int):
        edges = [min(max(e + size if e < 0 else e, 0), size) for e in edges]
    return [
        R.strided_slice(x, [at], [low], [high if not _less(high, low) else low])
        for low, high in itertools.pairwise(edges)
    ]


def _between(cx: Context, x: Expr, axis: int, places: Expr) -> list[Expr]:
    """The parts between places that are known when it runs."""
    if not tensors.rank_of(places):
        raise UnsupportedError("the number of parts is not known")
    (count,) = tensors.sizes_known(places)
    size = cx.tensor(tensors.shape_of(x)[axis], "int64")
    zero = const(0, "int64")
    counted = R.where(R.less(places, zero), R.add(places, size), places)
    inside = R.minimum(R.maximum(counted, zero), size)
    edges = cx.emit(R.concat([R.zeros((1,), "int64"), inside, tensors.reshaped(size, [1])], 0))
    low = R.strided_slice(edges, [0], [0], [count + 1])
    high = cx.emit(R.maximum(R.strided_slice(edges, [0], [1], [count + 2]), low))
    parts = []
    for k in range(count + 1):
        ends = (R.take(edge, const(k, "int64"), 0) for edge in (edges, high))
        first, last = (cx.number_of(cx.emit(end), "end") for end in ends)
        parts.append(R.strided_slice(x, [axis], [first], [last]))
    return parts


def _less(a: Any, b: Any) -> bool:
    return isinstance(a, int) and isinstance(b, int) and a < b


@converter("resize")
def resize(cx: Context, x: Expr, size: Any) -> Expr:
    old, new = tensors.product(tensors.shape_of(x)), tensors.product(cx.result_shape())
    flat = tensors.reshaped(x, [old])
    if cx.importer.symbols.equal(old, new):
        return tensors.reshaped(x, cx.result_shape())
    return tensors.reshaped(R.strided_slice(flat, [0], [0], [new]), cx.result_shape())


@converter("_cdist_forward", wide=True)
def cdist(cx: Context, a: Expr, b: Expr, p: float, mode: int | None) -> Expr:
    rows = R.expand_dims(a, tensors.rank_of(a) - 1)
    columns = R.expand_dims(b, tensors.rank_of(b) - 2)
    return norm(cx, R.abs(R.subtract(rows, columns)), p)


def norm(cx: Context, size: Expr, p: float) -> Expr:
    """The norm along the last axis of numbers that are not negative."""
    last = tensors.rank_of(size) - 1
    zero = R.zeros((), tensors.dtype_of(size))
    if p == 0:
        return R.sum(R.astype(R.not_equal(size, zero), tensors.dtype_of(size)), [last])
    if p == float("inf"):
        return R.max(size, [last])
    if p == 1:
        return R.sum(size, [last])
    if p == 2:
        return R.sqrt(R.sum(R.multiply(size, size), [last]))
    power = cx.tensor(float(p), tensors.dtype_of(size))
    return R.power(R.sum(R.power(size, power), [last]), cx.tensor(1.0 / p, tensors.dtype_of(size)))


@converter("_pdist_forward", wide=True)
def pdist(cx: Context, x: Expr, p: float = 2) -> Expr:
    count = tensors.shape_of(x)[0]
    if not isinstance(count, int):
        return cdist(cx, x, x, p, None)
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    first, second = ([pair[k] for pair in pairs] for k in (0, 1))
    a, b = (R.take(x, cx.shape_tensor(index), 0) for index in (first, second))
    return norm(cx, R.abs(R.subtract(a, b)), p)


@converter("_trilinear", wide=True)
def trilinear(
    cx: Context, a: Expr, b: Expr, c: Expr, first: Any, second: Any, third: Any, summed: Any,
    unroll: int = 1,
) -> Expr:  # fmt: skip
    parts = []
    for operand, axes in ((a, first), (b, second), (c, third)):
        for axis in axes:
            operand = R.expand_dims(operand, axis)
        parts.append(operand)
    return R.sum(R.multiply(R.multiply(parts[0], parts[1]), parts[2]), list(summed))
