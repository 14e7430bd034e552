"""Packed functions of real and complex matrices and vectors, by NumPy's LAPACK and pocketfft.

Each is called with its options as JSON and then its operands. In the options, `complex` has the
positions of operands that are complex, `names` the names of the last operands, which may be left
out, and `results` the numbers of the results that are used, with their datatypes and whether they
are complex. Complex tensors have their two parts along a last axis. `checked` is the name of the
function in whose name the last result, LAPACK's info, is checked.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from relaxpy.errors import PackedFuncError
from relaxpy.exec.machine.blas import run_lapack
from relaxpy.exec.machine.tuning import NumPy
from relaxpy.exec.runtime.registry import provided
from relaxpy.ir.core.dtype import Array
from relaxpy.plugins.importing import MATRICES


def matrix_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Register a function of NumPy's arrays."""

    @provided(MATRICES + function.__name__, pure=True)
    def call(options: str, *operands: Array) -> Array | tuple[Array, ...]:
        given = json.loads(options)
        are_complex, wanted = given.pop("complex"), given.pop("results")
        names, checked = given.pop("names", ()), given.pop("checked", None)
        values = [
            x if isinstance(x, int) else _joined(x) if k in are_complex else np.asarray(x)
            for k, x in enumerate(operands)
        ]
        try:
            with np.errstate(all="ignore"):
                count = len(values) - len(names)
                named = dict(zip(names, values[count:], strict=True))
                results = function(*values[:count], **named, **given)
            if checked is not None:
                _check(results[-1], checked)
        except np.linalg.LinAlgError as error:
            raise PackedFuncError(f"{checked or function.__name__}: {error!s:.200}") from None
        found = results if isinstance(results, tuple) else (results,)
        used = tuple(_parts(found[k], values, *kind) for k, *kind in wanted)
        return used if len(used) > 1 else used[0]

    return function


def _check(info: Array, name: str) -> None:
    """Raise the error of a matrix that has no factors or no inverse; `info` is 0 for the others."""
    failed = np.argwhere(info)
    if not len(failed):
        return
    at = tuple(failed[0].tolist())
    which = f"matrix {', '.join(map(str, at))} of the batch" if at else "the matrix"
    order = int(info[at])
    if "cholesky" in name and "inverse" not in name:
        text = f"{which} is not positive definite: its leading minor of order {order} is not"
    else:
        text = f"{which} is singular: the diagonal element {order} of its factor is zero"
    raise np.linalg.LinAlgError(text)


def _joined(x: Array) -> Array:
    pair = np.ascontiguousarray(x)
    return pair.view(np.result_type(pair.dtype, np.complex64))[..., 0]


def _parts(x: Any, operands: Sequence[Any], dtype: str, is_complex: bool) -> Array:
    """A result in a datatype, copied if it is one of the operands or a view."""
    found = np.asarray(x)
    is_view = not found.flags.owndata or any(found is operand for operand in operands)
    wanted = np.result_type(dtype, np.complex64) if is_complex else dtype
    result: Array = np.array(found, wanted, copy=is_view or None, order="C")
    return result[..., None].view(dtype) if is_complex else result


def _adjoint(x: Array) -> Array:
    return np.swapaxes(x, -1, -2).conj()


def _sizes(x: Array) -> Array:
    """The magnitudes by which LAPACK compares, |re| + |im|, without a square root."""
    result: Array = abs(x.real) + abs(x.imag)
    return result


def _turned(*matrices: Array) -> list[Array]:
    return [np.swapaxes(x, -1, -2) for x in matrices]


def _nothing(x: Array) -> Array:
    return np.zeros(0, x.dtype)


@matrix_function
def linalg_inv(a: Array) -> Array:
    """The inverses."""
    return np.linalg.inv(a)


@matrix_function
def linalg_matrix_exp(a: Array) -> Array:
    """The exponentials by scaling and squaring: a series of the matrix over a power of 2.

    For matrices of norm 1/2, the error of 18 terms is below the epsilon of float64. Of 20 terms,
    four at a time share a power, and take one product (Paterson and Stockmeyer).
    """
    wide = a.astype(np.result_type(a.dtype, np.float64))
    norm = abs(wide).sum(-1).max(-1, initial=0)
    halvings = np.clip(np.frexp(norm)[1] + 1, 0, 1025)[..., None, None]
    scaled = wide * 0.5**halvings
    square = scaled @ scaled
    powers = np.eye(a.shape[-1]), scaled, square, scaled @ square
    fourth, found = square @ square, np.zeros_like(wide)
    for first in range(16, -1, -4):
        terms = (power / math.factorial(first + k) for k, power in enumerate(powers))
        found = (found @ fourth if first < 16 else found) + sum(terms)
    for square in range(int(halvings.max(initial=0))):
        found = np.where(square < halvings, found @ found, found)
    return found


