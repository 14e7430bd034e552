"""The functions that generated code calls as `rx`: arithmetic of dimensions, checks, calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, reduce
from typing import Any, NoReturn

import numpy as np

from relaxpy.errors import RuntimeCheckError, Span
from relaxpy.exec.runtime.instrument import Instrument, Instrumented
from relaxpy.exec.runtime.operators import truth as truth
from relaxpy.exec.runtime.registry import packed_function, registered
from relaxpy.exec.runtime.scalar import divisor
from relaxpy.exec.runtime.threads import without_warnings as without_warnings
from relaxpy.exec.runtime.users import call_users, changed_forms, raise_again
from relaxpy.exec.runtime.values import (
    Category,
    Closure,
    FunctionValue,
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
from relaxpy.ir.core.dtype import Array, DataType
from relaxpy.ir.relax.nodes import FuncStructInfo, StructInfo
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import Var as SizeVar
from relaxpy.support.dataclass import dataclass

size = check_int64


def sum_of_sizes(*sizes: int) -> int:
    """The sum. Errors: RuntimeCheckError if a partial sum is outside int64."""
    return reduce(lambda total, size: check_int64(total + size), sizes)


def dtype(name: str) -> np.dtype[Any]:
    """The NumPy type of the datatype `name`."""
    return DataType(name).numpy()


def floordiv(a: int, b: int) -> int:
    """a / b rounded down. Errors: RuntimeCheckError for b = 0 or a result outside int64."""
    return check_int64(a // divisor(b))


def floormod(a: int, b: int) -> int:
    """The remainder of `floordiv`. Errors: RuntimeCheckError for b = 0."""
    return a % divisor(b)


def truncdiv(a: int, b: int) -> int:
    """a / b rounded toward zero. Errors: RuntimeCheckError for b = 0 or a result outside int64."""
    return check_int64(ops.trunc_div(a, divisor(b)))


def truncmod(a: int, b: int) -> int:
    """The remainder of `truncdiv`. Errors: RuntimeCheckError for b = 0."""
    return a - b * ops.trunc_div(a, divisor(b))


def field(value: Value, index: int) -> Value:
    """Field `index` of a tuple. Errors: RuntimeCheckError if there is no such field."""
    if category_of(value) is not Category.TUPLE or index >= len(value):
        raise RuntimeCheckError(f"{describe(value)} has no field {index}", rule="EV-5")
    return value[index]


def fields(value: Value) -> tuple[Value, ...]:
    """`value`, a tuple of arguments. Errors: RuntimeCheckError if it is not a tuple."""
    if category_of(value) is not Category.TUPLE:
        raise RuntimeCheckError(f"the arguments are a tuple, found {describe(value)}", rule="OP-5")
    result: tuple[Value, ...] = value
    return result


def viewed(value: Array, shape: tuple[int, ...]) -> Array:
    """A view of another shape with the same number of elements, those of `value`.

    Errors: RuntimeCheckError if a dimension is negative, as where one is allocated.
    """
    return value.reshape(shape) if min(shape, default=0) >= 0 else empty(shape, value.dtype)


def reshaped(value: Array, shape: tuple[int, ...]) -> Array:
    """A new tensor of another shape with the same number of elements, those of `value`.

    Errors: RuntimeCheckError if a dimension is negative.
    """
    return np.array(viewed(value, shape), order="C")


def sizes(value: Value) -> ShapeTuple:
    """`value`, a shape. Errors: RuntimeCheckError if it is not a shape."""
    if type(value) is not ShapeTuple:
        raise RuntimeCheckError(f"expected a shape, found {describe(value)}", rule="MC-2")
    return value


def invoke(function: Value, *args: Value) -> Value:
    """Call a function value (EV-17, EV-18, EV-19, EV-27).

    Errors:
        RuntimeCheckError: it is not a function, or takes another number of arguments.
    """
    match category_of(function):
        case Category.CLOSURE | Category.PRIM_FUNC:
            return function(*args)
        case Category.PACKED_FUNC:
            return from_packed(call_users(function, packed_name(function), args), ())
        case _:
            raise RuntimeCheckError(f"{describe(function)} cannot be called", rule="EV-17")


def invoke_declared(
    sinfos: tuple[StructInfo, ...], attrs: Mapping[str, object], function: Value, *args: Value
) -> Value:
    """Call a function value. To a packed function, `attrs` are passed, and its result has `sinfos`.

    Errors:
        RuntimeCheckError: it is not a function, or takes another number of arguments.
    """
    if category_of(function) is not Category.PACKED_FUNC:
        return invoke(function, *args)
    return from_packed(call_users(function, packed_name(function), args, attrs), sinfos)


CONTEXT = object()
"""The first argument of `call_builtin_with_ctx`: a handle, which Python cannot use."""


def with_context(function: Value, sinfos: tuple[StructInfo, ...], *args: Value) -> Value:
    """Call a packed function with the context and `args`; return unit if no result is declared."""
    if category_of(function) is not Category.PACKED_FUNC:
        raise RuntimeCheckError(f"expected a packed function, found {describe(function)}")
    result = call_users(function, packed_name(function), (CONTEXT, *args))
    return from_packed(result, sinfos) if sinfos else ()


def call_tir_dyn(kernel: Value, args: tuple[Value, ...]) -> tuple[()]:
    """Call a kernel with `args`, the last one a shape of scalars; return unit."""
    invoke(kernel, *args[:-1], *args[-1])
    return ()


def note_caller(callers: dict[tuple[Value, ...], None], caller: tuple[Value, ...]) -> None:
    """Add the values by which a caller checks the result, without duplicates, the latest last."""
    callers.pop(caller, None)
    callers[caller] = None


def check_for_callers(
    check: Callable[..., None], result: Value, callers: dict[tuple[Value, ...], None]
) -> None:
    """Check the result of a loop by the sizes of its iterations, the last iteration first."""
    for sizes in reversed(callers):
        check(result, *sizes)


@dataclass(slots=True)
class TailCall:
    """A tail call that a step of a function returns.

    `check` and `sizes` are the check of the result by the function that makes the call, unless the
    check of the callee implies it.
    """

    step: Callable[..., Value]
    args: tuple[Value, ...]
    check: Callable[..., None] | None = None
    sizes: tuple[Value, ...] = ()

    def result(self) -> Value:
        """Trampoline: make this call and subsequent tail calls, then the checks of the callers."""
        callers: dict[tuple[Value, ...], None] = {}
        result: Value = self
        while type(result) is TailCall:
            if result.check is not None:
                note_caller(callers, (result.check, result.sizes))
            args, result.args = result.args, ()  # so that the step can free them
            result = result.step(*args)
        for check, sizes in reversed(callers):
            check(result, *sizes)
        return result


def run_kernel(kernel: Callable[..., Value], *args: Value) -> Value:
    """Call a kernel, which checks its arguments (EV-27); return unit if it returns nothing."""
    result = kernel(*args)
    if result is None:
        return ()
    return prim_value(result, prim_dtype(result)) if isinstance(result, np.generic) else result


@dataclass(frozen=True, slots=True)
class CompiledPackedCall:
    """A call of a packed function by name, which is looked up at each call (EV-13, EV-14).

    Either the text calls it, so that it `is_called`, or the function that it looks up.
    """

    symbol: str
    sinfos: tuple[StructInfo, ...]
    attrs: Mapping[str, object]
    module_functions: Mapping[str, Value]
    span: Span | None
    is_called: bool

    def function(self) -> Value:
        """The registered function or that of the module. Errors: UnknownPackedFuncError."""
        return packed_function(self.symbol, self.module_functions.get(self.symbol), self.span)

    def __call__(self, *args: Value) -> Value:
        """The result, as a value."""
        function = registered(self.symbol)
        return self.run(self.function() if function is None else function, *args)

    def run(self, function: Value, *args: Value) -> Value:
        """The result of the function that was looked up."""
        if isinstance(function, FunctionValue):  # a PrimFunc of the module
            return from_packed(function(*args, **self.attrs), self.sinfos)
        return self.convert(call_users(function, self.symbol, args, self.attrs, self.span))

    def convert(self, result: object) -> Value:
        """The result of a user's function as a value."""
        return from_packed(result, self.sinfos) if self.sinfos or result is not None else None

    def fail(self, error: BaseException | None = None) -> NoReturn:
        """Raise the error of a call: the function raised one, or changed the form of an array."""
        _calls_users = True
        if error is None:
            raise changed_forms(self.symbol, self.span)
        raise_again(error, self.symbol, self.span)

    def resolved(self) -> Callable[..., Value]:
        """The callee, for calls that look it up before they evaluate arguments (EV-17, LEG-32)."""
        return partial(self.run, self.function())


