"""The disk cache of programs: cached ones run without passes, planning and LLVM.

A file has the machine code of a program, the Python text of the functions that are not native with
the objects that it uses, and the report. Constants of the program are not in it, only those that
passes have computed. The key is a hash of the program and of everything else that affects
compilation: the options and the pipeline (only the default ones), the source of relaxpy, the
versions of its dependencies, and the CPU. Nothing is stored if Python objects without a name, such
as functions in a module, take part. Positions are those of the program that is compiled now. What
is not in the file is compiled when it is needed, such as the Python form of native functions.

Passes read few of the large literals. The first key has the datatype, the shape and the first
elements of each, and which of them are the same memory. Under it is the list of those that passes
have read, and the program is under a second key, which has the identity of their elements: the part
of a file that is mapped, or a hash.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from relaxpy.errors import RelaxpyError, RuntimeCheckError, Span
from relaxpy.exec.container import Container, digest
from relaxpy.exec.fast_paths import FAST_PATHS
from relaxpy.exec.graph.link import NativeFunction
from relaxpy.exec.graph.program import Constant
from relaxpy.exec.graph.sessions import Session
from relaxpy.exec.native.calls.called import CalledKernel, changed_runtime
from relaxpy.exec.native.calls.entry_table import EntryTable
from relaxpy.exec.native.calls.interpreter import FAILURES, connect_failures, fits_interpreter
from relaxpy.exec.native.calls.jit import Library, link
from relaxpy.exec.native.machine_code import disk_cache
from relaxpy.exec.native.machine_code.machine import host
from relaxpy.exec.native.machine_code.processor import generator, package, processor
from relaxpy.exec.native.values.packing import Joined, Packing
from relaxpy.exec.report import ReportRow
from relaxpy.exec.runtime.registry import still_hold
from relaxpy.exec.runtime.threads import rounding, thread_count
from relaxpy.exec.tuning import Kept
from relaxpy.ir.core.dtype import Array
from relaxpy.ir.core.fork_lock import late_property
from relaxpy.ir.core.memo import LARGE, Elements
from relaxpy.ir.core.tensor import is_writable
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.passes import PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.python_function import python_function_of
from relaxpy.ir.serialize import load_table, save_table
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.dataclass import dataclass
from relaxpy.support.frames import is_user_frame
from relaxpy.support.imported import IMPORTED

if TYPE_CHECKING:
    from relaxpy.exec.lowered import Lowered


@dataclass(frozen=True, slots=True, eq=False)
class StoredProgram:
    """A program from the disk: its functions, its report, and the rest of the table.

    `signatures` is a module of functions with the signatures after the passes, if they differ.
    """

    functions: Mapping[str, Callable[..., Any]]
    rows: tuple[ReportRow, ...]
    private_names: tuple[str, ...]
    signatures: IRModule | None


class Source:
    """A program to compile, with its key, its literals and its positions.

    `key` is empty if the program is not stored; `problem` is the reason if that is the program.
    One that `is_made` from a recipe is stored with its signatures and literals, without positions.
    """

    is_made = False

    def __init__(self, module: IRModule, *, has_passes: bool) -> None:
        self.key = self.problem = ""
        self._module = module
        self._large: dict[Elements, int] = {}
        self._files = MappedFiles()
        if not disk_cache.keeps_programs() or not is_default():
            return
        self._surroundings = surroundings()
        if not self._surroundings:
            self.problem = CHANGED if IMPORTED.has_changed() else ""
            return
        functions = [f for f in module.functions.values() if not isinstance(f, PrimFunc)]
        nodes = [
            n for f in functions for n in walk(f) if isinstance(n, rx.Constant | rx.ExternFunc)
        ]
        self.literals = [node for node in nodes if isinstance(node, rx.Constant)]
        for node in nodes:
            if isinstance(node, rx.ExternFunc) and python_function_of(node) is not None:
                self.problem = f"it calls the Python function {node.global_symbol}"
                return
        for literal in self.literals:
            if literal.nbytes >= LARGE and isinstance(elements := literal.elements, Elements):
                self._large.setdefault(elements, len(self._large))
        arrays, places = list[str](), dict[object, int]()

        def add(array: Array) -> int:
            arrays.append(f"{array.dtype.name} {array.shape} {self._files.identity(array)}")
            return len(arrays) - 1

        def add_literal(elements: Elements) -> int:
            if elements not in self._large:
                return add(elements())
            # The program may use one of two literals with the same memory in place of the other.
            number = places.setdefault(place_of(elements.anywhere()), len(arrays))
            row = elements.dtype.name, elements.shape, number, elements.beginning.hex()
            arrays.append(" ".join(map(str, row)))
            return len(arrays) - 1

        try:
            table = save_table(module, add, store_literal=add_literal)
        except RelaxpyError as error:  # an attribute without a JSON form
            self.problem = error.diagnostic.message
            return
        text = json.dumps(table, separators=(",", ":"), allow_nan=False)
        kind = "program" if has_passes else "saved program"
        thread = str(thread_count()), rounding()
        self.key = disk_cache.key_of(kind, self._surroundings, *thread, text, *arrays)

    @classmethod
    def made(cls, recipe: str) -> Source:
        """The source of the program that a text decides, which is not there yet."""
        source = cls(IRModule(), has_passes=True)
        if source.key:
            source.key = disk_cache.key_of("made program", source.key, recipe)
        source.is_made = True
        return source

    def load(self) -> memoryview | None:
        """The file of the program, if there is one."""
        if not self._large:
            return disk_cache.load(self.key)
        read = self._known_to_be_read()
        return None if read is None else disk_cache.load(self._key_with_elements(read))

    def store(self, content: Iterable[bytes | memoryview], reads: Set[object]) -> str:
        """Store the file of the program, whose passes have read the elements `reads`.

        The result is the reason if it is not stored; empty if it is, or if the disk is full.
        """
        if surroundings() != self._surroundings:
            return CHANGED
        key = self.key
        if self._large:
            known = self._known_to_be_read() or ()
            read = sorted({*known, *(n for e, n in self._large.items() if e in reads)})
            disk_cache.store(self.key, [json.dumps(read).encode()])
            key = self._key_with_elements(read)
        disk_cache.store(key, content)
        return ""

    def _known_to_be_read(self) -> Sequence[int] | None:
        """The numbers of the large literals that passes have read so far; None if unknown."""
        found = disk_cache.load(self.key)
        try:
            numbers = None if found is None else json.loads(found.tobytes())
        except ValueError:
            return None
        is_known = isinstance(numbers, list) and all(n in range(len(self._large)) for n in numbers)
        return numbers if is_known else None

    def _key_with_elements(self, read: Sequence[int]) -> str:
        large = [*self._large]
        identities = [self._files.identity(large[n].anywhere()) for n in read]
        return disk_cache.key_of("elements", self.key, json.dumps(read), *identities)

    @late_property
    def _spans(self) -> Sequence[Span | None]:
        nodes = chain.from_iterable(map(walk, self._module.functions.values()))
        return [getattr(node, "span", None) for node in nodes]

    def span(self, number: int) -> Span | None:
        """The position of a node by its number."""
        return self._spans[number]

    @late_property
    def numbers(self) -> Mapping[Span, int]:
        """The number of a node at each position."""
        return {s: n for n, s in reversed([*enumerate(self._spans)]) if s is not None}


def place_of(data: Array) -> tuple[object, ...]:
    """A key that two arrays share if they are the same elements in memory."""
    return data.ctypes.data, data.shape, data.strides, data.dtype


def is_default() -> bool:
    """True if the process has only default compilation settings, and native code runs."""
    is_usual = PassContext.current().is_default and not Op.user_changes and all(FAST_PATHS)
    return is_usual and fits_interpreter()


def load_program(source: Source, lowered: Callable[[], Lowered]) -> StoredProgram | None:
    """The stored program of `source`, if there is one; what it lacks is in its lowered form."""
    try:
        stored = source.load()
        if stored is None:
            return None
        saved = Container.of_memory(stored, "the cache")
        literals = [*source.literals, *map(rx.Constant, saved.arrays)]
        code = saved.arrays[0].tobytes()
        return linked_program(saved.content, code, literals, lowered, source.span)
    except NOT_A_PROGRAM:
        return None  # another program has written it
    except OSError:
        return None  # this process may not run it, as code with matrix tiles


def linked_program(
    table: Mapping[str, Any],
    code: bytes,
    literals: Sequence[rx.Constant],
    lowered: Callable[[], Lowered],
    located: Callable[[int], Span | None] | None = None,
) -> StoredProgram | None:
    """The program of a `program_table` with its code; what it lacks is in its lowered form.

    It is None if the registry of packed functions has answered otherwise than it does now.

    Errors:
        One of NOT_A_PROGRAM: the table is not one.
    """
    exports = [name for entry in table["functions"] for name in entry["exports"]]
    kernels = [_called_kernel(*row) for row in table["kernels"]]
    exports += [kernel.export for kernel in kernels]
    if not still_hold(table["answers"]):
        return None
    if table["reports"]:
        exports.append(FAILURES)
    library = link(code, exports) if exports else Library(b"", {}, None)
    if table["reports"]:
        connect_failures(library, _Failures(lowered))
    functions = {
        entry["name"]: NativeFunction(
            entry["symbol"],
            [Constant(literals[n], _packing(how)) for n, how in entry["constants"]],
            EntryTable(*entry["entry"]),
            entry["written"],
            [Session.loaded(*session) for session in entry["sessions"]],
        ).linked(library, partial(_run, lowered, entry["name"]))
        for entry in table["functions"]
    }
    python_names = {entry["python_name"]: entry["name"] for entry in table["functions"]}
    native = {name: functions[graph] for name, graph in python_names.items()}
    for kernel in kernels:
        native[kernel.name] = kernel.linked(library, partial(_run_kernel, lowered, kernel.name))
    arrays = _Arrays(literals)
    if table["python"] is not None:
        changed = changed_runtime() if kernels else {}
        # Imported here, since it needs the planner of kernels, and native programs do not.
        from relaxpy.exec.lower.saved import load_functions

        functions |= load_functions(
            *(table["python"], arrays, located or _nowhere, native, changed, lowered)
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


def _run(lowered: Callable[[], Lowered], name: str, *args: Any) -> Any:
    return lowered().run(name, *args)


def _run_kernel(lowered: Callable[[], Lowered], python_name: str, *args: Any) -> Any:
    return lowered().run_kernel(python_name, *args)


class _Failures:
    """The obligations that stored code reports, which are compiled for the first error."""

    def __init__(self, lowered: Callable[[], Lowered]) -> None:
        self._lowered = lowered

    def __call__(self, number: int, index: int, size: int) -> RuntimeCheckError:
        error = self._lowered().failure(number, index, size)
        if is_user_frame(sys._getframe().f_back):
            error.hide_internal_frames()
        return error


NOT_A_PROGRAM: Final = (
    *(RelaxpyError, LookupError, AttributeError, TypeError, ValueError),
    *(OverflowError, struct.error),  # numbers that do not fit
    *(SyntaxError, NameError),  # a text that is not the source of functions
)
"""The errors of reading a table that is not one of a program."""


def _called_kernel(name: str, symbol: str, entry: Any, kept: Sequence[int]) -> CalledKernel:
    return CalledKernel(name, symbol, EntryTable(*entry), kept)


def _packing(saved: Any) -> Packing | None:
    if saved is None:
        return None
    width, over, (extent, stride), joined, dtype = saved
    return Packing(
        width, tuple((n, b) for n, b in over), (extent, stride), joined and Joined(*joined), dtype
    )


def surroundings() -> str:
    """A fingerprint of all that affects compilation in this process; empty if unknown."""
    parts = processor(), generator(), package()
    if not all(parts):
        return ""
    machine = host()
    return disk_cache.key_of(*parts, machine.triple, machine.cpu, machine.features)


CHANGED: Final = "files of relaxpy have changed since this process imported it"


_SETTLED: Final = 2
"""The seconds after which a file that is changed again certainly gets another time."""


@dataclass(frozen=True, slots=True)
class _Mapping:
    """A part of this process's memory that is a file from `offset` on, and is never written.

    Units: bytes
    """

    begin: int
    end: int
    offset: int
    device: str
    inode: int
    path: str


class MappedFiles:
    """The files that are mapped into this process now; Linux lists them."""

    def __init__(self) -> None:
        self._mappings: list[_Mapping] | None = None
        self._begin = time.time()

    def identity(self, array: Array) -> str:
        """A text that is equal for arrays of equal elements alone, but may differ for these.

        A file that has changed after this object was made, or shortly before, is hashed.
        It is the path, size, times and offset of a file that is mapped read-only; otherwise it is a
        hash of all elements.
        """
        if array.nbytes < Kept.OF_FILE or not array.flags.c_contiguous or is_writable(array):
            return digest(array)
        return self._file(array.ctypes.data, array.nbytes) or digest(array)

    def _file(self, begin: int, size: int) -> str:
        if self._mappings is None:
            self._mappings = _mappings()
        number = bisect_right(self._mappings, begin, key=lambda mapping: mapping.begin) - 1
        if number < 0 or begin + size > self._mappings[number].end:
            return ""
        found = self._mappings[number]
        try:
            state = os.stat(found.path)
        except OSError:  # it was removed
            return ""
        device = f"{os.major(state.st_dev):02x}:{os.minor(state.st_dev):02x}"
        is_same = state.st_ino == found.inode and device == found.device
        # Tools that copy files set the time of their contents, but not that of the last change.
        if not is_same or state.st_ctime > self._begin - _SETTLED:
            return ""
        offset = found.offset + begin - found.begin
        times = f"{state.st_mtime_ns} {state.st_ctime_ns}"
        return f"{found.path} {state.st_ino} {state.st_size} {times} {offset}"


def _mappings() -> list[_Mapping]:
    """The mappings of files that this process only reads, by address."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    mappings = []
    for line in lines:
        match line.split(maxsplit=5):
            case [addresses, rights, offset, device, inode, path] if rights[:2] == "r-":
                begin, end = (int(address, 16) for address in addresses.split("-"))
                place = begin, end, int(offset, 16)
                mappings.append(_Mapping(*place, device, int(inode), path))
            case _:
                pass
    return mappings
