"""Factors of matrices and what is solved by them, as kernels of loops over a batch of matrices."""

from __future__ import annotations

from typing import Any

from relaxpy.frontend.shared.loops import Loops, Number, kernel
from relaxpy.frontend.shared.tensors import Size, dtype_of, product, rank_of, reshaped, shape_of
from relaxpy.frontend.torch.context import Context
from relaxpy.frontend.torch.registry import converter
from relaxpy.ir.relax.nodes import Expr, const
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import Select
from relaxpy.ir.tir.intrin import sqrt


def matrices(cx: Context, x: Expr, batch: list[Size] | None = None) -> Expr:
    """A batch of matrices with one axis before those of rows and columns."""
    *outer, rows, columns = shape_of(x)
    if batch is not None and outer != batch:
        x = R.broadcast_to(x, (*batch, rows, columns))
        outer = batch
    return cx.emit(reshaped(x, [product(outer), rows, columns]))


def flipped(x: Expr) -> Expr:
    """The transposed matrices."""
    rank = rank_of(x)
    return R.permute_dims(x, [*range(rank - 2), rank - 1, rank - 2])


def size_of(x: Number) -> Number:
    """|x|."""
    return Select(x < 0, -x, x)


def cholesky_of(cx: Context, x: Expr, *, upper: bool = False) -> tuple[Expr, Expr]:
    """The lower factor, or the transposed one, and where a matrix is not positive definite."""
    batch = shape_of(x)[:-2]
    a = matrices(cx, flipped(x) if upper else x)
    dtype = dtype_of(x)

    def write(k: Loops, a: Any, lower: Any, info: Any) -> None:
        n = a.shape[1]
        with k.loop(a.shape[0]) as b:
            k.store(info, b, 0)
            with k.loop(n) as i, k.loop(n) as j:
                k.store(lower, (b, i, j), 0.0)
            with k.loop(n) as j, k.loop(n - j, start=j) as i:
                rest = k.local(a[b, i, j])
                with k.loop(j) as p:
                    k.store(rest, 0, rest[0] - lower[b, i, p] * lower[b, j, p])
                with k.when(i == j):
                    with k.when((rest[0] <= 0.0) & (info[b] == ops.const(0, "int32"))):
                        k.store(info, b, j + 1)
                    k.store(lower, (b, i, j), sqrt(rest[0]))
                with k.otherwise():
                    k.store(lower, (b, i, j), rest[0] / lower[b, j, j])

    sizes = shape_of(a)
    lower, info = kernel(cx, "cholesky", [(sizes, dtype), ([sizes[0]], "int32")], [a], write)
    factor = reshaped(lower, shape_of(x))
    return flipped(factor) if upper else factor, reshaped(info, batch)


@converter("cholesky", "linalg_cholesky")
def cholesky(cx: Context, x: Expr, upper: bool = False) -> Expr:
    return cholesky_of(cx, x, upper=upper)[0]


@converter("linalg_cholesky_ex")
def cholesky_ex(
    cx: Context, x: Expr, *, upper: bool = False, check_errors: bool = False
) -> tuple[Expr, Expr]:
    return cholesky_of(cx, x, upper=upper)


def triangular(cx: Context, a: Expr, b: Expr, *, upper: bool, unit: bool = False) -> Expr:
    """The x with a x = b, where only a triangle of `a` is read."""
    batch = shape_of(b)[:-2]
    dtype = dtype_of(b)
    left, right = matrices(cx, a, batch), matrices(cx, b)

    def write(k: Loops, a: Any, b: Any, out: Any) -> None:
        n = a.shape[1]
        with k.loop(b.shape[0]) as m, k.loop(b.shape[2]) as c, k.loop(n) as step:
            i = n - 1 - step if upper else step
            rest = k.local(b[m, i, c])
            with k.loop(step) as p:
                j = n - 1 - p if upper else p
                k.store(rest, 0, rest[0] - a[m, i, j] * out[m, j, c])
            k.store(out, (m, i, c), rest[0] if unit else rest[0] / a[m, i, i])

    (found,) = kernel(cx, "solve_triangular", [(shape_of(right), dtype)], [left, right], write)
    return cx.emit(reshaped(found, shape_of(b)))


