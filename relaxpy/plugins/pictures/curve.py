"""The curve of a training: the loss of each epoch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from typing_extensions import override

from relaxpy.errors import counted
from relaxpy.plugins.pictures.chart import Chart, document, label
from relaxpy.plugins.pictures.svg import escaped
from relaxpy.support.dataclass import dataclass

_LEFT: Final = 70.0
_TOP: Final = 20.0
_WIDTH: Final = 480.0
_HEIGHT: Final = 200.0
#: The most points that are drawn, and named by a text under the pointer.
_MOST: Final = 500
#: The losses whose ratio is more are drawn by their logarithms.
_WIDE: Final = 20.0


@dataclass(frozen=True, slots=True, repr=False)
class Curve(Chart):
    """The losses of epochs, from the first on; those that are not finite are left out."""

    losses: Sequence[float]

    @override
    def to_svg(self) -> str:
        known = [(n + 1, loss) for n, loss in enumerate(self.losses) if math.isfinite(loss)]
        step = -(-len(known) // _MOST) or 1
        shown = list(dict.fromkeys([*known[::step], *known[-1:]]))
        low, high = (f((y for _, y in shown), default=0.0) for f in (min, max))
        is_wide = low > 0 and high > _WIDE * low

        def scaled(loss: float) -> float:
            return math.log(loss) if is_wide else loss

        bottom, top = scaled(low), scaled(high)
        last = max(len(self.losses), 2)

        def at(epoch: int, loss: float) -> tuple[float, float]:
            share = (scaled(loss) - bottom) / (top - bottom) if top > bottom else 0.5
            x = _LEFT + _WIDTH * (epoch - 1) / (last - 1)
            return x, _TOP + _HEIGHT * (1 - share)

        parts = []
        for loss in dict.fromkeys((high, low)) if shown else ():
            y = at(1, loss)[1]
            parts.append(f'<path class="grid" d="M{_LEFT:.1f} {y:.1f}h{_WIDTH:.0f}"/>')
            parts.append(label(6, y + 4, f"{loss:.4g}"))
        parts.append(label(_LEFT, _TOP + _HEIGHT + 22, "epoch 1"))
        end = f"epoch {len(self.losses)}" + (", logarithmic" if is_wide else "")
        parts.append(label(_LEFT + _WIDTH - 60, _TOP + _HEIGHT + 22, end))
        line = " ".join(f"{x:.1f} {y:.1f}" for x, y in (at(*point) for point in shown))
        if shown:
            parts.append(f'<g class="uses"><path class="used" d="M{line}"/></g>\n')
        for epoch, loss in shown:
            x, y = at(epoch, loss)
            about = escaped(f"epoch {epoch}: {loss:.6g}")
            parts.append(
                f'<g class="point"><title>{about}</title>'
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5"/></g>\n'
            )
        return document(_LEFT + _WIDTH + 70, _TOP + _HEIGHT + 34, repr(self), "".join(parts))

    @override
    def __repr__(self) -> str:
        last = f", the last one {self.losses[-1]:.4g}" if self.losses else ""
        return f"<Curve of {counted(len(self.losses), 'loss', 'losses')}{last}>"


def curve(losses: Sequence[float]) -> Curve:
    """The curve of these losses."""
    return Curve(tuple(losses))
