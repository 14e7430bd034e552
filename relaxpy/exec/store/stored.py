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
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np

from relaxpy.errors import MisuseError, RelaxpyError, Span
from relaxpy.exec.machine.fast_paths import FAST_PATHS
from relaxpy.exec.machine.tuning import Kept
from relaxpy.exec.native.calls.interpreter import fits_interpreter
from relaxpy.exec.native.machine_code import disk_cache
from relaxpy.exec.native.machine_code.machine import host
from relaxpy.exec.native.machine_code.processor import generator, package, processor
from relaxpy.exec.program.saved import program_of_saved, saved_program
from relaxpy.exec.program.table import CompiledProgram
from relaxpy.exec.runtime.threads import rounding, thread_count
from relaxpy.exec.store.container import Container, Sections
from relaxpy.exec.store.mapped import MappedFiles
from relaxpy.ir.core.dtype import Array
from relaxpy.ir.core.fork_lock import late_property
from relaxpy.ir.core.memo import LARGE, Elements
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.passes import PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.python_function import python_function_of
from relaxpy.ir.serialize import save_table
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.imported import IMPORTED

if TYPE_CHECKING:
    from relaxpy.exec.api.lowered import Lowered


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


def load_program(
    source: Source, module: Callable[[], IRModule], lowered: Callable[[], Lowered]
) -> CompiledProgram | None:
    """The stored program of `source`, if there is one; what it lacks is in its lowered form.

    Its signatures are those of the `module`, unless passes have changed them.

    Errors:
        One of NOT_A_PROGRAM: another program has written the file.
    """
    stored = source.load()
    if stored is None:
        return None
    saved = Container.of_memory(stored, "the cache")
    literals = [*source.literals, *map(rx.Constant, saved.arrays)]
    code = saved.arrays[0].tobytes()
    return program_of_saved(saved.content, code, literals, module, lowered, source.span)


def store_program(
    source: Source, program: CompiledProgram, signatures: IRModule | None, reads: Set[object]
) -> str:
    """Store the compiled form of `source`; the reason if it cannot be stored, or else empty.

    `reads` has the elements of literals that compilation has read. Storing adds those that it
    reads itself.
    """
    constants = source.literals
    sources: dict[object, tuple[int, Array]] = {}
    sections, folded = Sections(), 0
    sections.add(np.frombuffer(program.code, np.uint8))

    def find_constants() -> None:
        """Note where the constants are; they move once if a reader needs them aligned."""
        for index, literal in enumerate(constants):
            array = literal.memory(aligned=False)
            sources[place_of(array)] = index, array

    def number(data: Array) -> int:
        """That of a constant of the program, or after them of a section."""
        nonlocal folded
        place = place_of(data)
        if place not in sources:
            find_constants()
        if place in sources:
            return sources[place][0]
        folded += data.nbytes
        if folded > Kept.FOLDED:
            raise MisuseError(f"passes have computed more than {Kept.FOLDED >> 20} MiB")
        return len(constants) + sections.add(data)

    find_constants()
    try:
        table = saved_program(program, number, source.numbers.get, signatures)
    except RelaxpyError as error:
        return error.diagnostic.message
    return source.store(Container.of(table, sections).chunks(), reads)


def surroundings() -> str:
    """A fingerprint of all that affects compilation in this process; empty if unknown."""
    parts = processor(), generator(), package()
    if not all(parts):
        return ""
    machine = host()
    return disk_cache.key_of(*parts, machine.triple, machine.cpu, machine.features)


CHANGED: Final = "files of relaxpy have changed since this process imported it"
