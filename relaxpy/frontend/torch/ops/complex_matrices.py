"""Functions of complex matrices, by those of real ones.

A matrix X + i Y stands for the real one [[X, -Y], [Y, X]], and so do sums, products, inverses,
transposes and exponentials of both.
"""

from __future__ import annotations

from typing import Any

from relaxpy.frontend.shared.tensors import Size, rank_of, shape_of
from relaxpy.frontend.shared.unsupported import UnsupportedError
from relaxpy.frontend.torch.complexes import Complex, complex_converter
from relaxpy.frontend.torch.context import Context
from relaxpy.frontend.torch.ops import exponential, factors, orthogonal
from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.relax.op.definition.registry import R


def _joined(cx: Context, z: Complex) -> Expr:
    """The real matrices that complex ones stand for."""
    columns = rank_of(z.re) - 1
    above = cx.emit(R.concat([z.re, R.negative(z.im)], columns))
    return cx.emit(R.concat([above, cx.emit(R.concat([z.im, z.re], columns))], columns - 1))


def _of_columns(cx: Context, found: Expr, rows: Size, columns: Size) -> Complex:
    """The complex matrices whose parts are the halves of the first columns."""
    at = rank_of(found) - 2
    halves = ((0, rows), (rows, cx.simplify(rows * 2)))
    axes = [at, at + 1]
    return Complex(
        *(cx.emit(R.strided_slice(found, axes, [low, 0], [high, columns])) for low, high in halves)
    )


def _hermitian(z: Complex) -> Complex:
    """The matrices that equal their conjugate transposes, of the elements below the diagonals."""
    re, im = R.tril(z.re, -1), R.tril(z.im, -1)
    whole = R.add(R.tril(z.re), factors.flipped(re))
    return Complex(whole, R.subtract(im, factors.flipped(im)))


@complex_converter("linalg_matrix_exp")
def matrix_exp(cx: Context, z: Complex) -> Complex:
    *_, rows, columns = shape_of(z.re)
    found = cx.emit(exponential.matrix_exp(cx, _joined(cx, z)))
    return _of_columns(cx, found, rows, columns)


@complex_converter("linalg_inv_ex")
def inverse_ex(cx: Context, z: Complex, *, check_errors: bool = False) -> tuple[Complex, Expr]:
    *_, rows, columns = shape_of(z.re)
    found, info = factors.inverse_ex(cx, _joined(cx, z))
    return _of_columns(cx, cx.emit(found), rows, columns), info


@complex_converter("linalg_inv", "inverse")
def inverse(cx: Context, z: Complex) -> Complex:
    return inverse_ex(cx, z)[0]


@complex_converter("linalg_pinv.atol_rtol_tensor")
def pseudo_inverse(
    cx: Context,
    z: Complex,
    *,
    atol: Expr | None = None,
    rtol: Expr | None = None,
    hermitian: bool = False,
) -> Complex:
    """Each singular value is there twice in the real matrix, so the bounds are the same."""
    *_, rows, columns = shape_of(z.re)
    if hermitian:
        z = _hermitian(z)
    found = orthogonal.pseudo_inverse(cx, _joined(cx, z), atol=atol, rtol=rtol, hermitian=hermitian)
    return _of_columns(cx, cx.emit(found), columns, rows)


@complex_converter("_linalg_solve_ex")
def solve_ex(
    cx: Context, a: Complex, b: Complex, *, left: bool = True, check_errors: bool = False
) -> tuple[Any, ...]:
    if cx.uses(1, 2):
        raise UnsupportedError("the factors of a complex matrix")
    is_vector = rank_of(b.re) == 1 or shape_of(b.re) == shape_of(a.re)[:-1]
    parts = [R.expand_dims(x, rank_of(x)) if is_vector else x for x in (b.re, b.im)]
    at = rank_of(parts[0]) - 1
    *_, rows, columns = shape_of(parts[0])
    if left or is_vector:
        both = cx.emit(R.concat(parts, at - 1))
        found, _, _, info = factors.solve_ex(cx, _joined(cx, a), both)
        z = _of_columns(cx, cx.emit(found), rows, columns)
    else:
        both = cx.emit(R.concat([parts[0], R.negative(parts[1])], at))
        found, _, _, info = factors.solve_ex(cx, _joined(cx, a), both, left=False)
        real, negative = (
            R.strided_slice(cx.emit(found), [at], [low], [high])
            for low, high in ((0, columns), (columns, cx.simplify(columns * 2)))
        )
        z = Complex(cx.emit(real), cx.emit(R.negative(negative)))
    if is_vector:
        z = Complex(R.squeeze(z.re, [-1]), R.squeeze(z.im, [-1]))
    return z, None, None, info
