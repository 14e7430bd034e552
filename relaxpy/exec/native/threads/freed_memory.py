"""A cache of freed memory: pages of new memory would have to be cleared by the system.

A large block that is freed is kept for the next request that it fits: it has at most twice the
bytes of an array, or eight times those of a kernel's scratch memory, which is soon free again.
Blocks in use and kept ones together have at most five quarters of the peak usage, plus 16 MiB. A
block that was not reused in a thousand requests is freed. Large new blocks have huge pages where
the system has them.

The memory of a large block starts at a page. CPUs compare 12 bits of the addresses of a load and of
the stores before it, and let the load wait where these overlap. Large arrays of NumPy start 16
bytes after a page, so that a loop which reads one and stores at a multiple of 64 other than 0
would wait in each iteration: a softmax took 1.2 times as long.

New arrays have such memory by an allocator of NumPy (NEP 49), which frees it when an array dies.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from typing import Final

from relaxpy.exec.machine.platforms import PAGE_BYTES
from relaxpy.exec.machine.process import process
from relaxpy.exec.machine.tuning import Allocations
from relaxpy.exec.native.llvm.writer import BOOL, F64, I8, I32, I64, POINTER, VOID, Function, Value
from relaxpy.exec.native.threads.code import (
    Code,
    add,
    address_of,
    at,
    exchanged,
    invoke,
    read,
    repeat,
)
from relaxpy.exec.native.threads.systems import free_pages, new_pages, threads_of
from relaxpy.exec.runtime.values import memory_bytes
from relaxpy.ir.core.fork_lock import Late

_WIDEST: Final = 8
"""The bytes of the widest elements, to decide by their number which arrays may be large."""
_RANKS: Final = 32
"""The most axes of arrays that are allocated here."""
_POSSIBLE: Final = 1 << 56
"""No block is larger."""
_CAPSULE: Final = b"mem_handler"
_NUMPY: Final = {"new": 184, "set_allocator": 304}
"""The positions of functions in the table that NumPy exports."""
_PYTHON: Final = {
    "release": "Py_DecRef",
    "retain": "Py_IncRef",
    "clear": "PyErr_Clear",
    "size": "PyTuple_Size",
    "item": "PyTuple_GetItem",
    "number": "PyLong_AsLongLong",
    "vectorcall": "PyObject_Vectorcall",
}
_ADDRESSES: Final = ("yield", "advise", "allocator", *_NUMPY, *_PYTHON)
CODE: Final = Code(
    "memory",
    # Of a kept block: its address, its bytes, and the number of requests when it was freed.
    blocks=f"[{Allocations.KEPT} x [3 x i64]] zeroinitializer",
    **dict.fromkeys(("count", "used", "most", "held", "requests", "limit"), "i64 0"),
    locked="i32 0, align 64",
    **dict.fromkeys(_ADDRESSES, "ptr null"),
)


@CODE.function(VOID)
def _lock(f: Function) -> None:
    def is_locked() -> Value:
        free, taken = f.const(I32, 0), f.const(I32, 1)
        return f.arithmetic("xor", exchanged(f, at(f, "locked"), free, taken, "acquire"), 1)

    repeat(f, is_locked, lambda: threads_of(f.module.platform.system).give_way(f))


@CODE.function(VOID)
def _unlock(f: Function) -> None:
    f.put("store atomic i32 0, ptr @locked release, align 4")


def _block(f: Function, index: Value) -> Value:
    """The address of a kept block in the table."""
    return f.element(at(f, "blocks"), index * 3, I64)


@CODE.function(POINTER, I64)
def _taken_out(f: Function, index: Value) -> Value:
    """Remove the kept block of that number from the table; return its memory."""
    block = _block(f, index)
    memory, size = f.load(POINTER, block), f.load(I64, f.element(block, 1, I64))
    add(f, "held", -size)
    rest = (add(f, "count", -1) - index) * 24
    later = f.element(block, 3, I64)
    f.call("llvm.memmove.p0.p0.i64", VOID, block, later, rest, f.const(BOOL, 0))
    return memory


@CODE.function(VOID)
def _evict(f: Function) -> None:
    """Free the oldest kept block."""
    base = f.element(f.call("taken_out", POINTER, f.index(0)), -PAGE_BYTES, I8)
    free_pages(f, base, f.load(I64, base))


@CODE.function(VOID, I64)
def _shrink(f: Function, most: Value) -> None:
    """Free kept blocks until they have at most `most` bytes."""

    def is_over() -> Value:
        over = f.compare("sgt", read(f, "held"), most)
        return f.arithmetic("and", over, f.compare("sgt", read(f, "count"), 0))

    repeat(f, is_over, lambda: f.call("evict", VOID))


@CODE.function(VOID)
def _trim(f: Function) -> None:
    """Free all kept blocks, and reset the peak usage."""
    f.call("lock", VOID)
    f.call("shrink", VOID, f.index(0))
    f.store(read(f, "used"), at(f, "most"))
    f.call("unlock", VOID)


@CODE.function(I64, I64)
def _rounded(f: Function, size: Value) -> Value:
    """The size of a block for a request: it wastes at most an eighth."""
    zeros = f.call("llvm.ctlz.i64", I64, size, f.const(BOOL, 1))
    step = f.arithmetic("shl", f.index(1), 60 - zeros)
    return f.arithmetic("and", size + (step - 1), -step)


@CODE.function(I64, I64, I64)
def _fitting(f: Function, size: Value, most: Value) -> Value:
    """The number of the smallest kept block for a request, of at most so many bytes, or -1."""

    def better(index: Value, best: Value, least: Value) -> list[Value]:
        found = f.load(I64, f.element(_block(f, index), 1, I64))
        fits = f.arithmetic("and", f.compare("sge", found, size), f.compare("sle", found, least))
        return [f.select(fits, index, best), f.select(fits, found, least)]

    best, _ = f.loop(0, read(f, "count"), 1, [f.index(-1), most], better)
    return best


@CODE.function(POINTER, I64)
def _take(f: Function, size: Value) -> Value:
    """Scratch memory of a kernel, which is soon free again: a block may be eight times as large."""
    return f.call("memory", POINTER, size, f.index(3))


@CODE.function(POINTER, I64, I64)
def _memory(f: Function, size: Value, shift: Value) -> Value:
    """Memory of so many bytes at a multiple of 64, or null.

    Its header has the size of its block, 0 for a small one, the address to free, and the usable
    bytes. A kept block is at most `1 << shift` times as large.
    """

    def small() -> list[Value]:
        raw = f.call("malloc", POINTER, size + 128)
        f.leave(f.compare("eq", raw, 0))
        aligned = f.arithmetic("and", f.cast("ptrtoint", raw, "i64") + 127, -64)
        return marked(f.cast("inttoptr", aligned, "ptr"), f.index(0), raw, size)

    def large() -> list[Value]:
        f.leave(f.compare("uge", size, _POSSIBLE))
        f.call("lock", VOID)
        add(f, "requests", 1)
        needed = size + PAGE_BYTES
        most = f.arithmetic("shl", needed, shift)
        index = f.call("fitting", I64, needed, most)
        is_kept = f.compare("sge", index, 0)
        return f.branch(is_kept, lambda: kept(index), lambda: new(f.call("rounded", I64, needed)))

    def kept(index: Value) -> list[Value]:
        memory = f.call("taken_out", POINTER, index)
        f.call("use", VOID, f.load(I64, f.element(memory, -8, I64)))
        f.call("unlock", VOID)
        return [memory]

    def new(size: Value) -> list[Value]:
        f.call("use", VOID, size)
        most = read(f, "most")
        bound = most + f.arithmetic("lshr", most, 2) + Allocations.SLACK
        f.call("shrink", VOID, bound - read(f, "used"))
        f.call("unlock", VOID)
        base = new_pages(f, size, lambda: unused(size))
        can_advise = f.compare("ne", read(f, "advise", POINTER), 0)
        is_huge = f.arithmetic("and", can_advise, f.compare("uge", size, Allocations.HUGE))
        f.branch(is_huge, lambda: advised(base, size))
        return marked(f.element(base, PAGE_BYTES, I8), size, base, size - PAGE_BYTES)

    def advised(base: Value, size: Value) -> None:
        advice = f.module.platform.system.huge_pages or 0
        invoke(f, "advise", I32, base, size, f.const(I32, advice))

    def unused(size: Value) -> None:
        f.call("lock", VOID)
        f.call("use", VOID, -size)
        f.call("unlock", VOID)

    def marked(memory: Value, size: Value, raw: Value, usable: Value) -> list[Value]:
        for n, value in ((-8, size), (-7, raw), (-6, usable)):
            f.store(value, f.element(memory, n, I64))
        return [memory]

    is_large = f.compare("uge", size, Allocations.LARGE)
    [found] = f.attempt(lambda: f.branch(is_large, large, small), lambda: [f.const(POINTER, 0)])
    return found


@CODE.function(VOID, I64)
def _use(f: Function, size: Value) -> None:
    """Note that so many bytes more are in use."""
    used = add(f, "used", size)
    f.store(f.intrinsic("smax", read(f, "most"), used), at(f, "most"))


@CODE.function(VOID, POINTER)
def _give(f: Function, memory: Value) -> None:
    """Free memory of `take`."""

    def freed() -> None:
        size = f.load(I64, f.element(memory, -8, I64))
        f.branch(f.compare("eq", size, 0), small, lambda: large(size))

    def small() -> None:
        f.call("free", VOID, f.load(POINTER, f.element(memory, -7, I64)))

    def large(size: Value) -> None:
        f.call("lock", VOID)
        f.call("use", VOID, -size)
        count, requests = read(f, "count"), read(f, "requests")
        age = requests - f.load(I64, f.element(at(f, "blocks"), 2, I64))
        is_old = f.arithmetic(
            "and", f.compare("sgt", count, 0), f.compare("sgt", age, Allocations.AGE)
        )
        is_full = f.compare("eq", count, Allocations.KEPT)
        f.branch(f.arithmetic("or", is_full, is_old), evicted)
        block = _block(f, add(f, "count", 1) - 1)
        for n, value in enumerate((memory, size, requests)):
            f.store(value, f.element(block, n, I64))
        add(f, "held", size)
        f.call("shrink", VOID, read(f, "limit"))
        f.call("unlock", VOID)

    def evicted() -> None:
        f.call("evict", VOID)

    f.branch(f.compare("ne", memory, 0), freed)


@CODE.function(POINTER, POINTER, I64)
def _array_malloc(f: Function, context: Value, size: Value) -> Value:
    """Memory of an array, which may live long: its block is at most twice as large."""
    return f.call("memory", POINTER, size, f.index(1))


@CODE.function(POINTER, POINTER, I64, I64)
def _array_calloc(f: Function, context: Value, count: Value, size: Value) -> Value:
    product = f.cast("zext", count, "i128") * f.cast("zext", size, "i128")
    is_possible = f.compare("ult", product, _POSSIBLE)
    total = f.select(is_possible, f.cast("trunc", product, "i64"), -1)
    memory = f.call("memory", POINTER, total, f.index(1))

    def cleared() -> None:
        f.call("llvm.memset.p0.i64", VOID, memory, f.const(I8, 0), total, f.const(BOOL, 0))

    f.branch(f.compare("ne", memory, 0), cleared)
    return memory


@CODE.function(POINTER, POINTER, POINTER, I64)
def _array_realloc(f: Function, context: Value, old: Value, size: Value) -> Value:
    memory = f.call("memory", POINTER, size, f.index(1))

    def moved() -> None:
        least = f.intrinsic("smin", f.load(I64, f.element(old, -6, I64)), size)
        f.call("llvm.memcpy.p0.p0.i64", VOID, memory, old, least, f.const(BOOL, 0))
        f.call("give", VOID, old)

    f.branch(f.compare("ne", memory, 0), moved)
    return memory


@CODE.function(VOID, POINTER, POINTER, I64)
def _array_free(f: Function, context: Value, memory: Value, size: Value) -> None:
    f.call("give", VOID, memory)


@CODE.function(POINTER, I32, POINTER, POINTER, I32)
def _new_array(f: Function, rank: Value, dims: Value, dtype: Value, order: Value) -> Value:
    """A new array, as `PyArray_Empty` makes it, or null; a large one has memory of `take`."""

    def times(axis: Value, count: Value) -> list[Value]:
        return [count * f.cast("sitofp", f.load(I64, f.element(dims, axis, I64)), "double")]

    def new() -> list[Value]:
        return [invoke(f, "new", POINTER, rank, dims, dtype, order)]

    def large() -> list[Value]:
        before = invoke(f, "set_allocator", POINTER, read(f, "allocator", POINTER))
        return f.branch(f.compare("eq", before, 0), failed, lambda: allocated(before))

    def failed() -> list[Value]:
        invoke(f, "release", VOID, dtype)
        return [f.const(POINTER, 0)]

    def allocated(before: Value) -> list[Value]:
        [array] = new()
        ours = invoke(f, "set_allocator", POINTER, before)
        for handler in (before, ours):
            invoke(f, "release", VOID, handler)
        return [array]

    [count] = f.loop(0, f.cast("sext", rank, "i64"), 1, [f.const(F64, 1)], times)
    [array] = f.branch(f.compare("oge", count, Allocations.LARGE // _WIDEST), large, new)
    return array


@CODE.function(POINTER, POINTER, POINTER, I64, POINTER)
def _empty(f: Function, owner: Value, arguments: Value, count: Value, names: Value) -> Value:
    """The builtin `empty(shape, dtype)`; unusual arguments go to the object it is bound to."""
    dims = f.alloca(I64, _RANKS)

    def usual() -> list[Value]:
        shape, dtype = (f.load(POINTER, f.element(arguments, n, POINTER)) for n in range(2))
        rank = invoke(f, "size", I64, shape)
        f.leave(f.compare("ugt", rank, _RANKS))

        def read_dimension(axis: Value) -> None:
            dim = invoke(f, "number", I64, invoke(f, "item", POINTER, shape, axis))
            f.leave(f.compare("slt", dim, 0))
            f.store(dim, f.element(dims, axis, I64))

        f.loop(0, rank, 1, [], read_dimension)
        invoke(f, "retain", VOID, dtype)
        axes, order = f.cast("trunc", rank, "i32"), f.const(I32, 0)
        array = f.call("new_array", POINTER, axes, dims, dtype, order)
        f.leave(f.compare("eq", array, 0))
        return [array]

    def unusual() -> list[Value]:
        invoke(f, "clear", VOID)
        return [invoke(f, "vectorcall", POINTER, owner, arguments, count, names)]

    [array] = f.attempt(usual, unusual)
    return array


_ALLOCATOR: Final = ("array_malloc", "array_calloc", "array_realloc", "array_free")
_FUNCTIONS: Final = ("take", "give", "trim", "new_array", "empty", *_ALLOCATOR)


class _Handler(ctypes.Structure):
    """The structure PyDataMem_Handler of NumPy, version 1."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("functions", ctypes.c_void_p * len(_ALLOCATOR)),
    )


