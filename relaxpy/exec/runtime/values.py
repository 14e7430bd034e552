"""Run-time values: their categories, descriptions, and the conversion of users' objects."""

from __future__ import annotations

import math
import operator
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from types import MappingProxyType
from typing import Any, Final, Self, TypeAlias, cast
from weakref import ref

import numpy as np
from typing_extensions import TypeIs, override

from relaxpy.errors import FunctionSignatureError, MisuseError, RuntimeCheckError, Span, counted
from relaxpy.ir.core.dtype import BOOL, FLOAT64, INT64, Array as Array, DataType
from relaxpy.ir.core.fork_lock import late_property
from relaxpy.ir.core.node import CopiedByReference
from relaxpy.ir.core.tensor import MASKED, Tensor, as_tensor_view, is_masked, read_array
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import Var as SizeVar
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.entry import user_facing
from relaxpy.support.frames import is_user_frame
from relaxpy.support.missing import digits

Value: TypeAlias = Any
"""A run-time value, of a kind that `category_of` returns (VAL-17): tensor (VAL-1, VAL-2), tuple
(VAL-3, VAL-4), closure (VAL-5, VAL-6, VAL-7), shape (VAL-8), packed function (VAL-9), PrimFunc
(VAL-10), scalar (VAL-11, VAL-12) or opaque object (VAL-13, VAL-14, VAL-15, VAL-16)."""
_LEAST, _LARGEST = ops.int_range(INT64)
NO_ATTRS: Final[Mapping[str, Any]] = MappingProxyType({})


class Category(Enum):
    """The kinds of values, which can always be distinguished (VAL-17)."""

    TENSOR = "tensor"
    TUPLE = "tuple"
    CLOSURE = "closure"
    PACKED_FUNC = "packed function"
    PRIM_FUNC = "PrimFunc"
    SHAPE = "shape"
    PRIM = "prim value"
    OBJECT = "other object"


class ShapeTuple(tuple[int, ...]):
    """A shape value (VAL-8): an immutable tuple of integers.

    Errors:
        MisuseError (also ValueError, TypeError): a member is not an integer of 64 bits.
    """

    __slots__ = ()

    def __new__(cls, values: Iterable[int] = ()) -> Self:
        """The shape with these dimensions."""
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


class Part(tuple[Array, Array, Array]):
    """A part of a tensor that machine code passes, another one in each call.

    The fields are the first part, a second view of it, which machine code moves and passes, and the
    offsets of the parts in bytes (int64).
    """

    __slots__ = ()


class FunctionValue(CopiedByReference):
    """A function of the program as a callable value with struct info.

    The struct info is that of the definition, with the values `sizes` substituted for the captured
    shape variables (RES-54).
    """

    __slots__ = ("__dict__", "_definition_sinfo", "_sizes", "arity", "name", "run")

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
        self._definition_sinfo = struct_info
        self._sizes = sizes or {}

    @override
    def __reduce__(self) -> tuple[object, ...]:
        raise MisuseError(
            f"a closure cannot be pickled: {self!r:.80} belongs to its executable",
            hint="pickle the executable, and call the function that returns the closure again",
            about=self,
        )

    @late_property
    def struct_info(self) -> rx.FuncStructInfo:
        """The struct info of the function (VAL-7)."""
        literals = {var: ops.const(value, var.dtype) for var, value in self._sizes.items()}
        return substitute(self._definition_sinfo, literals)

    @user_facing
    def __call__(self, *args: object) -> Value:
        """Call the function; Python numbers and arrays of other libraries are converted to values.

        Errors:
            RuntimeCheckError: the number of arguments is wrong (FN-11).
            FunctionSignatureError: an argument does not match its parameter.
        """
        return self.call_with(args, from_user=is_user_frame(sys._getframe(1).f_back))

    def call_with(self, args: tuple[object, ...], *, from_user: bool) -> Value:
        """Call the function with values, or with objects that are converted if `from_user`."""
        if len(args) != self.arity:
            raise RuntimeCheckError(
                f"{self._title()} takes {counted(self.arity, 'argument')}, found {len(args)}",
                rule="FN-11",
                notes=(f"its signature is {self.struct_info}",),
            )
        return self.run(*(self._converted(args) if from_user else args))

    def _converted(self, args: tuple[object, ...]) -> tuple[Value, ...]:
        """The values of a user's arguments."""
        pairs = enumerate(zip(args, self.struct_info.params or (), strict=True))
        return tuple(
            user_argument(arg, sinfo, f"argument {index} of {self._title()}")
            for index, (arg, sinfo) in pairs
        )

    def _title(self) -> str:
        return f"function {self.name!r}" if self.name else "the function"

    @override
    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.struct_info}>"


class Closure(FunctionValue):
    """A Relax function with its captured variables (VAL-5, VAL-6, VAL-7)."""

    __slots__ = ()


class PrimFuncValue(FunctionValue):
    """A PrimFunc as a value (VAL-10): it may write into its arguments."""

    __slots__ = ()


