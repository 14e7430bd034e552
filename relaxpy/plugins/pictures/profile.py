"""Charts of profiles: bars of time, and rooflines of kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import floor, log10
from typing import Final, Protocol, TypeAlias

from typing_extensions import override

from relaxpy.errors import MisuseError, counted, unexpected
from relaxpy.plugins.pictures.chart import Chart, document, label
from relaxpy.plugins.pictures.labels import printable
from relaxpy.plugins.pictures.svg import escaped
from relaxpy.support.dataclass import dataclass

#: Rows of the chart of bars; the shortest ones are one row together.
MAX_BARS: Final = 40
_WIDTH: Final = 420.0
_NAMES: Final = 345.0
_LINE: Final = 18.0
_SIDE: Final = 360.0
_MARGIN: Final = 60.0
#: What a kernel that is drawn at the edge of a roofline does at least.
_LEAST: Final = 1e-3
#: Points of a roofline with names beside them, the longest times first; the others have tips.
_NAMED: Final = 12
_ABOVE: Final = "above the line: its arguments are in a cache, or it reads a part of them"


_Place: TypeAlias = Callable[[float, float], tuple[float, float]]


class Timed(Protocol):
    """A row of a profile."""

    name: str
    duration: float
    bytes: int
    flops: int | None
    kind: str
    source: str


@dataclass(frozen=True, slots=True, repr=False)
class ProfileBars(Chart):
    """The time of each row of a profile as a bar, the longest one first."""

    rows: Sequence[Timed]
    duration: float

    @override
    def to_svg(self) -> str:
        rows = sorted(self.rows, key=lambda row: -row.duration)
        times = [(row.name, row.duration, row.kind, row.source) for row in rows[:MAX_BARS]]
        if rest := rows[MAX_BARS:]:
            total = sum(row.duration for row in rest)
            times.append((f"{counted(len(rest), 'other')}", total, "", ""))
        longest = max((time for _, time, _, _ in times), default=0.0) or 1.0
        parts = [label(10, 16, f"{self.duration * 1e6:.1f} us", "total")]
        for index, (name, time, kind, source) in enumerate(times):
            y, width = 28 + index * _LINE, max(_WIDTH * time / longest, 0.5)
            share = 100 * time / self.duration if self.duration else 0.0
            text = f"{time * 1e6:.1f} us, {share:.1f} %"
            parts.append(f"<g><title>{escaped(printable(f'{name}: {text} {source}', 300))}</title>")
            shown = name if kind in ("kernel", "") else f"{name} ({kind})"
            parts.append(label(10, y + 12, printable(shown), "name"))
            parts.append(
                f'<g class="{"kernel" if kind == "kernel" else "frame"}"><rect x="{_NAMES:.0f}" '
                f'y="{y:.1f}" width="{width:.1f}" height="{_LINE - 4:.0f}"/></g>'
            )
            parts.append(label(_NAMES + width + 6, y + 11, text))
            parts.append("</g>\n")
        height = 40 + len(times) * _LINE
        return document(_NAMES + _WIDTH + 130, height, repr(self), "".join(parts))

    @override
    def __repr__(self) -> str:
        return f"<ProfileBars of {counted(len(self.rows), 'row')}, {self.duration * 1e6:.1f} us>"


@dataclass(frozen=True, slots=True, repr=False)
class Roofline(Chart):
    """The operations of kernels per second over those per byte, below the peaks of the machine.

    Both axes are logarithmic. A kernel on the slope is limited by memory, below the level part by
    arithmetic. One above the line reads data that is in a cache, or a part of its arguments, and
    has a star.

    Units:
        operations and bytes per second
    """

    rows: Sequence[Timed]
    peak_operations: float
    peak_bytes: float

    @property
    def points(self) -> list[tuple[str, float, float]]:
        """The name of each kernel with operations, and these per byte and per second."""
        return [
            (row.name, row.flops / row.bytes, row.flops / row.duration)
            for row in self.rows
            if row.kind == "kernel" and row.flops and row.bytes and row.duration > 0
        ]

    @override
    def to_svg(self) -> str:
        ridge = self.peak_operations / self.peak_bytes
        points = [(n, max(x, _LEAST), max(y, _LEAST)) for n, x, y in self.points]
        left, right = _decades([ridge / 30, ridge * 30, *(x for _, x, _ in points)])
        low, high = _decades([self.peak_operations / 1e3, *(y for *_, y in points)], 1.2)
        high = max(high, _decades([self.peak_operations], 1.2)[1])

        def at(x: float, y: float) -> tuple[float, float]:
            across = (log10(x) - left) / (right - left)
            up = (log10(y) - low) / (high - low)
            return _MARGIN + _SIDE * 1.5 * across, 30 + _SIDE * (1 - up)

        parts = [*_grid(left, right, low, high, at)]
        start = max(10**left, 10**low / self.peak_bytes)
        corners = [(start, start * self.peak_bytes), (ridge, self.peak_operations)]
        corners.append((10.0**right, self.peak_operations))
        line = "L".join(f"{x:.1f} {y:.1f}" for x, y in (at(*corner) for corner in corners))
        parts.append(f'<g class="uses"><path class="used" d="M{line}"/></g>\n')
        slowest = sorted(self.rows, key=lambda row: -row.duration)[:_NAMED]
        named = {row.name for row in slowest}
        heights: list[float] = []
        for name, intensity, rate in points:
            x, y = at(intensity, rate)
            about = f"{name}: {rate / 1e9:.2f} Gflop/s, {rate / intensity / 1e9:.2f} GB/s"
            is_above = rate > self._roof(intensity)
            about += f", {_ABOVE}" if is_above else ""
            parts.append(
                f'<g class="point"><title>{escaped(printable(about, 300))}</title>'
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5"/></g>\n'
            )
            if name in named and all(abs(y - other) > 12 for other in heights):
                heights.append(y)
                parts.append(_beside(x, y + 4, printable(name) + " *" * is_above))
        bottom = _SIDE + 66
        parts.append(label(_MARGIN, bottom, f"peaks: {self._peaks}", "small"))
        if any(rate > self._roof(intensity) for _, intensity, rate in points):
            parts.append(label(_MARGIN, bottom + 16, f"* {_ABOVE},"))
            parts.append(label(_MARGIN, bottom + 32, "or other programs ran while it was measured"))
        return document(_SIDE * 1.5 + 2 * _MARGIN, bottom + 44, repr(self), "".join(parts))

    def _roof(self, intensity: float) -> float:
        """The most operations per second that the peaks allow."""
        return min(self.peak_operations, intensity * self.peak_bytes)

    @property
    def _peaks(self) -> str:
        return f"{self.peak_operations / 1e9:.3g} Gflop/s, {self.peak_bytes / 1e9:.3g} GB/s"

    @override
    def __repr__(self) -> str:
        return f"<Roofline of {counted(len(self.points), 'kernel')}, peaks {self._peaks}>"


def _beside(x: float, y: float, text: str) -> str:
    """A text beside a point, on the side with more room."""
    if x < _SIDE:
        return label(x + 9, y, text)
    return label(x - 9, y, text).replace("<text ", '<text text-anchor="end" ')


def _decades(values: Sequence[float], room: float = 1.0) -> tuple[int, int]:
    """The powers of ten around values."""
    return floor(log10(min(values))), floor(log10(max(values) * room)) + 1


def _grid(left: int, right: int, low: int, high: int, place: _Place) -> Iterator[str]:
    for power in range(left, right + 1):
        x, bottom = place(10.0**power, 10.0**low)
        yield f'<path class="grid" d="M{x:.1f} 30V{bottom:.1f}"/>'
        yield label(x - 10, bottom + 16, f"{10.0**power:g}")
    for power in range(low, high + 1):
        x, y = place(10.0**left, 10.0**power)
        yield f'<path class="grid" d="M{x:.1f} {y:.1f}h{_SIDE * 1.5:.0f}"/>'
        yield label(6, y + 4, f"{10.0 ** (power - 9):g}")
    yield label(6, 16, "Gflop/s over flop/byte", "total")


def profile_chart(
    rows: Sequence[Timed], duration: float, kind: str, peaks: tuple[float, float] | None
) -> Chart:
    """The chart of a profile: "bars", or "roofline", which needs peaks of flops and bytes a second.

    Errors:
        MisuseError (also ValueError): the kind is another one, or there are no peaks.
    """
    if kind == "bars":
        return ProfileBars(rows, duration)
    if kind != "roofline":
        raise unexpected(kind, "expected 'bars' or 'roofline'")
    if peaks is None:
        raise MisuseError("the peaks of this machine cannot be measured without native code")
    return Roofline(rows, *peaks)
