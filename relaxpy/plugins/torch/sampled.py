"""Elements at places that numbers decide: pools, channels, indices, as simpler functions."""

# ruff: noqa: D103

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._decomp.decompositions import upsample_compute_output_size
from torch._meta_registrations import meta_index_Tensor
from torch.fx.experimental.symbolic_shapes import guard_or_false

from relaxpy.plugins.torch.backward import Tensor, aten, decomposition, pairs_of_rows

# ---- pools whose windows begin at random places


@decomposition("fractional_max_pool2d", "fractional_max_pool3d")
def fractional_max_pool(
    x: Tensor, kernel: Sequence[int], outputs: Sequence[int], numbers: Tensor
) -> tuple[Tensor, Tensor]:
    count = len(kernel)
    outer, sizes = x.shape[: x.dim() - count], x.shape[x.dim() - count :]
    planes = math.prod(outer)
    rows = numbers.reshape(-1, count)[:planes]
    place = torch.zeros([planes] + [1] * (2 * count), dtype=torch.int64, device=x.device)
    for k, (size, window, wanted) in enumerate(zip(sizes, kernel, outputs, strict=True)):
        # The numbers of images are those of columns and of rows, in this order.
        number = rows[:, count - 1 - k if count == 2 else k, None]
        begin = _begins(number, size - window, wanted)
        at = begin[..., None] + torch.arange(window, device=x.device)
        shape = [planes] + [1] * (2 * count)
        shape[1 + k], shape[1 + count + k] = wanted, window
        place = place * size + at.reshape(shape)
    flat = place.reshape(planes, math.prod(place.shape[1:]))
    shape = [*outer, *outputs, math.prod(kernel)]
    windows = x.reshape(planes, math.prod(sizes)).gather(1, flat).reshape(shape)
    best = windows.argmax(-1, keepdim=True)
    return windows.gather(-1, best)[..., 0], place.reshape(shape).gather(-1, best)[..., 0]


def _begins(number: Tensor, last: int, wanted: int) -> Tensor:
    """Where windows begin, from 0 to `last`, by a number from 0 to 1."""
    end = torch.full_like(number, last, dtype=torch.int64)
    if wanted == 1:
        return end
    step = last / (wanted - 1)
    k = torch.arange(wanted - 1, device=number.device).to(number.dtype)
    begins = ((k + number) * step).to(torch.int64) - (number * step).to(torch.int64)
    return torch.cat([begins, end], 1)


# ---- resized images; an axis whose size does not change is copied


def _copying(name: str, options: int) -> None:
    """PyTorch's decomposition, which resamples such an axis by its scale."""
    packet = getattr(aten, name)

    @decomposition(name)
    def resized(x: Tensor, size: Any, *arguments: Any) -> Tensor:
        fixed, scales = arguments[:options], arguments[options:]
        count = x.dim() - 2
        if len(scales) == 1 and (count > 1 or isinstance(scales[0], (list, tuple))):
            scales = tuple(scales[0] or ())
            size = upsample_compute_output_size(x.size(), size, scales or None)
        scales = (*scales, *[None] * (count - len(scales)))
        triples = zip(x.shape[2:], size, scales, strict=True)
        kept = [None if guard_or_false(old == new) else scale for old, new, scale in triples]
        return decomposition_table[packet.default](x, size, *fixed, *kept)


for _name, _options in (
    ("upsample_nearest2d", 0),
    ("upsample_linear1d", 1),
    ("upsample_bilinear2d", 1),
    ("upsample_trilinear3d", 1),
):
    _copying(_name, _options)


# ---- the largest elements of windows, put back


@decomposition("max_unpool2d", "max_unpool3d")
def max_unpool(x: Tensor, indices: Tensor, sizes: Sequence[Any], *window: Any) -> Tensor:
    """PyTorch's decomposition takes indices below 0, which its kernel refuses."""
    outer = x.shape[: x.dim() - len(sizes)]
    zeros = x.new_zeros([*outer, math.prod(sizes)])
    found = zeros.scatter(-1, *(t.flatten(len(outer)) for t in (indices, x)))
    return found.reshape([*outer, *sizes])


# ---- channels that are left out


def _kept(x: Tensor, p: float) -> Tensor:
    """1 for channels that stay, 0 for others."""
    shape = [*x.shape[:2], *[1] * (x.dim() - 2)]
    return torch.bernoulli(x.new_zeros(shape), 1 - p)


@decomposition("feature_dropout")
def feature_dropout(x: Tensor, p: float, train: bool) -> Tensor:
    if not train or p in (0, 1):
        return x * float(not train or p == 0)
    return x * (_kept(x, p) / (1 - p))


#: Where alpha dropout puts what is left out: what SELU tends to.
_LOWEST = -1.7580993408473766


@decomposition("feature_alpha_dropout")
def feature_alpha_dropout(x: Tensor, p: float, train: bool) -> Tensor:
    if not train or p in (0, 1):
        return x * float(not train or p == 0)
    scale = ((_LOWEST * _LOWEST * p + 1) * (1 - p)) ** -0.5
    kept = _kept(x, p)
    return x * (kept * scale) + ((1 - kept) * scale + p * -scale) * _LOWEST


# ---- masked indices


def _near(x: Tensor, indices: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Indices clamped to [-size, size - 1]."""
    pairs = zip(indices, x.shape, strict=False)
    return [None if index is None else index.clamp(-size, size - 1) for index, size in pairs]


@decomposition("_unsafe_masked_index")
def masked_index(
    x: Tensor, mask: Tensor, indices: Sequence[Tensor | None], fill: complex
) -> Tensor:
    if guard_or_false(x.numel() == 0):
        return x.new_full(meta_index_Tensor(x, list(indices)).shape, fill)
    return aten._unsafe_index(x, _near(x, indices)).masked_fill(~mask, fill)


@decomposition("_unsafe_masked_index_put_accumulate")
def masked_index_put(
    x: Tensor, mask: Tensor, indices: Sequence[Tensor | None], values: Tensor
) -> Tensor:
    if guard_or_false(x.numel() == 0):
        return x.clone()
    return aten._unsafe_index_put(x, _near(x, indices), values.masked_fill(~mask, 0), True)


@decomposition("index_fill")
def index_fill(x: Tensor, axis: int, indices: Tensor, value: Tensor | complex) -> Tensor:
    if not x.dim():
        return index_fill(x[None], 0, indices, value)[0]
    before = [None] * (axis % x.dim())
    filling = torch.as_tensor(value, dtype=x.dtype, device=x.device)
    return aten.index_put(x, [*before, indices], filling)


# ---- pairs of rows


@decomposition("_pdist_forward")
def pdist(x: Tensor, p: float = 2.0) -> Tensor:
    one, other = pairs_of_rows(x)
    return torch.linalg.vector_norm(x[one] - x[other], p, -1)


# ---- members


@decomposition("isin")
def isin(
    elements: Tensor, members: Tensor, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """isin: PyTorch's decomposition is for some sizes only."""
    if not isinstance(elements, torch.Tensor) or not isinstance(members, torch.Tensor):
        return torch.ne(elements, members) if invert else torch.eq(elements, members)
    dtype = torch.result_type(elements, members)
    ordered, elements = members.to(dtype).flatten().sort().values, elements.to(dtype)
    place = torch.searchsorted(ordered, elements.contiguous())
    found = torch.cat([ordered, ordered.new_zeros(1)])[place]  # there may be no greater member
    same = (found == elements) & (place < ordered.numel())
    return ~same if invert else same
