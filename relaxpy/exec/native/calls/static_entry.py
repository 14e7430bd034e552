"""The entry of all functions and kernels whose parameters and results are arrays of fixed shapes.

One function, which is compiled once, checks the arguments by a table, which the object that a
builtin is bound to has: code for each function took longer to compile than many kernels.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from relaxpy.dataclass import dataclass
from relaxpy.exec.native.calls.entry import (
    CONTENT,
    Array,
    Param,
    builtin_at,
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
    KIND,
    PYTHON,
    RANK,
    SHAPE,
    TYPE,
    WITHOUT_FLAGS,
    WRITABLE,
    connect_python,
    python_text,
)
from relaxpy.exec.native.machine_code.machine import host
from relaxpy.exec.native.machine_code.objects import Library, compile_object, link_object
from relaxpy.exec.native.threads.parallel import POOL
from relaxpy.exec.native.threads.pool import connect

_IN_REGISTERS: Final = 6
_MOST: Final = 14
"""The number of arguments of a call; those in excess of a kernel's parameters are ignored."""
_TEXT: Final = """\
@{python} = global [{entries} x i64] zeroinitializer

@{pool} = global [2 x i64] zeroinitializer

define ptr @enter(ptr %self, ptr %args, i64 %count, ptr %keywords) {{
entry:
  %table_at = getelementptr i8, ptr %self, i64 {table}
  %table = load ptr, ptr %table_at
  %layout = getelementptr i8, ptr %table, i64 {content}
  %words = alloca [{most} x i64], align 16
  %arrays = alloca [{most} x ptr], align 16
  %stops = alloca [{most} x i64], align 16
  %writes = alloca [{most} x i64], align 16
  %params = load i64, ptr %layout
  %unnamed = icmp eq ptr %keywords, null
  %enough = icmp eq i64 %count, %params
  %complete = and i1 %unnamed, %enough
  br i1 %complete, label %begin, label %refuse
begin:
  %ndarray = load ptr, ptr {ndarray}
  %specs = getelementptr i64, ptr %layout, i64 8
  br label %argument
argument:
  %n = phi i64 [ 0, %begin ], [ %following, %accept ]
  %spec = phi ptr [ %specs, %begin ], [ %next_spec, %accept ]
  %more = icmp slt i64 %n, %params
  br i1 %more, label %check, label %apart
check:
  %item_at = getelementptr ptr, ptr %args, i64 %n
  %item = load ptr, ptr %item_at
  %type_at = getelementptr i8, ptr %item, i64 {type}
  %type = load ptr, ptr %type_at
  %is_array = icmp eq ptr %type, %ndarray
  br i1 %is_array, label %fields, label %refuse
fields:
  %flags_at = getelementptr i8, ptr %item, i64 {flags}
  %flags = load i32, ptr %flags_at
  %needed_at = getelementptr i64, ptr %spec, i64 2
  %needed64 = load i64, ptr %needed_at
  %needed = trunc i64 %needed64 to i32
  %usable = and i32 %flags, %needed
  %is_usable = icmp eq i32 %usable, %needed
  %rank_at = getelementptr i8, ptr %item, i64 {rank}
  %rank_here = load i32, ptr %rank_at
  %rank_spec = getelementptr i64, ptr %spec, i64 1
  %rank = load i64, ptr %rank_spec
  %rank32 = trunc i64 %rank to i32
  %is_rank = icmp eq i32 %rank_here, %rank32
  %dtype_at = getelementptr i8, ptr %item, i64 {dtype}
  %dtype = load ptr, ptr %dtype_at
  %kind_at = getelementptr i8, ptr %dtype, i64 {kind}
  %kind = load i64, ptr %kind_at
  %number = load i64, ptr %spec
  %entry_at = getelementptr i64, ptr @{python}, i64 %number
  %expected = load ptr, ptr %entry_at
  %expected_kind_at = getelementptr i8, ptr %expected, i64 {kind}
  %expected_kind = load i64, ptr %expected_kind_at
  %changes = xor i64 %kind, %expected_kind
  %different = and i64 %changes, {without_flags}
  %is_kind = icmp eq i64 %different, 0
  %fits = and i1 %is_usable, %is_rank
  %all_fit = and i1 %fits, %is_kind
  br i1 %all_fit, label %sizes, label %refuse
sizes:
  %shape_at = getelementptr i8, ptr %item, i64 {shape}
  %shape = load ptr, ptr %shape_at
  %dims = getelementptr i64, ptr %spec, i64 4
  br label %size
size:
  %axis = phi i64 [ 0, %sizes ], [ %next_axis, %compare ]
  %inside = icmp slt i64 %axis, %rank
  br i1 %inside, label %compare, label %accept
compare:
  %dim_at = getelementptr i64, ptr %shape, i64 %axis
  %dim = load i64, ptr %dim_at
  %expected_at = getelementptr i64, ptr %dims, i64 %axis
  %expected_dim = load i64, ptr %expected_at
  %next_axis = add i64 %axis, 1
  %same = icmp eq i64 %dim, %expected_dim
  br i1 %same, label %size, label %refuse
accept:
  %data_at = getelementptr i8, ptr %item, i64 {data}
  %data = load i64, ptr %data_at
  %word_at = getelementptr i64, ptr %words, i64 %n
  store i64 %data, ptr %word_at
  %bytes_at = getelementptr i64, ptr %spec, i64 3
  %bytes = load i64, ptr %bytes_at
  %stop = add i64 %data, %bytes
  %stop_at = getelementptr i64, ptr %stops, i64 %n
  store i64 %stop, ptr %stop_at
  %write = and i64 %needed64, {writable}
  %write_at = getelementptr i64, ptr %writes, i64 %n
  store i64 %write, ptr %write_at
  %next_spec = getelementptr i64, ptr %dims, i64 %rank
  %following = add i64 %n, 1
  br label %argument
apart:
  %written_at = getelementptr i64, ptr %layout, i64 6
  %written = load i64, ptr %written_at
  %reads_only = icmp eq i64 %written, 0
  br i1 %reads_only, label %create, label %outer
outer:
  %i = phi i64 [ 0, %apart ], [ %next_i, %inner_end ]
  %has_pairs = icmp slt i64 %i, %params
  br i1 %has_pairs, label %first, label %create
first:
  %i_start_at = getelementptr i64, ptr %words, i64 %i
  %i_start = load i64, ptr %i_start_at
  %i_stop_at = getelementptr i64, ptr %stops, i64 %i
  %i_stop = load i64, ptr %i_stop_at
  %i_write_at = getelementptr i64, ptr %writes, i64 %i
  %i_write = load i64, ptr %i_write_at
  br label %inner
inner:
  %j = phi i64 [ 0, %first ], [ %next_j, %second ]
  %is_pair = icmp slt i64 %j, %i
  br i1 %is_pair, label %second, label %inner_end
second:
  %j_start_at = getelementptr i64, ptr %words, i64 %j
  %j_start = load i64, ptr %j_start_at
  %j_stop_at = getelementptr i64, ptr %stops, i64 %j
  %j_stop = load i64, ptr %j_stop_at
  %j_write_at = getelementptr i64, ptr %writes, i64 %j
  %j_write = load i64, ptr %j_write_at
  %both = or i64 %i_write, %j_write
  %neither = icmp eq i64 %both, 0
  %before = icmp ule i64 %i_stop, %j_start
  %after = icmp ule i64 %j_stop, %i_start
  %is_apart = or i1 %before, %after
  %may_meet = or i1 %neither, %is_apart
  %next_j = add i64 %j, 1
  br i1 %may_meet, label %inner, label %refuse
inner_end:
  %next_i = add i64 %i, 1
  br label %outer
create:
  %results_at = getelementptr i64, ptr %layout, i64 1
  %results = load i64, ptr %results_at
  br label %result
result:
  %m = phi i64 [ 0, %create ], [ %next, %created ]
  %its_spec = phi ptr [ %spec, %create ], [ %later_spec, %created ]
  %lacks = icmp slt i64 %m, %results
  br i1 %lacks, label %new, label %run
new:
  %its_number = load i64, ptr %its_spec
  %its_entry_at = getelementptr i64, ptr @{python}, i64 %its_number
  %its_dtype = load ptr, ptr %its_entry_at
  %retain = load ptr, ptr {incref}
  call void %retain(ptr %its_dtype)
  %its_rank_at = getelementptr i64, ptr %its_spec, i64 1
  %its_rank = load i64, ptr %its_rank_at
  %its_rank32 = trunc i64 %its_rank to i32
  %its_dims = getelementptr i64, ptr %its_spec, i64 4
  %empty = load ptr, ptr {empty}
  %array = call ptr %empty(i32 %its_rank32, ptr %its_dims, ptr %its_dtype, i32 0)
  %is_new = icmp ne ptr %array, null
  br i1 %is_new, label %created, label %absent
created:
  %array_at = getelementptr ptr, ptr %arrays, i64 %m
  store ptr %array, ptr %array_at
  %its_data_at = getelementptr i8, ptr %array, i64 {data}
  %its_data = load i64, ptr %its_data_at
  %position = add i64 %params, %m
  %its_word_at = getelementptr i64, ptr %words, i64 %position
  store i64 %its_data, ptr %its_word_at
  %later_spec = getelementptr i64, ptr %its_dims, i64 %its_rank
  %next = add i64 %m, 1
  br label %result
absent:
  %clear = load ptr, ptr {clear}
  call void %clear() ; Python will fail in the same way
  br label %drop
run:
  %releases_at = getelementptr i64, ptr %layout, i64 2
  %releases = load i64, ptr %releases_at
  %holds = icmp eq i64 %releases, 0
  br i1 %holds, label %call, label %release
release:
  %save = load ptr, ptr {save}
  %saved = call ptr %save()
  br label %call
call:
  %state = phi ptr [ null, %run ], [ %saved, %release ]
  %total = add i64 %params, %results
  %few = icmp sle i64 %total, {in_registers}
{loads}
  %kernel_at = getelementptr i64, ptr %layout, i64 4
  %kernel = load ptr, ptr %kernel_at
  %tasks_at = getelementptr i64, ptr %layout, i64 5
  %tasks = load i64, ptr %tasks_at
  %is_kernel = icmp eq i64 %tasks, 0
  br i1 %is_kernel, label %direct, label %parallel
parallel:
  %pool = load ptr, ptr @{pool}
  %bytes_each_at = getelementptr i64, ptr %layout, i64 7
  %bytes_each = load i64, ptr %bytes_each_at
  %pool_status = call i32 %pool(ptr %kernel, ptr %words, i64 %tasks, i64 %bytes_each)
  br label %called
direct:
  br i1 %few, label %short, label %long
short:
  %short_status = call i32 %kernel({short})
  br label %called
long:
  %long_status = call i32 %kernel({long})
  br label %called
called:
  %status = phi i32 [ %short_status, %short ], [ %long_status, %long ], [ %pool_status, %parallel ]
  br i1 %holds, label %ended, label %restore
restore:
  %resume = load ptr, ptr {restore}
  call void %resume(ptr %state)
  br label %ended
ended:
  %succeeded = icmp eq i32 %status, 0
  br i1 %succeeded, label %build, label %drop
build:
  %tuple_at = getelementptr i64, ptr %layout, i64 3
  %is_tuple = load i64, ptr %tuple_at
  %single = icmp eq i64 %is_tuple, 0
  br i1 %single, label %return, label %gather
return:
  %only = load ptr, ptr %arrays
  ret ptr %only
gather:
  %new_tuple = load ptr, ptr {new_tuple}
  %tuple = call ptr %new_tuple(i64 %results)
  %set_item = load ptr, ptr {set_item}
  %complete_tuple = icmp ne ptr %tuple, null
  br i1 %complete_tuple, label %field, label %drop
field:
  %f = phi i64 [ 0, %gather ], [ %next_field, %set ]
  %unset = icmp slt i64 %f, %results
  br i1 %unset, label %set, label %done
set:
  %field_at = getelementptr ptr, ptr %arrays, i64 %f
  %its_field = load ptr, ptr %field_at
  %is_set = call i32 %set_item(ptr %tuple, i64 %f, ptr %its_field)
  %next_field = add i64 %f, 1
  br label %field
done:
  ret ptr %tuple
drop:
  %there = phi i64 [ %m, %absent ], [ %m, %ended ], [ %m, %gather ]
  %forget = load ptr, ptr {decref}
  br label %dropping
dropping:
  %left = phi i64 [ %there, %drop ], [ %fewer, %dropped ]
  %any = icmp sgt i64 %left, 0
  br i1 %any, label %dropped, label %refuse
dropped:
  %fewer = sub i64 %left, 1
  %old_at = getelementptr ptr, ptr %arrays, i64 %fewer
  %old = load ptr, ptr %old_at
  call void %forget(ptr %old)
  br label %dropping
refuse:
  %occurred = load ptr, ptr {occurred}
  %raised = call ptr %occurred()
  %failed = icmp ne ptr %raised, null
  br i1 %failed, label %fail, label %fall_back
fail:
  %is_graph_at = getelementptr i64, ptr %layout, i64 1
  %its_results = load i64, ptr %is_graph_at
  %is_graph = icmp ne i64 %its_results, 0
  %match = load ptr, ptr {match}
  %error = load ptr, ptr {error}
  %matches = call i32 %match(ptr %raised, ptr %error)
  %is_error = icmp ne i32 %matches, 0
  %of_kernel = and i1 %is_graph, %is_error
  br i1 %of_kernel, label %forget_error, label %raise
raise:
  ret ptr null
forget_error: ; the fallback knows the position of the call of the kernel
  %clear_error = load ptr, ptr {clear}
  call void %clear_error()
  br label %fall_back
fall_back:
  %vectorcall = load ptr, ptr {vectorcall}
  %other = call ptr %vectorcall(ptr %self, ptr %args, i64 %count, ptr %keywords)
  ret ptr %other
}}
"""


