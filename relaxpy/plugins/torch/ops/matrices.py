"""Functions of matrices, which are packed functions of the same names."""

from __future__ import annotations

from typing import Any

from relaxpy.ir.relax.nodes import Expr, TupleGetItem
from relaxpy.plugins.importing.matrices import call
from relaxpy.plugins.torch.arrays import part_name
from relaxpy.plugins.torch.complexes import complex_converter, from_pair, is_complex, to_pair
from relaxpy.plugins.torch.context import Context
from relaxpy.plugins.torch.ops.assertions import checked_names
from relaxpy.plugins.torch.registry import Value, converter

_NAMES = (
    *("linalg_eig", "linalg_eigvals", "_linalg_eigvals", "_linalg_eigh", "_linalg_svd"),
    *("linalg_svd", "linalg_svdvals", "linalg_qr", "geqrf", "linalg_householder_product", "ormqr"),
    *("linalg_solve_triangular", "triangular_solve", "linalg_cholesky_ex", "cholesky"),
    *("cholesky_solve", "cholesky_inverse", "linalg_lu_factor_ex", "linalg_lu_factor", "lu_unpack"),
    *("linalg_lu", "linalg_lu_solve", "_linalg_det", "_linalg_slogdet", "_linalg_solve_ex"),
    *("linalg_inv_ex", "linalg_pinv.atol_rtol_tensor", "linalg_matrix_exp"),
    *("linalg_ldl_factor_ex", "linalg_ldl_solve"),
)
#: The results that are factors, without which NumPy's LAPACK computes the others at once.
_FACTORS = {"linalg_solve_ex": (1, 2), "linalg_det": (1, 2), "linalg_slogdet": (2, 3)}


@complex_converter(*_NAMES)
@converter(*_NAMES)
def _packed(cx: Context, *unused: Value) -> Any:
    """A call of the packed function that has the name of the operator."""
    args, kwargs = cx.values(cx.node.args), cx.values(cx.node.kwargs)
    tensors: list[Expr] = []
    pairs: list[int] = []
    names: list[str] = []
    options: dict[str, Any] = {}
    for k, declared in enumerate(cx.node.target._schema.arguments):
        default = declared.default_value if declared.has_default_value() else None
        value = args[k] if k < len(args) else kwargs.get(declared.name, default)
        if is_complex(value) or isinstance(value, Expr):
            pairs += [len(tensors)] if is_complex(value) else []
            names += [declared.name] if declared.kwarg_only else []
            tensors.append(cx.emit(to_pair(value)) if is_complex(value) else value)
        elif value is not None and declared.name not in ("check_errors", "driver"):
            options[declared.name] = value
        elif value and declared.name == "check_errors":
            options["checked"] = cx.node.target._opname
    name = cx.node.target._schema.name.partition("::")[2].removeprefix("_").removesuffix("_")
    for checked in checked_names(cx.node):
        options["checked"] = checked
    if name in _FACTORS:
        options["factors"] = cx.uses(*_FACTORS[name])
    meta = cx.meta()
    is_single = not isinstance(meta, (tuple, list))
    metas = [meta] if is_single else meta
    wanted = [
        (k, cx.sizes(m.shape), part_name(m.dtype), m.dtype.is_complex)
        for k, m in enumerate(metas)
        if is_single or cx.uses(k)
    ]
    found = cx.emit(call(name, tensors, wanted, pairs=pairs, names=names, **options))
    parts = [found] if len(wanted) == 1 else [TupleGetItem(found, k) for k in range(len(wanted))]
    results: list[Any] = [None] * len(metas)
    for part, (k, *_, is_pair) in zip(map(cx.emit, parts), wanted, strict=True):
        results[k] = from_pair(cx, part) if is_pair else part
    return results[0] if is_single else results
