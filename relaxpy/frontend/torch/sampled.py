"""Elements at places that numbers decide: pools, images and channels, as simpler functions."""

# ruff: noqa: D103

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from relaxpy.frontend.torch.backward import Tensor, decomposition

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


# ---- images sampled at other places


class _Tap(NamedTuple):
    """A place on an axis that is read: its index, and its factor with the slope of that."""

    index: Tensor
    inside: Tensor
    factor: Tensor
    slope: Tensor


def _folded(place: Tensor, size: int, padding: int, corners: bool) -> tuple[Tensor, Tensor]:
    """A place, moved into an axis as the padding says, and the slope of that."""
    slope = torch.ones_like(place)
    if padding == 0:
        return place, slope
    if padding == 2:
        low, span = (0.0, size - 1) if corners else (-0.5, size)
        if span == 0:
            return torch.zeros_like(place), torch.zeros_like(place)
        apart = place - low
        away = apart.abs()
        turns = torch.floor(away / span)
        rest = away - turns * span
        even = torch.remainder(turns, 2) == 0
        place = torch.where(even, rest, span - rest) + low
        slope = torch.where(even == (apart >= 0), 1.0, -1.0).to(place.dtype)
    clipped = place.clamp(0, size - 1)
    return clipped, torch.where((place > 0) & (place < size - 1), slope, 0.0)


def _tap(index: Tensor, size: int, factor: Tensor, slope: Tensor) -> _Tap:
    inside = (index >= 0) & (index < size)
    return _Tap(index.clamp(0, size - 1).to(torch.int64), inside, factor, slope)


def _taps(number: Tensor, size: int, mode: int, padding: int, corners: bool) -> list[_Tap]:
    """The places that a number from -1 to 1 reads on an axis, with slopes by the number."""
    scale = (size - 1) / 2 if corners else size / 2
    place = (number + 1) * scale - (0.0 if corners else 0.5)
    if mode != 2:
        place, slope = _folded(place, size, padding, corners)
        slope = slope * scale
        if mode == 1:
            return [_tap(place.round(), size, torch.ones_like(place), torch.zeros_like(place))]
        first = place.floor()
        part = place - first
        return [_tap(first, size, 1 - part, -slope), _tap(first + 1, size, part, slope)]
    first = place.floor()
    part = place - first
    taps = []
    for k in range(-1, 3):
        index, _ = _folded(first + k, size, padding, corners)
        factor, slope = _cubic(part - k)
        taps.append(_tap(index, size, factor, slope * scale))
    return taps


def _cubic(place: Tensor) -> tuple[Tensor, Tensor]:
    """The factor of an element so far from a place (Keys, IEEE ASSP 29(6), 1981), and its slope."""
    a = -0.75
    x = place.abs()
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    of_near = (3 * (a + 2) * x - 2 * (a + 3)) * x
    of_far = (3 * a * x - 10 * a) * x + 8 * a
    sign = torch.where(place < 0, -1.0, 1.0).to(place.dtype)
    return torch.where(x <= 1, near, far), torch.where(x <= 1, of_near, of_far) * sign


@decomposition("grid_sampler_2d_backward", "grid_sampler_3d_backward")
def grid_sampler_backward(
    grad: Tensor,
    x: Tensor,
    grid: Tensor,
    mode: int,
    padding: int,
    corners: bool,
    mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor]:
    batch, channels, *sizes = x.shape
    count = len(sizes)
    numbers = [grid[..., count - 1 - k].reshape(batch, -1) for k in range(count)]
    axes = [
        _taps(number, size, mode, padding, corners)
        for number, size in zip(numbers, sizes, strict=True)
    ]
    flat, rows = x.reshape(batch, channels, -1), grad.reshape(batch, channels, -1)
    of_x = torch.zeros_like(flat) if mask[0] else None
    slopes = [torch.zeros_like(number) for number in numbers]
    for taps in itertools.product(*axes):
        place, inside = torch.zeros_like(taps[0].index), torch.ones_like(taps[0].inside)
        for tap, size in zip(taps, sizes, strict=True):
            place, inside = place * size + tap.index, inside & tap.inside
        at = place[:, None].expand(rows.shape)
        if of_x is not None:
            factor = torch.where(inside, math.prod(tap.factor for tap in taps), 0.0)
            of_x = of_x.scatter_add(2, at, rows * factor[:, None])
        value = torch.where(inside, (rows * flat.gather(2, at)).sum(1), 0.0)
        for k in range(count):
            others = [tap.factor for j, tap in enumerate(taps) if j != k]
            slopes[k] = slopes[k] + value * taps[k].slope * math.prod(others)
    of_grid = torch.stack(slopes[::-1], -1).reshape(grid.shape)
    return None if of_x is None else of_x.reshape(x.shape), of_grid


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
