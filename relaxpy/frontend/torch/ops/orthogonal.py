"""Orthogonal factors of matrices: Householder reflections, singular values, eigenvalues."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxpy.frontend.shared.loops import Loops, Number, kernel
from relaxpy.frontend.shared.tensors import (
    Size,
    dtype_of,
    product,
    rank_of,
    reshaped,
    shape_of,
)
from relaxpy.frontend.torch.context import Context
from relaxpy.frontend.torch.ops.factors import flipped, matrices, size_of
from relaxpy.frontend.torch.registry import converter
from relaxpy.ir.relax.nodes import Expr, const
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import Max, Min, Select
from relaxpy.ir.tir.intrin import sqrt

#: After so many rounds over all pairs of columns they are orthogonal; six to ten are usual.
_ROUNDS = 40


def least(a: Size, b: Size) -> Size:
    """The smaller size."""
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else Min(a, b)


def most(a: Size, b: Size) -> Size:
    """The larger size."""
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else Max(a, b)


def reflections(cx: Context, x: Expr) -> tuple[Expr, Expr]:
    """R with the vectors of the reflections below its diagonal, and their factors, as LAPACK's.

    The k-th reflection is I - tau v v^T, where v is 0 above row k and 1 in it.
    """
    *batch, rows, columns = shape_of(x)
    a, dtype = matrices(cx, x), dtype_of(x)

    def write(k: Loops, a: Any, out: Any, tau: Any) -> None:
        m, n = a.shape[1], a.shape[2]
        with k.loop(a.shape[0]) as b:
            with k.loop(m) as i, k.loop(n) as j:
                k.store(out, (b, i, j), a[b, i, j])
            with k.loop(tau.shape[1]) as p:
                below = k.local(ops.const(0.0, dtype))
                with k.loop(m - p - 1, start=p + 1) as i:
                    k.store(below, 0, below[0] + out[b, i, p] * out[b, i, p])
                k.store(tau, (b, p), 0.0)
                with k.when(below[0] > 0.0):
                    first = k.local(out[b, p, p])
                    norm = k.local(sqrt(first[0] * first[0] + below[0]))
                    last = k.local(Select(first[0] < 0.0, norm[0], -norm[0]))
                    k.store(tau, (b, p), (last[0] - first[0]) / last[0])
                    with k.loop(m - p - 1, start=p + 1) as i:
                        k.store(out, (b, i, p), out[b, i, p] / (first[0] - last[0]))
                    k.store(out, (b, p, p), last[0])
                    with k.loop(n - p - 1, start=p + 1) as j:
                        _reflect(k, out, tau[b, p], out, (b, p, j))

    sizes = shape_of(a)
    count = least(rows, columns)
    out, tau = kernel(cx, "reflections", [(sizes, dtype), ([sizes[0], count], dtype)], [a], write)
    return cx.emit(reshaped(out, shape_of(x))), cx.emit(reshaped(tau, [*batch, count]))


def _reflect(k: Loops, vectors: Any, tau: Number, out: Any, index: tuple[Any, Any, Any]) -> None:
    """Reflect a column of `out` by the p-th vector."""
    b, p, j = index
    inner = k.local(out[b, p, j])
    rows = out.shape[1] - p - 1
    with k.loop(rows, start=p + 1) as i:
        k.store(inner, 0, inner[0] + vectors[b, i, p] * out[b, i, j])
    k.store(inner, 0, inner[0] * tau)
    k.store(out, (b, p, j), out[b, p, j] - inner[0])
    with k.loop(rows, start=p + 1) as i:
        k.store(out, (b, i, j), out[b, i, j] - inner[0] * vectors[b, i, p])


def reflected(cx: Context, vectors: Expr, tau: Expr, x: Expr, *, turned: bool = False) -> Expr:
    """The product of all reflections, or its transpose, times the matrices `x`."""
    batch, dtype = shape_of(x)[:-2], dtype_of(x)
    flat = cx.emit(reshaped(tau, [product(batch), shape_of(tau)[-1]]))
    a, c = matrices(cx, vectors, batch), matrices(cx, x)

    def write(k: Loops, a: Any, tau: Any, c: Any, out: Any) -> None:
        count = tau.shape[1]
        with k.loop(c.shape[0]) as b, k.loop(c.shape[2]) as j:
            with k.loop(c.shape[1]) as i:
                k.store(out, (b, i, j), c[b, i, j])
            with k.loop(count) as step:
                p = step if turned else count - 1 - step
                _reflect(k, a, tau[b, p], out, (b, p, j))

    (out,) = kernel(cx, "reflected", [(shape_of(c), dtype)], [a, flat, c], write)
    return cx.emit(reshaped(out, shape_of(x)))


def unit(cx: Context, batch: list[Size], rows: Size, columns: Size, dtype: str) -> Expr:
    """Matrices with ones on their diagonals."""
    return cx.emit(R.broadcast_to(R.eye(rows, columns, 0, dtype), (*batch, rows, columns)))


@converter("geqrf")
def geqrf(cx: Context, x: Expr) -> tuple[Expr, Expr]:
    return reflections(cx, x)


@converter("linalg_householder_product", "orgqr")
def householder_product(cx: Context, vectors: Expr, tau: Expr) -> Expr:
    *batch, rows, columns = shape_of(vectors)
    return reflected(cx, vectors, tau, unit(cx, batch, rows, columns, dtype_of(vectors)))


@converter("ormqr")
def ormqr(
    cx: Context, vectors: Expr, tau: Expr, x: Expr, left: bool = True, transpose: bool = False
) -> Expr:
    if left:
        return reflected(cx, vectors, tau, x, turned=transpose)
    return flipped(reflected(cx, vectors, tau, cx.emit(flipped(x)), turned=not transpose))


@converter("linalg_qr")
def qr(cx: Context, x: Expr, mode: str = "reduced") -> tuple[Expr, Expr]:
    *batch, rows, columns = shape_of(x)
    count = rows if mode == "complete" else least(rows, columns)
    both, tau = reflections(cx, x)
    upper = R.triu(R.strided_slice(both, [len(batch)], [0], [count]), 0)
    if mode == "r":
        return R.zeros((0,), dtype_of(x)), upper
    return reflected(cx, both, tau, unit(cx, batch, rows, count, dtype_of(x))), upper


@converter("qr")
def old_qr(cx: Context, x: Expr, some: bool = True) -> tuple[Expr, Expr]:
    return qr(cx, x, "reduced" if some else "complete")


def _orthogonal(cx: Context, x: Expr) -> tuple[Expr, Expr]:
    """A V, whose columns are orthogonal, and the orthogonal V (Hestenes, SIAM J. 6(1), 1958)."""
    a, dtype = matrices(cx, x), dtype_of(x)
    total, rows, columns = shape_of(a)

    def write(k: Loops, a: Any, out: Any, turn: Any) -> None:
        m, n = a.shape[1], a.shape[2]
        with k.loop(a.shape[0]) as b:
            with k.loop(m) as i, k.loop(n) as j:
                k.store(out, (b, i, j), a[b, i, j])
            with k.loop(n) as i, k.loop(n) as j:
                k.store(turn, (b, i, j), ops.cast_to(i == j, turn.dtype))
            left = k.local(ops.const(_ROUNDS, "int64"))
            turned = k.local(ops.const(0, "int64"))
            with k.repeat(left[0] > 0):
                k.store(turned, 0, 0)
                with k.loop(n) as p, k.loop(n - p - 1, start=p + 1) as q:
                    _turn(k, out, turn, turned, (b, p, q))
                k.store(left, 0, Select(turned[0] > 0, left[0] - 1, ops.const(0, "int64")))

    sizes = [([total, rows, columns], dtype), ([total, columns, columns], dtype)]
    out, turn = kernel(cx, "orthogonal_columns", sizes, [a], write)
    batch = shape_of(x)[:-2]
    return reshaped(out, shape_of(x)), cx.emit(reshaped(turn, [*batch, columns, columns]))


def _turn(k: Loops, out: Any, turn: Any, turned: Any, index: tuple[Any, Any, Any]) -> None:
    """Rotate two columns so that they are orthogonal; `turned` is 1 if they were not."""
    b, p, q = index
    first, second, both = (k.local(ops.const(0.0, "float64")) for _ in range(3))
    with k.loop(out.shape[1]) as i:
        x, y = out[b, i, p], out[b, i, q]
        k.store(first, 0, first[0] + x * x)
        k.store(second, 0, second[0] + y * y)
        k.store(both, 0, both[0] + x * y)
    with k.when(size_of(both[0]) > 1e-14 * sqrt(first[0]) * sqrt(second[0])):
        k.store(turned, 0, 1)
        ratio = k.local((second[0] - first[0]) / (2.0 * both[0]))
        root = sqrt(1.0 + ratio[0] * ratio[0])
        tangent = k.local(1.0 / (ratio[0] + Select(ratio[0] < 0.0, -root, root)))
        cosine = k.local(1.0 / sqrt(1.0 + tangent[0] * tangent[0]))
        sine = k.local(cosine[0] * tangent[0])
        for matrix in (out, turn):
            with k.loop(matrix.shape[1]) as i:
                kept = k.local(matrix[b, i, p])
                k.store(matrix, (b, i, p), cosine[0] * kept[0] - sine[0] * matrix[b, i, q])
                k.store(matrix, (b, i, q), sine[0] * kept[0] + cosine[0] * matrix[b, i, q])


def _ordered(cx: Context, values: Expr, *columns: Expr, descending: bool) -> list[Expr]:
    """The values in order, and the columns of matrices that belong to them."""
    rank = rank_of(values)
    order = cx.emit(R.argsort(values, rank - 1, descending, "int64"))
    ordered: list[Expr] = [cx.emit(R.gather_elements(values, order, rank - 1))]
    for matrix in columns:
        places = R.broadcast_to(R.expand_dims(order, rank - 1), tuple(shape_of(matrix)))
        ordered.append(cx.emit(R.gather_elements(matrix, places, rank)))
    return ordered


def _cut(x: Expr, axis: int, size: Size) -> Expr:
    return x if shape_of(x)[axis] == size else R.strided_slice(x, [axis], [0], [size])


def singular(cx: Context, x: Expr, *, full: bool = False) -> tuple[Expr, Expr, Expr]:
    """U, the singular values from the largest on, and V^T, computed in float64.

    The Q of A V = Q R has orthogonal columns where A has no full rank, too, and its columns are
    those of U but for signs, which V takes.
    """
    *batch, rows, columns = shape_of(x)
    if isinstance(rows, int) and isinstance(columns, int) and rows < columns:
        right, values, left = singular(cx, flipped(x), full=full)
        return flipped(left), values, flipped(right)
    rank, dtype = len(batch), dtype_of(x)
    out, turn = _orthogonal(cx, cx.emit(cx.tensor(x, "float64")))
    norms = cx.emit(R.sqrt(R.sum(R.multiply(out, out), [rank])))
    values, out, turn = _ordered(cx, norms, out, turn, descending=True)
    both, tau = reflections(cx, out)
    diagonal = R.sum(R.multiply(both, unit(cx, batch, rows, columns, "float64")), [rank])
    signs = R.where(R.less(diagonal, _double(0.0)), _double(-1.0), _double(1.0))
    right = flipped(R.multiply(turn, R.expand_dims(signs, rank)))
    count = least(rows, columns)
    left = reflected(cx, both, tau, unit(cx, batch, rows, rows if full else count, "float64"))
    right = right if full else _cut(right, rank, count)
    parts = (left, _cut(values, rank, count), right)
    first, second, third = (cx.emit(cx.tensor(part, dtype)) for part in parts)
    return first, second, third


def _double(value: float) -> Expr:
    return const(value, "float64")


def symmetric(cx: Context, x: Expr, *, upper: bool = False) -> tuple[Expr, Expr]:
    """The eigenvalues from the least on, and eigenvectors, computed in float64.

    A + c I with c = |A| has no negative eigenvalue, so that its singular vectors are eigenvectors.
    """
    *batch, n, _ = shape_of(x)
    rank = len(batch)
    wide = cx.tensor(x, "float64")
    half = R.triu(wide, 1) if upper else R.tril(wide, -1)
    ones = unit(cx, batch, n, n, "float64")
    a = cx.emit(R.add(R.add(half, flipped(half)), R.multiply(wide, ones)))
    norm = R.sqrt(R.sum(R.multiply(a, a), [rank, rank + 1], True))
    _, turn = _orthogonal(cx, cx.emit(R.add(a, R.multiply(norm, ones))))
    quotients = R.sum(R.multiply(turn, R.matmul(a, turn)), [rank])
    values, vectors = _ordered(cx, cx.emit(quotients), turn, descending=False)
    return cx.tensor(values, dtype_of(x)), cx.tensor(vectors, dtype_of(x))


@converter("_linalg_svd")
def svd(
    cx: Context,
    x: Expr,
    full: bool = False,
    vectors: bool = True,
    *,
    driver: str | None = None,
) -> tuple[Expr, Expr, Expr]:
    left, values, right = singular(cx, x, full=full)
    empty = R.zeros((0,), dtype_of(x))
    return (left, values, right) if vectors else (empty, values, empty)


@converter("linalg_svd")
def linalg_svd(
    cx: Context, x: Expr, full: bool = True, *, driver: str | None = None
) -> tuple[Expr, Expr, Expr]:
    return singular(cx, x, full=full)


@converter("linalg_svdvals")
def singular_values(cx: Context, x: Expr, *, driver: str | None = None) -> Expr:
    return singular(cx, x)[1]


@converter("_linalg_eigh")
def eigh(cx: Context, x: Expr, triangle: str = "L", vectors: bool = True) -> tuple[Expr, Expr]:
    values, found = symmetric(cx, x, upper=triangle in "Uu")
    return values, found if vectors else R.zeros((0,), dtype_of(x))


@converter("linalg_pinv.atol_rtol_tensor")
def pseudo_inverse(
    cx: Context,
    x: Expr,
    *,
    atol: Expr | None = None,
    rtol: Expr | None = None,
    hermitian: bool = False,
) -> Expr:
    *batch, rows, columns = shape_of(x)
    dtype = dtype_of(x)
    if hermitian:
        values, left = symmetric(cx, x)
        right = flipped(left)
    else:
        left, values, right = singular(cx, x)
    if 0 in (rows, columns):
        return R.zeros((*batch, columns, rows), dtype)
    values = cx.emit(values)
    size = cx.emit(R.abs(values))
    last = len(batch)

    def bound(value: Expr | None) -> Expr:
        given = const(0.0, dtype) if value is None else cx.tensor(value, dtype)
        return R.expand_dims(given, rank_of(given))

    relative = bound(rtol)
    if rtol is None:
        longest = cx.tensor(most(rows, columns), dtype)
        usual = R.multiply(longest, const(float(np.finfo(dtype).eps), dtype))
        relative = R.where(R.greater(bound(atol), const(0.0, dtype)), const(0.0, dtype), usual)
    limit = R.maximum(bound(atol), R.multiply(relative, R.max(size, [last], True)))
    turned = R.where(R.greater(size, limit), R.divide(const(1.0, dtype), values), const(0.0, dtype))
    scaled = R.multiply(flipped(right), R.expand_dims(turned, last))
    return R.matmul(scaled, flipped(left))
