"""Pass instruments: timing, printing, dumping and verification of the module."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path

from typing_extensions import override

from relaxpy.errors import TransformError, WellFormedError, check_type
from relaxpy.ir.equality.structural import structural_hash
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import (
    Pass,
    PassContext,
    PassInfo,
    PassInstrument,
    listed,
    pass_instrument,
)
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.support.dataclass import dataclass

__all__ = [
    "DumpIR",
    "PassInstrument",
    "PassPrintingInstrument",
    "PassTimingInstrument",
    "PrintAfterAll",
    "PrintBeforeAll",
    "PrintIR",
    "StructuralInstrument",
    "WellFormedInstrument",
    "pass_instrument",
]


@dataclass(slots=True, eq=False)
class _Run:
    """One run of a pass, with the nested runs."""

    name: str
    start: float
    seconds: float | None = None
    inner: list[_Run] = field(default_factory=list)


class PassTimingInstrument(PassInstrument):
    """Measures the time of every pass; `render` may also be called inside the context."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._open: list[_Run] = []

    @override
    def enter_pass_ctx(self) -> None:
        self._runs, self._open = [], []

    @override
    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        run = _Run(info.name, time.perf_counter())
        # A failed pass has no `run_after_pass`: it does not enclose this one.
        del self._open[len(PassContext.current().running) - 1 :]
        (self._open[-1].inner if self._open else self._runs).append(run)
        self._open.append(run)

    @override
    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        del self._open[len(PassContext.current().running) :]
        run = self._open.pop()
        run.seconds = time.perf_counter() - run.start

    def render(self) -> str:
        """One line per run: the pass, its time, and its share of the enclosing run.

        A failed pass is shown as not done, without a time.

        Units:
            milliseconds; inner runs are indented.
        """
        total = sum(run.seconds or 0.0 for run in self._runs)
        return "\n".join(line for run in self._runs for line in _lines(run, total, 0))


def _lines(run: _Run, total: float, depth: int) -> list[str]:
    seconds = run.seconds or 0.0
    time_taken = f"{seconds * 1e3:.3f} ms ({seconds / total if total else 1.0:.0%})"
    head = f"{'  ' * depth}{run.name}: {time_taken if run.seconds is not None else 'not done'}"
    return [head, *(line for inner in run.inner for line in _lines(inner, seconds, depth + 1))]


class PassPrintingInstrument(PassInstrument):
    """Prints the module before the passes of the first list of names and after those of the second.

    Errors:
        MisuseError (also TypeError): one of the arguments is not a list.
    """

    def __init__(
        self,
        print_before_pass_names: Sequence[str] | None = None,
        print_after_pass_names: Sequence[str] | None = None,
    ) -> None:
        self.print_before_pass_names = listed(print_before_pass_names, "names of passes")
        self.print_after_pass_names = listed(print_after_pass_names, "names of passes")

    @override
    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        if info.name in self.print_before_pass_names:
            _print(f"Before Running Pass: {info}", mod)

    @override
    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        if info.name in self.print_after_pass_names:
            _print(f"After Running Pass: {info}", mod)


class PrintBeforeAll(PassInstrument):
    """Prints the module before every pass."""

    @override
    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        _print(f"Before Running Pass: {info}", mod)


class PrintAfterAll(PassInstrument):
    """Prints the module after every pass."""

    @override
    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        _print(f"After Running Pass: {info}", mod)


class DumpIR(PassInstrument):
    """Writes the module after every pass to a file in `dump_dir`, such as `000_Normalize.py`.

    With `refresh`, existing files with such names are deleted.

    Errors:
        MisuseError (also TypeError): `dump_dir` is not a path.
    """

    def __init__(self, dump_dir: str | Path, refresh: bool = False) -> None:
        check_type(dump_dir, (str, Path), "dump_dir is a path")
        self.dump_dir = Path(dump_dir)
        self.counter = 0
        self.dump_dir.mkdir(parents=True, exist_ok=True)
        if refresh:
            for old in self.dump_dir.glob("[0-9][0-9][0-9]_*.py"):
                old.unlink()

    @override
    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        name = re.sub(r"\W", "_", info.name)
        text = mod.script(show_meta=True)
        (self.dump_dir / f"{self.counter:03}_{name}.py").write_text(f"{text}\n", encoding="utf-8")
        self.counter += 1


@dataclass(frozen=True)
class PrintIR(Pass):
    """Prints the module below a line with `header`, and returns it unchanged."""

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

    The passes named in `skip_pass_name` establish well-formedness, so they are not checked. Without
    `validate_before_transform`, modules are checked only after a pass.

    Errors:
        WellFormedError: it is not; a note names the pass.
    """

    def __init__(
        self, check_struct_info: bool = True, validate_before_transform: bool = True
    ) -> None:
        self.skip_pass_name = ["Normalize", "NormalizeGlobalVar", "ResolveGlobals"]
        self.check_struct_info = check_struct_info
        self.validate_before_transform = validate_before_transform

    def _check(self, when: str, mod: IRModule, info: PassInfo) -> None:
        if info.name in self.skip_pass_name:
            return
        diagnostics = check_well_formed(mod, self.check_struct_info)
        if diagnostics:
            error = WellFormedError(diagnostics)
            error.add_note(f"{when} pass {info.name}")
            raise error

    @override
    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        if self.validate_before_transform:
            self._check("before", mod, info)

    @override
    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._check("after", mod, info)


class StructuralInstrument(PassInstrument):
    """Checks that no pass changes the module that it is given.

    Errors:
        TransformError: a pass does; a note names it.
    """

    def __init__(self) -> None:
        self._open: list[tuple[IRModule, int]] = []

    @override
    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        del self._open[len(PassContext.current().running) - 1 :]  # those of passes that failed
        self._open.append((mod, structural_hash(mod)))

    @override
    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        before, hash_before = self._open[len(PassContext.current().running) - 1]
        if structural_hash(before) != hash_before:
            error = TransformError(
                "the pass changed the module that it was given", hint="change mod.clone() instead"
            )
            error.add_note(f"after pass {info.name}")
            raise error