@cache
def holds_numbers(dtype: np.dtype[Any]) -> bool:
    """True if a datatype is a fixed-width integer, float or Boolean one (VAL-1)."""
    if dtype.kind in "biuf":
        return dtype.itemsize <= 8
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
        case _ if callable(value) and not _is_expression(value):
            return Category.PACKED_FUNC
        case _:
            return Category.OBJECT


def _is_expression(value: object) -> TypeIs[rx.Expr]:
    """True if `value` is an expression of a program: callable, but not a function."""
    return isinstance(value, rx.Expr) and not isinstance(value, rx.BaseFunc)


def prim_dtype(value: bool | int | float | np.generic) -> DataType:
    """The datatype of a prim value: Python's int is int64, its float float64."""
    if isinstance(value, np.generic):
        return DataType(value.dtype.name)
    if isinstance(value, bool):
        return BOOL
    return INT64 if isinstance(value, int) else FLOAT64


def prim_value(value: bool | int | float | np.generic, dtype: DataType) -> Value:
    """`value` as a prim value of `dtype`: a Python number if possible, or a NumPy scalar."""
    if dtype in ("bool", "int64", "float64"):
        return {"bool": bool, "int64": int, "float64": float}[dtype](value)
    with np.errstate(all="ignore"):
        return dtype.numpy().type(value)


def describe(value: Value) -> str:
    """The description of `value` in messages: category, datatype, shape, or the number."""
    match category_of(value):
        case Category.TENSOR:
            order = "" if value.dtype.isnative else " with swapped bytes"
            return f"{_tensor(value.dtype)} of shape {value.shape}{order}"
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
            return f"an array of dtype {value.dtype}"
        case _ if _is_expression(value):
            return f"the expression {value!s:.60}, which belongs to a program"
        case _:
            return f"an object of class {type(value).__name__}"


def _tensor(kind: np.dtype[Any]) -> str:
    return f"{'an' if kind.kind == 'i' else 'a'} {kind.name} tensor"


def empty(shape: tuple[int, ...], kind: np.dtype[Any]) -> Array:
    """A new tensor with undefined elements.

    Errors:
        RuntimeCheckError: a dimension is negative, or there is not enough memory.
    """
    try:
        return np.empty(shape, kind)
    except (ValueError, MemoryError, OverflowError) as error:
        smaller = min(shape, default=0) < 0
        raise RuntimeCheckError(
            f"cannot allocate {_tensor(kind)} of shape {tuple(shape)}: {error}",
            rule="PX-9",
            hint="an operand is smaller than a window or a part that is taken of it"
            if smaller
            else None,
        ) from None


