"""The tables by which one builtin function, compiled once, checks the arguments of all others.

Code for each function took longer to compile than many kernels. The function that reads a table is
in `enter.py`.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Container, Iterator, Sequence
from functools import cache
from itertools import accumulate
from typing import Final, TypeAlias

from relaxpy.exec.native.calls.entry import (
    Anything,
    Array,
    Fields,
    Integer,
    Number,
    Param,
    Tree,
    builtin_at,
    leaves_of,
    sizes_of,
)
from relaxpy.exec.native.calls.interpreter import (
    ALIGNED,
    CONTIGUOUS,
    DTYPES,
    ENTRIES,
    PYTHON,
    WRITABLE,
    connect_python,
)
from relaxpy.exec.native.llvm.writer import I64, MEMORY, POINTER, Function, Type, Value
from relaxpy.exec.native.machine_code.machine import running_here
from relaxpy.exec.native.machine_code.objects import Library, link_object, process_object
from relaxpy.exec.native.threads.code import POOL
from relaxpy.exec.native.threads.freed_memory import connect_memory
from relaxpy.exec.native.threads.pool import connect
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Var
from relaxpy.support.dataclass import dataclass

PASSED: Final = 6
"""The most arguments of a call, in registers; those beyond a function's parameters are ignored."""
BY_WORDS: Final = -1
"""Instead of a number of tasks: the function takes the address of its arguments."""
COUNT, ITEMS, WIDTH, RESULTS, ANSWER, RELEASES, TASKS, SCRATCH = range(8)
IS_WRITTEN, HAS_FIELDS, IS_GRAPH, FUNCTION, SIZES, SPECS = range(8, 14)
"""The words of a table, the last of which begins the specifications of parameters and results."""
KIND, NUMBER, WORD, AXES, FLAG_BITS, SHIFT, STRIDED, DIMS = range(8)
"""The words of a specification, the last of which begins dimensions; strides follow these.

Of a tuple, the second word is its type, and `SHIFT` the number of its fields.
"""
NAMES: Final = -(1 << 63)
"""The first code of a size that has a name; codes are below half of it, other sizes above."""
NAME: Final = 7
"""The bits below the position of a word in such a code.

They are the bits of the largest value that is accepted, and whether the size defines the word.
"""
FORMS: Final = ("int", "uint", "bool", "float16", "bfloat16", "float32", "float64")
"""The forms of numbers: that of a parameter is in the word for flags."""
ARRAY, SCALAR, FIELDS, ANYTHING = range(4)
TUPLE, ITEM, RESULT, AGAIN = range(4)
"""How results are built: a tuple of the last ones, an argument, or a new array for the first time.

A result has all new arrays.
"""

Answer: TypeAlias = "int | tuple[Answer, ...]"
"""The value of a function: leaf `n` of its parameters, its new array `~n`, or a tuple of such."""


@dataclass(frozen=True, slots=True)
class EntryTable:
    """The parameters and results of a function as the common entry reads them.

    Fields:
        function: the code to run, which returns 0 unless it refuses its data; empty if there is
            none. Its arguments are words: of all leaves of the parameters that are not `Anything`
            the addresses of arrays, integers, and other numbers as the bits of a float64; then the
            values of the `sizes_of` these, and the addresses of new arrays.
        tasks: the number of tasks if it is the body of a parallel loop, which has the words as
            context; 0 if it takes these few as arguments; or `BY_WORDS`.
        sizes: the function that refuses impossible sizes, and writes the words of others that
            results have; or empty.
        words: the table; the addresses in it are zero.
    """

    function: str
    tasks: int
    sizes: str
    words: Sequence[int]

    @property
    def exports(self) -> list[str]:
        """The names that the library exports."""
        return [name for name in (self.function, self.sizes) if name]

    def builtin(
        self, library: Library, name: str, fallback: Callable[..., object]
    ) -> Callable[..., object]:
        """The function `name` in Python, which runs native code of a library that it keeps.

        `fallback` gets arguments of other types, datatypes, ranks and shapes, arrays that are not
        contiguous, aligned or, where written, writable, written arrays that overlap others, keyword
        arguments, and arguments that the code refuses.
        """
        words = [*self.words]
        for place, symbol in ((FUNCTION, self.function), (SIZES, self.sizes)):
            words[place] = library[symbol] if symbol else 0
        if self.tasks > 0:
            _connect_pool()
        table = struct.pack(f"<{len(words)}q", *words)
        return builtin_at(_library()["enter"], name, library, fallback, table)


