"""Makes the functions of a compiled program, which can be called: the only place that does.

A program that was compiled now, one from the disk and one from a file differ in where their
constants and Python objects come from, and in what runs where native code refuses arguments.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.machine.fast_paths import DIRECT_CALLS
from relaxpy.exec.native.calls.called import changed_runtime
from relaxpy.exec.native.calls.interpreter import FAILURES, connect_failures
from relaxpy.exec.native.calls.jit import Library, link as link_code
from relaxpy.exec.native.machine_code.machine import is_current_here
from relaxpy.exec.program.graph.times import TIMES
from relaxpy.exec.program.table import CompiledProgram
from relaxpy.support.frames import is_user_frame

if TYPE_CHECKING:
    from relaxpy.exec.runtime.values import Value


class Fallbacks(Protocol):
    """The Python form of a program, for arguments that native code refuses."""

    def run(self, name: str, *args: Value) -> Value:
        """Call the Python form of a Relax function."""

    def run_kernel(self, python_name: str, *args: Value) -> Value:
        """Call the Python form of a kernel."""

    def failure(self, number: int, index: int, size: int) -> RuntimeCheckError:
        """The error of an obligation that native code reports."""


def link(
    program: CompiledProgram,
    lowered: Callable[[], Fallbacks],
    finish: Callable[[dict[str, Any]], None] = lambda namespace: None,
) -> Mapping[str, Callable[..., Value]]:
    """The functions of a program by name: native ones, and those of its text.

    Without code, or with code for another machine, native functions are their fallbacks, for which
    the program may be lowered first. `finish` may change the functions that the text calls.

    Errors:
        OSError: this process may not run the code.
        CompileError: blocks of the text nest deeper than in Python.
    """
    library = library_of(program, lowered)
    functions: dict[str, Callable[..., Value]] = {}
    for name, function in program.functions.items():
        run = partial(_run, lowered, name)
        functions[name] = run if library is None else function.linked(library, run)
    if program.text is None:
        return functions
    # Imported here, since it needs the planner of kernels, and native programs do not.
    from relaxpy.exec.program.lower.text import load_text, with_native_calls

    native = {program.python_names[name]: function for name, function in functions.items()}
    kernels = linked_kernels(program, library, lowered)
    changed = changed_runtime() if kernels else {}
    is_direct = library is not None and DIRECT_CALLS
    text = with_native_calls(program.text) if is_direct else program.text
    run_kernel = partial(_run_kernel, lowered)
    loaded = load_text(text, native | kernels, run_kernel, changed, finish)
    return {**functions, **loaded.functions}


def linked_kernels(
    program: CompiledProgram, library: Library | None, lowered: Callable[[], Fallbacks]
) -> dict[str, Callable[..., Value]]:
    """The native kernels that Python calls, by Python name."""
    if library is None:
        return {}
    return {
        kernel.name: kernel.linked(library, partial(_run_kernel, lowered, kernel.name))
        for kernel in program.kernels
    }


def library_of(program: CompiledProgram, lowered: Callable[[], Fallbacks]) -> Library | None:
    """The code of a program in this process, which reports to the fallbacks, if it runs here.

    Errors:
        OSError: this process may not run it.
    """
    if not program.code or not is_current_here():
        return None
    exports = [name for function in program.functions.values() for name in function.exports]
    exports += [kernel.export for kernel in program.kernels]
    exports += [FAILURES] if program.reports else []
    times = program.times
    exports += [TIMES] if times is not None and times.steps else []
    library = link_code(program.code, [*dict.fromkeys(exports)])
    if times is not None and times.steps:
        times.connect(library)
    if program.reports:
        connect_failures(library, _Failures(lowered))
    return library


def _run(lowered: Callable[[], Fallbacks], name: str, *args: Value) -> Value:
    return lowered().run(name, *args)


def _run_kernel(lowered: Callable[[], Fallbacks], python_name: str, *args: Value) -> Value:
    return lowered().run_kernel(python_name, *args)


class _Failures:
    """The obligations that code reports, as errors that begin where the user's code called."""

    def __init__(self, lowered: Callable[[], Fallbacks]) -> None:
        self._lowered = lowered

    def __call__(self, number: int, index: int, size: int) -> RuntimeCheckError:
        error = self._lowered().failure(number, index, size)
        if is_user_frame(sys._getframe().f_back):
            error.hide_internal_frames()
        return error
