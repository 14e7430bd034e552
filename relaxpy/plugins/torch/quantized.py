"""Numbers rounded as quantisation rounds them, as simpler functions."""

# ruff: noqa: D103

from __future__ import annotations

from typing import Any

import torch

from relaxpy.plugins.torch.backward import Tensor, decomposition

_PROGRAMS = "quantized_decomposed"


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


# ---- programs that PyTorch has quantised, whose scales may be tensors


@decomposition("quantize_per_tensor.tensor", "quantize_per_tensor.tensor2", namespace=_PROGRAMS)
def quantize(x: Tensor, scale: Tensor, zero: Tensor, least: Any, most: Any, dtype: Any) -> Tensor:
    inverse = (1 / scale.double()).float()  # PyTorch makes it a number of Python
    return (torch.round(x.float() * inverse) + zero).clamp(least, most).to(dtype)


@decomposition("choose_qparams.tensor", namespace=_PROGRAMS)
def choose_parameters(
    x: Tensor, least: int, most: int, eps: float, dtype: Any
) -> tuple[Tensor, Tensor]:
    low, high = x.amin().clamp(max=0), x.amax().clamp(min=0)
    scale = torch.maximum((high - low) / (most - least), torch.full([1], eps, device=x.device))
    zero = (least - torch.round(low / scale).to(torch.int32)).clamp(least, most)
    return scale.double(), zero.long()


@decomposition("choose_qparams_symmetric.tensor", namespace=_PROGRAMS)
def choose_symmetric_parameters(
    x: Tensor, least: int, most: int, eps: float, dtype: Any
) -> tuple[Tensor, Tensor]:
    scale = torch.maximum(-x.amin().clamp(max=0), x.amax().clamp(min=0)) / ((most - least) / 2)
    scale = torch.maximum(scale, torch.full([1], eps, device=x.device)).double()
    return scale, torch.full_like(scale, 128 * (dtype == torch.uint8), dtype=torch.int64)


@decomposition("quantize_per_channel_group", namespace=_PROGRAMS)
def quantize_groups(
    x: Tensor, scales: Tensor, zeros: Tensor, least: int, most: int, dtype: Any, size: int = 128
) -> Tensor:
    groups = x.reshape(scales.numel(), -1)
    number = groups * (1 / scales.reshape(-1, 1)) + zeros.reshape(-1, 1)
    return torch.round(number).clamp(least, most).to(dtype).reshape(x.shape)


@decomposition("fake_quant_per_channel", namespace=_PROGRAMS)
def fake_quantize_channels(
    x: Tensor, scale: Tensor, zero: Tensor, axis: int, least: int, most: int
) -> Tensor:
    return fake_quantize_per_channel(x, scale.float(), zero, axis, least, most)[0]
