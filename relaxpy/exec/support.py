"""What generated code calls as `rx`: arithmetic of sizes, allocation, calls of function values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.kernel.settings import quiet
from relaxpy.exec.operators import (
    assert_op,
    null_value,
    print_values,
    same_device,
    shape_of,
    shape_to_tensor,
    tensor_to_shape,
    truth,
)
from relaxpy.exec.registry import get_global_func
from relaxpy.exec.scalar import divisor
from relaxpy.exec.values import (
    Category,
    Closure,
    PrimFuncValue,
    ShapeTuple,
    Value,
    category_of,
    check_int64,
    describe,
    empty,
    from_packed,
    holds_numbers,
    prim_dtype,
    prim_value,
)
from relaxpy.ir.dtype import DataType
from relaxpy.ir.relax.nodes import FuncStructInfo, StructInfo
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import Var as SizeVar

__all__ = [
    "CompiledClosure",
    "CompiledPackedCall",
    "PrimFuncValue",
    "ShapeTuple",
    "assert_op",
    "dtype",
    "empty",
    "field",
    "floordiv",
    "floormod",
    "holds_numbers",
    "invoke",
    "null_value",
    "print_values",
    "quiet",
    "returned",
    "same_device",
    "shape_of",
    "shape_to_tensor",
    "size",
    "tensor_to_shape",
    "truncdiv",
    "truncmod",
    "truth",
]

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


def invoke(function: Value, *args: Value) -> Value:
    """What a function value gives for `args` (EV-17 to EV-19, EV-27).

    Errors:
        RuntimeCheckError: it is no function, or takes another number of arguments.
    """
    match category_of(function):
        case Category.CLOSURE | Category.PRIM_FUNC:
            return function(*args)
        case Category.PACKED_FUNC:
            return from_packed(function(*args), ())
        case _:
            raise RuntimeCheckError(f"{describe(function)} cannot be called", rule="EV-17")


def returned(value: Value) -> Value:
    """What a kernel gave, as a value: unit if nothing (EV-27)."""
    if value is None:
        return ()
    return prim_value(value, prim_dtype(value)) if isinstance(value, np.generic) else value


@dataclass(frozen=True, slots=True)
class CompiledPackedCall:
    """A call of a packed function by name, which is looked up anew each time (EV-13, EV-14)."""

    symbol: str
    infos: tuple[StructInfo, ...]
    attrs: Mapping[str, object]
    own_functions: Mapping[str, Value]

    def function(self) -> Value:
        """The registered function, else the module's own PrimFunc of that symbol.

        Errors:
            UnknownPackedFuncError: there is neither.
        """
        own = self.own_functions.get(self.symbol)
        if own is None:
            return get_global_func(self.symbol)
        return get_global_func(self.symbol, True) or own

    def __call__(self, *args: Value) -> Value:
        """The result, as a value."""
        return from_packed(self.function()(*args, **self.attrs), self.infos)

    def found(self) -> Callable[..., Value]:
        """The call, looked up before its arguments are evaluated (EV-17, LEG-32).

        Errors:
            UnknownPackedFuncError: there is no such function.
        """
        function = self.function()
        return lambda *args: from_packed(function(*args, **self.attrs), self.infos)


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
