"""Numbers rounded as quantisation rounds them, as simpler functions."""

# ruff: noqa: D103

from __future__ import annotations

from typing import Any

import torch

from relaxpy.frontend.torch.backward import Tensor, decomposition


@decomposition("fake_quantize_per_tensor_affine_cachemask")
def fake_quantize(x: Tensor, scale: Any, zero: Any, least: int, most: int) -> tuple[Tensor, Tensor]:
    """The numbers that are left by quantisation, and where they were not out of its range."""
    number = torch.round(x * (1 / scale)) + zero
    left = (number.clamp(least, most) - zero) * scale
    return left.to(x.dtype), (number >= least) & (number <= most)


@decomposition("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
def fake_quantize_by_tensors(
    x: Tensor, scale: Tensor, zero: Tensor, enabled: Tensor, least: int, most: int
) -> tuple[Tensor, Tensor]:
    left, inside = fake_quantize(x, scale, zero, least, most)
    return torch.where(enabled == 1, left, x), inside | (enabled != 1)


@decomposition("fake_quantize_per_channel_affine_cachemask")
def fake_quantize_per_channel(
    x: Tensor, scale: Tensor, zero: Tensor, axis: int, least: int, most: int
) -> tuple[Tensor, Tensor]:
    shape = [1] * x.dim()
    shape[axis] = -1
    return fake_quantize(x, scale.reshape(shape), zero.reshape(shape), least, most)
