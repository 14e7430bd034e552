"""Charts of memory: the bytes that a function holds at each of its bindings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from typing_extensions import override

from relaxpy.errors import MisuseError, UnknownNameError, close_names, counted
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.function import BaseFunc
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.memory_usage import allocated_bytes, new_outputs
from relaxpy.plugins.pictures.chart import Chart, document, label
from relaxpy.plugins.pictures.labels import operator_text, printable
from relaxpy.plugins.pictures.svg import escaped
from relaxpy.support.dataclass import dataclass

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

    Memory inside of branches and of called functions is not counted, nor are the parameters.
    `unknown` is the number of allocations whose size depends on the arguments, `unplanned` that of
    operators whose results are not counted, since they are not kernels yet.
    """

    function: str
    rows: tuple[MemoryRow, ...]
    unknown: int
    unplanned: int = 0

    @property
    def peak(self) -> int:
        """The largest number of bytes that are held at once."""
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
        peak = f"peak {size_text(self.peak)}{unknown}"
        if self.unplanned:
            peak = self._note() if not self.peak else f"{peak}, {self._note()}"
        return f"<MemoryChart of {self.function}: {rows}, {peak}>"

    def _note(self) -> str:
        """The hint about operators that are not kernels."""
        operators = counted(self.unplanned, "operator")
        return f"unplanned: LegalizeOps makes kernels of {operators}, whose results then count"


def memory_chart(
    program: IRModule | BaseFunc,
    function: str | None = None,
    sizes: Mapping[str, int] | None = None,
) -> MemoryChart:
    """The memory that a function, `main` or the only one of a module, holds over its bindings.

    Dimensions with names have the values in `sizes`.

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
    return _measured(printable(name), func)


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
    yield label(10, 18, f"{chart.function}: held (area), used (line)", "total")
    columns = _columns(chart.rows)
    step = WIDTH / max(len(columns), 1)
    top = max(chart.peak, 1)
    for part in (0, 0.5, 1):
        y = TOP + HEIGHT * (1 - part)
        yield label(10, y + 4, size_text(round(chart.peak * part)))
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
