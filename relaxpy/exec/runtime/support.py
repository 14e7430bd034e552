"""What generated code calls as `rx`: arithmetic of sizes, allocation, calls of function values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from relaxpy.errors import RuntimeCheckError, Span
from relaxpy.exec.runtime.instrument import Instrument, Watched
from relaxpy.exec.runtime.operators import truth as truth
from relaxpy.exec.runtime.packed import call_users
from relaxpy.exec.runtime.registry import packed_function
from relaxpy.exec.runtime.scalar import divisor
from relaxpy.exec.runtime.settings import without_warnings as without_warnings
from relaxpy.exec.runtime.values import (
    Category,
    Closure,
    PrimFuncValue as PrimFuncValue,
    ShapeTuple as ShapeTuple,
    Value,
    category_of,
    check_int64,
    describe,
    empty as empty,
    from_packed,
    holds_numbers as holds_numbers,
    prim_dtype,
    prim_value,
)
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax.nodes import FuncStructInfo, StructInfo
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import Var as SizeVar

size = check_int64


def dtype(name: str) -> np.dtype[Any]:
    """The NumPy type of the datatype `name`."""
    return DataType(name).numpy()


def floordiv(a: int, b: int) -> int:
    """a / b rounded down. Errors: RuntimeCheckError for b = 0 or a result outside 64 bits."""
    return check_int64(a // divisor(b))


def floormod(a: int, b: int) -> int:
    """The remainder of `floordiv`. Errors: RuntimeCheckError for b = 0."""
    return a % divisor(b)


def truncdiv(a: int, b: int) -> int:
    """a / b rounded toward zero. Errors: RuntimeCheckError for b = 0 or a result over 64 bits."""
    return check_int64(ops.trunc_div(a, divisor(b)))


def truncmod(a: int, b: int) -> int:
    """The remainder of `truncdiv`. Errors: RuntimeCheckError for b = 0."""
    return a - b * ops.trunc_div(a, divisor(b))


def field(value: Value, index: int) -> Value:
    """Field `index` of a tuple.

    Errors:
        RuntimeCheckError: it is no tuple, or too short.
    """
    if category_of(value) is not Category.TUPLE or index >= len(value):
        raise RuntimeCheckError(f"{describe(value)} has no field {index}", rule="EV-5")
    return value[index]


def fields(value: Value) -> tuple[Value, ...]:
    """A tuple, as it is.

    Errors:
        RuntimeCheckError: it is none.
    """
    if category_of(value) is not Category.TUPLE:
        raise RuntimeCheckError(f"the arguments are a tuple, found {describe(value)}", rule="OP-5")
    found: tuple[Value, ...] = value
    return found


def sizes(value: Value) -> ShapeTuple:
    """A shape value, as it is.

    Errors:
        RuntimeCheckError: it is none.
    """
    if type(value) is not ShapeTuple:
        raise RuntimeCheckError(f"expected a shape, found {describe(value)}", rule="MC-2")
    return value


def invoke(function: Value, *args: Value) -> Value:
    """What a function value gives for `args` (EV-17, EV-18, EV-19, EV-27).

    Errors:
        RuntimeCheckError: it is no function, or takes another number of arguments.
    """
    match category_of(function):
        case Category.CLOSURE | Category.PRIM_FUNC:
            return function(*args)
        case Category.PACKED_FUNC:
            return from_packed(call_users(function, packed_name(function), args), ())
        case _:
            raise RuntimeCheckError(f"{describe(function)} cannot be called", rule="EV-17")


CONTEXT = object()
"""What `call_builtin_with_ctx` hands a packed function first: a handle, of no use to Python."""


def with_context(function: Value, infos: tuple[StructInfo, ...], *args: Value) -> Value:
    """What a packed function gives for the context and `args`; unit where no info is expected."""
    if category_of(function) is not Category.PACKED_FUNC:
        raise RuntimeCheckError(f"expected a packed function, found {describe(function)}")
    result = call_users(function, packed_name(function), (CONTEXT, *args))
    return from_packed(result, infos) if infos else ()


def call_tir_dyn(kernel: Value, args: tuple[Value, ...]) -> tuple[()]:
    """Unit, after a kernel ran on all but the last of `args` and on the members of that."""
    invoke(kernel, *args[:-1], *args[-1])
    return ()


def note_caller(callers: dict[tuple[Value, ...], None], caller: tuple[Value, ...]) -> None:
    """Keep that by which a caller checks the result, such as its sizes: once, the latest last."""
    callers.pop(caller, None)
    callers[caller] = None


def check_for_callers(
    check: Callable[..., None], result: Value, callers: dict[tuple[Value, ...], None]
) -> None:
    """Check the result of a loop by the sizes of its iterations, the last one first.

    Errors:
        FunctionSignatureError: it does not fit.
    """
    for sizes in reversed(callers):
        check(result, *sizes)


@dataclass(slots=True)
class TailCall:
    """What a step of a function returns in place of calling the next one.

    `check` is how its own function checks the result, by `sizes`, where the next one does not.
    """

    step: Callable[..., Value]
    args: tuple[Value, ...]
    check: Callable[..., None] | None = None
    sizes: tuple[Value, ...] = ()

    def result(self) -> Value:
        """Make the call, and those that follow; the checks of those that made them come after.

        Errors:
            FunctionSignatureError: the result does not fit.
        """
        callers: dict[tuple[Value, ...], None] = {}
        found: Value = self
        while type(found) is TailCall:
            if found.check is not None:
                note_caller(callers, (found.check, found.sizes))
            args, found.args = found.args, ()  # which die with the step
            found = found.step(*args)
        for check, sizes in reversed(callers):
            check(found, *sizes)
        return found


def run_kernel(kernel: Callable[..., Value], *args: Value) -> Value:
    """What a kernel gives for values, which it checks itself (EV-27); unit if nothing.

    Errors:
        RuntimeCheckError: an argument does not fit.
    """
    found = kernel(*args)
    if found is None:
        return ()
    return prim_value(found, prim_dtype(found)) if isinstance(found, np.generic) else found


@dataclass(frozen=True, slots=True)
class CompiledPackedCall:
    """A call of a packed function by name, which is looked up anew each time (EV-13, EV-14)."""

    symbol: str
    infos: tuple[StructInfo, ...]
    attrs: Mapping[str, object]
    own_functions: Mapping[str, Value]
    span: Span | None

    def function(self) -> Value:
        """The registered function, else the module's own PrimFunc of that symbol.

        Errors:
            UnknownPackedFuncError: there is neither.
        """
        return packed_function(self.symbol, self.own_functions.get(self.symbol), self.span)

    def __call__(self, *args: Value) -> Value:
        """The result, as a value."""
        return self._result(self.function(), args)

    def _result(self, function: Value, args: tuple[Value, ...]) -> Value:
        if category_of(function) is not Category.PACKED_FUNC:  # a PrimFunc of the module
            return from_packed(function(*args, **self.attrs), self.infos)
        found = call_users(function, self.symbol, args, self.attrs, self.span)
        return from_packed(found, self.infos)

    def found(self) -> Callable[..., Value]:
        """The call, looked up before its arguments are evaluated (EV-17, LEG-32).

        Errors:
            UnknownPackedFuncError: there is no such function.
        """
        function = self.function()
        return lambda *args: self._result(function, args)


@dataclass(frozen=True, slots=True)
class WatchedPackedCall:
    """A call of a packed function that `instrument` sees."""

    call: CompiledPackedCall
    instrument: Instrument

    def function(self) -> Value:
        """The function as a value."""
        return self.call.function()

    def found(self) -> Watched:
        """The call, looked up before its arguments are evaluated."""
        return Watched(self.call.found(), self.call.symbol, self.instrument)

    def __call__(self, *args: Value) -> Value:
        """The result, as a value."""
        return self.found()(*args)


def invoke_watched(instrument: Instrument, function: Value, *args: Value) -> Value:
    """As `invoke`; the instrument sees calls of packed functions."""
    if category_of(function) is not Category.PACKED_FUNC:
        return invoke(function, *args)
    return Watched(partial(invoke, function), packed_name(function), instrument)(*args)


def packed_name(function: Value) -> str:
    """What an instrument is told of a packed function that is called as a value."""
    return str(getattr(function, "__name__", type(function).__name__))


@dataclass(frozen=True, slots=True)
class CompiledClosure:
    """What is known of a local function before it runs."""

    info: FuncStructInfo
    name: str
    size_vars: tuple[SizeVar, ...] = ()

    def make(self, function: Any, *sizes: int) -> Closure:
        """The closure over the generated `function`, where shape variables have these values."""
        return Closure(
            function, self.info, self.name, dict(zip(self.size_vars, sizes, strict=True))
        )
