"""The packed functions `vm.builtin.…` that lowered programs call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np

from relaxpy.errors import MatchCastError, RuntimeCheckError, UnknownPackedFuncError
from relaxpy.exec.runtime import operators
from relaxpy.exec.runtime.registry import get_global_func, provided, python_functions
from relaxpy.exec.runtime.support import call_tir_dyn, invoke
from relaxpy.exec.runtime.values import (
    Category,
    ShapeTuple,
    Value,
    category_of,
    describe,
    prim_dtype,
    to_value,
)
from relaxpy.ir.core.dtype import Array, DataType
from relaxpy.ir.ops.sorting import sampled
from relaxpy.ir.ops.vm import MakeShapeCode, MatchShapeCode

F = TypeVar("F", bound=Callable[..., Any])


def _builtin(name: str, *, pure: bool = True) -> Callable[[F], F]:
    """A decorator that registers a function as `vm.builtin.` and a name."""
    return provided(f"vm.builtin.{name}", pure=pure)


def _refuse(context: str, problem: str) -> NoReturn:
    """Raise the error of a failed check; its message begins with the context of the call."""
    raise MatchCastError(_in_context(context, problem), rule="MC-3")


def _in_context(context: str, problem: str) -> str:
    context = context.rstrip()
    return f"check failed: {context} {problem}" if context else problem


@_builtin("alloc_shape_heap")
def alloc_shape_heap(context: object, count: int) -> Array:
    """Memory for the values of `count` dimensions."""
    return np.zeros(int(count), np.int64)


@_builtin("cuda_graph.get_cached_alloc", pure=False)
def get_cached_alloc(context: object, function: Value, key: int) -> Value:
    """The storages that a function allocates; each call allocates new ones."""
    return invoke(function)


@_builtin("cuda_graph.run_or_capture", pure=False)
def run_or_capture(
    context: object, function: Value, args: tuple[Value, ...], key: int, shape: Value = ()
) -> Value:
    """The result of a function that a CUDA graph could capture; it is called."""
    return invoke(function, *args)


@_builtin("match_shape", pure=False)
def match_shape(value: Value, heap: Array | None, ndim: int, *codes: Value) -> tuple[()]:
    """Compare or store the dimensions of a tensor or a shape, each with a code and a register.

    The last argument is the context of error messages.

    Errors:
        MatchCastError: a dimension, or their number, is not the expected one.
    """
    *pairs, context = codes
    dims = value.shape if category_of(value) is Category.TENSOR else value
    if not isinstance(dims, tuple):
        _refuse(context, f"expected a tensor or a shape, found {describe(value)}")
    if len(dims) != ndim:
        _refuse(context, f"expected {ndim} dimensions, found {describe(value)}")
    for axis, actual in enumerate(dims):
        code, register = pairs[2 * axis : 2 * axis + 2]
        _match(actual, heap, code, register, _in_context(context, f"dimension {axis} is"))
    return ()


def _match(actual: int, heap: Array | None, code: int, register: int, what: str) -> None:
    """Compare or store one integer."""
    if code == MatchShapeCode.STORE_TO_HEAP:
        assert heap is not None
        heap[register] = actual
    elif code != MatchShapeCode.NO_OP:
        loads = code == MatchShapeCode.ASSERT_EQUAL_TO_LOAD
        expected = int(heap[register]) if loads and heap is not None else register
        if actual != expected:
            raise MatchCastError(f"{what} {actual}, expected {expected}", rule="MC-7")


@_builtin("make_shape")
def make_shape(heap: Array | None, ndim: int, *codes: int) -> ShapeTuple:
    """The shape of literals and of stored dimensions, each with a code and a register."""
    pairs = zip(codes[::2], codes[1::2], strict=True)
    return ShapeTuple(_load(heap, code, register) for code, register in pairs)


def _load(heap: Array | None, code: int, register: int) -> int:
    if code == MakeShapeCode.USE_IMM:
        return int(register)
    assert heap is not None
    return int(heap[register])


@_builtin("match_prim_value", pure=False)
def match_prim_value(
    value: Value, heap: Array | None, code: int, register: int, context: str = ""
) -> tuple[()]:
    """Compare or store a scalar. Errors: MatchCastError if it is not the expected one."""
    _match(int(value), heap, code, register, _in_context(context, "the value is"))
    return ()


@_builtin("make_prim_value")
def make_prim_value(heap: Array | None, code: int, register: int) -> int:
    """A literal or a stored dimension, as a scalar."""
    return _load(heap, code, register)


@_builtin("check_tensor_info", pure=False)
def check_tensor_info(
    value: Value, ndim: int, dtype: DataType | str = "", context: str | None = None
) -> tuple[()]:
    """Check that a value is a tensor of a rank, -1 for any, and of a datatype, void for any.

    The datatype may be missing. Errors: MatchCastError if the value is not such a tensor.
    """
    if not isinstance(dtype, DataType):
        if context is None:  # a call without a datatype has the context there
            dtype, context = "", dtype
        dtype = DataType(dtype or "void")
    context = context or ""
    if category_of(value) is not Category.TENSOR:
        _refuse(context, f"expected a tensor, found {describe(value)}")
    if ndim not in (-1, value.ndim):
        _refuse(context, f"expected a tensor of ndim {ndim}, found {describe(value)}")
    if not dtype.is_void and dtype != DataType(value.dtype.name):
        _refuse(context, f"expected a tensor of dtype {dtype}, found {describe(value)}")
    return ()


@_builtin("check_shape_info", pure=False)
def check_shape_info(value: Value, ndim: int, context: str = "") -> tuple[()]:
    """Check that a value is a shape with this number of members, -1 for any (MatchCastError)."""
    if category_of(value) is not Category.SHAPE or ndim not in (-1, len(value)):
        members = "" if ndim == -1 else f" of ndim {ndim}"
        _refuse(context, f"expected a shape{members}, found {describe(value)}")
    return ()


@_builtin("check_prim_value_info", pure=False)
def check_prim_value_info(value: Value, dtype: DataType, context: str = "") -> tuple[()]:
    """Check that a value is a scalar of a datatype (MatchCastError)."""
    if category_of(value) is not Category.PRIM or prim_dtype(value) != dtype:
        _refuse(context, f"expected a {dtype} prim value, found {describe(value)}")
    return ()


@_builtin("check_tuple_info", pure=False)
def check_tuple_info(value: Value, size: int, context: str = "") -> tuple[()]:
    """Check that a value is a tuple with this number of fields (MatchCastError)."""
    if category_of(value) is not Category.TUPLE or len(value) != size:
        _refuse(context, f"expected a tuple of {size} elements, found {describe(value)}")
    return ()


@_builtin("check_func_info", pure=False)
def check_func_info(value: Value, context: str = "") -> tuple[()]:
    """Check that a value is a function (MatchCastError)."""
    if not callable(value):
        _refuse(context, f"expected a function, found {describe(value)}")
    return ()


@_builtin("alloc_storage")
def alloc_storage(
    context: object, size: ShapeTuple, device: int, dtype: DataType, scope: str = "global"
) -> Value:
    """New memory for the elements of a shape."""
    return operators.new_storage(size, device, dtype, scope)


@_builtin("reshape")
def reshape(value: Array, shape: ShapeTuple) -> Array:
    """A reshaped copy of a tensor, so that no mutation is visible.

    Errors:
        RuntimeCheckError: the number of elements is not the same.
    """
    try:
        return np.array(value.reshape(tuple(shape)), order="C")
    except (AttributeError, TypeError, ValueError):
        raise RuntimeCheckError(
            f"reshape to {list(shape)} does not keep the elements of {describe(value)}"
        ) from None


@_builtin("make_closure")
def closure(function: Value, *captured: Value) -> Value:
    """The closure that appends the captured values to its arguments."""
    return operators.make_closure(function, captured)


@_builtin("invoke_closure", pure=False)
def invoke_closure(context: object, function: Value, *args: Value) -> Value:
    """The result of a closure."""
    return invoke(function, *args)


@_builtin("tuple_getitem")
def tuple_getitem(values: tuple[Value, ...] | list[object], index: int) -> Value:
    """A field of a tuple, or of a list that a user passed for an `R.Object`.

    Errors:
        RuntimeCheckError: there is no such field.
    """
    is_list = isinstance(values, list)
    if not (is_list or category_of(values) is Category.TUPLE) or not 0 <= index < len(values):
        raise RuntimeCheckError(f"there is no field {index} in {describe(values)}")
    return to_value(values[index], None) if is_list else values[index]


@_builtin("make_tuple")
def make_tuple(*values: Value) -> tuple[Value, ...]:
    """The tuple of these values."""
    return values


@_builtin("null_value")
def null_value() -> None:
    """The null object."""


@_builtin("to_device")
def to_device(value: Value, device_type: int = 1, device: int = 0, scope: str = "global") -> Value:
    """The value itself, since there is only one memory."""
    return value


@_builtin("call_tir_dyn", pure=False)
def call_dynamic(kernel: Value, *args: Value) -> tuple[()]:
    """Call a kernel with tensors and the members of the shape after them."""
    return call_tir_dyn(kernel, args)


@_builtin("multinomial_from_uniform")
def multinomial_from_uniform(prob: Array, uniform_sample: Array) -> Array:
    """For each row of `prob`, the first category whose cumulative sum exceeds the row's sample."""
    return sampled(prob, uniform_sample, np.arange(len(prob))[:, None])


