"""Functions of complex matrices, by those of real ones, and by packed functions.

A matrix X + i Y stands for the real one [[X, -Y], [Y, X]], and so do sums, products, inverses,
transposes and exponentials of both.
"""

from __future__ import annotations

import json
from typing import Any

from relaxpy.exec.runtime.matrices import PREFIX
from relaxpy.frontend.shared.tensors import Size, rank_of, shape_of, tensor_of
from relaxpy.frontend.shared.unsupported import UnsupportedError
from relaxpy.frontend.torch.arrays import part_name
from relaxpy.frontend.torch.complexes import (
    Complex,
    complex_converter,
    from_pair,
    is_complex,
    to_pair,
)
from relaxpy.frontend.torch.context import Context
from relaxpy.frontend.torch.ops import exponential, factors, orthogonal
from relaxpy.frontend.torch.registry import Value
from relaxpy.ir.relax.nodes import Expr, StringImm, TupleGetItem, TupleStructInfo
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


def _packed(cx: Context, *unused: Value) -> Any:
    """A call of the packed function that has the name of the operator."""
    args, kwargs = cx.values(cx.node.args), cx.values(cx.node.kwargs)
    options: dict[str, Any] = {"complex": []}
    tensors: list[Expr] = []
    for k, declared in enumerate(cx.node.target._schema.arguments):
        value = args[k] if k < len(args) else kwargs.get(declared.name)
        if is_complex(value):
            options["complex"].append(len(tensors))
            tensors.append(cx.emit(to_pair(value)))
        elif isinstance(value, Expr):
            tensors.append(value)
        elif value is not None and declared.name not in ("check_errors", "driver"):
            options[declared.name] = value
    meta = cx.meta()
    metas = list(meta) if isinstance(meta, (tuple, list)) else [meta]
    options["results"] = [(part_name(m.dtype), m.dtype.is_complex) for m in metas]
    infos = [
        tensor_of([*cx.sizes(m.shape), *([2] if m.dtype.is_complex else [])], part_name(m.dtype))
        for m in metas
    ]
    name = cx.node.target._schema.name.partition("::")[2].removeprefix("_").removesuffix("_")
    info = infos[0] if len(infos) == 1 else TupleStructInfo(tuple(infos))
    text = StringImm(json.dumps(options))
    found = cx.emit(R.call_pure_packed(PREFIX + name, text, *tensors, sinfo_args=[info]))
    results = (
        [found] if len(infos) == 1 else [cx.emit(TupleGetItem(found, k)) for k in range(len(infos))]
    )
    values = [
        from_pair(cx, x) if m.dtype.is_complex else x for x, m in zip(results, metas, strict=True)
    ]
    return values if isinstance(meta, (tuple, list)) else values[0]


complex_converter(
    *("linalg_eig", "linalg_eigvals", "_linalg_eigvals", "_linalg_eigh", "_linalg_svd"),
    *("linalg_svd", "linalg_svdvals", "linalg_qr", "geqrf", "linalg_householder_product", "ormqr"),
    *("linalg_solve_triangular", "triangular_solve", "linalg_cholesky_ex", "cholesky"),
    *("cholesky_solve", "cholesky_inverse", "linalg_lu_factor_ex", "linalg_lu_factor", "lu_unpack"),
    *("linalg_lu", "linalg_lu_solve", "_linalg_det", "_linalg_slogdet"),
)(_packed)