@dataclass(frozen=True, slots=True)
class StaticEntry:
    """What the entry does for a function: its table.

    Fields:
        function: what it runs, on the arrays of parameters and results: a kernel, which returns
            0 unless it refuses its data, or the body of a parallel loop, which has them as context.
        tasks: the number of tasks of that loop; 0 for a kernel.
        params: the datatype and the shape of each parameter.
        results: those of the new arrays that it returns.
        release_gil: whether other threads of Python may run.
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
    """What the entry does for a kernel that Python calls; None if it does not take it."""
    if not is_static(params, 0):
        return None
    arrays = [p for p in params if isinstance(p, Array)]
    written = [number for number, p in enumerate(arrays) if p.written]
    sizes = [(p.dtype, [n for n in p.shape if isinstance(n, int)]) for p in arrays]
    return StaticEntry(kernel, 0, sizes, (), release_gil=True, is_tuple=True, written=written)


def make_kernel_entry(
    library: Library, kernel: str, params: Sequence[Param], fallback: Callable[..., object]
) -> Callable[..., object]:
    """The function of `make_entry`, by the common entry if that takes the parameters.

    Otherwise the library exports `entry_name(kernel)`, too.
    """
    static = kernel_entry(kernel, params)
    if static is None:
        return make_entry(library, kernel, fallback)
    return static.builtin(library, kernel, fallback)


def is_static(params: Sequence[Param], results: int) -> bool:
    """Whether the common entry takes these parameters, and so many results."""
    return (
        len(params) + results <= _MOST
        and all(
            isinstance(p, Array)
            and p.strides is None
            and all(isinstance(size, int) for size in p.shape)
            for p in params
        )
        and table_offset() > 0
    )


def enter_object() -> bytes:
    """The object file of the entry."""
    words = [f"i64 %word{n}" for n in range(_MOST)]
    text = _TEXT.format(
        python=PYTHON,
        pool=POOL,
        entries=len(ENTRIES),
        most=_MOST,
        in_registers=_IN_REGISTERS,
        type=TYPE,
        flags=FLAGS,
        writable=WRITABLE,
        rank=RANK,
        dtype=DTYPE,
        kind=KIND,
        without_flags=WITHOUT_FLAGS,
        shape=SHAPE,
        data=DATA,
        loads="\n".join(
            f"  %at{n} = getelementptr i64, ptr %words, i64 {n}\n  %word{n} = load i64, ptr %at{n}"
            for n in range(_MOST)
        ),
        short=", ".join(words[:_IN_REGISTERS]),
        long=", ".join(words),
        ndarray=python_text("ndarray"),
        incref=python_text("Py_IncRef"),
        decref=python_text("Py_DecRef"),
        empty=python_text("PyArray_Empty"),
        clear=python_text("PyErr_Clear"),
        match=python_text("PyErr_GivenExceptionMatches"),
        error=python_text("error"),
        save=python_text("PyEval_SaveThread"),
        restore=python_text("PyEval_RestoreThread"),
        new_tuple=python_text("PyTuple_New"),
        set_item=python_text("PyTuple_SetItem"),
        occurred=python_text("PyErr_Occurred"),
        vectorcall=python_text("PyObject_Vectorcall"),
        table=table_offset(),
        content=CONTENT,
    )
    return compile_object(f'target triple = "{host().triple}"\n{text}')


@cache
def _library() -> Library:
    library = link_object(enter_object(), ["enter", PYTHON, POOL])
    connect_python(library[PYTHON])
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))  # builtins outlive modules of Python
    return library


@cache
def _connect_pool() -> None:
    connect(_library()[POOL])
