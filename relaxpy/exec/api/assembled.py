"""Assembles executables from compiled functions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING

from relaxpy.exec.api.executable import DirectEntryPoint, EntryPoint, Executable, Form, Program
from relaxpy.exec.native.calls.entry import is_entry, with_fallback
from relaxpy.exec.program.graph.sessions import WithSessions
from relaxpy.exec.program.table import CompiledProgram
from relaxpy.exec.runtime.checks import PublicFunctions, Signature
from relaxpy.exec.runtime.report import ExecutionReport
from relaxpy.exec.runtime.values import PrimFuncValue, Value
from relaxpy.ir.core.target import target_facts
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relax import nodes as rx

if TYPE_CHECKING:
    from relaxpy.exec.program.graph.times import Times
    from relaxpy.exec.runtime.instrument import Instrument


def executable_of(
    program: Program,
    public: PublicFunctions,
    functions: Mapping[str, Callable[..., Value]],
    private: Collection[str],
    report: ExecutionReport,
) -> Executable:
    """The executable of functions by name; `private` are the names of those it does not have."""
    program.public = public
    entries = _entries(program, functions)
    return Executable(entries, program=program, report=report, private_names=private)


def executable_of_table(
    program: Program,
    compiled: CompiledProgram,
    functions: Mapping[str, Callable[..., Value]],
    lowered: Callable[[], Form],
    remark: str = "",
    not_native: str = "",
) -> Executable:
    """The executable of a compiled program, whose lowered form is computed when it is needed."""
    program.compiled, program.form = compiled, lowered
    is_native = target_facts(program.target).is_native
    report = ExecutionReport(compiled.rows, not_native, remark, is_native)
    return executable_of(program, compiled.public, functions, compiled.private, report)


def instrumented(executable: Executable, instrument: Instrument) -> Mapping[str, EntryPoint]:
    """The functions of an executable, compiled once more to report calls to an instrument."""
    program = executable._program
    return _entries(program, program.form().instrumented(instrument))


def timed(
    executable: Executable, instrument: Instrument
) -> tuple[Mapping[str, EntryPoint], Times | None]:
    """The functions of an executable, compiled once more: native code notes times of its steps.

    Functions in Python report their calls to an instrument.
    """
    program = executable._program
    functions, times = program.form().timed(instrument)
    return _entries(program, functions), times


def _entries(
    program: Program, functions: Mapping[str, Callable[..., Value]]
) -> dict[str, EntryPoint]:
    return {
        symbol: _entry_point(signature, functions[name], program)
        for symbol, (name, signature) in program.public.items()
    }


def _entry_point(signature: Signature, run: Callable[..., Value], program: Program) -> EntryPoint:
    if isinstance(run, PrimFuncValue):
        run = run.run  # an entry point checks the arguments as the value would
    with_objects = {
        position
        for position, param in enumerate(signature.params)
        if any(isinstance(sinfo, rx.ObjectStructInfo) for sinfo in walk(param))
    }
    # Native code takes any object, which may have to be converted.
    if isinstance(run, WithSessions) and not signature.returns_tree:
        # A plan takes objects as they are; they are not in tuples.
        is_direct = is_entry(run.native) and with_objects <= {s.position for s in run.sessions}
        return EntryPoint(signature, run, program, run.with_fallback if is_direct else None)
    if not is_entry(run) or signature.returns_tree or with_objects:
        return EntryPoint(signature, run, program)
    return DirectEntryPoint(signature, run, program, partial(with_fallback, run))