# ---- Fourier transforms


@matrix_function
def fft(x: Array, axis: int, inverse: bool, onesided: bool, count: int) -> Array:
    """The transforms of `count` points along an axis; those that are one-sided of real numbers.

    Forward transforms are scaled and scaled back, as NumPy computes others in float64.
    """
    if count < 1 or not x.shape[axis]:  # NumPy refuses those, and does not initialise these
        outputs = count // 2 + 1 if onesided and not inverse else max(count, 0)
        return np.zeros((*x.shape[:axis], outputs, *x.shape[axis + 1 :]), x.real.dtype)
    if inverse:
        return (np.fft.irfft if onesided else np.fft.ifft)(x, count, axis)
    y = (np.fft.rfft if onesided else np.fft.fft)(x, count, axis, "forward")
    y *= y.real.dtype.type(count)
    return y


# ---- eigenvalues and singular values


@matrix_function
def linalg_eig(a: Array) -> tuple[Array, ...]:
    """Eigenvalues and eigenvectors."""
    return tuple(np.linalg.eig(a))


@matrix_function
def linalg_eigvals(a: Array) -> Array:
    """Eigenvalues."""
    return np.linalg.eigvals(a)


@matrix_function
def linalg_eigh(a: Array, UPLO: Any = "L", compute_v: bool = True) -> tuple[Array, ...]:
    """Eigenvalues and eigenvectors of Hermitian matrices."""
    if not compute_v:
        return np.linalg.eigvalsh(a, UPLO), _nothing(a)
    return tuple(np.linalg.eigh(a, UPLO))


@matrix_function
def linalg_svd(a: Array, full_matrices: bool = True, compute_uv: bool = True) -> tuple[Array, ...]:
    """Left singular vectors, singular values, and the adjoint of the right singular vectors."""
    if not compute_uv:
        return _nothing(a), np.linalg.svd(a, compute_uv=False), _nothing(a)
    return tuple(np.linalg.svd(a, full_matrices))


@matrix_function
def linalg_svdvals(a: Array) -> Array:
    """Singular values."""
    return np.linalg.svd(a, compute_uv=False)


@matrix_function
def linalg_pinv(
    a: Array, atol: Array | None = None, rtol: Array | None = None, hermitian: bool = False
) -> Array:
    """The pseudo-inverses; singular values up to a bound count as 0."""
    rows, columns = a.shape[-2:]
    if not rows or not columns:
        return np.zeros((*a.shape[:-2], columns, rows), a.dtype)
    if hermitian:
        values, left = np.linalg.eigh(a)
        right = _adjoint(left)
    else:
        left, values, right = np.linalg.svd(a, full_matrices=False)
    least = 0 if atol is None else atol[..., None]
    if rtol is None:
        relative = np.where(np.greater(least, 0), 0, max(rows, columns) * np.finfo(a.dtype).eps)
    else:
        relative = rtol[..., None]
    size = abs(values)
    limit = np.maximum(least, relative * size.max(-1, keepdims=True))
    inverse = np.where(size > limit, 1 / values, 0)
    result: Array = (_adjoint(right) * inverse[..., None, :]) @ _adjoint(left)
    return result


# ---- QR


@matrix_function
def linalg_qr(a: Array, mode: Any = "reduced") -> tuple[Array, ...]:
    """The factors Q and R of a matrix; only R in mode "r"."""
    if mode == "r":
        return _nothing(a), np.asarray(np.linalg.qr(a, "r"))
    return tuple(np.linalg.qr(a, mode))


@matrix_function
def geqrf(a: Array) -> tuple[Array, Array]:
    """R with the Householder vectors below it, and their scales."""
    found, scales = np.linalg.qr(a, "raw")
    return np.swapaxes(found, -1, -2), scales


