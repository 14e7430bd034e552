"""Charts in SVG: memory by binding, profiles, and the curve of a training."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import floor, log10
from os import PathLike, fspath
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from typing_extensions import override

from relaxpy.errors import MisuseError, UnknownNameError, close_names, counted, unexpected
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.memory_usage import allocated_bytes, new_outputs
from relaxpy.ir.relax.nodes import BaseFunc
from relaxpy.plugins.pictures.model import operator_text, printable
from relaxpy.plugins.pictures.svg import escaped, notebook_html, style
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.entry import user_facing


class Chart(ABC):
    """A picture of numbers."""

    __slots__ = ()

    @abstractmethod
    def to_svg(self) -> str:
        """The chart as an SVG document."""

    @user_facing
    def save(self, path: str | PathLike[str]) -> None:
        """Write the chart to a file .svg.

        Errors:
            MisuseError (also TypeError, ValueError): it is not the path of such a file.
            OSError: the file cannot be written.
        """
        target = Path(fspath(path)) if isinstance(path, (str, PathLike)) else None
        if target is None or target.suffix != ".svg":
            raise unexpected(path, "expected the path of a file .svg")
        target.write_text(self.to_svg(), encoding="utf-8")

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": notebook_html(self.to_svg(), repr(self))}


def document(width: float, height: float, title: str, parts: str) -> str:
    """An SVG document with the style of all pictures."""
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" class="relaxpy-picture" role="img" '
        'style="max-width:none" '
        f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">\n'
        f"<title>{escaped(title)}</title><style>{style()}</style>\n{parts}</svg>\n"
    )


def label(x: float, y: float, text: str, kind: str = "small") -> str:
    """A text whose left end is at a position."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escaped(text)}</text>\n'


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


WIDTH: Final = 760
HEIGHT: Final = 200
LEFT: Final = 90
TOP: Final = 30


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """The memory that a function holds while one of its bindings runs.

    Fields:
        held: the storages that are reserved, and the tensors outside of them.
        used: the tensors that are still needed.
    Units:
        bytes
    """

    name: str
    operation: str
    held: int
    used: int


@dataclass(frozen=True, slots=True, repr=False)
class MemoryChart(Chart):
    """The memory of a function over its bindings, as a picture in a notebook and in files.

    Memory inside of branches and of called functions is not counted in rows, nor are the
    parameters. `unknown` is the number of allocations whose size depends on the arguments,
    `unplanned` that of operators whose results are not counted, since they are not kernels yet.
    Of a function of an executable, `formula` is the memory of a call by `Executable.memory`, and
    `total` its value if all sizes are known.
    """

    function: str
    rows: tuple[MemoryRow, ...]
    unknown: int
    unplanned: int = 0
    formula: str = ""
    total: int | None = None

    @property
    def peak(self) -> int:
        """The largest number of bytes that are held at once."""
        return self._most if self.total is None else self.total

    @property
    def _most(self) -> int:
        return max((row.held for row in self.rows), default=0)

    @override
    def to_svg(self) -> str:
        """The chart as an SVG document: an area for reserved memory, a line for used memory."""
        size = LEFT + WIDTH + 20, TOP + HEIGHT + 40
        return document(*size, repr(self), "".join(_drawn(self)))

    @override
    def __repr__(self) -> str:
        unknown = f", {counted(self.unknown, 'allocation')} of unknown size" if self.unknown else ""
        rows = counted(len(self.rows), "binding")
        if self.total is None and self.formula:
            peak = f"peak {self.formula} bytes"
        else:
            peak = f"peak {size_text(self.peak)}{unknown if self.total is None else ''}"
        if self.unplanned:
            peak = self._note() if not self.peak else f"{peak}, {self._note()}"
        return f"<MemoryChart of {self.function}: {rows}, {peak}>"

    def _note(self) -> str:
        """The hint about operators that are not kernels."""
        operators = counted(self.unplanned, "operator")
        return f"unplanned: LegalizeOps makes kernels of {operators}, whose results then count"


class Use(Protocol):
    """The memory of a call, as `Executable.memory` returns it."""

    @property
    def formula(self) -> str:
        """The bytes as an expression of sizes."""

    @property
    def sizes(self) -> tuple[str, ...]:
        """The names of the sizes."""

    def bytes(self, **sizes: int) -> int:
        """The bytes for these sizes."""


def memory_chart(
    program: IRModule | BaseFunc,
    function: str | None = None,
    sizes: Mapping[str, int] | None = None,
    use: Use | None = None,
) -> MemoryChart:
    """The memory that a function, `main` or the only one of a module, holds over its bindings.

    Dimensions with names have the values in `sizes`. The peak is that of `use`, if it is known.

    Errors:
        UnknownNameError (also KeyError, ValueError): there is no such function or dimension.
        MisuseError (also TypeError): it is not a Relax function.
    """
    func: BaseFunc = _function(program, function) if isinstance(program, IRModule) else program
    if not isinstance(func, rx.Function):
        raise MisuseError(f"expected a Relax function, found {type(func).__name__}", about=func)
    if sizes:
        func = func.bind_symbolic_vars(sizes)  # type: ignore[arg-type]
    name = function or str(func.attrs.get("global_symbol") or "the function")
    chart = _measured(printable(name), func)
    if use is None:
        return chart
    known = {size: n for size, n in (sizes or {}).items() if size in use.sizes}
    total = use.bytes(**known) if len(known) == len(use.sizes) else None
    return replace(chart, formula=use.formula, total=total)


def _function(mod: IRModule, name: str | None) -> BaseFunc:
    functions = mod.functions_by_name
    relax = [key for key, func in functions.items() if isinstance(func, rx.Function)]
    chosen = name or ("main" if "main" in relax or len(relax) != 1 else relax[0])
    if chosen not in functions:
        hint = close_names(chosen, relax)
        raise UnknownNameError(f"the module has no function {chosen!r:.60}", hint=hint, about=name)
    return functions[chosen]


