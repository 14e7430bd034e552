"""The disk cache of programs: cached ones run without passes, planning and LLVM.

A file has the machine code of a program, the Python text of the functions that are not native with
the objects that it uses, and the report. Constants of the program are not in it, only those that
passes have computed. The key is a hash of the program and of everything else that affects
compilation: the options and the pipeline (only the default ones), the source of relaxpy, the
versions of its dependencies, and the CPU. Nothing is stored if Python objects without a name, such
as functions in a module, take part. Positions are those of the program that is compiled now. What
is not in the file is compiled when it is needed, such as the Python form of native functions.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple
from functools import cache, partial
from typing import Any, Final, Protocol

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError, RelaxpyError, RuntimeCheckError, Span
from relaxpy.exec.container import Container, Sections
from relaxpy.exec.fast_paths import FAST_PATHS
from relaxpy.exec.graph.backend import GraphBackend, link_graph
from relaxpy.exec.graph.program import Constant
from relaxpy.exec.lower.module import LoweredModule
from relaxpy.exec.lower.saved import OrderedKernels, load_functions, saved_functions
from relaxpy.exec.mapped import MappedFiles
from relaxpy.exec.native.backend import CalledKernel, changed_runtime
from relaxpy.exec.native.calls.interpreter import fits_interpreter
from relaxpy.exec.native.calls.jit import Library, link
from relaxpy.exec.native.calls.static_entry import StaticEntry
from relaxpy.exec.native.machine_code import disk_cache
from relaxpy.exec.native.machine_code.machine import host
from relaxpy.exec.native.machine_code.processor import generator, processor
from relaxpy.exec.native.values.failures import FAILURES, FailureTable
from relaxpy.exec.native.values.packing import Joined, Packing
from relaxpy.exec.report import ReportRow
from relaxpy.exec.runtime.dynamic import DynamicPrograms
from relaxpy.exec.runtime.threads import thread_count
from relaxpy.ir.core.fork_lock import late_property
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.passes import PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.python_function import python_function_of
from relaxpy.ir.serialize import load_table, save_table
from relaxpy.support.dataclass import dataclass
from relaxpy.support.frames import is_user_frame

_FOLDED: Final = 1 << 27
"""Bytes of constants that passes have computed, which are stored with the code."""


@dataclass(frozen=True, slots=True, eq=False)
class StoredProgram:
    """A program from the disk: its functions, its report, and the rest of the table.

    `signatures` is a module of functions with the signatures after the passes, if they differ.
    """

    functions: Mapping[str, Callable[..., Any]]
    rows: tuple[ReportRow, ...]
    private_names: tuple[str, ...]
    signatures: IRModule | None


class Remaining(OrderedKernels, Protocol):
    """The parts of a compiled module that are compiled when they are needed."""

    programs: DynamicPrograms

    def run(self, name: str, *args: Any) -> Any:
        """Call a function of the module."""

    def run_kernel(self, python_name: str, *args: Any) -> Any:
        """Call the Python form of a kernel."""

    def failure(self, number: int, index: int, size: int) -> RuntimeCheckError:
        """The error of an obligation that native code reports."""


class Source:
    """A program to compile, with its key, its literals and its positions.

    `key` is empty if the program is not stored; `problem` is the reason if that is the program.
    """

    def __init__(self, module: IRModule, *, has_passes: bool) -> None:
        self.key = self.problem = ""
        surroundings = _surroundings() if disk_cache.keeps_programs() else ""
        if not surroundings or not is_default():
            return
        nodes = [n for func in module.functions.values() for n in walk(func)]
        self._spans = [getattr(node, "span", None) for node in nodes]
        self.literals = [node for node in nodes if isinstance(node, rx.Constant)]
        for node in nodes:
            if isinstance(node, rx.ExternFunc) and python_function_of(node) is not None:
                self.problem = f"it calls the Python function {node.global_symbol}"
                return
        files, arrays = MappedFiles(), list[str]()

        def add(array: np.ndarray[Any, Any]) -> int:
            arrays.append(f"{array.dtype.name} {array.shape} {files.identity(array)}")
            return len(arrays) - 1

        try:
            table = save_table(module, add)
        except RelaxpyError as error:  # an attribute without a JSON form
            self.problem = error.diagnostic.message
            return
        text = json.dumps(table, separators=(",", ":"), allow_nan=False)
        kind = "program" if has_passes else "saved program"
        self.key = disk_cache.key_of(kind, surroundings, str(thread_count()), text, *arrays)

    def span(self, number: int) -> Span | None:
        """The position of a node by its number."""
        return self._spans[number]

    @late_property
    def numbers(self) -> Mapping[Span, int]:
        """The number of a node at each position."""
        return {s: n for n, s in reversed([*enumerate(self._spans)]) if s is not None}


def is_default() -> bool:
    """Return whether the process has only default compilation settings, and native code runs."""
    is_usual = PassContext.current().is_default and not Op.user_changes and all(FAST_PATHS)
    return is_usual and fits_interpreter()


def load_program(source: Source, remaining: Remaining) -> StoredProgram | None:
    """The stored program of `source`, if there is one; what it lacks is in `remaining`."""
    stored = disk_cache.load(source.key)
    if stored is None:
        return None
    try:
        saved = Container.of_memory(stored, "the cache")
        literals = [*source.literals, *map(rx.Constant, saved.arrays)]
        code = saved.arrays[0].tobytes()
        return linked_program(saved.content, code, literals, remaining, source.span)
    except NOT_A_PROGRAM:
        return None  # another program has written it


def linked_program(
    table: Mapping[str, Any],
    code: bytes,
    literals: Sequence[rx.Constant],
    remaining: Remaining,
    located: Callable[[int], Span | None] | None = None,
) -> StoredProgram:
    """The program of a `program_table` with its code; what it lacks is in `remaining`.

    Errors:
        One of NOT_A_PROGRAM: the table is not one.
    """
    kernels = [_called_kernel(*row) for row in table["kernels"]]
    exports = [name for entry in table["functions"] for name in entry["exports"]]
    exports += [kernel.export for kernel in kernels]
    if table["reports"]:
        exports.append(FAILURES)
    library = link(code, exports) if exports else Library(b"", {}, None)
    if table["reports"]:
        _Failures(remaining.failure).connect(library)
    functions = {
        entry["name"]: link_graph(
            library,
            entry["symbol"],
            [Constant(literals[n], _packing(how)) for n, how in entry["constants"]],
            None if entry["entry"] is None else StaticEntry(*entry["entry"]),
            partial(remaining.run, entry["name"]),
            entry["written"],
        )
        for entry in table["functions"]
    }
    python_names = {entry["python_name"]: entry["name"] for entry in table["functions"]}
    native = {name: functions[graph] for name, graph in python_names.items()}
    for kernel in kernels:
        native[kernel.name] = kernel.linked(library, partial(remaining.run_kernel, kernel.name))
    arrays = _Arrays(literals)
    if table["python"] is not None:
        changed = changed_runtime() if kernels else {}
        functions |= load_functions(
            *(table["python"], arrays, located or _nowhere, native, changed),
            *(remaining.programs, remaining),
        )
    rows = tuple(ReportRow(*row) for row in table["rows"])
    saved = table["signatures"]
    signatures = None if saved is None else load_table(saved, arrays, located or _nowhere)
    return StoredProgram(functions, rows, tuple(frozenset(table["private_names"])), signatures)


def _nowhere(number: int) -> None:
    return None


class _Arrays(Sequence[Any]):
    """The arrays of literals, which are read when they are used."""

    def __init__(self, literals: Sequence[rx.Constant]) -> None:
        self._literals = literals

    @override
    def __len__(self) -> int:
        return len(self._literals)

    @override
    def __getitem__(self, number: Any) -> Any:
        return self._literals[number].data


class _Failures(FailureTable):
    """The obligations that stored code reports, which are compiled for the first error."""

    def __init__(self, failure: Callable[[int, int, int], RuntimeCheckError]) -> None:
        super().__init__()
        self._failure = failure

    @override
    def __call__(self, number: int, index: int, size: int) -> RuntimeCheckError:
        error = self._failure(number, index, size)
        if is_user_frame(sys._getframe().f_back):
            error.hide_internal_frames()
        return error


NOT_A_PROGRAM: Final = (
    *(RelaxpyError, LookupError, AttributeError, TypeError, ValueError),
    *(OverflowError, struct.error),  # numbers that do not fit
)
"""The errors of reading a table that is not one of a program."""


def store_program(
    source: Source,
    lowered: LoweredModule,
    rows: Iterable[ReportRow],
    private_names: Iterable[str],
    signatures: IRModule | None,
) -> str:
    """Store the compiled form of `source`; the reason if it cannot be stored, or else empty."""
    constants = [literal.data for literal in source.literals]
    sources = {_place(data): index for index, data in enumerate(constants)}
    sections, folded = Sections(), 0
    sections.add(np.frombuffer(code_of(lowered), np.uint8))

    def number(data: np.ndarray[Any, Any]) -> int:
        """That of a constant of the program, or after them of a section."""
        nonlocal folded
        known = sources.get(_place(data))
        if known is None:
            folded += data.nbytes
            if folded > _FOLDED:
                raise MisuseError(f"passes have computed more than {_FOLDED >> 20} MiB")
        return len(constants) + sections.add(data) if known is None else known

    try:
        table = program_table(lowered, number, rows, private_names, source.numbers.get, signatures)
    except RelaxpyError as error:
        return error.diagnostic.message
    disk_cache.store(source.key, Container.of(table, sections).chunks())
    return ""


def code_of(lowered: LoweredModule) -> bytes:
    """The machine code of a module, after it was linked."""
    backend = lowered.backend
    assert isinstance(backend, GraphBackend)
    return backend.library().code if backend.graphs or backend.called else b""


def program_table(
    lowered: LoweredModule,
    number: Callable[[np.ndarray[Any, Any]], int],
    rows: Iterable[ReportRow],
    private_names: Iterable[str],
    locate: Callable[[Span], int | None],
    signatures: IRModule | None = None,
) -> dict[str, Any]:
    """The JSON form of a compiled module without its code.

    The arrays of constants and the positions are those that `number` and `locate` return.

    Errors:
        MisuseError: the module refers to something that has no JSON form.
    """
    backend = lowered.backend
    assert isinstance(backend, GraphBackend)
    if lowered.problem:
        raise MisuseError(lowered.problem)
    return {
        "functions": [
            {
                "name": graph.name,
                "python_name": lowered.lowering.python_name(graph.name),
                "symbol": graph.symbol,
                "exports": graph.exports,
                "entry": graph.entry and astuple(graph.entry),
                "written": graph.written,
                "constants": [
                    (number(c.literal.data), c.packing and astuple(c.packing))
                    for c in graph.constants
                ],
            }
            for graph in backend.native_graphs()
        ],
        "kernels": [
            (k.name, k.symbol, k.entry and astuple(k.entry), k.kept) for k in backend.called
        ],
        "reports": bool(backend.failures.entries and (backend.graphs or backend.called)),
        "python": saved_functions(lowered, number, locate) if lowered.has_python_part else None,
        "rows": [astuple(row) for row in rows],
        "private_names": sorted(private_names),
        "signatures": None if signatures is None else save_table(signatures, number, locate),
    }


def _called_kernel(name: str, symbol: str, entry: Any, kept: Sequence[int]) -> CalledKernel:
    return CalledKernel(name, symbol, None if entry is None else StaticEntry(*entry), kept)


def _place(data: np.ndarray[Any, Any]) -> tuple[object, ...]:
    """A key that two arrays share if they are the same elements in memory."""
    return data.ctypes.data, data.shape, data.strides, data.dtype


def _packing(saved: Any) -> Packing | None:
    if saved is None:
        return None
    width, over, (extent, stride), joined, dtype = saved
    return Packing(
        width, tuple((n, b) for n, b in over), (extent, stride), joined and Joined(*joined), dtype
    )


@cache
def _surroundings() -> str:
    """A fingerprint of all that affects compilation in this process; empty if unknown."""
    parts = processor(), generator(), _own_text()
    if not all(parts):
        return ""
    machine = host()
    versions = sys.version, np.__version__
    return disk_cache.key_of(*parts, *versions, machine.triple, machine.cpu, machine.features)


def _own_text() -> str:
    """The sizes and times of the files of relaxpy; empty if it is not installed as files.

    Times have seconds, as in the layers of container images.
    """
    package = os.path.dirname(os.path.dirname(__file__))
    state = hashlib.sha256()
    folders = [package]
    try:
        for folder in folders:
            with os.scandir(folder) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    if entry.name.endswith(".py"):
                        found = entry.stat()
                        text = f"{entry.path} {found.st_size} {int(found.st_mtime)}\n"
                        state.update(text.encode())
                    elif entry.is_dir() and entry.name != "__pycache__":
                        folders.append(entry.path)
    except OSError:
        return ""
    return state.hexdigest()
