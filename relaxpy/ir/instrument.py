"""What watches passes: how long each took, the module between them, whether it is sound."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from typing_extensions import override

from relaxpy.errors import WellFormedError
from relaxpy.ir.module import IRModule
from relaxpy.ir.passes import (
    Pass,
    PassContext,
    PassInfo,
    PassInstrument,
    listed,
    pass_instrument,
)
from relaxpy.ir.relax.analysis.well_formed import check_well_formed

__all__ = [
    "PassInstrument",
    "PassPrintingInstrument",
    "PassTimingInstrument",
    "PrintAfterAll",
    "PrintBeforeAll",
    "PrintIR",
    "WellFormedInstrument",
    "pass_instrument",
]


@dataclass(slots=True, eq=False)
class _Timed:
    """One run of a pass, with the runs inside it."""

    name: str
    start: float
    seconds: float | None = None
    inner: list[_Timed] = field(default_factory=list)


class PassTimingInstrument(PassInstrument):
    """Measures every pass; `render` tells, also inside the context."""

    def __init__(self) -> None:
        self._runs: list[_Timed] = []
        self._open: list[_Timed] = []

    @override
    def enter_pass_ctx(self) -> None:
        self._runs, self._open = [], []

    @override
    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        run = _Timed(info.name, time.perf_counter())
        # What failed was never reported as done: it is not what this pass runs in.
        del self._open[len(PassContext.current().running) - 1 :]
        (self._open[-1].inner if self._open else self._runs).append(run)
        self._open.append(run)

    @override
    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        del self._open[len(PassContext.current().running) :]
        run = self._open.pop()
        run.seconds = time.perf_counter() - run.start

    def render(self) -> str:
        """One line a run: the pass, its time, and in brackets its share of what ran around it.

        A pass that fails is not done, and takes no time.

        Units:
            milliseconds; inner runs are indented.
        """
        whole = sum(run.seconds or 0.0 for run in self._runs)
        return "\n".join(line for run in self._runs for line in _lines(run, whole, 0))


def _lines(run: _Timed, around: float, depth: int) -> list[str]:
    seconds = run.seconds or 0.0
    time_taken = f"{seconds * 1e3:.3f} ms ({seconds / around if around else 1.0:.0%})"
    head = f"{'  ' * depth}{run.name}: {time_taken if run.seconds is not None else 'not done'}"
    return [head, *(line for part in run.inner for line in _lines(part, seconds, depth + 1))]


class PassPrintingInstrument(PassInstrument):
    """Prints the module before the passes named in `before` and after those in `after`."""

    def __init__(
        self, before: Sequence[str] | None = None, after: Sequence[str] | None = None
    ) -> None:
        self._before = listed(before, "names of passes")
        self._after = listed(after, "names of passes")

    @override
    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        if info.name in self._before:
            _print(f"before {info.name}", mod)

    @override
    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        if info.name in self._after:
            _print(f"after {info.name}", mod)


class PrintBeforeAll(PassInstrument):
    """Prints the module before every pass."""

    @override
    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        _print(f"before {info.name}", mod)


class PrintAfterAll(PassInstrument):
    """Prints the module after every pass."""

    @override
    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        _print(f"after {info.name}", mod)


@dataclass(frozen=True)
class PrintIR(Pass):
    """Prints the module below a line with `header`, and gives it back as it is."""

    header: str = ""
    show_meta_data: bool = False

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        _print(f"PrintIR({self.header})", mod, show_meta=self.show_meta_data)
        return mod


def _print(title: str, mod: IRModule, **options: bool) -> None:
    print(f"# {title}")
    print(mod.script(**options))


class WellFormedInstrument(PassInstrument):
    """Checks that the module is well-formed before and after every pass.

    Errors:
        WellFormedError: it is not; a note says around which pass.
    """

    def __init__(self, check_struct_info: bool = True) -> None:
        self._check_struct_info = check_struct_info

    def _check(self, when: str, mod: IRModule) -> None:
        found = check_well_formed(mod, self._check_struct_info)
        if found:
            error = WellFormedError(found)
            error.add_note(when)
            raise error

    @override
    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._check(f"before pass {info.name}", mod)

    @override
    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._check(f"after pass {info.name}", mod)
