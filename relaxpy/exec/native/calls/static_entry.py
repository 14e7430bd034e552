"""The entry of all functions and kernels whose parameters and results are arrays of fixed shapes.

One function, compiled once, checks the arguments against a table in the object that a builtin is
bound to: code for each function took longer to compile than many kernels.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Final

from relaxpy.exec.fast_paths import STATIC_ENTRY
from relaxpy.exec.native.calls.entry import (
    CONTENT,
    Array,
    Param,
    Tree,
    builtin_at,
    fall_back,
    make_entry,
    table_offset,
)
from relaxpy.exec.native.calls.interpreter import (
    ALIGNED,
    CONTIGUOUS,
    DATA,
    DTYPE,
    DTYPES,
    ENTRIES,
    FLAGS,
    PYTHON,
    RANK,
    SHAPE,
    TYPE,
    WRITABLE,
    call_python,
    connect_python,
    declare_python,
    field_of,
    kind_of,
    python,
)
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.writer import (
    BOOL,
    I8,
    I32,
    I64,
    POINTER,
    VOID,
    Function,
    Operand,
    Value,
)
from relaxpy.exec.native.machine_code.machine import current, running_here
from relaxpy.exec.native.machine_code.objects import Library, link_object, process_object
from relaxpy.exec.native.threads.code import POOL
from relaxpy.exec.native.threads.pool import connect
from relaxpy.support.dataclass import dataclass

_IN_REGISTERS: Final = 6
_MOST: Final = 14
"""The most arguments of a call; those beyond a kernel's parameters are ignored."""
_PARAMS, _RESULTS, _RELEASES, _IS_TUPLE, _FUNCTION, _TASKS, _WRITTEN, _SCRATCH, _SPECS = range(9)
"""The words of a table, the last of which begins the specifications of arrays."""
_NUMBER, _RANK, _FLAGS, _BYTES, _DIMS = range(5)
"""The words of a specification: of the datatype its entry in the table of Python's objects."""


