"""Packed functions of complex matrices, and of results that are complex, by NumPy's LAPACK.

Each is called with its options as JSON and then its operands. In the options, `complex` has the
positions of operands that are complex, and `results` the datatype of each result and whether it is
complex. Complex tensors have their two parts along a last axis.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from relaxpy.errors import PackedFuncError
from relaxpy.exec.runtime.registry import provided
from relaxpy.exec.runtime.values import Array

PREFIX = "relaxpy.matrices."


def matrix_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Register a function of NumPy's complex arrays."""

    @provided(PREFIX + function.__name__, pure=True)
    def call(options: str, *operands: Array) -> Array | tuple[Array, ...]:
        given = json.loads(options)
        are_complex, wanted = given.pop("complex"), given.pop("results")
        values = [
            _joined(np.asarray(x)) if k in are_complex else np.asarray(x)
            for k, x in enumerate(operands)
        ]
        try:
            with np.errstate(all="ignore"):
                results = function(*values, **given)
        except np.linalg.LinAlgError as error:
            raise PackedFuncError(f"{function.__name__}: {error!s:.200}") from None
        if not isinstance(results, tuple):
            return _parts(results, *wanted[0])
        return tuple(_parts(x, *kind) for x, kind in zip(results, wanted, strict=True))

    return function


def _joined(pair: Array) -> Array:
    dtype = np.result_type(pair.dtype, np.complex64)
    return np.ascontiguousarray(pair).view(dtype)[..., 0]


def _parts(x: Any, dtype: str, is_complex: bool) -> Array:
    if not is_complex:
        return np.array(x, dtype)
    return np.stack([np.real(x), np.imag(x)], -1).astype(dtype)


def _adjoint(x: Array) -> Array:
    return np.swapaxes(x, -1, -2).conj()


def _nothing(x: Array) -> Array:
    return np.zeros(0, x.dtype)


@matrix_function
def linalg_inv(a: Array) -> Array:
    """The inverses."""
    return np.linalg.inv(a)


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
def linalg_eigh(a: Array, UPLO: Any = "L", compute_v: bool = True) -> tuple[Array, ...]:  # noqa: N803
    """Eigenvalues and eigenvectors of matrices that equal their adjoints."""
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


# ---- orthogonal factors


@matrix_function
def linalg_qr(a: Array, mode: Any = "reduced") -> tuple[Array, ...]:
    """The factors of a matrix; of mode "r" only the second one."""
    if mode == "r":
        return _nothing(a), np.asarray(np.linalg.qr(a, "r"))
    return tuple(np.linalg.qr(a, mode))


@matrix_function
def geqrf(a: Array) -> tuple[Array, Array]:
    """The second factor with the vectors of reflections below it, and their scales."""
    found, scales = np.linalg.qr(a, "raw")
    return np.swapaxes(found, -1, -2), scales


def _reflected(vectors: Array, scales: Array, x: Array, *, adjoint: bool) -> Array:
    """The product of all reflections, or its adjoint, with `x`."""
    x = x.copy()
    count = scales.shape[-1]
    for k in range(count) if adjoint else reversed(range(count)):
        v = vectors[..., k:, k, None].copy()
        v[..., 0, :] = 1
        scale = scales[..., k, None, None]
        x[..., k:, :] -= (scale.conj() if adjoint else scale) * v @ (_adjoint(v) @ x[..., k:, :])
    return x


@matrix_function
def linalg_householder_product(vectors: Array, scales: Array) -> Array:
    """The first columns of a product of reflections."""
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


def _solved(a: Array, b: Array, *, upper: bool, unit: bool = False) -> Array:
    """The x with a x = b, where only a triangle of `a` is read."""
    size = a.shape[-1]
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    x = np.array(np.broadcast_to(b, (*batch, *b.shape[-2:])))
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
    turned = (np.swapaxes(x, -1, -2) for x in (a, b))
    return np.swapaxes(_solved(*turned, upper=not upper, unit=unitriangular), -1, -2)


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
    """The factor of matrices that equal their adjoints, and where one is not positive definite."""
    a = _adjoint(a) if upper else a
    lower = np.zeros_like(a)
    info = np.zeros(a.shape[:-2], "int32")
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
    """The factor of matrices that equal their adjoints."""
    return linalg_cholesky_ex(a, upper)[0]  # type: ignore[no-any-return]


@matrix_function
def cholesky_solve(b: Array, factor: Array, upper: bool = False) -> Array:
    """The x with a x = b, by the factor of `a`."""
    lower = _adjoint(factor) if upper else factor
    return _solved(_adjoint(lower), _solved(lower, b, upper=False), upper=True)