def entry_table(
    function: str,
    params: Sequence[Tree],
    results: Sequence[Array] = (),
    answer: Answer = (),
    *,
    tasks: int = 0,
    scratch: int = 0,
    limit: int = 1 << 63,
    sizes: str = "",
    is_small: bool = False,
    is_graph: bool = False,
) -> EntryTable:
    """The table of a function that returns an `answer` from these new arrays.

    The absolute values of variables are less than the `limit`, a power of two.
    The function keeps the GIL if it `is_small`. The fallback of a graph is called instead of an
    error of a kernel.
    """
    ops = [] if answer == ~0 else [*_ops(answer, set())]
    writer = _Writer(params, results, limit, {n for how, n in ops if how == ITEM})
    first, count = writer.first_result, len(results)
    ranks = max((len(array.shape) for array in results), default=0)
    specs = [*writer.params(), *writer.results()]
    header = {
        COUNT: len(params),
        ITEMS: len(writer.items),
        WIDTH: max(first + count + len(writer.positions), len(writer.items), len(ops), ranks),
        RESULTS: count,
        ANSWER: len(ops),
        RELEASES: bool(function) and not is_small,
        TASKS: tasks,
        SCRATCH: scratch,
        IS_WRITTEN: any(isinstance(item, Array) and item.written for item, _ in writer.items),
        HAS_FIELDS: len(writer.items) > len(params),
        IS_GRAPH: is_graph,
    }
    numbers = {leaf: n for n, (i, leaf) in enumerate(writer.items) if not isinstance(i, Fields)}
    for how, n in ops:
        specs += (how, numbers[n] if how == ITEM else n)
    return EntryTable(
        function, tasks, sizes, [*(int(header.get(n, 0)) for n in range(SPECS)), *specs]
    )


def _ops(answer: Answer, used: set[int]) -> Iterator[tuple[int, int]]:
    """The steps that build a result; new arrays that are `used` have other references."""
    if isinstance(answer, tuple):
        for field in answer:
            yield from _ops(field, used)
        yield TUPLE, len(answer)
    elif answer >= 0:
        yield ITEM, answer
    else:
        yield AGAIN if answer in used else RESULT, ~answer
        used.add(answer)


def taken(params: Sequence[Tree]) -> list[Param]:
    """The leaves of parameters that a function takes."""
    return [leaf for leaf in leaves_of(params) if not isinstance(leaf, Anything)]


def types_of(params: Sequence[Tree]) -> list[Type]:
    """The types of the arguments that a function has for parameters and sizes."""
    leaves = taken(params)
    types = [POINTER if isinstance(leaf, Array) else I64 for leaf in leaves]
    return types + [I64] * len(sizes_of(leaves))


def from_words(f: Function, types: Sequence[Type]) -> list[Value]:
    """The arguments of a function that takes their address."""
    [words] = f.params
    return [f.load(type, f.element(words, n, I64), 8) for n, type in enumerate(types)]


def positions_of(params: Sequence[Tree], results: Sequence[Array] = ()) -> dict[PrimExpr, int]:
    """The positions of sizes among the words of a function, whose results may have others."""
    leaves = taken(params)
    sizes = sizes_of(leaves)
    found = {size: len(leaves) + n for n, size in enumerate(sizes)}
    for position, leaf in enumerate(leaves):
        if isinstance(leaf, Integer):
            found.setdefault(leaf.value, position)
    start = len(leaves) + len(sizes) + len(results)
    new = [size for size in sizes_of(results) if size not in found]
    return found | {size: start + n for n, size in enumerate(new)}


