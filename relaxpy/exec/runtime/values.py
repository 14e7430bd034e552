"""Run-time values: their categories, what is known of each, and how Python objects become them."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cache, cached_property
from typing import Any, Self, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from typing_extensions import TypeIs, override

from relaxpy.entry import user_facing
from relaxpy.errors import (
    FunctionSignatureError,
    MisuseError,
    RuntimeCheckError,
    counted,
    digits,
)
from relaxpy.frames import is_user_frame
from relaxpy.ir.core.dtype import BOOL, FLOAT64, INT64, DataType
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import Var as SizeVar
from relaxpy.ir.tir.substitution import substitute

Array: TypeAlias = npt.NDArray[Any]
Value: TypeAlias = Any
"""A run-time value, whose kind `category_of` tells (VAL-17): a tensor (VAL-1, VAL-2), tuple (VAL-3,
VAL-4), closure (VAL-5, VAL-6, VAL-7), shape (VAL-8), packed function (VAL-9), PrimFunc (VAL-10),
scalar (VAL-11, VAL-12) or opaque object (VAL-13, VAL-14, VAL-15, VAL-16)."""
_LEAST, _LARGEST = ops.int_range(INT64)


class Category(Enum):
    """The kinds of value that can always be told apart (VAL-17)."""

    TENSOR = "tensor"
    TUPLE = "tuple"
    CLOSURE = "closure"
    PACKED_FUNC = "packed function"
    PRIM_FUNC = "PrimFunc"
    SHAPE = "shape"
    PRIM = "prim value"
    OBJECT = "other object"


class ShapeTuple(tuple[int, ...]):
    """A shape value (VAL-8): an immutable tuple of integers, of a category of its own.

    Errors:
        MisuseError (also ValueError, TypeError): a member is no integer of 64 bits.
    """

    __slots__ = ()

    def __new__(cls, values: Iterable[int] = ()) -> Self:
        """The shape of these sizes."""
        if not isinstance(values, Iterable):
            raise MisuseError(f"a shape is a list of integers, found {values!r:.60}", rule="VAL-8")
        members = tuple(values)
        for member in members:
            if isinstance(member, (bool, np.bool_)) or not isinstance(member, (int, np.integer)):
                raise MisuseError(f"a shape holds integers, found {member!r:.60}", rule="VAL-8")
            if not _LEAST <= member <= _LARGEST:
                raise MisuseError(
                    f"a shape holds integers of 64 bits, found {digits(member)}", rule="PX-9"
                )
        return super().__new__(cls, map(int, members))

    @override
    def __repr__(self) -> str:
        return f"ShapeTuple({list(self)})"


class FunctionValue:
    """A function of the program as a value: callable, with its info.

    The info is that of the definition with `sizes`, the captured shape variables, put in (RES-54).
    """

    __slots__ = ("__dict__", "_definition_info", "_sizes", "arity", "name", "run")

    def __init__(
        self,
        run: Callable[..., Value],
        struct_info: rx.FuncStructInfo,
        name: str = "",
        sizes: Mapping[SizeVar, int] | None = None,
    ) -> None:
        assert struct_info.params is not None
        self.run = run
        self.name = name
        self.arity = len(struct_info.params)
        self._definition_info = struct_info
        self._sizes = sizes or {}

    def __copy__(self) -> Self:
        return self  # as functions of Python are

    def __deepcopy__(self, memo: object) -> Self:
        return self

    @override
    def __reduce__(self) -> tuple[object, ...]:
        raise MisuseError(
            f"a closure cannot be pickled: {self!r:.80} belongs to the executable that made it",
            hint="pickle the executable, and call the function that returns the closure again",
            about=self,
        )

    @cached_property
    def struct_info(self) -> rx.FuncStructInfo:
        """What is known of parameters, result and purity (VAL-7)."""
        literals = {var: ops.const(value, var.dtype) for var, value in self._sizes.items()}
        return substitute(self._definition_info, literals)

    @user_facing
    def __call__(self, *args: object) -> Value:
        """The result for these arguments; Python's numbers and arrays of others are read as values.

        Errors:
            RuntimeCheckError: their number is not that of the parameters (FN-11).
            FunctionSignatureError: one does not fit its parameter.
        """
        return self.called(args, outside=is_user_frame(sys._getframe(1).f_back))

    def called(self, args: tuple[object, ...], *, outside: bool) -> Value:
        """The result for these arguments, which are values unless they come from `outside`."""
        if len(args) != self.arity:
            raise RuntimeCheckError(
                f"{self._title()} takes {counted(self.arity, 'argument')}, found {len(args)}",
                rule="FN-11",
                notes=(f"its signature is {self.struct_info}",),
            )
        return self.run(*(self._converted(args) if outside else args))

    def _converted(self, args: tuple[object, ...]) -> tuple[Value, ...]:
        """What arguments that do not come from the program are in it."""
        values = []
        for place, (arg, info) in enumerate(zip(args, self.struct_info.params or (), strict=True)):
            try:
                values.append(from_outside(arg, info))
            except RuntimeCheckError as error:
                raise FunctionSignatureError(
                    f"argument {place} of {self._title()}: expected {info}: "
                    f"{error.diagnostic.message}",
                    rule="FN-1",
                ) from None
        return tuple(values)

    def _title(self) -> str:
        return f"function {self.name!r}" if self.name else "the function"

    @override
    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.struct_info}>"


class Closure(FunctionValue):
    """A Relax function with what it captured (VAL-5, VAL-6, VAL-7)."""

    __slots__ = ()


class PrimFuncValue(FunctionValue):
    """A PrimFunc as a value (VAL-10): it may write into its arguments."""

    __slots__ = ()


@cache
def holds_numbers(dtype: np.dtype[Any]) -> bool:
    """VAL-1: fixed-width integers, floats or Booleans."""
    if dtype.kind in "biuf":
        return True
    return type(dtype.type(0)).__module__ == "ml_dtypes" if dtype.kind == "V" else False


def category_of(value: Value) -> Category:
    """The category of a run-time value (VAL-17)."""
    match value:
        case np.ndarray():
            return Category.TENSOR if holds_numbers(value.dtype) else Category.OBJECT
        case ShapeTuple():
            return Category.SHAPE
        case tuple():
            return Category.TUPLE
        case bool() | int() | float():
            return Category.PRIM
        case np.generic():
            return Category.PRIM if holds_numbers(value.dtype) else Category.OBJECT
        case PrimFuncValue():
            return Category.PRIM_FUNC
        case Closure():
            return Category.CLOSURE
        case _ if callable(value):
            return Category.PACKED_FUNC
        case _:
            return Category.OBJECT


def prim_dtype(value: bool | int | float | np.generic) -> DataType:
    """The datatype of a prim value: Python's int is int64, its float float64."""
    if isinstance(value, np.generic):
        return DataType(value.dtype.name)
    if isinstance(value, bool):
        return BOOL
    return INT64 if isinstance(value, int) else FLOAT64


