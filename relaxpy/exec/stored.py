"""The disk cache of programs: cached ones run without passes, planning and LLVM.

A file has the machine code of a program all of whose functions are native, and its report. The key
is a hash of the program and of everything else that affects compilation: the options and the
pipeline (only the default ones), the source of relaxpy, the versions of its dependencies, and the
CPU. Nothing is stored if unhashable objects such as user functions take part. Arguments that native
code refuses need the rest of the executable, which is then compiled.
"""

from __future__ import annotations

import hashlib
import os
import struct
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple
from functools import cache
from typing import Any, Final

import numpy as np

from relaxpy.errors import RelaxpyError
from relaxpy.exec.container import Container, Sections
from relaxpy.exec.fast_paths import FAST_PATHS
from relaxpy.exec.graph.backend import NativeGraph, link_graph
from relaxpy.exec.graph.program import Constant
from relaxpy.exec.native.calls.interpreter import fits_interpreter
from relaxpy.exec.native.calls.jit import link
from relaxpy.exec.native.calls.static_entry import StaticEntry
from relaxpy.exec.native.machine_code import disk_cache
from relaxpy.exec.native.machine_code.machine import host
from relaxpy.exec.native.machine_code.processor import generator, processor
from relaxpy.exec.native.values.packing import Joined, Packing
from relaxpy.exec.report import ReportRow
from relaxpy.exec.runtime.threads import thread_count
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.passes import PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.serialize import save_table
from relaxpy.support.dataclass import dataclass

_LARGEST: Final = 1 << 28
"""The most bytes of constants of a stored program: hashing more takes too long."""
_FOLDED: Final = 1 << 27
"""Bytes of constants that passes have computed, which are stored with the code."""


@dataclass(frozen=True, slots=True, eq=False)
class StoredProgram:
    """A program from the disk: its functions, its report, and the rest of the table."""

    functions: Mapping[str, Callable[..., Any]]
    rows: tuple[ReportRow, ...]
    private_names: tuple[str, ...]


def key_of_program(module: IRModule, *, has_passes: bool) -> str:
    """The key of a program for the default pipeline, or for none; empty if it is not stored.

    Errors:
        MisuseError: RELAXPY_CACHE is not 0, 1 or code.
    """
    surroundings = _surroundings() if disk_cache.keeps_programs() else ""
    if not surroundings or not is_default():
        return ""
    if any(isinstance(func, rx.ExternFunc) for func in module.functions.values()):
        return ""
    if sum(literal.nbytes for literal in _literals(module)) > _LARGEST:
        return ""
    sections = Sections()
    try:
        table = save_table(module, sections.add)
    except RelaxpyError:  # an attribute without a JSON form
        return ""
    text = Container.of(table, sections).table
    kind = "program" if has_passes else "saved program"
    return disk_cache.key_of(kind, surroundings, str(thread_count()), text)


def is_default() -> bool:
    """Return whether the process has only default compilation settings, and native code runs."""
    is_usual = PassContext.current().is_default and not Op.user_changes and all(FAST_PATHS)
    return is_usual and fits_interpreter()


def load_program(
    key: str, module: IRModule, fallback: Callable[[str], Callable[..., Any]]
) -> StoredProgram | None:
    """The stored program of `module`, if there is one; its functions call those of `fallback`."""
    stored = disk_cache.load(key)
    if stored is None:
        return None
    try:
        saved = Container.of_memory(stored, "the cache")
        literals = [*_literals(module), *map(rx.Constant, saved.arrays)]
        return linked_program(saved.content, saved.arrays[0].tobytes(), literals, fallback)
    except NOT_A_PROGRAM:
        return None  # another program has written it


def linked_program(
    table: Mapping[str, Any],
    code: bytes,
    literals: Sequence[rx.Constant],
    fallback: Callable[[str], Callable[..., Any]],
) -> StoredProgram:
    """The program of a `program_table` with its code; its functions call those of `fallback`.

    Errors:
        One of NOT_A_PROGRAM: the table is not one.
    """
    exports = [name for entry in table["functions"] for name in entry["exports"]]
    library = link(code, exports)
    functions = {
        entry["name"]: link_graph(
            library,
            entry["symbol"],
            [Constant(literals[n], _packing(how)) for n, how in entry["constants"]],
            None if entry["entry"] is None else StaticEntry(*entry["entry"]),
            fallback(entry["name"]),
            entry["written"],
        )
        for entry in table["functions"]
    }
    rows = tuple(ReportRow(*row) for row in table["rows"])
    return StoredProgram(functions, rows, tuple(frozenset(table["private_names"])))


NOT_A_PROGRAM: Final = (
    *(RelaxpyError, LookupError, AttributeError, TypeError, ValueError),
    *(OverflowError, struct.error),  # numbers that do not fit
)
"""The errors of reading a table that is not one of a program."""


def store_program(
    key: str,
    module: IRModule,
    graphs: Sequence[NativeGraph],
    rows: Iterable[ReportRow],
    private_names: Iterable[str],
) -> None:
    """Store the compiled form of `module`, if its constants are not too large."""
    constants = [literal.data for literal in _literals(module)]
    sources = {_place(data): index for index, data in enumerate(constants)}
    read = [c.literal.data for g in graphs for c in g.constants]
    folded = [data for data in read if _place(data) not in sources]
    if sum(data.nbytes for data in folded) > _FOLDED:
        return
    sections = Sections()
    sections.add(np.frombuffer(graphs[0].code, np.uint8))

    def number(data: np.ndarray[Any, Any]) -> int:
        """That of a constant of the program, or after them of a section."""
        source = sources.get(_place(data))
        return len(constants) + sections.add(data) if source is None else source

    table = program_table(graphs, number, rows, private_names)
    disk_cache.store(key, Container.of(table, sections).chunks())


def program_table(
    graphs: Sequence[NativeGraph],
    number: Callable[[np.ndarray[Any, Any]], int],
    rows: Iterable[ReportRow],
    private_names: Iterable[str],
) -> dict[str, Any]:
    """The JSON form of native functions without their code; `number` has those of constants."""
    return {
        "functions": [
            {
                "name": graph.name,
                "symbol": graph.symbol,
                "exports": graph.exports,
                "entry": graph.entry and astuple(graph.entry),
                "written": graph.written,
                "constants": [
                    (number(c.literal.data), c.packing and astuple(c.packing))
                    for c in graph.constants
                ],
            }
            for graph in graphs
        ],
        "rows": [astuple(row) for row in rows],
        "private_names": sorted(private_names),
    }


def _literals(module: IRModule) -> list[rx.Constant]:
    """The literals of the functions of a program, in a fixed order."""
    functions = [f for f in module.functions.values() if isinstance(f, rx.Function)]
    return [node for f in functions for node in walk(f) if isinstance(node, rx.Constant)]


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
    """The sizes and times of the files of relaxpy; empty if it is not installed as files."""
    package = os.path.dirname(os.path.dirname(__file__))
    state = hashlib.sha256()
    folders = [package]
    try:
        for folder in folders:
            with os.scandir(folder) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    if entry.name.endswith(".py"):
                        found = entry.stat()
                        text = f"{entry.path} {found.st_size} {found.st_mtime_ns}\n"
                        state.update(text.encode())
                    elif entry.is_dir() and entry.name != "__pycache__":
                        folders.append(entry.path)
    except OSError:
        return ""
    return state.hexdigest()