@dataclass(frozen=True, slots=True)
class InstrumentedPackedCall:
    """A call of a packed function that is reported to `instrument`."""

    call: CompiledPackedCall
    instrument: Instrument

    def function(self) -> Value:
        """The function as a value."""
        return self.call.function()

    def resolved(self) -> Instrumented:
        """The callee, for calls that look it up before they evaluate arguments."""
        return Instrumented(self.call.resolved(), self.call.symbol, self.instrument)

    def __call__(self, *args: Value) -> Value:
        """The result, as a value."""
        return self.resolved()(*args)


def invoke_instrumented(
    instrument: Instrument,
    sinfos: tuple[StructInfo, ...],
    attrs: Mapping[str, object],
    function: Value,
    *args: Value,
) -> Value:
    """Call a function value as `invoke_declared` does; report calls of packed functions."""
    if category_of(function) is not Category.PACKED_FUNC:
        return invoke(function, *args)
    call = partial(invoke_declared, sinfos, attrs, function)
    return Instrumented(call, packed_name(function), instrument)(*args)


def packed_name(function: Value) -> str:
    """The name of a packed function that is called as a value."""
    return str(getattr(function, "__name__", type(function).__name__))


@dataclass(frozen=True, slots=True)
class CompiledClosure:
    """The struct info, name and captured shape variables of a local function."""

    sinfo: FuncStructInfo
    name: str
    size_vars: tuple[SizeVar, ...] = ()

    def make(self, function: Any, *sizes: int) -> Closure:
        """The closure of the generated `function` with these values of the shape variables."""
        return Closure(
            function, self.sinfo, self.name, dict(zip(self.size_vars, sizes, strict=True))
        )