def memory_bytes() -> float:
    """The size of the memory of this machine; infinity if unknown."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return math.inf


def to_value(value: object, sinfo: rx.StructInfo | None) -> Value:
    """Convert an object of a user to a value, as the expected struct info requires.

    Arrays of other libraries become tensors over the same memory if that is possible. Scalars
    become tensors of rank 0 or prim values if they can be represented exactly; floats of Python are
    rounded, as in expressions of NumPy. Other objects are returned unchanged, and the check that
    follows rejects them.

    Errors:
        RuntimeCheckError: an array does not provide its elements, or an integer is outside int64.
    """
    if type(value) is np.ndarray:
        return value
    read = _read(value, sinfo)
    if isinstance(read, int) and not _LEAST <= read <= _LARGEST:
        raise RuntimeCheckError(f"the integer {digits(read)} needs more than 64 bits", rule="MC-9")
    return read


def user_argument(
    arg: object, sinfo: rx.StructInfo | None, title: str, span: Span | None = None
) -> Value:
    """Convert an argument of a user, which messages call `title`, to a value.

    Errors:
        FunctionSignatureError: it cannot be converted.
    """
    try:
        return to_value(arg, sinfo)
    except RuntimeCheckError as error:
        problem = f"{title}: expected {sinfo}: {error.diagnostic.message}"
        raise FunctionSignatureError(problem, rule="FN-1", span=span) from None


def _read(value: object, sinfo: rx.StructInfo | None) -> Value:
    match sinfo:
        case rx.TensorStructInfo(dtype=dtype):
            if is_scalar(value):
                kind = prim_dtype(value) if dtype.is_void else dtype
                number = scalar_of(value, kind)
                return value if number is None else np.array(number, kind.numpy())
            return as_tensor(value)
        case rx.PrimStructInfo(dtype=dtype) if is_scalar(value):
            number = scalar_of(value, dtype)
            return value if number is None else number
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


def _read_fields(value: tuple[object, ...], sinfos: Iterable[rx.StructInfo | None]) -> Value:
    """The tuple with its fields converted, or the same tuple if none changes."""
    kinds = {*map(type, value)}
    if kinds == {np.ndarray} or (kinds == {dict} and {*sinfos} == {None}):
        return value
    read = tuple(map(to_value, value, sinfos))
    return value if all(map(operator.is_, value, read)) else read


def is_scalar(value: object) -> TypeIs[bool | int | float | np.generic]:
    """True if `value` is a Python or NumPy number or bool."""
    if isinstance(value, (int, float)):
        return True
    return isinstance(value, np.generic) and holds_numbers(value.dtype)


def scalar_of(value: Any, dtype: DataType) -> Value | None:
    """`value` as a prim value of `dtype`, or None if that would change its value.

    A Python float, which has no datatype, may be rounded, but not to infinity.
    """
    source = prim_dtype(value)
    if source.is_bool != dtype.is_bool or (source.is_float and not dtype.is_float):
        return None
    if not dtype.is_float and not dtype.is_int:
        return None
    if dtype.is_int:
        low, high = ops.int_range(dtype)
        return prim_value(int(value), dtype) if low <= int(value) <= high else None
    try:
        # The small datatypes do not convert integers wider than 64 bits.
        result = prim_value(float(value) if source.is_int else value, dtype)
    except OverflowError:
        return None
    rounded = type(value) is float and np.isfinite(result)
    same = rounded or float(result) == float(value) or (result != result and value != value)
    exact_int = not source.is_int or not np.isfinite(result) or int(float(result)) == int(value)
    return result if same and exact_int else None


def as_tensor(value: Any) -> Value:
    """A tensor over the memory of `value` if it supports DLPack or `__array__`, or else `value`.

    Errors:
        RuntimeCheckError: the array does not provide its elements, or masks some.
    """
    if isinstance(value, np.ndarray):
        if is_masked(value):
            raise RuntimeCheckError(MASKED)
        is_view = type(value) is Tensor and value.byte_offset
        return value if is_view else np.asarray(value)
    try:
        return read_array(value)
    except BufferError as error:
        raise RuntimeCheckError(str(error)) from None


def on_views(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    attrs: Mapping[str, Any] = NO_ATTRS,
    *,
    tensors: bool = False,
) -> Any:
    """The result of a function for views of arrays, also in tuples, with the arrays in their place.

    The views keep their shapes, strides and datatypes when those of the arrays change while the
    function runs, and no array gets other memory. They are `tensors` or plain arrays.
    """
    _calls_users = True
    kept: list[ref[Array]] = []
    views = _views(args, kept, tensors=tensors)
    result = function(*views, **attrs) if attrs else function(*views)
    if result is None or (type(result) is np.ndarray and result.base is None):  # it is no view
        return result
    return with_originals(result, dict(_by_address(views, args)))


def _views(values: Sequence[Any], kept: list[ref[Array]], *, tensors: bool) -> list[Any]:
    """The views of values, whose memory does not change as long as what is `kept` lives."""
    if {*map(type, values)} == {np.ndarray}:
        # NumPy resizes no array that has a weak reference, even without a check.
        kept += map(ref, values)
        return [as_tensor_view(v) for v in values] if tensors else [v.view() for v in values]
    views = []
    for value in values:
        if type(value) is np.ndarray:
            views += _views((value,), kept, tensors=tensors)
        elif type(value) is tuple:
            views.append(tuple(_views(value, kept, tensors=tensors)))
        else:
            views.append(value)
    return views


def _by_address(views: Iterable[Any], values: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    for view, value in zip(views, values, strict=True):
        yield id(view), value
        if type(view) is tuple:
            yield from _by_address(view, value)


def with_originals(value: Any, originals: Mapping[int, Any]) -> Any:
    """`value` with the originals of copies or views in it, by their addresses; itself without."""
    if id(value) in originals:
        return originals[id(value)]
    if type(value) is tuple or type(value) is list:
        fields = type(value)([with_originals(member, originals) for member in value])
        return value if all(map(operator.is_, value, fields)) else fields
    return value


def from_packed(value: object, sinfos: tuple[rx.StructInfo, ...]) -> Value:
    """Convert the result of a packed function to a value; `sinfos` are those of the call."""
    if not sinfos:
        return None if value is None else to_value(value, None)
    sinfo = sinfos[0] if len(sinfos) == 1 else rx.TupleStructInfo(sinfos)
    return to_value(_with_shapes(value, sinfo), sinfo)


def _with_shapes(value: object, sinfo: rx.StructInfo) -> object:
    """Convert tuples of integers, such as `x.shape`, to shapes if they are declared so."""
    if not _is_tuple(value):
        return value
    if isinstance(sinfo, rx.ShapeStructInfo) and all(type(v) is int for v in value):
        return ShapeTuple(cast("tuple[int, ...]", value))
    if isinstance(sinfo, rx.TupleStructInfo) and len(value) == len(sinfo.fields):
        read = tuple(map(_with_shapes, value, sinfo.fields))
        return value if all(map(operator.is_, value, read)) else read
    return value


def check_int64(value: int) -> int:
    """`value`, a dimension. Errors: RuntimeCheckError if it is outside int64 (PX-9)."""
    if _LEAST <= value <= _LARGEST:
        return value
    raise RuntimeCheckError(f"the size {digits(value)} is outside the range of int64", rule="PX-9")
