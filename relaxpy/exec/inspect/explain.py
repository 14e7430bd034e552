"""Explains pipelines: the time of each pass, and the functions that it changes."""

from __future__ import annotations

import html
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from typing_extensions import override

from relaxpy.errors import UnknownNameError, close_names, counted, unexpected
from relaxpy.exec.api.as_module import as_module
from relaxpy.ir import hooks
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext, PassInfo, PassInstrument, Sequential
from relaxpy.ir.relax.nodes import BaseFunc, Function
from relaxpy.ir.transform import get_pipeline
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing
from relaxpy.support.screen import ShownAsTable, Table, program_html

#: The functions of one kind of change that the repr of a run names.
_FEW = 4


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PassRun:
    """One run of a pass, `depth` passes inside others, with the module before and after it."""

    name: str
    depth: int
    before: IRModule
    after: IRModule
    seconds: float

    @override
    def __repr__(self) -> str:
        names: dict[str, list[str]] = {}
        for name, kind in self.changes.items():
            names.setdefault(kind, []).append(name)
        listed = [
            f"{kind} {', '.join(some) if len(some) <= _FEW else counted(len(some), 'function')}"
            for kind, some in sorted(names.items())
        ]
        return f"<{self.name}: {'; '.join(listed) or 'no change'}>"

    @property
    def changes(self) -> Mapping[str, str]:
        """The functions that the pass "added", "removed" or "changed", by name."""
        return _changes(self.before, self.after)

    def diff(self) -> str:
        """The text of the functions that differ, as a unified diff."""
        return module_diff(self.before, self.after, self.name)


def _changes(before: IRModule, after: IRModule) -> dict[str, str]:
    old, new = before.functions_by_name, after.functions_by_name
    kinds = {name: "removed" for name in old if name not in new}
    for name, func in new.items():
        if func is not old.get(name):
            kinds[name] = "changed" if name in old else "added"
    return kinds


def module_diff(before: IRModule, after: IRModule, name: str) -> str:
    """The text of the functions that the pass `name` has changed, as a unified diff."""
    text: str = hooks.call("program_diff", before, after, (f"before {name}", f"after {name}"))
    return text


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Explanation(ShownAsTable):
    """The runs of passes in the order in which they began; `str` is a table.

    Tables of the communication of workers follow it, if functions have collective operators.

    Units:
        milliseconds. Bindings are those of Relax functions.
    """

    runs: tuple[PassRun, ...]

    def __iter__(self) -> Iterator[PassRun]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def mod(self) -> IRModule:
        """The module after the pipeline."""
        return self.runs[0].after

    @property
    def communication(self) -> Mapping[str, Any]:
        """The report of `relaxpy.distributed.communication` on functions that run on all workers.

        Functions without collective operators are left out.
        """
        names = (n for n, func in self.mod.functions_by_name.items() if isinstance(func, Function))
        found = {name: hooks.call("communication", self.mod, func_name=name) for name in names}
        return {name: sent for name, sent in found.items() if sent.calls}

    @user_facing
    def diff(self, name: str | None = None) -> str:
        """Unified diffs of the changes of the pass `name`, or of each innermost pass.

        Errors:
            UnknownNameError (also KeyError, ValueError): no pass of this name ran.
        """
        chosen = self._innermost() if name is None else self._named(name)
        return "\n".join(text for run in chosen if (text := run.diff()))

    @user_facing
    def graph(
        self,
        before: str | IRModule | None = None,
        after: str | IRModule | None = None,
        fold: bool | None = None,
    ) -> Any:
        """Draw the changes from before one pass until after another.

        Operations are coloured as added, removed or kept. Without `after`, these are the changes of
        the pass `before`, and without both, of all passes. A module of a run stands for itself. For
        `fold` see `IRModule.graph`.

        Errors:
            UnknownNameError (also KeyError, ValueError): no pass of this name ran.
        """
        first = self.runs[0] if not isinstance(before, str) else self._named(before)[0]
        last = self._named(after)[-1] if isinstance(after, str) else first
        old = before if isinstance(before, IRModule) else first.before
        new = after if isinstance(after, IRModule) else last.after
        return hooks.call("graph_of_change", old, new, fold)

    def _named(self, name: str) -> list[PassRun]:
        """The runs of a pass."""
        found = [run for run in self.runs if run.name == name]
        if not found:
            hint = close_names(str(name), {run.name for run in self.runs})
            raise UnknownNameError(f"no pass {name!r:.60} ran", hint=hint, about=name)
        return found

    def _innermost(self) -> list[PassRun]:
        """The runs with no run inside them."""
        depths = [run.depth for run in self.runs[1:]]
        return [
            run
            for run, following in zip(self.runs, [*depths, 0], strict=True)
            if following <= run.depth
        ]

    @property
    @override
    def _table(self) -> Table:
        header = ("pass", "ms", "added", "removed", "changed", "functions", "bindings")
        return Table(header, tuple(map(_row, self.runs)), text_columns=1)

    @override
    def __str__(self) -> str:
        shown = [f"{_title(*item)}\n{item[1]}" for item in self.communication.items()]
        return "\n\n".join([str(self._table), *shown])

    @override
    def _repr_html_(self) -> str:
        parts = [self._table.html()]
        for name, sent in self.communication.items():
            parts.append(f"<p>{html.escape(_title(name, sent))}</p>{sent.table.html()}")
        for run in self._innermost():
            if text := run.diff():
                summary = f"<summary>{html.escape(run.name)}</summary>"
                parts.append(f"<details>{summary}{program_html(html.escape(text))}</details>")
        return "".join(parts)


