"""The objects of this interpreter and of NumPy as native code sees them.

Native code reads the fields of arrays and numbers at the offsets that CPython and NumPy have today,
and calls their functions through a table of addresses. `fits_interpreter` checks the offsets.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import ml_dtypes
import numpy as np

from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.narrow_floats import FLOATS_OF_8_BITS
from relaxpy.exec.native.llvm.writer import BOOL, I8, I32, I64, POINTER, VOID, Function, Type, Value
from relaxpy.exec.native.machine_code.machine import forbidden
from relaxpy.exec.native.machine_code.objects import Library
from relaxpy.exec.native.threads.freed_memory import memory
from relaxpy.exec.runtime.values import Part, ShapeTuple

PYTHON: Final = "relaxpy_python"
"""The table of a module with the addresses of objects and functions of Python."""
FAILURES: Final = "relaxpy_failures"
"""The variable of a module with the address of its table of failures; 0 if there is none."""
DTYPES: Final[Mapping[str, np.dtype[Any]]] = {
    **{n: np.dtype(n) for n in ("bool", "float16", "float32", "float64")},
    **{
        f"{kind}{bits}": np.dtype(f"{kind}{bits}")
        for kind in ("int", "uint")
        for bits in (8, 16, 32, 64)
    },
    **{n: np.dtype(getattr(ml_dtypes, n)) for n in ("bfloat16", *FLOATS_OF_8_BITS)},
}
"""The datatypes of arrays that native kernels take; new arrays share these objects."""
_SECOND: Final[Mapping[str, np.dtype[Any]]] = {
    f"second {kind}": np.dtype(letter)
    for kind, letters in (("int", "ilq"), ("uint", "ILQ"))
    for letter in letters
    if np.dtype(letter).num != DTYPES[np.dtype(letter).name].num
}
"""The datatypes of NumPy that equal one of these, and have another letter and number: of the
integers of C, two have the same size."""
_FUNCTIONS: Final = (
    *("PyObject_Vectorcall", "PyEval_SaveThread", "PyEval_RestoreThread", "Py_IncRef"),
    *("PyLong_AsLongLongAndOverflow", "Py_DecRef", "PyErr_Clear", "PyTuple_New"),
    *("PyTuple_SetItem", "PyErr_Occurred", "PyErr_CheckSignals", "PyGILState_Ensure"),
    *("PyGILState_Release", "PyObject_CallFunction", "PyErr_SetObject"),
    *("PyErr_GivenExceptionMatches", "PyList_GetItem"),
)
_NEW_ARRAY: Final = "PyArray_Empty"
OBJECTS: Final[Mapping[str, object]] = {
    "unit": (),
    "error": RuntimeCheckError,
    "True": True,
    "ndarray": np.ndarray,
    "integer": int,
    "truth value": bool,
    "float": float,
    "tuple": tuple,
    "list": list,
    "part": Part,
    "shape": ShapeTuple,
    **{f"scalar {name}": dtype.type for name, dtype in DTYPES.items()},
    **DTYPES,
    **_SECOND,
    **{f"first {name}": DTYPES[dtype.name] for name, dtype in _SECOND.items()},
}
ENTRIES: Final = (*_FUNCTIONS, _NEW_ARRAY, *OBJECTS)
TYPE, DATA, RANK, SHAPE, STRIDES, DTYPE, FLAGS = 8, 16, 24, 32, 40, 56, 64
VALUE: Final = 16
"""The offset of the value in a float of Python and in the scalars of NumPy."""
LENGTH, FIELDS = 16, 24
"""The offsets of the length and the fields of a tuple, or of the dimensions of a shape."""
KIND: Final = 24
"""The offset of the kind, byte order, flags, and number of a datatype."""
WITHOUT_FLAGS: Final = ~(0xFF << 24)
CONTIGUOUS, ALIGNED, WRITABLE = 0x1, 0x100, 0x400


@cache
def fits_interpreter() -> bool:
    """True if objects of this interpreter and of NumPy have the layout that entries read."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    if sys.version_info >= (3, 13):
        import sysconfig  # slow

        if sysconfig.get_config_var("Py_GIL_DISABLED"):
            return False
    read_only = np.zeros(3)
    read_only.flags.writeable = False
    unaligned = np.zeros(17, np.uint8)[1:].view(np.float64)
    samples = [np.zeros((2, 3), dtype) for dtype in DTYPES.values()]
    samples += [
        np.zeros(()),
        np.zeros((4, 5), order="F"),
        np.zeros((4, 5))[::2, ::-1],
        read_only,
        unaligned,
    ]
    return (
        all(map(_has_fields, samples))
        and all(map(_has_items, (("a", 1.5), ShapeTuple((1 << 40, 2, 3)))))
        and all(np.zeros(1, dtype).dtype is dtype for dtype in DTYPES.values())
        and all(map(_has_kind, DTYPES.values()))
        # Also a large one, which reuses freed memory.
        and (bool(forbidden()) or all(map(_creates_arrays, (3, 1 << 14))))
        and all(map(_has_value, [-2.5, *(dtype.type(1) for dtype in DTYPES.values())]))
    )