def _measured(name: str, func: rx.Function) -> MemoryChart:
    bindings = [binding for block in func.body.blocks for binding in block.bindings]
    last = _last_uses(bindings, func.body.body)
    held, used = [0] * (len(bindings) + 1), [0] * (len(bindings) + 1)
    unknown = unplanned = 0
    for index, binding in enumerate(bindings):
        call = binding.value
        if not isinstance(call, rx.Call) or not isinstance(call.op, Op):
            continue
        allocation = call.op.record.allocates
        sizes = list(new_outputs(call, call.op))
        unplanned += call.op.record.legalize is not None
        if allocation is not None:
            sizes.append(allocated_bytes(call, allocation))
        stop = last.get(binding.var, index) + 1 if binding.var is not None else index + 1
        for nbytes in sizes:
            unknown += nbytes is None
            for counts, counted_here in (
                (held, allocation is None or not allocation.planned or allocation.storage),
                (used, allocation is None or not allocation.storage),
            ):
                if counted_here:
                    counts[index] += nbytes or 0
                    counts[stop] -= nbytes or 0
    rows, now_held, now_used = [], 0, 0
    for index, binding in enumerate(bindings):
        now_held, now_used = now_held + held[index], now_used + used[index]
        shown = binding.var.name_hint if binding.var is not None else ""
        rows.append(MemoryRow(printable(shown), _operation(binding), now_held, now_used))
    return MemoryChart(name, tuple(rows), unknown, unplanned)


def _operation(binding: rx.Binding) -> str:
    match binding.value:
        case rx.Call(args=(rx.GlobalVar() as callee, *_)):
            return printable(callee.name_hint)
        case rx.Call(op=op):
            return printable(operator_text(op))
        case value:
            return type(value).__name__


def _last_uses(bindings: Sequence[rx.Binding], result: rx.Expr) -> dict[rx.Var, int]:
    """The last binding that uses each variable, also under another name or in a tuple."""
    last: dict[rx.Var, int] = {}
    for index in range(len(bindings), -1, -1):
        value = result if index == len(bindings) else bindings[index].value
        var = None if index == len(bindings) else bindings[index].var
        stop = min(index, len(bindings) - 1)
        if var is not None and not isinstance(value, (rx.Call, rx.If, rx.Function)):
            stop = max(stop, last.get(var, stop))  # another name of its operands
        if var is not None and _is_tensor_of_storage(value):
            stop = max(stop, last.get(var, stop))
        for node in walk(value):
            if isinstance(node, rx.Var):
                last[node] = max(last.get(node, stop), stop)
    return last


def _is_tensor_of_storage(value: rx.Expr) -> bool:
    if not isinstance(value, rx.Call) or not isinstance(value.op, Op):
        return False
    allocation = value.op.record.allocates
    return allocation is not None and not allocation.storage and allocation.planned


def size_text(nbytes: int) -> str:
    """A number of bytes as people read it."""
    size = float(nbytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.4g} TB"


def _drawn(chart: MemoryChart) -> Iterator[str]:
    most = f"; a call takes {chart.formula} bytes" if chart.formula else ""
    yield label(10, 18, f"{chart.function}: held (area), used (line){most}", "total")
    columns = _columns(chart.rows)
    step = WIDTH / max(len(columns), 1)
    top = max(chart.peak, chart._most, 1)
    for part in (0, 0.5, 1):
        y = TOP + HEIGHT * (1 - part)
        yield label(10, y + 4, size_text(round(top * part)))
        yield f'<path class="grid" d="M{LEFT} {y:.0f}H{LEFT + WIDTH}"/>\n'
    line: list[str] = []
    for index, (first, row) in enumerate(columns):
        x, tall = LEFT + index * step, HEIGHT * row.held / top
        about = f"{first}: {row.name} = {row.operation}\nheld {size_text(row.held)}"
        yield (
            f'<g class="bar"><title>{escaped(f"{about}, used {size_text(row.used)}")}</title>'
            f'<rect x="{x:.1f}" y="{TOP}" width="{step:.2f}" height="{HEIGHT}" class="whole"/>'
            f'<rect x="{x:.1f}" y="{TOP + HEIGHT - tall:.1f}" width="{step:.2f}" '
            f'height="{tall:.1f}"/></g>\n'
        )
        y = TOP + HEIGHT * (1 - row.used / top)
        line.append(f"{'L' if line else 'M'}{x:.1f} {y:.1f}H{x + step:.1f}")
    yield f'<g class="uses"><path class="used" d="{"".join(line) or "M0 0"}"/></g>\n'
    note = f"; {chart._note()}" if chart.unplanned else ""
    yield label(LEFT, TOP + HEIGHT + 20, f"{counted(len(chart.rows), 'binding')}{note}")


def _columns(rows: Sequence[MemoryRow]) -> list[tuple[int, MemoryRow]]:
    """The rows with their numbers; of several in one column of the chart, the largest."""
    per_column = -(-len(rows) // WIDTH) or 1
    numbered = list(enumerate(rows))
    groups = (numbered[i : i + per_column] for i in range(0, len(rows), per_column))
    return [max(group, key=lambda pair: pair[1].held) for group in groups]


#: Rows of the chart of bars; the shortest ones are one row together.
MAX_BARS: Final = 40
_PROFILE_WIDTH: Final = 420.0
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
            y, width = 28 + index * _LINE, max(_PROFILE_WIDTH * time / longest, 0.5)
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
        return document(_NAMES + _PROFILE_WIDTH + 130, height, repr(self), "".join(parts))

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