def _title(name: str, sent: Any) -> str:
    return f"communication of {name}, by the busiest of {counted(sent.workers, 'worker')}:"


def as_pass(pipeline: str | Pass | Sequence[Pass]) -> Pass:
    """The pass that a name, a pass or a list of passes stands for. Errors: as for `explain`."""
    if isinstance(pipeline, (list, tuple)):
        return Sequential(pipeline)
    step = get_pipeline(pipeline) if isinstance(pipeline, str) else pipeline
    if not isinstance(step, Pass):
        raise unexpected(step, "expected a pipeline or a pass")
    return step


@user_facing
def explain(
    mod: IRModule | BaseFunc, pipeline: str | Pass | Sequence[Pass] = "default"
) -> Explanation:
    """Run a pipeline, by its name or as passes, and return a record of each pass.

    A function becomes a module with one function. The passes run in the current PassContext,
    without its instruments.

    Errors:
        MisuseError (also TypeError): `mod` is not a module, or `pipeline` not a pass.
        UnknownNameError (also KeyError, ValueError): there is no pipeline of that name. The errors
        of the passes.
    """
    module, step, recorder = as_module(mod, "explain"), as_pass(pipeline), _Recorder()
    with PassContext.current().with_instruments([recorder]):
        step(module)
    return Explanation(tuple(run for run in recorder.runs if run is not None))


class _Recorder(PassInstrument):
    """Records the runs of passes; `runs` has None for those that have not ended.

    Nested runs are kept if the pass is a sequence of them, and not if it runs others for its own
    purposes, as FoldConstant does to compute values.
    """

    def __init__(self) -> None:
        self.runs: list[PassRun | None] = []
        self._open: list[tuple[int, IRModule, float]] = []

    @override
    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._open.append((len(self.runs), mod, time.perf_counter()))
        self.runs.append(None)

    @override
    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        place, before, start = self._open.pop()
        seconds = time.perf_counter() - start
        depth = len(self._open)
        inner = [run for run in self.runs[place + 1 :] if run and run.depth == depth + 1]
        stages = [before, *(run.after for run in inner)]
        if stages[-1] is not mod or any(
            run.before is not stage for run, stage in zip(inner, stages, strict=False)
        ):
            del self.runs[place + 1 :]
        self.runs[place] = PassRun(info.name, depth, before, mod, seconds)


def _row(run: PassRun) -> tuple[str, ...]:
    kinds = list(run.changes.values())
    counts = (str(kinds.count(kind) or "") for kind in ("added", "removed", "changed"))
    functions = _arrow(len(run.before.functions_by_name), len(run.after.functions_by_name))
    bindings = _arrow(_bindings(run.before), _bindings(run.after))
    name = "  " * run.depth + run.name
    return (name, f"{run.seconds * 1e3:.2f}", *counts, functions, bindings)


def _arrow(before: int, after: int) -> str:
    return str(before) if before == after else f"{before} -> {after}"


def _bindings(mod: IRModule) -> int:
    return sum(
        len(block.bindings)
        for func in mod.functions_by_name.values()
        if isinstance(func, Function)
        for block in func.body.blocks
    )