def joint(a: list[Size], b: list[Size]) -> list[Size]:
    """The shape that two batches broadcast to."""
    rank = max(len(a), len(b))
    ones: list[Size] = [1] * rank
    first, second = (ones[len(sizes) :] + sizes for sizes in (a, b))
    return [y if x == 1 else x for x, y in zip(first, second, strict=True)]


def _grown(cx: Context, x: Expr, batch: list[Size]) -> Expr:
    wanted = [*batch, *shape_of(x)[-2:]]
    return x if shape_of(x) == wanted else cx.emit(R.broadcast_to(x, tuple(wanted)))


@converter("linalg_solve_triangular")
def solve_triangular(
    cx: Context,
    a: Expr,
    b: Expr,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> Expr:
    if not left:
        turned = solve_triangular(
            cx, flipped(a), flipped(b), upper=not upper, unitriangular=unitriangular
        )
        return flipped(turned)
    batch = joint(shape_of(a)[:-2], shape_of(b)[:-2])
    return triangular(cx, a, _grown(cx, b, batch), upper=upper, unit=unitriangular)


@converter("triangular_solve")
def triangular_solve(
    cx: Context,
    b: Expr,
    a: Expr,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[Expr, Expr]:
    batch = joint(shape_of(a)[:-2], shape_of(b)[:-2])
    matrix = flipped(a) if transpose else a
    found = triangular(
        cx, matrix, _grown(cx, b, batch), upper=upper != transpose, unit=unitriangular
    )
    return found, _grown(cx, a, batch)


@converter("cholesky_solve")
def cholesky_solve(cx: Context, b: Expr, factor: Expr, upper: bool = False) -> Expr:
    lower = flipped(factor) if upper else factor
    batch = joint(shape_of(b)[:-2], shape_of(factor)[:-2])
    between = triangular(cx, lower, _grown(cx, b, batch), upper=False)
    return triangular(cx, flipped(lower), between, upper=True)


def _identity(cx: Context, x: Expr) -> Expr:
    *batch, n, _ = shape_of(x)
    return cx.emit(R.broadcast_to(R.eye(n, n, 0, dtype_of(x)), (*batch, n, n)))


@converter("cholesky_inverse")
def cholesky_inverse(cx: Context, factor: Expr, upper: bool = False) -> Expr:
    return cholesky_solve(cx, _identity(cx, factor), factor, upper)


def lu_of(cx: Context, x: Expr, *, pivot: bool = True) -> tuple[Expr, Expr, Expr]:
    """Both factors in one matrix, the rows that were exchanged from 1, and the first zero pivot."""
    *batch, rows, columns = shape_of(x)
    a = matrices(cx, x)
    count = min(rows, columns)

    def write(k: Loops, a: Any, lu: Any, pivots: Any, info: Any) -> None:
        m, n = a.shape[1], a.shape[2]
        with k.loop(a.shape[0]) as b:
            k.store(info, b, 0)
            with k.loop(m) as i, k.loop(n) as j:
                k.store(lu, (b, i, j), a[b, i, j])
            with k.loop(pivots.shape[1]) as p:
                best = k.local(p, "int64")
                if pivot:
                    with (
                        k.loop(m - p - 1, start=p + 1) as i,
                        k.when(size_of(lu[b, i, p]) > size_of(lu[b, best[0], p])),
                    ):
                        k.store(best, 0, i)
                k.store(pivots, (b, p), best[0] + 1)
                with k.when(best[0] != p), k.loop(n) as j:
                    kept = k.local(lu[b, p, j])
                    k.store(lu, (b, p, j), lu[b, best[0], j])
                    k.store(lu, (b, best[0], j), kept[0])
                singular = k.local(lu[b, p, p] == 0.0)
                with k.when(singular[0] & (info[b] == ops.const(0, "int32"))):
                    k.store(info, b, p + 1)
                with k.when(~singular[0]), k.loop(m - p - 1, start=p + 1) as i:
                    factor = k.local(lu[b, i, p] / lu[b, p, p])
                    k.store(lu, (b, i, p), factor[0])
                    with k.loop(n - p - 1, start=p + 1) as j:
                        k.store(lu, (b, i, j), lu[b, i, j] - factor[0] * lu[b, p, j])

    total = shape_of(a)[0]
    outputs = [(shape_of(a), dtype_of(x)), ([total, count], "int32"), ([total], "int32")]
    lu, pivots, info = kernel(cx, "lu_factor", outputs, [a], write)
    shapes = (shape_of(x), [*batch, count], batch)
    first, second, third = (
        cx.emit(reshaped(item, shape))
        for item, shape in zip((lu, pivots, info), shapes, strict=True)
    )
    return first, second, third


@converter("linalg_lu_factor_ex", "linalg_lu_factor", "_lu_with_info")
def lu_factor(cx: Context, x: Expr, *, pivot: bool = True, check_errors: bool = False) -> Any:
    found = lu_of(cx, x, pivot=pivot)
    return found[: len(cx.meta())]


def _order(cx: Context, pivots: Expr, rows: Size) -> Expr:
    """The order of the rows after exchanges, a vector for each matrix."""
    batch = shape_of(pivots)[:-1]
    total = product(batch)
    flat = cx.emit(reshaped(pivots, [total, shape_of(pivots)[-1]]))

    def write(k: Loops, pivots: Any, order: Any) -> None:
        with k.loop(order.shape[0]) as b:
            with k.loop(order.shape[1]) as i:
                k.store(order, (b, i), i)
            with k.loop(pivots.shape[1]) as i:
                other = k.local(pivots[b, i] - 1, "int64")
                kept = k.local(order[b, i])
                k.store(order, (b, i), order[b, other[0]])
                k.store(order, (b, other[0]), kept[0])

    (order,) = kernel(cx, "lu_order", [([total, rows], "int64")], [flat], write)
    return cx.emit(reshaped(order, [*batch, rows]))


def _permutation(cx: Context, pivots: Expr, rows: Size, dtype: str) -> Expr:
    """The matrices P of P L U."""
    order = _order(cx, pivots, rows)
    numbers = R.expand_dims(R.arange(0, rows, 1, "int64"), 1)
    at = R.expand_dims(order, rank_of(order) - 1)
    return cx.emit(R.astype(R.equal(numbers, at), dtype))


def _triangles(cx: Context, lu: Expr) -> tuple[Expr, Expr]:
    *batch, m, n = shape_of(lu)
    count, rank = min(m, n), len(batch)
    left = R.strided_slice(lu, [rank + 1], [0], [count]) if count != n else lu
    lower = R.add(R.tril(left, -1), R.eye(m, count, 0, dtype_of(lu)))
    upper = R.triu(lu, 0)
    if count != m:
        upper = R.strided_slice(upper, [rank], [0], [count])
    return cx.emit(lower), cx.emit(upper)


@converter("lu_unpack")
def lu_unpack(
    cx: Context, lu: Expr, pivots: Expr, unpack_data: bool = True, unpack_pivots: bool = True
) -> Any:
    rows = shape_of(lu)[-2]
    empty = R.zeros((0,), dtype_of(lu))
    permutation = _permutation(cx, pivots, rows, dtype_of(lu)) if unpack_pivots else empty
    lower, upper = _triangles(cx, lu) if unpack_data else (empty, empty)
    return permutation, lower, upper


@converter("linalg_lu")
def lu(cx: Context, x: Expr, *, pivot: bool = True) -> Any:
    both, pivots, _ = lu_of(cx, x, pivot=pivot)
    rows = shape_of(x)[-2]
    first = _permutation(cx, pivots, rows, dtype_of(x)) if pivot else R.zeros((0,), dtype_of(x))
    return (first, *_triangles(cx, both))


def solved(cx: Context, lu: Expr, pivots: Expr, b: Expr) -> Expr:
    """The x with P L U x = b."""
    batch = joint(shape_of(lu)[:-2], shape_of(b)[:-2])
    grown = _grown(cx, b, batch)
    turned = flipped(_permutation(cx, pivots, shape_of(lu)[-1], dtype_of(lu)))
    between = triangular(cx, lu, cx.emit(R.matmul(turned, grown)), upper=False, unit=True)
    return triangular(cx, lu, between, upper=True)


def solved_turned(cx: Context, lu: Expr, pivots: Expr, b: Expr) -> Expr:
    """The x with (P L U)^T x = b."""
    batch = joint(shape_of(lu)[:-2], shape_of(b)[:-2])
    between = triangular(cx, flipped(lu), _grown(cx, b, batch), upper=False)
    last = triangular(cx, flipped(lu), between, upper=True, unit=True)
    return R.matmul(_permutation(cx, pivots, shape_of(lu)[-1], dtype_of(lu)), last)


@converter("linalg_lu_solve")
def lu_solve(
    cx: Context, lu: Expr, pivots: Expr, b: Expr, *, left: bool = True, adjoint: bool = False
) -> Expr:
    if left:
        return (solved_turned if adjoint else solved)(cx, lu, pivots, b)
    return flipped((solved if adjoint else solved_turned)(cx, lu, pivots, flipped(b)))


@converter("lu_solve")
def old_lu_solve(cx: Context, b: Expr, lu: Expr, pivots: Expr) -> Expr:
    return solved(cx, lu, pivots, b)


@converter("_linalg_solve_ex")
def solve_ex(
    cx: Context, a: Expr, b: Expr, *, left: bool = True, check_errors: bool = False
) -> tuple[Expr, ...]:
    both, pivots, info = lu_of(cx, a)
    is_vector = rank_of(b) == 1 or shape_of(b) == shape_of(a)[:-1]
    column = R.expand_dims(b, rank_of(b)) if is_vector else b
    if left or is_vector:
        found = solved(cx, both, pivots, column)
    else:
        found = flipped(solved_turned(cx, both, pivots, flipped(column)))
    return (R.squeeze(found, [-1]) if is_vector else found), both, pivots, info


@converter("linalg_solve_ex", "linalg_solve")
def solve(cx: Context, a: Expr, b: Expr, *, left: bool = True, check_errors: bool = False) -> Any:
    found = solve_ex(cx, a, b, left=left)
    return (found[0], found[3]) if isinstance(cx.meta(), (tuple, list)) else found[0]


@converter("linalg_inv_ex")
def inverse_ex(cx: Context, x: Expr, *, check_errors: bool = False) -> tuple[Expr, Expr]:
    both, pivots, info = lu_of(cx, x)
    return solved(cx, both, pivots, _identity(cx, x)), info


@converter("linalg_inv", "inverse")
def inverse(cx: Context, x: Expr) -> Expr:
    return inverse_ex(cx, x)[0]


def _determinant(cx: Context, x: Expr) -> tuple[Expr, Expr, Expr, Expr]:
    """The sign of exchanges, the diagonal, and the factors."""
    both, pivots, _ = lu_of(cx, x)
    rank = rank_of(x)
    n = shape_of(x)[-1]
    dtype = dtype_of(x)
    numbers = R.arange(1, n + 1, 1, "int32")
    moved = R.astype(R.not_equal(pivots, numbers), "int32")
    odd = R.floor_mod(R.sum(moved, [rank - 2]), const(2, "int32"))
    sign = R.subtract(R.ones((), dtype), R.multiply(R.astype(odd, dtype), cx.tensor(2.0, dtype)))
    diagonal = R.sum(R.multiply(both, R.eye(n, n, 0, dtype)), [rank - 1])
    return sign, cx.emit(diagonal), both, pivots


@converter("_linalg_det")
def determinant(cx: Context, x: Expr) -> tuple[Expr, Expr, Expr]:
    sign, diagonal, both, pivots = _determinant(cx, x)
    return R.multiply(sign, R.prod(diagonal, [rank_of(x) - 2])), both, pivots


@converter("_linalg_slogdet")
def log_determinant(cx: Context, x: Expr) -> tuple[Expr, Expr, Expr, Expr]:
    sign, diagonal, both, pivots = _determinant(cx, x)
    axis = [rank_of(x) - 2]
    signs = R.multiply(sign, R.prod(R.sign(diagonal), axis))
    return signs, R.sum(R.log(R.abs(diagonal)), axis), both, pivots
