"""Reading properties of a tensor: `x.shape[i]`, `x.ndim`, `x.dtype.bits` and their operators."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import ClassVar, TypeAlias, cast

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError
from relaxpy.ir.core.dtype import INT32, INT64, DataType
from relaxpy.ir.op_record import OpRecord
from relaxpy.ir.relax.nodes import Call, Expr, PrimStructInfo, PrimValue, TensorStructInfo
from relaxpy.ir.relax.nodes.evaluation import is_evaluating
from relaxpy.ir.relax.op.definition.registry import OpDef, enter, register
from relaxpy.ir.relax.op.definition.rules import normal_axis, refuse, refuse_type
from relaxpy.ir.te.topi.shapes import product
from relaxpy.ir.tir import expr as tir, ops

UINT8, UINT16, UINT64 = DataType("uint8"), DataType("uint16"), DataType("uint64")


def _property(
    name: str, meaning: str, dtype: DataType, value_of: Callable[[TensorStructInfo], int | None]
) -> OpDef:
    """The operator that reads a number of a tensor, which `value_of` knows from struct info."""

    def rule(tensor: TensorStructInfo) -> PrimStructInfo:
        value = value_of(tensor)
        return PrimStructInfo(dtype, None if value is None else ops.const(value, dtype))

    doc = f"""{meaning}

    Shapes:
        tensor  any
        result  a scalar of {dtype}, known where struct info tells it
    """
    record = OpRecord(f"relax.inspect.tensor_{name}", rule, doc, pure=True, literal=True)
    return enter(record)


def _of_dtype(name: str) -> Callable[[TensorStructInfo], int | None]:
    return lambda x: None if x.dtype.is_void else cast("int", getattr(x.dtype, name))


def _offset(tensor: TensorStructInfo) -> int | None:
    return None if tensor.get_shape() is None else 0


tensor_dtype_code = _property(
    "dtype_code",
    "The kind of elements as a number, as DLPack counts them: `x.dtype.type_code`.",
    UINT8,
    _of_dtype("type_code"),
)
tensor_dtype_bits = _property(
    "dtype_bits",
    "The bits of an element, 1 for a Boolean: `x.dtype.bits`.",
    UINT8,
    _of_dtype("bits"),
)
tensor_dtype_lanes = _property(
    "dtype_lanes", "The lanes of an element: `x.dtype.lanes`.", UINT16, _of_dtype("lanes")
)
tensor_ndim = _property(
    "ndim", "The rank: `x.ndim`.", INT32, lambda x: None if x.ndim < 0 else x.ndim
)
tensor_byte_offset = _property(
    "byte_offset",
    "Bytes from the beginning of the memory of a tensor to its first element: `x.byte_offset`.",
    UINT64,
    _offset,
)
tensor_elem_offset = _property(
    "elem_offset",
    "Elements from the beginning of the memory of a tensor to its first: `x.elem_offset`.",
    UINT64,
    _offset,
)


@register("relax.inspect.tensor_shape_i", pure=True, literal=True)
def tensor_shape_i(tensor: TensorStructInfo, axis: PrimStructInfo) -> PrimStructInfo:
    """The size along an axis: `x.shape[axis]`.

    Shapes:
        tensor  any
        axis    an integer, from 0 up to the rank
        result  an int64 scalar, known where the axis and the shape are
    Errors:
        StructInfoError: the axis is not an integer, or it is known to be out of range.
    """
    sizes, position = tensor.get_shape(), _position(tensor, axis)
    size = None if sizes is None or position is None else sizes[position]
    return PrimStructInfo(INT64, None if size is None else size.astype(INT64))


@register("relax.inspect.tensor_stride_i", pure=True, literal=True)
def tensor_stride_i(tensor: TensorStructInfo, axis: PrimStructInfo) -> PrimStructInfo:
    """Elements between neighbours along an axis, rows lying one after another: `x.strides[axis]`.

    Shapes:
        tensor  any
        axis    an integer, from 0 up to the rank
        result  an int64 scalar, known where the axis and the shape are
    Errors:
        StructInfoError: the axis is not an integer, or it is known to be out of range.
    """
    sizes, position = tensor.get_shape(), _position(tensor, axis)
    stride = None if sizes is None or position is None else strides_of(sizes)[position]
    return PrimStructInfo(INT64, stride)


def strides_of(sizes: tuple[tir.PrimExpr, ...]) -> tuple[tir.PrimExpr, ...]:
    """Elements between neighbours along each axis, rows lying one after another."""
    return tuple(product(sizes[i + 1 :]).astype(INT64) for i in range(len(sizes)))


def _position(tensor: TensorStructInfo, axis: PrimStructInfo) -> int | None:
    """The axis, where it is known.

    Errors:
        StructInfoError: it is not an integer, or it is known to be out of range.
    """
    if not axis.dtype.is_int or axis.dtype.is_bool:
        raise refuse_type(f"the axis is an integer, found {axis}", axis)
    if not isinstance(axis.value, tir.IntImm):
        return None
    position = axis.value.value
    if position < 0 or 0 <= tensor.ndim <= position:
        rank = f" for rank {tensor.ndim}" if tensor.ndim >= 0 else ": they are counted from 0"
        raise refuse(f"axis {position} is out of range{rank}", axis)
    return position


class _Property:
    """A property of a tensor that is read when the program runs."""

    __slots__ = ("tensor",)
    _name: ClassVar[str]
    hint: ClassVar[str]

    def __init__(self, tensor: Expr) -> None:
        self.tensor = tensor

    @override
    def __eq__(self, other: object) -> bool:
        raise MisuseError(f"{self} is known only when the program runs", hint=self.hint)

    __hash__ = None  # type: ignore[assignment]

    @override
    def __repr__(self) -> str:
        return f"{_shown(self.tensor)}.{self._name}"


class TensorDtype(_Property):
    """`x.dtype` of a tensor: each property of it is the call of an operator."""

    __slots__ = ()
    display_name = "datatype of a tensor"
    hint = "compare its .type_code, .bits and .lanes, or declare it with R.match_cast first"
    _name = "dtype"

    @property
    def type_code(self) -> Call:
        """The kind of elements as a number, as DLPack counts them."""
        return tensor_dtype_code.make(self.tensor)

    @property
    def bits(self) -> Call:
        """The bits of an element."""
        return tensor_dtype_bits.make(self.tensor)

    @property
    def lanes(self) -> Call:
        """The lanes of an element."""
        return tensor_dtype_lanes.make(self.tensor)


class TensorSizes(_Property):
    """Numbers of a tensor, one for each axis; each is the call of an operator."""

    __slots__ = ()
    _operator: ClassVar[OpDef]

    def __getitem__(self, axis: object) -> Call:
        """The value for an axis, which counts from the end if negative and the rank is known.

        Errors:
            MisuseError: `axis` is not an integer; StructInfoError: it is out of range.
        """
        return self._operator.make(self.tensor, self._index(axis))

    def _index(self, axis: object) -> Expr:
        if isinstance(axis, Expr):
            return axis
        if isinstance(axis, tir.PrimExpr) and not isinstance(axis, tir.IntImm):
            return PrimValue(axis)
        try:
            if isinstance(axis, (bool, np.bool_)):
                raise TypeError
            position = axis.value if isinstance(axis, tir.IntImm) else operator.index(axis)  # type: ignore[arg-type]
        except TypeError:
            actual = "a slice" if isinstance(axis, slice) else repr(axis)
            raise MisuseError(
                f"the index of .{self._name} is an integer, found {actual:.60}", about=axis
            ) from None
        rank = self._rank()
        if rank is not None:
            position = normal_axis(position, rank)
        elif position < 0:
            raise refuse(
                f"axis {position} is counted from the end, but the rank is not known",
                axis,
                hint="declare the rank with R.match_cast first",
            )
        return PrimValue(ops.const(position, INT64))

    def _rank(self) -> int | None:
        sinfo = self.tensor.struct_info
        return sinfo.ndim if isinstance(sinfo, TensorStructInfo) and sinfo.ndim >= 0 else None

    def __iter__(self) -> Iterator[Call]:
        """The numbers of all axes, where the rank is known."""
        return iter([self[axis] for axis in range(len(self))])

    def __len__(self) -> int:
        rank = self._rank()
        if rank is None:
            raise MisuseError(
                f"the rank of {_shown(self.tensor)} is not known",
                hint="index it, or declare the rank with R.match_cast first",
            )
        return rank


class TensorShape(TensorSizes):
    """`x.shape` of a tensor."""

    __slots__ = ()
    display_name = "shape that is not known while the program is parsed"
    hint = "name its sizes with R.match_cast first, or take R.shape_of"
    _operator = tensor_shape_i
    _name = "shape"


class TensorStrides(TensorSizes):
    """`x.strides` of a tensor."""

    __slots__ = ()
    display_name = "list of strides that is not known while the program is parsed"
    hint = "name the sizes of the tensor with R.match_cast first"
    _operator = tensor_stride_i
    _name = "strides"


Inspected: TypeAlias = Call | TensorDtype | TensorSizes


def inspected(tensor: Expr, name: str) -> Inspected:
    """`tensor.name` as a call, or as a property whose members are calls."""
    match name:
        case "dtype":
            return TensorDtype(tensor)
        case "shape":
            return TensorShape(tensor)
        case "strides":
            return TensorStrides(tensor)
        case "ndim":
            return tensor_ndim.make(tensor)
        case "byte_offset":
            return tensor_byte_offset.make(tensor)
        case _:
            return tensor_elem_offset.make(tensor)


def known_property(tensor: TensorStructInfo, name: str) -> object:
    """The value of `x.name` of a tensor `x` for a program being parsed; None if it is not known."""
    sizes = tensor.get_shape()
    match name:
        case "dtype":
            return None if tensor.dtype.is_void else tensor.dtype
        case "ndim":
            return None if tensor.ndim < 0 else tensor.ndim
        case "shape" | "strides":
            return sizes if sizes is None or name == "shape" else strides_of(sizes)
        case _:
            return None if sizes is None else ops.const(0, UINT64)


def property_of(tensor: Expr, name: str) -> object:
    """`tensor.name` for Python code: its known value while a function is parsed, else calls."""
    sinfo = tensor.struct_info
    if is_evaluating() and isinstance(sinfo, TensorStructInfo):
        value = known_property(sinfo, name)
        if value is not None:
            return value
    return inspected(tensor, name)


def hint_for(value: object) -> str | None:
    """The hint for a property that is read when the program runs, where that is not accepted."""
    if isinstance(value, _Property):
        return value.hint
    if isinstance(value, Call) and value.op == tensor_shape_i.op:
        return TensorShape.hint
    return None


NUMBERS = {"ndim": INT32, "bits": UINT8, "type_code": UINT8, "lanes": UINT16}
"""The properties that are numbers of Python where they are known, and their datatypes."""

PROPERTIES = frozenset(("shape", "ndim", "dtype", "strides", "byte_offset", "elem_offset"))
"""The properties of a tensor that programs can read."""


def _shown(tensor: Expr) -> str:
    return getattr(tensor, "name_hint", "a tensor")