def _has_fields(array: np.ndarray[Any, Any]) -> bool:
    def word(offset: int) -> int:
        return ctypes.c_uint64.from_address(id(array) + offset).value

    def half(offset: int) -> int:
        return ctypes.c_int32.from_address(id(array) + offset).value

    def words(offset: int) -> list[int]:
        return [ctypes.c_int64.from_address(word(offset) + 8 * n).value for n in range(array.ndim)]

    flags = array.flags
    expected = (
        (CONTIGUOUS if flags.c_contiguous else 0)
        | (ALIGNED if flags.aligned else 0)
        | (WRITABLE if flags.writeable else 0)
    )
    return (
        word(TYPE) == id(type(array))
        and half(RANK) == array.ndim
        and words(SHAPE) == list(array.shape)
        and words(STRIDES) == list(array.strides)
        and word(DATA) == array.ctypes.data
        and word(DTYPE) == id(array.dtype)
        and half(FLAGS) & (CONTIGUOUS | ALIGNED | WRITABLE) == expected
    )


def _has_items(fields: tuple[object, ...]) -> bool:
    start = id(fields)
    items = [ctypes.c_uint64.from_address(start + FIELDS + 8 * n).value for n in range(len(fields))]
    length = ctypes.c_int64.from_address(start + LENGTH).value
    return length == len(fields) and items == [*map(id, fields)]


def _has_kind(dtype: np.dtype[Any]) -> bool:
    kind, letter, order, number = struct.unpack("<3cxi", ctypes.string_at(id(dtype) + KIND, 8))
    known = dtype.kind, dtype.char, dtype.byteorder
    return (kind, letter, order) == tuple(map(str.encode, known)) and number == dtype.num


def _has_value(number: Any) -> bool:
    value = np.asarray(number)
    return ctypes.string_at(id(number) + VALUE, value.nbytes) == value.tobytes()


@cache
def addresses() -> tuple[int, ...]:
    """The addresses of the entries of the table of a module."""
    api = ctypes.pythonapi
    functions = [ctypes.cast(getattr(api, n), ctypes.c_void_p).value or 0 for n in _FUNCTIONS]
    return (*functions, memory().library["new_array"], *map(id, OBJECTS.values()))


def connect_python(variable: int) -> None:
    """Fill the table of a module with the addresses of Python's objects and functions."""
    (ctypes.c_uint64 * len(ENTRIES)).from_address(variable)[:] = [*addresses()]


def declare_python(module: Module) -> None:
    """Add the table of Python's objects and functions, which is zero until the module is linked."""
    module.words(PYTHON, len(ENTRIES))


def python_text(name: str) -> str:
    """The LLVM IR of the address in that table of an object or function."""
    return f"getelementptr (i64, ptr @{PYTHON}, i64 {ENTRIES.index(name)})"


def python(f: Function, name: str) -> Value:
    """The address of an object or function of Python, from the table of the module."""
    table = Value(f, POINTER, f"@{PYTHON}")
    return f.load(POINTER, f.element(table, ENTRIES.index(name), I64))


def _creates_arrays(columns: int) -> bool:
    """True if the function that creates arrays is the expected one."""
    kinds = ctypes.c_int, ctypes.c_void_p, ctypes.py_object, ctypes.c_int
    create = ctypes.PYFUNCTYPE(ctypes.py_object, *kinds)(memory().library["new_array"])
    dtype = DTYPES["float32"]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(dtype))
    array = create(2, (ctypes.c_int64 * 2)(2, columns), dtype, 0)
    return (
        type(array) is np.ndarray
        and array.shape == (2, columns)
        and array.dtype is dtype
        and bool(array.flags.carray and array.flags.owndata)
    )


def new_array(f: Function, dtype: str, dims: Sequence[Value]) -> Value:
    """A new array with these non-negative dimensions, or null if memory is exhausted."""
    shape = f.alloca(I64, max(len(dims), 1))
    for axis, dim in enumerate(dims):
        f.store(dim, f.element(shape, axis, I64))
    call_python(f, "Py_IncRef", VOID, python(f, dtype))  # the array takes over a reference
    rank, order = f.const(I32, len(dims)), f.const(I32, 0)
    return call_python(f, _NEW_ARRAY, POINTER, rank, shape, python(f, dtype), order)


def data_of(f: Function, array: Value) -> Value:
    """The address of the elements of an array."""
    return field_of(f, array, DATA, POINTER)


def kind_of(f: Function, dtype: Value) -> Value:
    """The part that equal datatypes share, such as those of unpickled arrays."""
    return f.arithmetic("and", field_of(f, dtype, KIND, I64), WITHOUT_FLAGS)


def is_second(f: Function, kind: Value, expected: Value) -> Value:
    """True if a `kind_of` a datatype is that of an equal one of NumPy with another number."""
    result = f.const(BOOL, 0)
    for name in _SECOND:
        second, first = (kind_of(f, python(f, key)) for key in (name, f"first {name}"))
        same = f.compare("eq", kind, second), f.compare("eq", expected, first)
        result = f.arithmetic("or", result, f.arithmetic("and", *same))
    return result


def call_python(f: Function, name: str, type: Type, *arguments: Value) -> Value:
    """The result of a function of Python or NumPy."""
    call = f"call {type} {python(f, name).name}({', '.join(map(str, arguments))})"
    if type != VOID:
        return f.new(type, call)
    f.put(call)
    return Value(f, VOID, "")


def field_of(f: Function, item: Value, offset: int, type: Type) -> Value:
    """The field of an object at an offset in bytes."""
    return f.load(type, f.element(item, offset, I8))


def connect_failures(library: Library, table: Callable[[int, int, int], Exception]) -> None:
    """Let the code of a library report to a table of failures, which the library keeps."""
    ctypes.c_uint64.from_address(library[FAILURES]).value = id(table)
    library.keep(table)