class _Enter:
    """Emits the entry in a function that has the parameters of a builtin."""

    def __init__(self, f: Function) -> None:
        self.f = f
        self.instance, self.args, self.count, self.keywords = f.params
        self.null = Value(f, POINTER, "null")
        table = f.load(POINTER, f.element(self.instance, table_offset(), I8), 8)
        self.layout = f.element(table, CONTENT, I8)
        self.words, self.stops, self.writes = (f.alloca(I64, _MOST) for _ in range(3))
        self.arrays, self.created = f.alloca(POINTER, _MOST), f.alloca(I64, 1)
        """The results, and their number."""
        f.store(f.const(I64, 0), self.created)
        self.params, self.results = self._word(_PARAMS), self._word(_RESULTS)

    def emit(self) -> None:
        """Emit the entry."""
        [result] = self.f.attempt(self._accepted, self._refused)
        self.f.ret(result)

    def _word(self, number: int) -> Value:
        return self._at(self.layout, number)

    def _at(self, words: Value, number: Operand) -> Value:
        return self.f.load(I64, self.f.element(words, number, I64))

    def _pointer_at(self, pointers: Value, number: Operand) -> Value:
        return self.f.load(POINTER, self.f.element(pointers, number, POINTER), 8)

    def _require(self, *conditions: Value) -> None:
        """Refuse the arguments unless all conditions hold."""
        for condition in conditions:
            self.f.leave(self.f.arithmetic("xor", condition, 1))

    def _accepted(self) -> list[Value]:
        """The result for arguments that the function takes."""
        f = self.f
        self._require(f.compare("eq", self.keywords, self.null))
        self._require(f.compare("eq", self.count, self.params))
        ndarray, specs = python(f, "ndarray"), f.element(self.layout, _SPECS, I64)

        def argument(n: Value, spec: Value) -> list[Value]:
            return [self._argument(n, spec, ndarray)]

        [specs] = f.loop(0, self.params, 1, [specs], argument)
        writes = f.compare("ne", self._word(_WRITTEN), 0)
        f.branch(writes, lambda: f.loop(0, self.params, 1, [], self._apart))
        return f.attempt(lambda: self._called(specs), self._dropped)

    def _argument(self, n: Value, spec: Value, ndarray: Value) -> Value:
        """Check an argument; return the address of the next specification."""
        f = self.f
        item = self._pointer_at(self.args, n)
        self._require(f.compare("eq", field_of(f, item, TYPE, POINTER), ndarray))
        flags, rank = self._at(spec, _FLAGS), self._at(spec, _RANK)
        needed = f.cast("trunc", flags, "i32")
        usable = f.arithmetic("and", field_of(f, item, FLAGS, I32), needed)
        expected = self._pointer_at(Value(f, POINTER, f"@{PYTHON}"), self._at(spec, _NUMBER))
        fits = f.compare("eq", usable, needed)
        has_rank = f.compare("eq", field_of(f, item, RANK, I32), f.cast("trunc", rank, "i32"))
        kinds = (kind_of(f, dtype) for dtype in (field_of(f, item, DTYPE, POINTER), expected))
        fits = f.arithmetic("and", f.arithmetic("and", fits, has_rank), f.compare("eq", *kinds))
        self._require(fits)
        shape, dims = field_of(f, item, SHAPE, POINTER), f.element(spec, _DIMS, I64)
        f.loop(
            *(0, rank, 1, []),
            lambda axis: self._require(
                f.compare("eq", self._at(shape, axis), self._at(dims, axis))
            ),
        )
        data = field_of(f, item, DATA, I64)
        f.store(data, f.element(self.words, n, I64))
        f.store(data + self._at(spec, _BYTES), f.element(self.stops, n, I64))
        f.store(f.arithmetic("and", flags, WRITABLE), f.element(self.writes, n, I64))
        return f.element(dims, rank, I64)

    def _apart(self, i: Value) -> None:
        """Check that an argument does not overlap those before it if one of them is written."""
        f = self.f
        start, stop, write = (self._at(table, i) for table in (self.words, self.stops, self.writes))

        def pair(j: Value) -> None:
            neither = f.compare("eq", f.arithmetic("or", write, self._at(self.writes, j)), 0)
            before = f.compare("ule", stop, self._at(self.words, j))
            after = f.compare("ule", self._at(self.stops, j), start)
            is_apart = f.arithmetic("or", before, after)
            self._require(f.arithmetic("or", neither, is_apart))

        f.loop(0, i, 1, [], pair)

    def _called(self, specs: Value) -> list[Value]:
        """The result of the function, with new arrays for its results."""
        f = self.f
        f.loop(0, self.results, 1, [specs], lambda m, spec: [self._create(m, spec)])
        releases = f.compare("ne", self._word(_RELEASES), 0)
        save = partial(call_python, f, "PyEval_SaveThread", POINTER)
        [state] = f.branch(releases, lambda: [save()], lambda: [self.null])

        def restore() -> None:
            call_python(f, "PyEval_RestoreThread", VOID, state)

        words = [self._at(self.words, n) for n in range(_MOST)]
        function, tasks = self._pointer_at(self.layout, _FUNCTION), self._word(_TASKS)

        def call(count: int) -> list[Value]:
            arguments = ", ".join(map(str, words[:count]))
            return [f.new(I32, f"call i32 {function.name}({arguments})")]

        def direct() -> list[Value]:
            few = f.compare("sle", self.params + self.results, _IN_REGISTERS)
            return f.branch(few, lambda: call(_IN_REGISTERS), lambda: call(_MOST))

        def parallel() -> list[Value]:
            run = self._pointer_at(Value(f, POINTER, f"@{POOL}"), 0)
            operands = function, self.words, tasks, self._word(_SCRATCH)
            arguments = ", ".join(map(str, operands))
            return [f.new(I32, f"call i32 {run.name}({arguments})")]

        [status] = f.branch(f.compare("eq", tasks, 0), direct, parallel)
        f.branch(releases, restore)
        self._require(f.compare("eq", status, 0))
        single = f.compare("eq", self._word(_IS_TUPLE), 0)
        return f.branch(single, lambda: [self._pointer_at(self.arrays, 0)], self._tuple)

    def _create(self, m: Value, spec: Value) -> Value:
        """Create the array of a result; return the address of the next specification."""
        f, rank = self.f, self._at(spec, _RANK)
        dims = f.element(spec, _DIMS, I64)
        dtype = self._pointer_at(Value(f, POINTER, f"@{PYTHON}"), self._at(spec, _NUMBER))
        call_python(f, "Py_IncRef", VOID, dtype)
        operands = f.cast("trunc", rank, "i32"), dims, dtype, f.const(I32, 0)
        array = call_python(f, "PyArray_Empty", POINTER, *operands)

        def clear() -> None:
            call_python(f, "PyErr_Clear", VOID)  # the fallback will fail in the same way

        f.leave(f.compare("eq", array, self.null), clear)
        f.store(array, f.element(self.arrays, m, POINTER), 8)
        f.store(m + 1, self.created)
        f.store(field_of(f, array, DATA, I64), f.element(self.words, self.params + m, I64))
        return f.element(dims, rank, I64)

    def _tuple(self) -> list[Value]:
        f = self.f
        result = call_python(f, "PyTuple_New", POINTER, self.results)
        self._require(f.compare("ne", result, self.null))

        def put(n: Value) -> None:
            array = self._pointer_at(self.arrays, n)
            call_python(f, "PyTuple_SetItem", I32, result, n, array)

        f.loop(0, self.results, 1, [], put)
        return [result]

    def _dropped(self) -> list[Value]:
        """Drop the results, and refuse the arguments."""
        f = self.f

        def drop(n: Value) -> None:
            call_python(f, "Py_DecRef", VOID, self._pointer_at(self.arrays, n))

        f.loop(0, f.load(I64, self.created), 1, [], drop)
        f.leave(f.const(BOOL, 1))
        return [self.null]

    def _refused(self) -> list[Value]:
        """The result of the fallback, which knows the position of the call of a failed kernel.

        All other errors are raised.
        """
        is_graph = self.f.compare("ne", self.results, 0)
        operands = self.instance, self.args, self.count, self.keywords
        return [fall_back(self.f, operands, is_graph)]


