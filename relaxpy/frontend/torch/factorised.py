"""Functions of matrices by their factors, eigenvalues and singular values."""

# ruff: noqa: D103

from __future__ import annotations

import torch

from relaxpy.frontend.torch.backward import Tensor, decomposition


@decomposition("linalg_polar")
def linalg_polar(matrix: Tensor) -> tuple[Tensor, Tensor]:
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    return left @ right, right.mH @ (values[..., None] * right)


@decomposition("linalg_matrix_sqrth")
def linalg_matrix_sqrth(matrix: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.sqrt()[..., None, :]) @ vectors.mH


@decomposition("_linalg_solve_ex")
def linalg_solve(
    matrix: Tensor, right: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    lu, pivots, info = torch.linalg.lu_factor_ex(matrix)
    is_vector = right.dim() == 1 or right.shape == matrix.shape[:-1]
    columns = right[..., None] if is_vector else right
    found = torch.linalg.lu_solve(lu, pivots, columns, left=left or is_vector)
    return found[..., 0] if is_vector else found, lu, pivots, info