def _reflected(vectors: Array, scales: Array, x: Array, *, adjoint: bool) -> Array:
    """The product of all reflections, or its adjoint, with `x`.

    The product is 1 - V T V*, and the inverse of T the triangle of V* V above its diagonal, which
    has the inverse scales (Puglisi, SIAM J. Sci. Stat. Comput. 13, 1992).
    """
    each = range(scales.shape[-1])
    v = np.tril(vectors[..., : len(each)], -1)
    v[..., each, each] = 1
    inverse = _adjoint(v) @ v
    inverse[..., each, each] = np.where(scales == 0, np.inf, 1 / scales)
    between = _adjoint(inverse) if adjoint else inverse
    result: Array = x - v @ _solved(between, _adjoint(v) @ x, upper=not adjoint)
    return result


@matrix_function
def linalg_householder_product(vectors: Array, scales: Array) -> Array:
    """The first columns of a product of Householder reflections."""
    unit = np.broadcast_to(np.eye(*vectors.shape[-2:], dtype=vectors.dtype), vectors.shape)
    return _reflected(vectors, scales, unit, adjoint=False)


@matrix_function
def ormqr(
    vectors: Array, scales: Array, x: Array, left: bool = True, transpose: bool = False
) -> Array:
    """A product of reflections, or its adjoint, times `x`, or `x` times it."""
    if left:
        return _reflected(vectors, scales, x, adjoint=transpose)
    return _adjoint(_reflected(vectors, scales, _adjoint(x), adjoint=not transpose))


# ---- triangular factors


def _repeated(x: Array, batch: tuple[int, ...]) -> Array:
    return x if x.shape[:-2] == batch else np.broadcast_to(x, (*batch, *x.shape[-2:]))


def _is_few(x: Array, size: int) -> bool:
    """True if calls of LAPACK for each matrix take less time than loops over the rows of all."""
    return 0 < x.size <= NumPy.FEW_MATRICES * size * math.prod(x.shape[-2:])


def _solved(a: Array, b: Array, *, upper: bool, unit: bool = False) -> Array:
    """The x with a x = b, where only a triangle of `a` is read."""
    size = a.shape[-1]
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    x = np.array(_repeated(b, batch), order="C")
    diagonal = np.diagonal(a, axis1=-2, axis2=-1)
    # OpenBLAS multiplies with the inverse of a diagonal element, which must not overflow.
    if _is_few(x, size) and (unit or abs(diagonal).min() >= np.finfo(x.dtype).tiny):
        # What is a matrix by rows for NumPy is its transpose by columns for BLAS.
        every = np.ascontiguousarray(_repeated(a, batch), x.dtype)
        columns, one = x.shape[-1], np.ones((), x.dtype)
        letters = b"R", b"L" if upper else b"U", b"N", b"U" if unit else b"N"
        if run_lapack("trsm", batch, *letters, columns, size, one, every, size, x, columns):
            return x
    for k in reversed(range(size)) if upper else range(size):
        done = slice(k + 1, None) if upper else slice(None, k)
        x[..., k, :] -= (a[..., k, None, done] @ x[..., done, :])[..., 0, :]
        if not unit:
            x[..., k, :] /= a[..., k, k, None]
    return x


@matrix_function
def linalg_solve_triangular(
    a: Array, b: Array, upper: bool, left: bool = True, unitriangular: bool = False
) -> Array:
    """The x with a x = b, or with x a = b."""
    if left:
        return _solved(a, b, upper=upper, unit=unitriangular)
    return np.swapaxes(_solved(*_turned(a, b), upper=not upper, unit=unitriangular), -1, -2)


@matrix_function
def triangular_solve(
    b: Array, a: Array, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Array, Array]:
    """The x with a x = b, or of the transposed matrix, and the matrix."""
    matrix = np.swapaxes(a, -1, -2) if transpose else a
    x = _solved(matrix, b, upper=upper != transpose, unit=unitriangular)
    return x, np.broadcast_to(a, (*x.shape[:-2], *a.shape[-2:]))