def prim_value(value: bool | int | float | np.generic, dtype: DataType) -> Value:
    """`value` as a prim value of `dtype`, in the form used throughout: Python's if it has one."""
    if dtype in ("bool", "int64", "float64"):
        return {"bool": bool, "int64": int, "float64": float}[dtype](value)
    with np.errstate(all="ignore"):
        return dtype.numpy().type(value)


def describe(value: Value) -> str:
    """What `value` is, for messages: category, datatype, shape, or the value of a scalar."""
    match category_of(value):
        case Category.TENSOR:
            order = "" if value.dtype.isnative else " with swapped bytes"
            return f"a {value.dtype.name} tensor of shape {value.shape}{order}"
        case Category.TUPLE:
            return f"a tuple of {counted(len(value), 'field')}"
        case Category.SHAPE:
            return f"the shape {tuple(value)}"
        case Category.PRIM:
            return f"the {prim_dtype(value)} prim value {value}"
        case Category.CLOSURE | Category.PRIM_FUNC:
            return f"a {category_of(value).value} of {value.struct_info}"
        case Category.PACKED_FUNC:
            return f"the packed function {getattr(value, '__name__', repr(value))!s:.60}"
        case _ if value is None:
            return "the null object (None)"
        case _ if isinstance(value, np.ndarray):
            return f"an array of dtype {value.dtype}, which is no tensor"
        case _:
            return f"an object of class {type(value).__name__}"


def empty(shape: tuple[int, ...], kind: np.dtype[Any]) -> Array:
    """A new tensor whose contents are not defined yet.

    Errors:
        RuntimeCheckError: a size is negative, or the memory does not suffice.
    """
    try:
        return np.empty(shape, kind)
    except (ValueError, MemoryError, OverflowError) as error:
        raise RuntimeCheckError(
            f"no {kind.name} tensor of shape {tuple(shape)} can be allocated: {error}", rule="PX-9"
        ) from None


def from_outside(value: object, info: rx.StructInfo | None) -> Value:
    """A Python object that enters a program as a value, read by the info it is to have.

    Arrays of other libraries become tensors over the same memory where that is possible. Scalars
    become 0-d tensors or prim values if they can be represented exactly; what fits nothing is left
    as it is, for the check that follows.

    Errors:
        RuntimeCheckError: an array that does not give its elements, or an integer over 64 bits.
    """
    if type(value) is np.ndarray:
        return value
    read = _read(value, info)
    if isinstance(read, int) and not _LEAST <= read <= _LARGEST:
        raise RuntimeCheckError(f"the integer {digits(read)} needs more than 64 bits", rule="MC-9")
    return read