@dataclass(frozen=True, slots=True)
class StaticEntry:
    """The table of a function, which the entry interprets.

    Fields:
        function: the code to run on the arrays of parameters and results: a kernel, which returns
            0 unless it refuses its data, or the body of a parallel loop, which has them as context.
        tasks: the number of tasks of that loop; 0 for a kernel.
        params: the datatype and the shape of each parameter.
        results: those of the new arrays that it returns.
        release_gil: whether it releases the GIL.
        is_tuple: whether the result is a tuple, rather than the only array.
        written: the numbers of the parameters that it writes, which overlap no others.
        scratch: the bytes that each thread of the loop needs beside its stack.
    """

    function: str
    tasks: int
    params: Sequence[tuple[str, Sequence[int]]]
    results: Sequence[tuple[str, Sequence[int]]]
    release_gil: bool
    is_tuple: bool
    written: Sequence[int] = ()
    scratch: int = 0

    def builtin(
        self, library: Library, name: str, fallback: Callable[..., object]
    ) -> Callable[..., object]:
        """The function for arrays in a library that exports `function`."""
        if self.tasks:
            _connect_pool()
        words = [len(self.params), len(self.results), self.release_gil, self.is_tuple]
        words += [library[self.function], self.tasks, len(self.written), self.scratch]
        for number, (dtype, shape) in enumerate((*self.params, *self.results)):
            flags = CONTIGUOUS | ALIGNED | (WRITABLE if number in self.written else 0)
            size = math.prod(shape) * DTYPES[dtype].itemsize
            words += [ENTRIES.index(dtype), len(shape), flags, size, *shape]
        table = struct.pack(f"<{len(words)}q", *words)
        return builtin_at(_library()["enter"], name, library, fallback, table)


def kernel_entry(kernel: str, params: Sequence[Param]) -> StaticEntry | None:
    """The table of a kernel that Python calls; None if the entry does not take it."""
    if not is_static(params):
        return None
    arrays = [p for p in params if isinstance(p, Array)]
    written = [number for number, p in enumerate(arrays) if p.written]
    sizes = [(p.dtype, [n for n in p.shape if isinstance(n, int)]) for p in arrays]
    return StaticEntry(kernel, 0, sizes, (), release_gil=True, is_tuple=True, written=written)


def make_kernel_entry(
    library: Library, kernel: str, entry: StaticEntry | None, fallback: Callable[..., object]
) -> Callable[..., object]:
    """The function of `make_entry`, through the common `entry` if the kernel has one.

    Otherwise the library exports `entry_name(kernel)`, too.
    """
    if entry is None:
        return make_entry(library, kernel, fallback)
    return entry.builtin(library, kernel, fallback)


def is_static(params: Sequence[Tree], results: Sequence[tuple[str, Sequence[object]]] = ()) -> bool:
    """True if the common entry takes these parameters and results."""
    arrays = [(p.dtype, p.shape) for p in params if isinstance(p, Array) and p.strides is None]
    return (
        bool(STATIC_ENTRY)
        and len(arrays) == len(params)
        and len(params) + len(results) <= _MOST
        and all(_fits(dtype, shape) for dtype, shape in (*arrays, *results))
        and table_offset() > 0
    )


def _fits(dtype: str, shape: Sequence[object]) -> bool:
    sizes = [size for size in shape if isinstance(size, int)]
    return len(sizes) == len(shape) and math.prod(sizes) * DTYPES[dtype].itemsize < 1 << 63


def enter_object() -> bytes:
    """The object file of the entry."""
    return process_object("entry", lambda: (_entry_text(),))


def _entry_text() -> str:
    module = Module(current().triple, current().vector_bits)
    declare_python(module)
    module.words(POOL, 2)
    params = [(POINTER, "self"), (POINTER, "args"), (I64, "count"), (POINTER, "keywords")]
    _Enter(module.function("enter", params, POINTER)).emit()
    return module.text()


@cache
def _library() -> Library:
    with running_here():
        library = link_object(enter_object(), ["enter", PYTHON, POOL])
    connect_python(library[PYTHON])
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))  # builtins outlive modules of Python
    return library


@cache
def _connect_pool() -> None:
    connect(_library()[POOL])
