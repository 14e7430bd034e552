"""The static types of older versions of Relax: struct info without shapes."""

from __future__ import annotations

from typing import Any, TypeAlias

from relaxpy.dataclass import dataclass
from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError
from relaxpy.ir.core.dtype import VOID, DataType
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.types import PrimType
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.base import as_members, as_struct_info, check_kind


class Type(Node):
    """A type (TYP-1), compared by structure; as an annotation it means its `wrap_type`."""

    __slots__ = ()

    def __struct_info__(self) -> rx.StructInfo:
        return wrap_type(self)


def _check_rank(ndim: object) -> None:
    if not isinstance(ndim, int) or ndim < -1:
        raise MisuseError(f"ndim is -1 (unknown) or at least 0, found {ndim!r}", rule="TYP-1")


def _types(values: object) -> tuple[AnyType, ...]:
    """Convert a list of types to a tuple."""
    types = as_members(values, "types", "TYP-1")
    for value in types:
        _check_type(value)
    return types


def _check_type(value: object) -> None:
    if not isinstance(value, PrimType):
        check_kind(value, Type, "a Relax type", "TYP-1")


def _has_struct_info(values: object) -> bool:
    return isinstance(values, (list, tuple)) and any(isinstance(v, rx.StructInfo) for v in values)


def _wrapped(value: Any) -> Any:
    """Struct info for a primitive type; any other value as it is."""
    return wrap_type(value) if isinstance(value, PrimType) else value


@dataclass(frozen=True, slots=True, repr=False)
class ObjectType(Type):
    """Any value."""


@dataclass(frozen=True, slots=True, repr=False)
class ShapeType(Type):
    """A shape of rank `ndim` (-1: unknown); struct info, if that is a list of dimensions."""

    _fields = ("ndim",)
    ndim: int = -1

    def __new__(cls, ndim: object = -1) -> Any:
        """A new type, or struct info if `ndim` is a list of dimensions."""
        values: Any = ndim
        if isinstance(ndim, (list, tuple)):
            return rx.ShapeStructInfo(values)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        _check_rank(self.ndim)


@dataclass(frozen=True, slots=True, repr=False)
class DynTensorType(Type):
    """A tensor of rank `ndim` (-1: unknown) and datatype `dtype` (Void: unknown).

    With a shape in place of `ndim` it is struct info, as types are in TVM after v0.22.
    """

    _fields = ("ndim", "dtype")
    ndim: int = -1
    dtype: DataType = DataType("float32")

    def __new__(cls, ndim: object = -1, dtype: Any = "float32", vdevice: Any = None) -> Any:
        """A new type, or struct info if `ndim` is a shape."""
        shape: Any = ndim
        if isinstance(ndim, (list, tuple, rx.Expr)):
            return rx.TensorStructInfo(shape, dtype, vdevice)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        _check_rank(self.ndim)
        object.__setattr__(self, "dtype", VOID if self.dtype is None else DataType(self.dtype))


TensorType = DynTensorType
"""TVM's name for it."""


@dataclass(frozen=True, slots=True, repr=False)
class TupleType(Type):
    """A tuple, field by field; struct info, if one of them is."""

    _fields = ("fields",)
    fields: tuple[AnyType, ...] = ()

    def __new__(cls, fields: Any = ()) -> Any:
        """A new type, or struct info if a field is struct info."""
        if _has_struct_info(fields):
            return rx.TupleStructInfo(tuple(map(_wrapped, fields)))
        return object.__new__(cls)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", _types(self.fields))


@dataclass(frozen=True, slots=True, repr=False)
class FuncType(Type):
    """A function, which is pure by default (LEG-13); struct info, if a parameter or result is."""

    _fields = ("arg_types", "ret_type", "pure")
    arg_types: tuple[AnyType, ...]
    ret_type: AnyType
    pure: bool = True

    def __new__(cls, arg_types: Any = (), ret_type: Any = None, pure: bool = True) -> Any:
        """A new type, or struct info if a parameter or the result is struct info."""
        if _has_struct_info(arg_types) or isinstance(ret_type, rx.StructInfo):
            return rx.FuncStructInfo(tuple(map(_wrapped, arg_types)), _wrapped(ret_type), pure)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        _check_type(self.ret_type)
        object.__setattr__(self, "arg_types", _types(self.arg_types))


@dataclass(frozen=True, slots=True, repr=False)
class PackedFuncType(Type):
    """A packed function."""


AnyType: TypeAlias = (
    ObjectType | ShapeType | DynTensorType | TupleType | FuncType | PackedFuncType | PrimType
)


@user_facing
def erase_struct_info(sinfo: rx.StructInfo) -> AnyType:
    """The type of `sinfo`, which has no shapes, values and devices.

    Rule:
        TYP-2, TYP-3.
    Errors:
        MisuseError (also TypeError): `sinfo` is not struct info.
    """
    match as_struct_info(sinfo):
        case rx.TensorStructInfo(ndim=ndim, dtype=dtype):
            return DynTensorType(ndim, dtype)
        case rx.ShapeStructInfo(ndim=ndim):
            return ShapeType(ndim)
        case rx.TupleStructInfo(fields=fields):
            return TupleType(tuple(map(erase_struct_info, fields)))
        case rx.FuncStructInfo(params=None):
            return PackedFuncType()
        case rx.FuncStructInfo(params=params, ret=ret, purity=purity):
            types = tuple(map(erase_struct_info, params or ()))
            return FuncType(types, erase_struct_info(ret), purity)
        case _:
            return ObjectType()


def wrap_type(ty: Type | PrimType) -> rx.StructInfo:
    """The least specific struct info of type `ty`.

    Rule:
        TYP-4, TYP-5.
    Errors:
        MisuseError (also TypeError): `ty` is not a type.
    """
    match ty:
        case ObjectType():
            return rx.ObjectStructInfo()
        case ShapeType(ndim=ndim):
            return rx.ShapeStructInfo(None, ndim)
        case DynTensorType(ndim=ndim, dtype=dtype):
            return rx.TensorStructInfo(None, dtype, ndim=ndim)
        case TupleType(fields=fields):
            return rx.TupleStructInfo(tuple(map(wrap_type, fields)))
        case FuncType(arg_types=args, ret_type=ret, pure=pure):
            return rx.FuncStructInfo(tuple(map(wrap_type, args)), wrap_type(ret), pure)
        case PackedFuncType():
            return rx.FuncStructInfo.opaque_func(derive_func=rx.DEFAULT_DERIVE)
        case PrimType(dtype=dtype):
            return rx.PrimStructInfo(dtype)
        case _:
            raise MisuseError(f"expected a Relax type, found {type(ty).__name__}", rule="TYP-1")
