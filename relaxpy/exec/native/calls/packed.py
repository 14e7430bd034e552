"""Calls of packed functions by the text of a program, as `CompiledPackedCall` makes them.

Each call has a builtin, which looks up the function, calls it, and checks that the forms of its
arguments are as before. An unusual call goes to the call itself before the function runs; an
exception, and a result that has to be converted, after it did.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from functools import cache, partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Final

import numpy as np

from relaxpy.exec.native.calls.entry import CONTENT, builtin_at, table_offset
from relaxpy.exec.native.calls.interpreter import DTYPE, RANK, SHAPE, STRIDES, TYPE, field_of
from relaxpy.exec.native.llvm.writer import BOOL, I8, I32, I64, POINTER, VOID, Function, Value
from relaxpy.exec.native.machine_code.objects import Library
from relaxpy.exec.native.threads.code import Code, address_of, invoke, read
from relaxpy.exec.runtime.registry import registered
from relaxpy.exec.runtime.support import CompiledPackedCall
from relaxpy.exec.runtime.users import passes_tensors
from relaxpy.support.dataclass import dataclass

_ARGUMENTS, _AXES = 16, 48
"""The most arguments, and axes of all of them, of a call that machine code makes."""
FORM = 3
"""The words that are kept of an array, before those of its axes: the datatype, a weak reference to
the array, and the rank."""
SYMBOL, MODULE, NONE, CONVERT, FAIL = range(5)
"""The words of a table: the name of the function, the functions of the module, the null object if
it is a result unchanged, and what converts another result, and raises the error of a call."""
_PYTHON: Final = {
    "call": "PyObject_Vectorcall",
    "retain": "Py_IncRef",
    "release": "Py_DecRef",
    "item": "PyDict_GetItemWithError",
    "value": "PyContextVar_Get",
    "reference": "PyWeakref_NewRef",
    "equal": "PyObject_RichCompareBool",
    "fetch": "PyErr_Fetch",
    "normalize": "PyErr_NormalizeException",
    "attach": "PyException_SetTraceback",
}
_CALLABLES: Final = (FunctionType, BuiltinFunctionType, MethodType)
_OBJECTS: Final = {
    "functions": registered.__self__,  # type: ignore[attr-defined]
    "passes_tensors": passes_tensors,
    "false": False,
    "ndarray": np.ndarray,
    **{f"callable{n}": kind for n, kind in enumerate(_CALLABLES)},
}
CODE: Final = Code("packed calls", **dict.fromkeys((*_PYTHON, *_OBJECTS), "ptr null"))
_EQUAL: Final = 2
"""The number of the operator `==` in Python."""


def _word(f: Function, words: Value, number: Value | int) -> Value:
    return f.load(POINTER, f.element(words, number, POINTER), 8)


def _is(f: Function, item: Value, name: str) -> Value:
    """True if an object is of a type that is among the variables."""
    return f.compare("eq", field_of(f, item, TYPE, POINTER), read(f, name, POINTER))


def _rank(f: Function, array: Value) -> Value:
    return f.cast("sext", field_of(f, array, RANK, I32), "i64")


@CODE.function(I32, POINTER, POINTER, I64)
def _is_usual(f: Function, function: Value, args: Value, count: Value) -> Value:
    """1 if machine code may make a call, 0 otherwise."""
    slot, null = f.alloca(POINTER, 1), f.const(POINTER, 0)

    def usual() -> list[Value]:
        f.leave(f.compare("ugt", count, _ARGUMENTS))
        known = [_is(f, function, f"callable{n}") for n in range(len(_CALLABLES))]
        f.leave(
            f.arithmetic("xor", f.arithmetic("or", f.arithmetic("or", *known[:2]), known[2]), 1)
        )

        def counted(n: Value, axes: Value) -> list[Value]:
            arg = _word(f, args, n)
            rank = f.branch(_is(f, arg, "ndarray"), lambda: [_rank(f, arg)], lambda: [f.index(0)])
            return [axes + rank[0]]

        [axes] = f.loop(0, count, 1, [f.index(0)], counted)
        f.leave(f.compare("sgt", axes, _AXES))
        found = invoke(f, "value", I32, read(f, "passes_tensors", POINTER), null, slot)
        f.leave(f.compare("ne", found, 0))
        value = f.load(POINTER, slot)
        invoke(f, "release", VOID, value)
        f.leave(f.compare("ne", value, read(f, "false", POINTER)))
        return [f.const(I32, 1)]

    return f.attempt(usual, lambda: [f.const(I32, 0)])[0]


@CODE.function(POINTER, POINTER, POINTER, POINTER, I64)
def _called(f: Function, table: Value, function: Value, args: Value, count: Value) -> Value:
    """The result of a function, as a value; null after an exception."""
    kept, null, yes = (
        f.alloca(I64, _ARGUMENTS * FORM + 2 * _AXES),
        f.const(POINTER, 0),
        f.const(BOOL, 1),
    )

    def each_array(visit: Callable[[Value, Value], tuple[Value, Value]]) -> Value:
        """True if it holds for all arrays; what is kept of the next one follows their axes."""

        def argument(n: Value, words: Value, holds: Value) -> list[Value]:
            arg = _word(f, args, n)

            def array() -> list[Value]:
                rank, also_holds = visit(arg, words)
                following = f.element(words, rank * 2 + FORM, I64)
                return [following, f.arithmetic("and", holds, also_holds)]

            return f.branch(_is(f, arg, "ndarray"), array, lambda: [words, holds])

        return f.loop(0, count, 1, [kept, yes], argument)[1]

    def sizes(array: Value, words: Value, n: Value) -> list[tuple[Value, Value]]:
        """The dimension and the stride of an axis, each with the address where it is kept."""
        found = [field_of(f, array, field, POINTER) for field in (SHAPE, STRIDES)]
        own = f.element(words, n * 2 + FORM, I64)
        return [
            (f.load(I64, f.element(x, n, I64)), f.element(own, k, I64)) for k, x in enumerate(found)
        ]

    def keep(array: Value, words: Value) -> tuple[Value, Value]:
        rank, dtype = _rank(f, array), field_of(f, array, DTYPE, POINTER)

        def axis(n: Value) -> None:
            for size, word in sizes(array, words, n):
                f.store(size, word)

        f.loop(0, rank, 1, [], axis)
        invoke(f, "retain", VOID, dtype)
        # NumPy resizes no array that has a weak reference, even without a check.
        reference = invoke(f, "reference", POINTER, array, null)
        for number, item in enumerate((dtype, reference, rank)):
            f.store(item, f.element(words, number, I64), 8)
        return rank, f.compare("ne", reference, 0)

    def compare(array: Value, words: Value) -> tuple[Value, Value]:
        dtype, reference = _word(f, words, 0), _word(f, words, 1)
        rank, now = f.load(I64, f.element(words, 2, I64)), field_of(f, array, DTYPE, POINTER)

        def axis(n: Value, same: Value) -> list[Value]:
            for size, word in sizes(array, words, n):
                same = f.arithmetic("and", same, f.compare("eq", size, f.load(I64, word)))
            return [same]

        has_rank = f.compare("eq", rank, _rank(f, array))
        [same] = f.branch(has_rank, lambda: f.loop(0, rank, 1, [yes], axis), lambda: [has_rank])
        is_same_object = f.arithmetic("or", f.compare("eq", dtype, now), f.compare("eq", result, 0))

        def equal() -> list[Value]:
            return [f.compare("eq", invoke(f, "equal", I32, dtype, now, f.const(I32, _EQUAL)), 1)]

        [has_dtype] = f.branch(is_same_object, lambda: [yes], equal)
        invoke(f, "release", VOID, dtype)
        invoke(f, "release", VOID, reference)
        return rank, f.arithmetic("and", same, has_dtype)

    def failed() -> list[Value]:
        items = f.alloca(POINTER, 3)
        slots = [f.element(items, n, POINTER) for n in range(3)]
        invoke(f, "fetch", VOID, *slots)
        invoke(f, "normalize", VOID, *slots)
        kind, error, trace = (f.load(POINTER, slot) for slot in slots)

        def attach() -> None:
            invoke(f, "attach", I32, error, trace)

        f.branch(f.compare("ne", trace, 0), attach)
        raised = invoke(f, "call", POINTER, _word(f, table, FAIL), slots[1], f.index(1), null)
        for item in (kind, error, trace):
            invoke(f, "release", VOID, item)
        return [raised]

    def changed() -> list[Value]:
        invoke(f, "release", VOID, result)
        return [invoke(f, "call", POINTER, _word(f, table, FAIL), null, f.index(0), null)]

    def returned() -> list[Value]:
        is_none = f.compare("eq", result, _word(f, table, NONE))
        is_value = f.arithmetic("or", is_none, _is(f, result, "ndarray"))
        return f.branch(is_value, lambda: [result], converted)

    def converted() -> list[Value]:
        slot = f.alloca(POINTER, 1)
        f.store(result, slot)
        value = invoke(f, "call", POINTER, _word(f, table, CONVERT), slot, f.index(1), null)
        invoke(f, "release", VOID, result)
        return [value]

    def call() -> list[Value]:
        return [invoke(f, "call", POINTER, function, args, count, null)]

    invoke(f, "retain", VOID, function)
    is_kept = each_array(keep)
    [result] = f.branch(is_kept, call, lambda: [null])
    is_same = each_array(compare)
    invoke(f, "release", VOID, function)

    def ended() -> list[Value]:
        return f.branch(is_same, returned, changed)

    return f.branch(f.compare("eq", result, 0), failed, ended)[0]


def _builtin(
    f: Function, params: tuple[Value, ...], function_of: Callable[[Value], Value], first: int
) -> Value:
    """The body of a builtin, which calls a function with the arguments from the `first` one on."""
    owner, args, count, keywords = params
    table = f.element(f.load(POINTER, f.element(owner, table_offset(), I8), 8), CONTENT, I8)
    rest, number = f.element(args, first, POINTER), count - first

    def usual() -> list[Value]:
        f.leave(f.compare("ne", keywords, 0))
        function = function_of(table)
        f.leave(f.compare("eq", function, 0))
        f.leave(f.compare("eq", f.call("is_usual", I32, function, rest, number), 0))
        return [f.call("called", POINTER, table, function, rest, number)]

    unusual = partial(invoke, f, "call", POINTER, owner, args, count, keywords)
    return f.attempt(usual, lambda: [unusual()])[0]


@CODE.function(POINTER, POINTER, POINTER, I64, POINTER)
def _by_name(f: Function, *params: Value) -> Value:
    """The builtin of a call that looks up its function."""

    def function_of(table: Value) -> Value:
        symbol = _word(f, table, SYMBOL)
        found = invoke(f, "item", POINTER, read(f, "functions", POINTER), symbol)
        of_module = partial(invoke, f, "item", POINTER, _word(f, table, MODULE), symbol)
        is_missing = f.compare("eq", found, 0)
        return f.branch(is_missing, lambda: [of_module()], lambda: [found])[0]

    return _builtin(f, params, function_of, 0)


@CODE.function(POINTER, POINTER, POINTER, I64, POINTER)
def _given(f: Function, *params: Value) -> Value:
    """The builtin of a call whose function is its first argument."""
    return _builtin(f, params, lambda table: _word(f, params[1], 0), 1)


@cache
def _library() -> Library:
    library = CODE.linked(("by_name", "given"))
    for name, function in _PYTHON.items():
        CODE.set(library, name, address_of(getattr(ctypes.pythonapi, function)))
    for name, item in _OBJECTS.items():
        CODE.set(library, name, id(item))
    return library


@dataclass(frozen=True, slots=True, eq=False)
class _LookedUp:
    """A call whose function is looked up before its arguments are evaluated."""

    call: CompiledPackedCall
    run: Callable[..., Any]

    def function(self) -> Any:
        """The function as a value."""
        return self.call.function()

    def resolved(self) -> Callable[..., Any]:
        """The callee."""
        return partial(self.run, self.call.function())


def native_call(call: CompiledPackedCall) -> Any:
    """A replacement of a call in a text: machine code, unless it passes keywords."""
    functions = call.module_functions
    if call.attrs or type(functions) is not dict:
        return call
    library, convert, fail = _library(), call.convert, call.fail
    none = 0 if call.sinfos else id(None)
    words = struct.pack("<5Q", id(call.symbol), id(functions), none, id(convert), id(fail))
    name, python = ("by_name", call) if call.is_called else ("given", call.run)
    kept = library, call, convert, fail
    run = builtin_at(library[name], call.symbol, kept, python, words)
    return run if call.is_called else _LookedUp(call, run)