@matrix_function
def cholesky_inverse(factor: Array, upper: bool = False) -> Array:
    """The inverse, by the factor."""
    unit = np.broadcast_to(np.eye(factor.shape[-1], dtype=factor.dtype), factor.shape)
    return cholesky_solve(unit, factor, upper)  # type: ignore[no-any-return]


# ---- both triangles of any matrix


@matrix_function
def linalg_lu_factor_ex(a: Array, pivot: bool = True) -> tuple[Array, Array, Array]:
    """Both factors in one matrix, the rows that were exchanged from 1, the first zero pivot."""
    both = a.copy()
    *batch, rows, columns = a.shape
    pivots = np.zeros((*batch, min(rows, columns)), "int32")
    info = np.zeros(batch, "int32")
    for at in np.ndindex(*batch):
        lu = both[at]
        for k in range(pivots.shape[-1]):
            column = lu[k:, k]
            best = k + int(np.argmax(abs(column.real) + abs(column.imag))) if pivot else k
            pivots[(*at, k)] = best + 1
            lu[[k, best]] = lu[[best, k]]
            if lu[k, k] == 0:
                info[at] = info[at] or k + 1
                continue
            lu[k + 1 :, k] /= lu[k, k]
            lu[k + 1 :, k + 1 :] -= np.outer(lu[k + 1 :, k], lu[k, k + 1 :])
    return both, pivots, info


@matrix_function
def linalg_lu_factor(a: Array, pivot: bool = True) -> tuple[Array, Array]:
    """Both factors in one matrix, and the rows that were exchanged from 1."""
    return linalg_lu_factor_ex(a, pivot)[:2]  # type: ignore[no-any-return]


def _permutations(pivots: Array, rows: int, dtype: Any) -> Array:
    """The P of P L U."""
    batch = pivots.shape[:-1]
    found = np.zeros((*batch, rows, rows), dtype)
    for at in np.ndindex(*batch):
        order = np.arange(rows)
        for k, other in enumerate(pivots[at] - 1):
            order[[k, other]] = order[[other, k]]
        found[(*at, order, np.arange(rows))] = 1
    return found


@matrix_function
def lu_unpack(
    lu: Array, pivots: Array, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Array, Array, Array]:
    """The permutation, the lower and the upper factor."""
    rows, columns = lu.shape[-2:]
    count = min(rows, columns)
    order = _permutations(pivots, rows, lu.dtype) if unpack_pivots else _nothing(lu)
    if not unpack_data:
        return order, _nothing(lu), _nothing(lu)
    lower = np.tril(lu[..., :count], -1) + np.eye(rows, count, dtype=lu.dtype)
    return order, lower, np.triu(lu[..., :count, :])


@matrix_function
def linalg_lu(a: Array, pivot: bool = True) -> tuple[Array, Array, Array]:
    """The permutation, the lower and the upper factor."""
    both, pivots, _ = linalg_lu_factor_ex(a, pivot)
    return lu_unpack(both, pivots, unpack_pivots=pivot)  # type: ignore[no-any-return]


@matrix_function
def linalg_lu_solve(
    lu: Array, pivots: Array, b: Array, left: bool = True, adjoint: bool = False
) -> Array:
    """The x with a x = b or x a = b, by the factors of `a`, or of its adjoint."""
    if not left:
        return _adjoint(linalg_lu_solve(lu, pivots, _adjoint(b), adjoint=not adjoint))
    order = _permutations(pivots, lu.shape[-1], lu.dtype)
    if not adjoint:
        between = _solved(lu, _adjoint(order) @ b, upper=False, unit=True)
        return _solved(lu, between, upper=True)
    between = _solved(_adjoint(lu), b, upper=False)
    return order @ _solved(_adjoint(lu), between, upper=True, unit=True)


def _signs(pivots: Array) -> Array:
    moved = pivots != np.arange(1, pivots.shape[-1] + 1)
    signs: Array = 1 - 2 * (moved.sum(-1) % 2)
    return signs


@matrix_function
def linalg_det(a: Array) -> tuple[Array, Array, Array]:
    """The determinant, and the factors that it is computed from."""
    both, pivots, _ = linalg_lu_factor_ex(a)
    diagonal = np.diagonal(both, axis1=-2, axis2=-1)
    return _signs(pivots) * diagonal.prod(-1), both, pivots


@matrix_function
def linalg_slogdet(a: Array) -> tuple[Array, Array, Array, Array]:
    """The direction of the determinant, the logarithm of its size, and the factors."""
    both, pivots, _ = linalg_lu_factor_ex(a)
    diagonal = np.diagonal(both, axis1=-2, axis2=-1)
    size = abs(diagonal)
    directions = np.where(size > 0, diagonal / size, 0)
    return _signs(pivots) * directions.prod(-1), np.log(size).sum(-1), both, pivots
