"""Operators that extend images, or turn their channels into pixels."""

from collections.abc import Iterator

import numpy as np

from relaxpy.ir import ops as op
from tests.ir.ops.cases.case import SPECIAL, Array, Case, case, floats, integers, same

#: NumPy's names of the modes.
_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _padded(x: Array, widths: tuple[int, ...], mode: str, value: float = 0.0) -> Array:
    """Add by NumPy, then remove, axis by axis."""
    pairs = list(zip(widths[::2], widths[1::2], strict=True))
    added = [(max(before, 0), max(after, 0)) for before, after in pairs]
    if mode == "constant":
        whole = np.pad(x, added, constant_values=value)
    else:
        whole = np.pad(x, added, mode=_MODES[mode])  # type: ignore[call-overload]
    kept = tuple(
        slice(max(-before, 0), size - max(-after, 0))
        for size, (before, after) in zip(whole.shape, pairs, strict=True)
    )
    return whole[kept]


def cases() -> Iterator[Case]:
    x = floats(2, 3, 5)
    widths = (
        (0,) * 6,
        (0, 0, 1, 2, 2, 3),
        (0, 0, 0, 0, 4, 0),
        (1, 1, 0, 2, 0, 0),
        (0, 0, -1, 2, 1, -2),
    )
    for mode in ("constant", *_MODES):
        for chosen in (*widths, (0,) * 6):
            yield same("nn.pad", f"{mode} {chosen}", (x,), _padded, chosen, mode)
        yield same(
            "nn.pad", f"{mode} of integers", (integers(4, dtype="int8"),), _padded, (2, 1), mode, 7
        )
        yield same("nn.pad", f"{mode} of Booleans", (x[0] > 0,), _padded, (1, 0, 0, 2), mode, 1)
        yield Case(
            "relax.nn.pad",
            f"{mode} of special numbers",
            (SPECIAL.astype("float16"),),
            lambda v, m=mode: op.nn.pad(v, (3, 2), m, 0.5),
            lambda v, m=mode: _padded(v, (3, 2), m, 0.5),
        )
        yield same(
            "nn.pad", f"{mode} of an empty tensor", (x[:0],), _padded, (0, 0, 1, 1, 0, 0), mode
        )
    for value in (1.5, np.inf, np.nan):
        yield Case(
            "relax.nn.pad",
            f"by {value}",
            (x,),
            lambda v, n=value: op.nn.pad(v, (0, 1, 1, 0, 2, 0), "constant", n),
            lambda v, n=value: _padded(v, (0, 1, 1, 0, 2, 0), "constant", n),
            smooth=np.isfinite(value),
        )
    yield Case(
        "relax.nn.pad",
        "elements for none",
        (x[:, :0],),
        lambda v: op.nn.pad(v, (0, 0, 1, 1, -4, 2), "constant", 3),
        lambda v: np.full((2, 2, 3), 3.0),
        needs=("numbers",),
        only=("shape",),
    )
    yield case("nn.pad", "scalar", (x[0, 0, 0],), np.copy, ())
    yield same("nn.pad", "more than the axis", (x,), _padded, (0, 0, 4, 9, 0, 0), "replicate")
    yield from _shuffled()


def _blocks(x: Array, r: int) -> Array:
    *lead, channels, height, width = x.shape
    out = np.zeros((*lead, channels // r**2, height * r, width * r), x.dtype)
    for c in range(channels // r**2):
        for i in range(r):
            for j in range(r):
                out[..., c, i::r, j::r] = x[..., c * r * r + i * r + j, :, :]
    return out


def _shuffled() -> Iterator[Case]:
    for shape, r in (((2, 4, 2, 3), 2), ((9, 1, 2), 3), ((1, 2, 4, 3, 1), 2), ((2, 3, 2), 1)):
        yield same(
            "nn.pixel_shuffle", f"{shape} by {r}", (floats(*shape),), _blocks, r, needs=("numbers",)
        )
    yield same(
        "nn.pixel_shuffle",
        "integers",
        (integers(4, 2, 2, dtype="uint8", low=0),),
        _blocks,
        2,
        needs=("numbers",),
    )
    yield same("nn.pixel_shuffle", "empty", (floats(4, 0, 2),), _blocks, 2, needs=("numbers",))