def _read(value: object, info: rx.StructInfo | None) -> Value:
    match info:
        case rx.TensorStructInfo(dtype=dtype):
            if is_scalar(value):
                kind = prim_dtype(value) if dtype.is_void else dtype
                exact = exact_scalar(value, kind)
                return value if exact is None else np.array(exact, kind.numpy())
            return as_tensor(value)
        case rx.PrimStructInfo(dtype=dtype) if is_scalar(value):
            exact = exact_scalar(value, dtype)
            return value if exact is None else exact
        case rx.TupleStructInfo(fields=fields):
            is_list = type(value) is list
            if (is_list or _is_tuple(value)) and len(value) == len(fields):  # type: ignore[arg-type]
                return _read_fields(tuple(value) if is_list else value, fields)  # type: ignore[arg-type]
            return value
        case rx.ObjectStructInfo() | None:
            if _is_tuple(value):
                return _read_fields(value, (None,) * len(value))
            if hasattr(type(value), "__dlpack__") and not isinstance(value, np.generic):
                return as_tensor(value)
            return value
        case _:
            return value


def _is_tuple(value: object) -> TypeIs[tuple[object, ...]]:
    return isinstance(value, tuple) and not isinstance(value, ShapeTuple)


def _read_fields(value: tuple[object, ...], infos: Iterable[rx.StructInfo | None]) -> Value:
    """The tuple with its fields read; the very tuple where that changes none."""
    read = tuple(map(from_outside, value, infos))
    return value if all(map(operator.is_, value, read)) else read


def is_scalar(value: object) -> TypeIs[bool | int | float | np.generic]:
    """Whether `value` is a Python or NumPy number or truth value."""
    if isinstance(value, (int, float)):
        return True
    return isinstance(value, np.generic) and holds_numbers(value.dtype)


def exact_scalar(value: Any, dtype: DataType) -> Value | None:
    """`value` as a prim value of `dtype`, or None where that would change it."""
    source = prim_dtype(value)
    if source.is_bool != dtype.is_bool or (source.is_float and not dtype.is_float):
        return None
    if not dtype.is_float and not dtype.is_int:
        return None
    if dtype.is_int:
        low, high = ops.int_range(dtype)
        return prim_value(int(value), dtype) if low <= int(value) <= high else None
    try:
        made = prim_value(value, dtype)
    except OverflowError:
        return None
    same = float(made) == float(value) or (made != made and value != value)
    exact_int = not source.is_int or not np.isfinite(made) or int(made) == int(value)
    return made if same and exact_int else None


def as_tensor(value: Any) -> Value:
    """A tensor over the memory of `value`, where it speaks DLPack or is an array, else `value`.

    Errors:
        RuntimeCheckError: it claims to be an array but does not give its elements, or masks some.
    """
    if isinstance(value, np.ndarray):
        if rx.is_masked(value):
            raise RuntimeCheckError(rx.MASKED)
        return np.asarray(value)
    readers: tuple[tuple[str, Callable[[Any], Array]], ...] = (
        ("__dlpack__", np.from_dlpack),
        ("__array__", np.asarray),
    )
    failure: Exception | None = None
    for method, read in readers:
        if not hasattr(type(value), method):
            continue
        try:
            return read(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            failure = error
    if failure is None:
        return value
    raise RuntimeCheckError(
        f"{type(value).__module__}.{type(value).__name__} gives no array in this memory: {failure}"
    )


def from_packed(value: object, infos: tuple[rx.StructInfo, ...]) -> Value:
    """What a packed function returned, as a value; `infos` are what the call says it returns."""
    if not infos:
        return from_outside(value, None)
    info = infos[0] if len(infos) == 1 else rx.TupleStructInfo(infos)
    return from_outside(_with_shapes(value, info), info)


def _with_shapes(value: object, info: rx.StructInfo) -> object:
    """`value` with shapes for tuples of integers that are declared as such, as `x.shape` is."""
    if not _is_tuple(value):
        return value
    if isinstance(info, rx.ShapeStructInfo) and all(type(v) is int for v in value):
        return ShapeTuple(cast("tuple[int, ...]", value))
    if isinstance(info, rx.TupleStructInfo) and len(value) == len(info.fields):
        read = tuple(map(_with_shapes, value, info.fields))
        return value if all(map(operator.is_, value, read)) else read
    return value


def check_int64(value: int) -> int:
    """`value`, a dimension or shape variable.

    Errors:
        RuntimeCheckError: it needs more than 64 bits (PX-9).
    """
    if _LEAST <= value <= _LARGEST:
        return value
    raise RuntimeCheckError(f"the size {digits(value)} is outside the range of int64", rule="PX-9")
