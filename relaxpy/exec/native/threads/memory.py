"""A cache of freed memory, as the system clears the pages of new memory.

A large block that is freed is kept for the next request that it fits: it has at most twice the
bytes of an array, or eight times those that a kernel needs, which are soon free again. Blocks in
use and kept ones are together at most five quarters of what was in use at most, and 16 MiB. A block
that nobody asked for in a thousand requests is freed. Large new blocks have huge pages where the
system has them.

New arrays have such memory by an allocator of NumPy (NEP 49), which frees it when an array dies.
"""

from __future__ import annotations

import ctypes
import importlib
import mmap
import os
from functools import cache
from typing import Any, Final

from relaxpy.exec.native.machine_code.machine import host
from relaxpy.exec.native.machine_code.objects import compile_object, link_object
from relaxpy.exec.runtime.values import memory_bytes

_LARGE: Final = 1 << 17
"""The bytes from which a block is kept when it is freed."""
_WIDEST: Final = 8
"""The bytes of the widest elements, from whose number it follows which arrays may be large."""
_KEPT: Final = 64
"""The most blocks that are kept."""
_AGE: Final = 1024
"""The requests after which a block that was not asked for is freed."""
_SHARE: Final = 1 / 8
"""The most memory that is kept, of that of the machine."""
_HUGE: Final = 1 << 22
"""The bytes from which a block has huge pages, of 2 MiB."""
_HUGE_PAGES: Final = 14
"""The advice of Linux for that."""
_SLACK: Final = 1 << 24
"""The bytes of memory, kept or in use, beside five quarters of what was in use at most."""
_POSSIBLE: Final = 1 << 56
"""No block is larger."""
_CAPSULE: Final = b"mem_handler"
_TEXT: Final = """\
target triple = "{triple}"
; A kept block: its address, its bytes, and the number of requests when it was freed.
%block = type {{ ptr, i64, i64 }}
@blocks = internal global [{kept} x %block] zeroinitializer
@count = global i64 0
@locked = global i32 0, align 64
@used = global i64 0
@most = global i64 0
@held = global i64 0
@requests = internal global i64 0
@limit = global i64 0
@yield = global ptr null
@advise = global ptr null
@new = global ptr null
@set_allocator = global ptr null
@allocator = global ptr null
@release = global ptr null
@clear = global ptr null
@size = global ptr null
@item = global ptr null
@number = global ptr null
@retain = global ptr null
@vectorcall = global ptr null

define internal void @lock() nounwind {{
entry:
  %yield = load ptr, ptr @yield
  br label %try
try:
  %exchange = cmpxchg ptr @locked, i32 0, i32 1 acquire monotonic
  %free = extractvalue {{ i32, i1 }} %exchange, 1
  br i1 %free, label %done, label %wait
wait:
  %ignored = call i32 %yield()
  br label %try
done:
  ret void
}}

define internal void @unlock() nounwind {{
  store atomic i32 0, ptr @locked release, align 4
  ret void
}}

; Take the kept block of that number from the table.
define internal ptr @remove(i64 %index) nounwind {{
entry:
  %at = getelementptr [{kept} x %block], ptr @blocks, i64 0, i64 %index
  %memory = load ptr, ptr %at
  %size_at = getelementptr %block, ptr %at, i32 0, i32 1
  %size = load i64, ptr %size_at
  %held = load i64, ptr @held
  %less = sub i64 %held, %size
  store i64 %less, ptr @held
  %count = load i64, ptr @count
  %last = sub i64 %count, 1
  store i64 %last, ptr @count
  %later = getelementptr %block, ptr %at, i64 1
  %moved = sub i64 %last, %index
  %bytes = mul i64 %moved, 24
  call void @llvm.memmove.p0.p0.i64(ptr %at, ptr %later, i64 %bytes, i1 false)
  ret ptr %memory
}}

; Free the block that was kept first.
define internal void @evict() nounwind {{
  %memory = call ptr @remove(i64 0)
  %base = getelementptr i8, ptr %memory, i64 -64
  %size = load i64, ptr %base
  call i32 @munmap(ptr %base, i64 %size)
  ret void
}}

; Free what is kept until it has at most so many bytes.
define internal void @shrink(i64 %most) nounwind {{
entry:
  br label %head
head:
  %held = load i64, ptr @held
  %over = icmp sgt i64 %held, %most
  %count = load i64, ptr @count
  %some = icmp sgt i64 %count, 0
  %both = and i1 %over, %some
  br i1 %both, label %do, label %done
do:
  call void @evict()
  br label %head
done:
  ret void
}}

; Free everything that is kept, and forget how much was in use.
define void @trim() nounwind {{
  call void @lock()
  call void @shrink(i64 0)
  %used = load i64, ptr @used
  store i64 %used, ptr @most
  call void @unlock()
  ret void
}}

; The size of a block for a request: it wastes at most an eighth.
define internal i64 @rounded(i64 %bytes) nounwind {{
  %zeros = call i64 @llvm.ctlz.i64(i64 %bytes, i1 true)
  %shift = sub i64 60, %zeros
  %step = shl i64 1, %shift
  %less = sub i64 %step, 1
  %more = add i64 %bytes, %less
  %mask = xor i64 %less, -1
  %result = and i64 %more, %mask
  ret i64 %result
}}

; The number of the smallest kept block for a request, of at most so many bytes, or -1.
define internal i64 @fitting(i64 %bytes, i64 %most) nounwind {{
entry:
  %count = load i64, ptr @count
  br label %head
head:
  %index = phi i64 [ 0, %entry ], [ %next, %do ]
  %best = phi i64 [ -1, %entry ], [ %better, %do ]
  %least = phi i64 [ %most, %entry ], [ %smaller, %do ]
  %more = icmp slt i64 %index, %count
  br i1 %more, label %do, label %done
do:
  %size_at = getelementptr [{kept} x %block], ptr @blocks, i64 0, i64 %index, i32 1
  %size = load i64, ptr %size_at
  %enough = icmp sge i64 %size, %bytes
  %less = icmp sle i64 %size, %least
  %both = and i1 %enough, %less
  %better = select i1 %both, i64 %index, i64 %best
  %smaller = select i1 %both, i64 %size, i64 %least
  %next = add i64 %index, 1
  br label %head
done:
  ret i64 %best
}}

; The memory of a kernel, which is soon kept again: a block may be eight times as large.
define ptr @take(i64 %bytes) nounwind {{
  %memory = call ptr @memory(i64 %bytes, i64 3)
  ret ptr %memory
}}

; Memory of so many bytes at a multiple of 64, or null. Before it are the size of its block, 0 for
; that of a small one, what is to be freed, and the bytes that may be used. A kept block is at most
; `1 << %shift` times as large.
define internal ptr @memory(i64 %bytes, i64 %shift) nounwind {{
entry:
  %large = icmp uge i64 %bytes, {large}
  br i1 %large, label %ask, label %small
small:
  %more = add i64 %bytes, 128
  %raw = call ptr @malloc(i64 %more)
  %absent = icmp eq ptr %raw, null
  br i1 %absent, label %fail, label %place
place:
  %address = ptrtoint ptr %raw to i64
  %above = add i64 %address, 127
  %aligned = and i64 %above, -64
  %memory = inttoptr i64 %aligned to ptr
  call void @mark(ptr %memory, i64 0, ptr %raw, i64 %bytes)
  ret ptr %memory
ask:
  %possible = icmp ult i64 %bytes, {possible}
  br i1 %possible, label %search, label %fail
search:
  call void @lock()
  %requests = load i64, ptr @requests
  %increased = add i64 %requests, 1
  store i64 %increased, ptr @requests
  %with = add i64 %bytes, 64
  %largest = shl i64 %with, %shift
  %index = call i64 @fitting(i64 %with, i64 %largest)
  %found = icmp sge i64 %index, 0
  br i1 %found, label %old, label %new
old:
  %kept = call ptr @remove(i64 %index)
  %known_at = getelementptr i64, ptr %kept, i64 -8
  %known = load i64, ptr %known_at
  call void @use(i64 %known)
  call void @unlock()
  ret ptr %kept
new:
  %size = call i64 @rounded(i64 %with)
  call void @use(i64 %size)
  %most = load i64, ptr @most
  %used = load i64, ptr @used
  %quarter = lshr i64 %most, 2
  %more_than = add i64 %most, %quarter
  %bound = add i64 %more_than, {slack}
  %room = sub i64 %bound, %used
  call void @shrink(i64 %room)
  call void @unlock()
  %base = call ptr @mmap(ptr null, i64 %size, i32 3, i32 {flags}, i32 -1, i64 0)
  %base_address = ptrtoint ptr %base to i64
  %none = icmp eq i64 %base_address, -1
  br i1 %none, label %undo, label %start
start:
  %advise = load ptr, ptr @advise
  %can = icmp ne ptr %advise, null
  %is_huge = icmp uge i64 %size, {huge}
  %both = and i1 %can, %is_huge
  br i1 %both, label %huge, label %begin
huge:
  %ignored = call i32 %advise(ptr %base, i64 %size, i32 {huge_pages})
  br label %begin
begin:
  %first = getelementptr i8, ptr %base, i64 64
  %usable = sub i64 %size, 64
  call void @mark(ptr %first, i64 %size, ptr %base, i64 %usable)
  ret ptr %first
undo:
  call void @lock()
  %negative = sub i64 0, %size
  call void @use(i64 %negative)
  call void @unlock()
  br label %fail
fail:
  ret ptr null
}}

; Write what is before memory.
define internal void @mark(ptr %memory, i64 %size, ptr %raw, i64 %usable) nounwind {{
  %size_at = getelementptr i64, ptr %memory, i64 -8
  store i64 %size, ptr %size_at
  %raw_at = getelementptr i64, ptr %memory, i64 -7
  store ptr %raw, ptr %raw_at
  %usable_at = getelementptr i64, ptr %memory, i64 -6
  store i64 %usable, ptr %usable_at
  ret void
}}

; Note that so many bytes more are in use.
define internal void @use(i64 %bytes) nounwind {{
  %before = load i64, ptr @used
  %used = add i64 %before, %bytes
  store i64 %used, ptr @used
  %most = load i64, ptr @most
  %larger = call i64 @llvm.smax.i64(i64 %most, i64 %used)
  store i64 %larger, ptr @most
  ret void
}}

; Free memory of `take`.
define void @give(ptr %memory) nounwind {{
entry:
  %absent = icmp eq ptr %memory, null
  br i1 %absent, label %done, label %look
look:
  %size_at = getelementptr i64, ptr %memory, i64 -8
  %size = load i64, ptr %size_at
  %small = icmp eq i64 %size, 0
  br i1 %small, label %plain, label %large
plain:
  %raw_at = getelementptr i64, ptr %memory, i64 -7
  %raw = load ptr, ptr %raw_at
  call void @free(ptr %raw)
  ret void
large:
  call void @lock()
  %negative = sub i64 0, %size
  call void @use(i64 %negative)
  %count = load i64, ptr @count
  %full = icmp eq i64 %count, {kept}
  br i1 %full, label %first, label %age
age:
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %old, label %keep
old:
  %noted = load i64, ptr getelementptr (%block, ptr @blocks, i64 0, i32 2)
  %now = load i64, ptr @requests
  %age_of = sub i64 %now, %noted
  %stale = icmp sgt i64 %age_of, {age}
  br i1 %stale, label %first, label %keep
first:
  call void @evict()
  br label %keep
keep:
  %index = load i64, ptr @count
  %at = getelementptr [{kept} x %block], ptr @blocks, i64 0, i64 %index
  store ptr %memory, ptr %at
  %bytes_at = getelementptr %block, ptr %at, i32 0, i32 1
  store i64 %size, ptr %bytes_at
  %time_at = getelementptr %block, ptr %at, i32 0, i32 2
  %time = load i64, ptr @requests
  store i64 %time, ptr %time_at
  %more = add i64 %index, 1
  store i64 %more, ptr @count
  %held = load i64, ptr @held
  %sum = add i64 %held, %size
  store i64 %sum, ptr @held
  %limit = load i64, ptr @limit
  call void @shrink(i64 %limit)
  call void @unlock()
  br label %done
done:
  ret void
}}

; The allocator of NumPy. Arrays may live long, so that their blocks are at most twice as large.
define ptr @array_malloc(ptr %context, i64 %bytes) nounwind {{
  %memory = call ptr @memory(i64 %bytes, i64 1)
  ret ptr %memory
}}

define ptr @array_calloc(ptr %context, i64 %count, i64 %bytes) nounwind {{
entry:
  %product = call {{ i64, i1 }} @llvm.umul.with.overflow.i64(i64 %count, i64 %bytes)
  %total = extractvalue {{ i64, i1 }} %product, 0
  %over = extractvalue {{ i64, i1 }} %product, 1
  %size = select i1 %over, i64 -1, i64 %total
  %memory = call ptr @memory(i64 %size, i64 1)
  %absent = icmp eq ptr %memory, null
  br i1 %absent, label %done, label %zero
zero:
  call void @llvm.memset.p0.i64(ptr %memory, i8 0, i64 %size, i1 false)
  br label %done
done:
  ret ptr %memory
}}

define ptr @array_realloc(ptr %context, ptr %old, i64 %bytes) nounwind {{
entry:
  %memory = call ptr @memory(i64 %bytes, i64 1)
  %absent = icmp eq ptr %memory, null
  br i1 %absent, label %done, label %copy
copy:
  %usable_at = getelementptr i64, ptr %old, i64 -6
  %usable = load i64, ptr %usable_at
  %least = call i64 @llvm.smin.i64(i64 %usable, i64 %bytes)
  call void @llvm.memcpy.p0.p0.i64(ptr %memory, ptr %old, i64 %least, i1 false)
  call void @give(ptr %old)
  br label %done
done:
  ret ptr %memory
}}

define void @array_free(ptr %context, ptr %memory, i64 %bytes) nounwind {{
  call void @give(ptr %memory)
  ret void
}}

; A new array, as `PyArray_Empty` makes it; a large one has memory of `take`. Null if that fails.
define ptr @new_array(i32 %rank, ptr %dims, ptr %dtype, i32 %order) nounwind {{
entry:
  %new = load ptr, ptr @new
  %axes = sext i32 %rank to i64
  br label %head
head:
  %axis = phi i64 [ 0, %entry ], [ %next, %do ]
  %elements = phi double [ 1.0, %entry ], [ %product, %do ]
  %more = icmp slt i64 %axis, %axes
  br i1 %more, label %do, label %counted
do:
  %dim_at = getelementptr i64, ptr %dims, i64 %axis
  %dim = load i64, ptr %dim_at
  %extent = sitofp i64 %dim to double
  %product = fmul double %elements, %extent
  %next = add i64 %axis, 1
  br label %head
counted:
  %large = fcmp oge double %elements, {elements}
  br i1 %large, label %set, label %plain
plain:
  %small = call ptr %new(i32 %rank, ptr %dims, ptr %dtype, i32 %order)
  ret ptr %small
set:
  %set_allocator = load ptr, ptr @set_allocator
  %allocator = load ptr, ptr @allocator
  %before = call ptr %set_allocator(ptr %allocator)
  %failed = icmp eq ptr %before, null
  br i1 %failed, label %fail, label %create
create:
  %array = call ptr %new(i32 %rank, ptr %dims, ptr %dtype, i32 %order)
  %release = load ptr, ptr @release
  %ours = call ptr %set_allocator(ptr %before)
  call void %release(ptr %before)
  call void %release(ptr %ours)
  ret ptr %array
fail:
  %drop = load ptr, ptr @release
  call void %drop(ptr %dtype)
  ret ptr null
}}

; The builtin `empty(shape, dtype)`, which leaves what is unusual to what it is bound to.
define ptr @empty(ptr %self, ptr %arguments, i64 %count, ptr %names) nounwind {{
entry:
  %dims = alloca i64, i64 32
  %shape = load ptr, ptr %arguments
  %dtype_at = getelementptr ptr, ptr %arguments, i64 1
  %dtype = load ptr, ptr %dtype_at
  %size = load ptr, ptr @size
  %rank = call i64 %size(ptr %shape)
  %usual = icmp ult i64 %rank, 33
  br i1 %usual, label %begin, label %leave
begin:
  %item = load ptr, ptr @item
  %number = load ptr, ptr @number
  br label %head
head:
  %axis = phi i64 [ 0, %begin ], [ %next, %store ]
  %more = icmp slt i64 %axis, %rank
  br i1 %more, label %do, label %create
do:
  %object = call ptr %item(ptr %shape, i64 %axis)
  %dim = call i64 %number(ptr %object)
  %possible = icmp sge i64 %dim, 0
  br i1 %possible, label %store, label %leave
store:
  %dim_at = getelementptr i64, ptr %dims, i64 %axis
  store i64 %dim, ptr %dim_at
  %next = add i64 %axis, 1
  br label %head
create:
  %retain = load ptr, ptr @retain
  call void %retain(ptr %dtype)
  %short = trunc i64 %rank to i32
  %array = call ptr @new_array(i32 %short, ptr %dims, ptr %dtype, i32 0)
  %absent = icmp eq ptr %array, null
  br i1 %absent, label %leave, label %done
done:
  ret ptr %array
leave:
  %clear = load ptr, ptr @clear
  call void %clear()
  %vectorcall = load ptr, ptr @vectorcall
  %result = call ptr %vectorcall(ptr %self, ptr %arguments, i64 %count, ptr %names)
  ret ptr %result
}}
declare ptr @malloc(i64)
declare void @free(ptr)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare i64 @llvm.ctlz.i64(i64, i1)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare {{ i64, i1 }} @llvm.umul.with.overflow.i64(i64, i64)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""
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
_VARIABLES: Final = ("limit", "yield", "advise", "allocator", *_NUMPY, *_PYTHON)
_STATE: Final = ("locked", "count", "held")
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
    """The memory that the native code of this process uses again."""

    def __init__(self) -> None:
        self.library = link_object(memory_object(), [*_FUNCTIONS, *_VARIABLES, *_STATE])
        libc, api = ctypes.CDLL(None), ctypes.pythonapi
        self._set("limit", int(min(memory_bytes() * _SHARE, _POSSIBLE)))
        self._set("yield", address_of(libc.sched_yield))
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._set("advise", address_of(libc.madvise))
        for name, number in _NUMPY.items():
            self._set(name, numpy_function(number))
        for name, function in _PYTHON.items():
            self._set(name, address_of(getattr(api, function)))
        self._handler = _Handler(b"relaxpy", 1, None)
        self._handler.functions[:] = [self.library[name] for name in _ALLOCATOR]
        new = ctypes.PYFUNCTYPE(
            *(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        )
        capsule = new(("PyCapsule_New", api))(ctypes.addressof(self._handler), _CAPSULE, None)
        self._set("allocator", id(capsule))
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)
        # Arrays may have such memory until the process ends.
        for owner in (self, capsule):
            api.Py_IncRef(ctypes.py_object(owner))

    def trim(self) -> None:
        """Give what nothing uses back to the system."""
        ctypes.CFUNCTYPE(None)(self.library["trim"])()

    def held(self) -> int:
        """The bytes that are kept for later requests."""
        return ctypes.c_int64.from_address(self.library["held"]).value

    def _set(self, name: str, value: int) -> None:
        ctypes.c_int64.from_address(self.library[name]).value = value

    def _forget(self) -> None:
        """A fork may have interrupted another thread, which the child does not have."""
        for name in ("locked", "count", "held"):
            size = 4 if name == "locked" else 8
            ctypes.memset(self.library[name], 0, size)


def memory_object() -> bytes:
    """The object file of the code that takes and gives memory."""
    text = _TEXT.format(
        triple=host().triple,
        kept=_KEPT,
        age=_AGE,
        large=_LARGE,
        elements=float(_LARGE // _WIDEST),
        possible=_POSSIBLE,
        slack=_SLACK,
        huge=_HUGE,
        huge_pages=_HUGE_PAGES,
        flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
    )
    return compile_object(slow=text)


@cache
def memory() -> Memory:
    """The memory of this process, which is there from the first use on."""
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


def address_of(function: Any) -> int:
    """The address of a function of a library."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0