class _Writer:
    """Writes the specifications of parameters and results.

    Its `items` are the parameters and then the fields of tuples among them, in the order in which
    the entry reads them, each with the number of its first leaf. The `returned` leaves are results.
    """

    def __init__(
        self, params: Sequence[Tree], results: Sequence[Array], limit: int, returned: Container[int]
    ) -> None:
        self.positions = positions_of(params, results)
        self.first_result = len(taken(params)) + len(sizes_of(taken(params)))
        self.items: list[tuple[Tree, int]] = []
        self._results, self._returned = results, returned
        takes = (not isinstance(leaf, Anything) for leaf in leaves_of(params))
        self._words_before = [*accumulate(takes, initial=0)]
        self._bound: set[PrimExpr] = set()
        self._bits = limit.bit_length() - 1
        self._add(params, 0)
        for item, leaf in self.items:
            if isinstance(item, Fields):
                self._add(item.params, leaf)

    def _add(self, params: Sequence[Tree], leaf: int) -> None:
        for param in params:
            self.items.append((param, leaf))
            leaf += len(leaves_of([param]))

    def params(self) -> Iterator[int]:
        """The specifications of parameters."""
        for item, leaf in self.items:
            words = [*self._words(item, self._words_before[leaf])]
            if isinstance(item, Integer) and leaf in self._returned:
                words[NUMBER] = ENTRIES.index("unit")  # no scalar of NumPy: results are Python's
            yield from words

    def results(self) -> Iterator[int]:
        """The specifications of results, whose sizes are known when they are created."""
        self._bound.update(self.positions)
        for n, array in enumerate(self._results):
            kind, number, _, axes, _, shift, strided, *sizes = self._words(array, 0)
            has_names = any(size < NAMES // 2 for size in sizes)
            yield from (kind, number, self.first_result + n, axes, has_names, shift, strided)
            yield from sizes

    def _words(self, item: Tree, word: int) -> Iterator[int]:
        match item:
            case Array(dtype=dtype, shape=shape, strides=strides):
                flags = ALIGNED | (CONTIGUOUS if strides is None else 0)
                flags |= WRITABLE if item.written else 0
                shift, steps = DTYPES[dtype].itemsize.bit_length() - 1, strides or ()
                yield from (ARRAY, ENTRIES.index(dtype), word, len(shape), flags, shift, len(steps))
                yield from map(self._size, (*shape, *steps))
            case Integer(value=value, dtype=dtype):
                yield from (*self._scalar(dtype, word, 1), self._size(value))
            case Number(dtype=dtype):
                yield from self._scalar(dtype, word, 0)
            case Fields(params=params, type=kind):
                yield from (FIELDS, ENTRIES.index(kind), 0, 0, 0, len(params), 0)
            case Anything():
                yield from (ANYTHING, 0, 0, 0, 0, 0, 0)

    def _scalar(self, dtype: str, word: int, sizes: int) -> Sequence[int]:
        form = FORMS.index(dtype.rstrip("0123456789") if "int" in dtype else dtype)
        shift = DTYPES[dtype].itemsize.bit_length() - 1
        return SCALAR, ENTRIES.index(f"scalar {dtype}"), word, sizes, form, shift, 0

    def _size(self, size: PrimExpr) -> int:
        """A number, which may be a negative stride, or the code of another size."""
        if isinstance(size, IntImm):
            return max(size.value, NAMES >> 4)  # no array has smaller strides
        is_new = size not in self._bound
        self._bound.add(size)
        bits = self._bits if isinstance(size, Var) else 63
        return NAMES + (self.positions[size] << NAME | bits << 1 | is_new)


def enter_object() -> bytes:
    """The object file of the entry."""

    def write() -> Sequence[str]:
        from relaxpy.exec.native.calls.enter import entry_texts  # programs from the disk: unused

        return entry_texts()

    return process_object("entry", write)


@cache
def _library() -> Library:
    with running_here():
        library = link_object(enter_object(), ["enter", PYTHON, POOL, MEMORY])
    connect_python(library[PYTHON])
    connect_memory(library[MEMORY])
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))  # builtins outlive modules of Python
    return library


@cache
def _connect_pool() -> None:
    connect(_library()[POOL])