@matrix_function
def linalg_cholesky_ex(a: Array, upper: bool = False) -> tuple[Array, Array]:
    """The Cholesky factors of Hermitian matrices, and where one is not positive definite."""
    a, info = _adjoint(a) if upper else a, np.zeros(a.shape[:-2], "int32")
    try:
        lower = np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        lower = np.zeros_like(a)
        for k in range(a.shape[-1]):
            row = lower[..., k, None, :k]
            rest = a[..., k:, k] - (lower[..., k:, :k] @ _adjoint(row))[..., 0]
            pivot = rest[..., 0].real
            info = np.where((info == 0) & ~(pivot > 0), k + 1, info).astype("int32")
            root = np.sqrt(pivot)
            lower[..., k:, k] = rest / root[..., None]
            lower[..., k, k] = root
    return (_adjoint(lower) if upper else lower), info


@matrix_function
def cholesky(a: Array, upper: bool = False) -> Array:
    """The Cholesky factors of Hermitian matrices."""
    factor, info = linalg_cholesky_ex(a, upper)
    _check(info, "cholesky")
    return factor  # type: ignore[no-any-return]


@matrix_function
def cholesky_solve(b: Array, factor: Array, upper: bool = False) -> Array:
    """The x with a x = b, from the Cholesky factor of `a`."""
    lower = _adjoint(factor) if upper else factor
    return _solved(_adjoint(lower), _solved(lower, b, upper=False), upper=True)


@matrix_function
def cholesky_inverse(factor: Array, upper: bool = False) -> Array:
    """The inverse, from the Cholesky factor."""
    zeros = np.diagonal(factor, axis1=-2, axis2=-1) == 0
    _check(np.where(zeros.any(-1), zeros.argmax(-1) + 1, 0), "cholesky_inverse")
    unit = np.broadcast_to(np.eye(factor.shape[-1], dtype=factor.dtype), factor.shape)
    return cholesky_solve(unit, factor, upper)  # type: ignore[no-any-return]


# ---- LU


_COLUMNS = 32
"""The block size: so many columns are eliminated one by one, the rest by one matmul."""


def _exchange(x: Array, k: int, other: Array) -> None:
    """Swap row k of each matrix with its row `other`."""
    at = np.broadcast_to(other[..., None, None], (*x.shape[:-2], 1, x.shape[-1]))
    kept = np.take_along_axis(x, at, -2)
    np.put_along_axis(x, at, x[..., k, None, :], -2)
    x[..., k, None, :] = kept


@matrix_function
def linalg_lu_factor_ex(a: Array, pivot: bool = True) -> tuple[Array, Array, Array]:
    """Both factors in one matrix, the pivots counted from 1, and the first zero pivot."""
    *batch, rows, columns = a.shape
    count = min(rows, columns)
    pivots, info = np.zeros((*batch, count), "int64"), np.zeros(batch, "int64")
    # A pivot that is no number reaches the rows below it, as in MKL, but not in OpenBLAS.
    if pivot and _is_few(a, count) and np.isfinite(a).all():
        lu = np.swapaxes(a, -1, -2).copy()
        if run_lapack("getrf", tuple(batch), rows, columns, lu, rows, pivots, info):
            return np.swapaxes(lu, -1, -2), pivots, info
    lu = a.copy()
    for first in range(0, count, _COLUMNS):
        stop = min(first + _COLUMNS, count)
        for k in range(first, stop):
            best = k + (
                np.argmax(_sizes(lu[..., k:, k]), -1) if pivot else np.zeros(batch, "int64")
            )
            pivots[..., k] = best + 1
            _exchange(lu, k, best)
            zero = lu[..., k, k] == 0
            info = np.where(zero & (info == 0), k + 1, info)
            divisor = np.where(zero, 1, lu[..., k, k])
            lu[..., k + 1 :, k] /= divisor[..., None]
            factors = np.where(zero[..., None], 0, lu[..., k + 1 :, k])
            lu[..., k + 1 :, k + 1 : stop] -= factors[..., None] * lu[..., k, None, k + 1 : stop]
        own, right = lu[..., first:stop, first:stop], lu[..., first:stop, stop:]
        lu[..., first:stop, stop:] = _solved(own, right, upper=False, unit=True)
        lu[..., stop:, stop:] -= lu[..., stop:, first:stop] @ lu[..., first:stop, stop:]
    return lu, pivots, info


@matrix_function
def linalg_lu_factor(a: Array, pivot: bool = True) -> tuple[Array, Array]:
    """Both factors in one matrix, and the pivots counted from 1."""
    lu, pivots, info = linalg_lu_factor_ex(a, pivot)
    _check(info, "linalg_lu_factor")
    return lu, pivots