@_builtin("register_py_func", pure=False)
def register_py_func(name: str, function: Callable[..., Any]) -> None:
    """Register a Python function for `call_py_func` under a name."""
    python_functions[name] = function


@_builtin("get_py_func", pure=False)
def get_py_func(name: str) -> Callable[..., Any]:
    """The Python function under a name. Errors: UnknownPackedFuncError if there is none."""
    if name not in python_functions:
        raise UnknownPackedFuncError(f"no Python function is registered as {name!r}", about=name)
    return python_functions[name]


@_builtin("clear_py_func_registry", pure=False)
def clear_py_func_registry() -> None:
    """Remove all Python functions."""
    python_functions.clear()


@_builtin("call_py_func", pure=False)
def call_py_func(name: str, args: Sequence[Value]) -> Any:
    """The result of the Python function under a name."""
    return get_py_func(name)(*args)


@_builtin("invoke_debug_func", pure=False)
def invoke_debug_func(effect: Value, name: str, line: str, *args: Value) -> Value:
    """Call a packed function with a source position as text and `args`; return `effect`."""
    get_global_func(name)(line, *args)
    return effect


@_builtin("debug_print", pure=False)
def debug_print(line: str, value: Value) -> None:
    """Print a position, the shape and datatype of a tensor, and its elements."""
    print(f"[{line}] {describe(value)}\n{value}", flush=True)


_builtin("alloc_tensor")(operators.tensor_in)
_builtin("copy", pure=False)(lambda value: value)
_builtin("ensure_zero_offset")(operators.same_value)
provided("runtime.TVMTensorCreateView", pure=True)(operators.view)
_builtin("read_if_cond")(operators.truth)
_builtin("shape_of")(operators.shape_of)
_builtin("tensor_to_shape")(operators.tensor_to_shape)
