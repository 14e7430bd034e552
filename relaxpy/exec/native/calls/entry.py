"""Python functions over native code: their parameters, and the builtins that check arguments.

A builtin compares the fields of arrays (type, datatype, rank, shape, layout) with its parameters,
at the offsets that CPython and NumPy have today; a test at the start checks these. Any mismatch,
and code that refuses its data, goes to a function in Python, which has the errors and accepts
everything else. Where the test fails, no kernel is native.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final, TypeAlias

from relaxpy.exec.native.threads.freed_memory import memory
from relaxpy.exec.runtime.values import empty
from relaxpy.ir.tir.expr import IntImm, PrimExpr
from relaxpy.support.dataclass import dataclass

_FASTCALL_WITH_KEYWORDS: Final = 0x82


@dataclass(frozen=True, slots=True)
class Array:
    """A parameter that is an array.

    Equal sizes have the same value. Without strides, the array is contiguous.

    Units:
        strides  elements
    """

    dtype: str
    shape: tuple[PrimExpr, ...]
    written: bool = False
    strides: tuple[PrimExpr, ...] | None = None


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer parameter, which may be a size of others, passed as an i64."""

    value: PrimExpr
    dtype: str = "int64"


@dataclass(frozen=True, slots=True)
class Number:
    """A parameter that is a bool or a float, passed as the bits of a float64."""

    dtype: str


@dataclass(frozen=True, slots=True)
class Anything:
    """A parameter of any type, which a kernel does not take."""


@dataclass(frozen=True, slots=True)
class Fields:
    """A parameter that is a tuple, or a shape, whose fields are integers."""

    params: tuple[Tree, ...]
    type: str = "tuple"


Param: TypeAlias = Array | Integer | Number
Leaf: TypeAlias = Param | Anything
Tree: TypeAlias = Leaf | Fields


def leaves_of(params: Iterable[Tree]) -> list[Leaf]:
    """The parameters, with the fields of tuples, from left to right."""
    leaves: list[Leaf] = []
    for param in params:
        leaves += leaves_of(param.params) if isinstance(param, Fields) else [param]
    return leaves


def sizes_of(params: Iterable[Leaf]) -> list[PrimExpr]:
    """The sizes that are neither literals nor parameters, in the order of a kernel."""
    params = list(params)
    known = {param.value for param in params if isinstance(param, Integer)}
    arrays = [param for param in params if isinstance(param, Array)]
    sizes = dict.fromkeys(size for a in arrays for size in (*a.shape, *(a.strides or ())))
    return [size for size in sizes if not isinstance(size, IntImm) and size not in known]


def builtin_at(
    address: int, name: str, library: object, fallback: Callable[..., object], table: bytes = b""
) -> Callable[..., object]:
    """The builtin of a function at an address, bound to an object with the `table`.

    It keeps the `library`, and whatever the table refers to besides.
    """
    return _builtin(_Fallback(fallback, library, (name, address), table))


@cache
def empty_builtin() -> Callable[..., object]:
    """The function `empty` of the run time as a builtin; large tensors reuse freed memory."""
    return builtin_at(memory().library["empty"], "empty", memory().library, empty)


CONTENT: Final = bytes.__basicsize__ - 1
"""The offset of the elements in bytes of Python."""


@cache
def table_offset() -> int:
    """The offset of the reference to the table in the object that a builtin is bound to; or 0."""
    table = b"\1\2\3\4\5\6\7"
    owner = _Fallback(table_offset, None, ("", 0), table)
    if ctypes.string_at(id(table) + CONTENT, len(table)) != table:
        return 0
    offsets = range(object.__basicsize__, _Fallback.__basicsize__, 8)
    found = (n for n in offsets if ctypes.c_uint64.from_address(id(owner) + n).value == id(table))
    return next(found, 0)


def is_entry(function: object) -> bool:
    """True if `function` is a builtin of `builtin_at`."""
    return isinstance(getattr(function, "__self__", None), _Fallback)


def with_fallback(entry: Any, fallback: Callable[..., object]) -> Callable[..., Any]:
    """The builtin `entry` of `builtin_at` with another fallback."""
    owner: _Fallback = entry.__self__
    return _builtin(_Fallback(fallback, (owner.library, entry), owner.function, owner.table))


def _builtin(owner: _Fallback) -> Callable[..., object]:
    # The builtin keeps the object that it is bound to, and this keeps the code and its table.
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
        ("PyCFunction_NewEx", ctypes.pythonapi)
    )
    builtin: Callable[..., object] = new(owner.definition(), owner, None)
    return builtin


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_void_p),
    )


class _Fallback(bytearray):
    """Calls the fallback of a builtin, without a frame, and keeps the code that it runs.

    Its bytes are the definition of the builtin, which reads it when it is freed, and then frees
    what it is bound to. No other object that it owns is certain to be there: the garbage collector
    clears the objects of a cycle in an order of its own, but not the bytes of one.
    """

    __slots__ = ("__call__", "function", "library", "table")

    def __init__(
        self,
        fallback: Callable[..., object],
        library: object,
        function: tuple[str, int],
        table: bytes,
    ) -> None:
        name, address = function
        start = ctypes.sizeof(_MethodDef)
        super().__init__(bytes(start) + name.encode() + b"\0")
        content = _MethodDef.from_address(self.definition())
        content.name, content.function = self.definition() + start, address
        content.flags = _FASTCALL_WITH_KEYWORDS
        self.__call__ = fallback
        self.library, self.function, self.table = library, function, table

    def definition(self) -> int:
        """The address of the definition, which is the same as long as the object lives."""
        address: int = _CONTENT_OF(self)
        return address


_CONTENT_OF: Final = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(
    ("PyByteArray_AsString", ctypes.pythonapi)
)
