"""Assembles executables from compiled functions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from relaxpy.exec.executable import DirectEntryPoint, EntryPoint, Executable, Program, SourceKind
from relaxpy.exec.native.calls.entry import is_entry, with_fallback
from relaxpy.exec.native.machine_code.machine import with_current
from relaxpy.exec.program.table import CompiledProgram
from relaxpy.exec.report import ExecutionReport
from relaxpy.exec.runtime.checks import PublicFunctions, Signature
from relaxpy.exec.runtime.values import PrimFuncValue, Value
from relaxpy.ir.core.target import target_facts
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relax import nodes as rx

if TYPE_CHECKING:
    from pathlib import Path

    from relaxpy.exec.lower.python_module import Backend
    from relaxpy.exec.lowered import Lowered
    from relaxpy.exec.profile import Profile
    from relaxpy.exec.runtime.instrument import Instrument


def executable_of(
    program: Program,
    public: PublicFunctions,
    functions: Mapping[str, Callable[..., Value]],
    source: str | Callable[[], str],
    report: ExecutionReport,
    instrumented: Callable[[Instrument], Mapping[str, Callable[..., Value]]],
    new_backend: Callable[[], Backend] | None,
    private: Collection[str],
) -> Executable:
    """The executable of compiled functions; `private` are the names of those it does not have.

    Kernels are compiled by a new back end for their sources, unless there is none.
    """

    def entries(functions: Mapping[str, Callable[..., Value]]) -> dict[str, EntryPoint]:
        return {
            symbol: _entry_point(signature, functions[name], program)
            for symbol, (name, signature) in public.items()
        }

    def instrumented_entries(instrument: Instrument) -> Mapping[str, EntryPoint]:
        return entries(instrumented(instrument))

    # These need the planner of kernels, which programs from the disk do without.
    def source_of_kernel(name: str, kind: SourceKind) -> str:
        from relaxpy.exec.kernel_source import kernel_source

        return kernel_source(program.module, new_backend, name, kind)

    def profile(name: str, args: Sequence[object], repeat: int, trace: Path | None) -> Profile:
        from relaxpy.exec.profile import ProgramProfiler

        profiler = ProgramProfiler(lambda: program.module, report, instrumented_entries)
        return profiler(name, args, repeat, trace)

    return Executable(
        entries(functions),
        program=program,
        source=source,
        report=report,
        private_names=private,
        instrumented=instrumented_entries,
        kernel_source=source_of_kernel,
        profile=profile,
    )


def executable_of_lowered(
    program: Program,
    compiled: CompiledProgram,
    functions: Mapping[str, Callable[..., Value]],
    lowered: Callable[[], Lowered],
    remark: str = "",
    not_native: str = "",
) -> Executable:
    """The executable of a compiled program, whose lowered form is computed when it is needed."""
    program.machine_code = with_current(lambda sections: lowered().machine_code(sections))
    program.compiled = compiled
    is_native = target_facts(program.target).is_native
    report = ExecutionReport(compiled.rows, not_native, remark, is_native)
    return executable_of(
        *(program, compiled.public, functions, lambda: lowered().source(), report),
        lambda instrument: lowered().instrumented(instrument),
        *(lambda: lowered().new_backend(), compiled.private),
    )


def _entry_point(signature: Signature, run: Callable[..., Value], program: Program) -> EntryPoint:
    if isinstance(run, PrimFuncValue):
        run = run.run  # an entry point checks the arguments as the value would
    sinfos = (node for param in signature.params for node in walk(param))
    # Native code takes any object, which may have to be converted.
    if (
        not is_entry(run)
        or signature.returns_tree
        or any(isinstance(sinfo, rx.ObjectStructInfo) for sinfo in sinfos)
    ):
        return EntryPoint(signature, run, program)
    return DirectEntryPoint(signature, run, program, partial(with_fallback, run))