class Memory:
    """The cache of freed memory of this process."""

    def __init__(self) -> None:
        self.library = CODE.linked(_FUNCTIONS)
        here, api = process(), ctypes.pythonapi
        CODE.set(self.library, "limit", int(min(memory_bytes() * Allocations.SHARE, _POSSIBLE)))
        give_way = threads_of(here.system).functions["yield"]
        CODE.set(self.library, "yield", here.address(give_way))
        if here.system.huge_pages is not None:
            CODE.set(self.library, "advise", here.address("madvise"))
        for name, number in _NUMPY.items():
            CODE.set(self.library, name, numpy_function(number))
        for name, function in _PYTHON.items():
            CODE.set(self.library, name, address_of(getattr(api, function)))
        self._handler = _Handler(b"relaxpy", 1, None)
        self._handler.functions[:] = [self.library[name] for name in _ALLOCATOR]
        new = ctypes.PYFUNCTYPE(
            *(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        )
        capsule = new(("PyCapsule_New", api))(ctypes.addressof(self._handler), _CAPSULE, None)
        CODE.set(self.library, "allocator", id(capsule))
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)
        # Arrays may have such memory until the process ends.
        for owner in (self, capsule):
            api.Py_IncRef(ctypes.py_object(owner))

    def trim(self) -> None:
        """Return unused memory to the system."""
        ctypes.CFUNCTYPE(None)(self.library["trim"])()

    def held(self) -> int:
        """The bytes that are kept for later requests."""
        return ctypes.c_int64.from_address(self.library["held"]).value

    def _forget(self) -> None:
        """Reset the cache in a forked child: another thread may have been changing it."""
        for name in ("locked", "count", "held"):
            CODE.set(self.library, name, 0)


@Late
def memory() -> Memory:
    """The memory cache of this process, created at the first use."""
    return Memory()


def connect_memory(variable: int) -> None:
    """Store the addresses of `take` and `give` at a module's variable."""
    words = (ctypes.c_uint64 * 2).from_address(variable)
    words[0], words[1] = memory().library["take"], memory().library["give"]


def numpy_function(number: int) -> int:
    """The address of the function at a position of the table that NumPy exports."""
    exported = importlib.import_module("numpy._core._multiarray_umath")._ARRAY_API
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    table = pointer(("PyCapsule_GetPointer", ctypes.pythonapi))(exported, None)
    return ctypes.c_void_p.from_address(table + 8 * number).value or 0