def _order(pivots: Array, rows: int) -> Array:
    """The numbers of the rows after the exchanges: those of the matrix are the rows of L U."""
    steps = pivots.reshape(math.prod(pivots.shape[:-1]), pivots.shape[-1]).tolist()
    order = [list(range(rows)) for _ in steps]
    for row, others in zip(order, steps, strict=True):
        for k, other in enumerate(others):
            row[k], row[other - 1] = row[other - 1], row[k]
    return np.array(order, "int64").reshape(*pivots.shape[:-1], rows)


@matrix_function
def lu_unpack(
    lu: Array, pivots: Array, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Array, Array, Array]:
    """The permutation, the lower and the upper factor."""
    rows, columns = lu.shape[-2:]
    count = min(rows, columns)
    permutation = _nothing(lu)
    if unpack_pivots:
        order = _order(pivots, rows)
        permutation = (np.arange(rows)[:, None] == order[..., None, :]).astype(lu.dtype)
    if not unpack_data:
        return permutation, _nothing(lu), _nothing(lu)
    lower = np.tril(lu[..., :count], -1) + np.eye(rows, count, dtype=lu.dtype)
    return permutation, lower, np.triu(lu[..., :count, :])


@matrix_function
def linalg_lu(a: Array, pivot: bool = True) -> tuple[Array, Array, Array]:
    """The permutation, the lower and the upper factor."""
    both, pivots, _ = linalg_lu_factor_ex(a, pivot)
    return lu_unpack(both, pivots, unpack_pivots=pivot)  # type: ignore[no-any-return]


def _moved(x: Array, order: Array) -> Array:
    """The rows of each matrix in another order."""
    batch = np.broadcast_shapes(x.shape[:-2], order.shape[:-1])
    return np.take_along_axis(_repeated(x, batch), _repeated(order[..., None], batch), -2)


@matrix_function
def linalg_lu_solve(
    lu: Array, pivots: Array, b: Array, left: bool = True, adjoint: bool = False
) -> Array:
    """The x with a x = b or x a = b, by the factors of `a`, or of its adjoint."""
    if not left:
        return _adjoint(linalg_lu_solve(lu, pivots, _adjoint(b), adjoint=not adjoint))
    order = _order(pivots, lu.shape[-1])
    if not adjoint:
        between = _solved(lu, _moved(b, order), upper=False, unit=True)
        return _solved(lu, between, upper=True)
    between = _solved(_adjoint(lu), b, upper=False)
    x = _solved(_adjoint(lu), between, upper=True, unit=True)
    return _moved(x, np.argsort(order, -1))


@matrix_function
def linalg_solve_ex(
    a: Array, b: Array, left: bool = True, factors: bool = True
) -> tuple[Array, ...]:
    """The x with a x = b or x a = b, and the factors of `a`; `b` may have vectors."""
    if b.ndim == 1 or b.shape == a.shape[:-1]:
        x, *rest = linalg_solve_ex(a, b[..., None], True, factors)
        return x[..., 0], *rest
    if not factors:
        with suppress(np.linalg.LinAlgError):
            nothing = _nothing(a), _nothing(a), np.zeros(a.shape[:-2])
            if left:
                return np.linalg.solve(a, b), *nothing
            return np.swapaxes(np.linalg.solve(*_turned(a, b)), -1, -2), *nothing
    both, pivots, info = linalg_lu_factor_ex(a)
    return linalg_lu_solve(both, pivots, b, left), both, pivots, info


@matrix_function
def linalg_inv_ex(a: Array) -> tuple[Array, Array]:
    """The inverses, and the first zero pivots."""
    unit = np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape)
    inverse, _, _, info = linalg_solve_ex(a, unit, factors=False)
    return inverse, info


def _signs(pivots: Array) -> Array:
    moved = pivots != np.arange(1, pivots.shape[-1] + 1)
    signs: Array = 1 - 2 * (moved.sum(-1) % 2)
    return signs


@matrix_function
def linalg_det(a: Array, factors: bool = True) -> tuple[Array, ...]:
    """The determinant, and the factors that it is computed from."""
    if not factors:
        return (np.linalg.det(a),)
    both, pivots, _ = linalg_lu_factor_ex(a)
    diagonal = np.diagonal(both, axis1=-2, axis2=-1)
    return _signs(pivots) * diagonal.prod(-1), both, pivots


