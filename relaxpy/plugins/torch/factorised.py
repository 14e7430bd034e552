"""Functions of matrices by their factors, eigenvalues and singular values."""

# ruff: noqa: D103

from __future__ import annotations

import torch

from relaxpy.plugins.torch.backward import Tensor, decomposition


@decomposition("linalg_polar")
def linalg_polar(matrix: Tensor) -> tuple[Tensor, Tensor]:
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    return left @ right, right.mH @ (values[..., None] * right)


@decomposition("linalg_matrix_sqrth")
def linalg_matrix_sqrth(matrix: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.sqrt()[..., None, :]) @ vectors.mH