@matrix_function
def linalg_slogdet(a: Array, factors: bool = True) -> tuple[Array, ...]:
    """The direction of the determinant, the logarithm of its size, and the factors."""
    if not factors:
        return tuple(np.linalg.slogdet(a))
    both, pivots, _ = linalg_lu_factor_ex(a)
    diagonal = np.diagonal(both, axis1=-2, axis2=-1)
    size = abs(diagonal)
    directions = np.where(size > 0, diagonal / size, 0)
    return _signs(pivots) * directions.prod(-1), np.log(size).sum(-1), both, pivots


# ---- LDL of symmetric indefinite matrices, like LAPACK's sytrf and sytrs

#: The ratio of a pivot to the largest element that minimises element growth.
_PART = (1 + 17**0.5) / 8


def _pivot(a: Array, j: int) -> tuple[int, int]:
    """The number of rows of the next pivot, and its last row; 0 if there is none.

    Bunch and Kaufman, Math. Comp. 31, 1977.
    """
    sizes = _sizes(a[j:, j:])
    own, column = sizes[0, 0], sizes[1:, 0]
    most = column.max(initial=0)
    if own == most == 0:
        return 0, j
    if own >= _PART * most:
        return 1, j
    far = 1 + int(column.argmax())
    row = np.delete(sizes[far], far).max(initial=0)
    if own >= _PART * most * (most / row):
        return 1, j
    return (1 if sizes[far, far] >= _PART * row else 2), j + far


@matrix_function
def linalg_ldl_factor_ex(a: Array, hermitian: bool = False) -> tuple[Array, Array, Array]:
    """L with D on its diagonal, the pivots counted from 1, and the first zero pivot.

    Pivots of two rows are negative.
    """
    below = np.tril(a, -1)
    both = below + (_adjoint(below) if hermitian else np.swapaxes(below, -1, -2))
    both += np.eye(a.shape[-1], dtype=a.dtype) * a
    pivots, info = np.zeros(a.shape[:-1], "int32"), np.zeros(a.shape[:-2], "int32")
    for at in np.ndindex(*info.shape):
        rest, j = both[at], 0
        while j < len(rest):
            width, chosen = _pivot(rest, j)
            if width:
                exchanged, order = [j + width - 1, chosen], [chosen, j + width - 1]
                rest[exchanged, j:] = rest[order, j:]
                rest[j:, exchanged] = rest[j:, order]
                end = j + width
                rows = rest[end:, j:end] @ np.linalg.inv(rest[j:end, j:end])
                rest[end:, end:] -= rows @ rest[j:end, end:]
                rest[end:, j:end] = rows
            else:
                info[at] = info[at] or j + 1
            width = width or 1
            pivots[(*at, slice(j, j + width))] = chosen + 1 if width == 1 else -chosen - 1
            j += width
    return np.tril(both), pivots, info


@matrix_function
def linalg_ldl_solve(factors: Array, pivots: Array, b: Array, hermitian: bool = False) -> Array:
    """The x with a x = b, by the factors of `a`."""
    batch = np.broadcast_shapes(factors.shape[:-2], b.shape[:-2])
    result = np.array(np.broadcast_to(b, (*batch, *b.shape[-2:])))
    every = np.broadcast_to(factors, (*batch, *factors.shape[-2:]))
    rows = np.broadcast_to(pivots, (*batch, pivots.shape[-1]))
    for at in np.ndindex(*batch):
        x, lower, steps, j = result[at], every[at], [], 0
        upper = lower.conj().T if hermitian else lower.T
        while j < len(x):
            row = int(rows[at][j])
            end, other = j + (1 if row > 0 else 2), abs(row) - 1
            steps.append((j, end, other))
            x[[end - 1, other]] = x[[other, end - 1]]
            x[end:] -= lower[end:, j:end] @ x[j:end]
            pivot = np.tril(lower[j:end, j:end]) + np.triu(upper[j:end, j:end], 1)
            x[j:end] = np.linalg.solve(pivot, x[j:end])
            j = end
        for j, end, other in reversed(steps):
            x[j:end] -= upper[j:end, end:] @ x[end:]
            x[[end - 1, other]] = x[[other, end - 1]]
    return result
