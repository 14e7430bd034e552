"""The static types of older versions of Relax: struct info without shapes."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

from typing_extensions import override

from relaxpy.errors import MisuseError
from relaxpy.ir.core.dtype import VOID, DataType
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.types import PrimType
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.base_classes import as_members, as_struct_info, check_kind
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing


class _TypeClass(type):
    """The class of a kind of types, of which the struct info of that kind is an instance, too.

    So a program for TVM after v0.22, where types are struct info, asks for the kind of struct info.
    """

    _sinfo_class: str

    @override
    def __instancecheck__(cls, instance: object) -> bool:
        if super().__instancecheck__(instance):
            return True
        return bool(cls._sinfo_class) and isinstance(instance, getattr(rx, cls._sinfo_class))


class Type(Node, metaclass=_TypeClass):
    """A type (TYP-1), compared by structure; as an annotation it means its `wrap_type`."""

    __slots__ = ()
    _sinfo_class = ""

    def __struct_info__(self) -> rx.StructInfo:
        return wrap_type(self)

    @property
    def span(self) -> None:
        """None: a type has no place in a program."""


def _check_rank(ndim: object) -> None:
    if not isinstance(ndim, int) or ndim < -1:
        raise MisuseError(f"ndim is -1 (unknown) or at least 0, found {ndim!r}", rule="TYP-1")


def _types(values: object) -> tuple[TypeKind, ...]:
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


@dataclass(frozen=True, slots=True, repr=False)
class ObjectType(Type):
    """Any value."""

    _sinfo_class = "ObjectStructInfo"


@dataclass(frozen=True, slots=True, repr=False)
class ShapeType(Type):
    """A shape of rank `ndim` (-1: unknown); struct info, if that is a list of dimensions."""

    _sinfo_class = "ShapeStructInfo"
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

    With a shape instead of `ndim` it is struct info, as types are in TVM after v0.22.
    """

    _sinfo_class = "TensorStructInfo"
    _fields = ("ndim", "dtype")
    ndim: int = -1
    dtype: DataType = DataType("float32")

    def __new__(
        cls, ndim: object = -1, dtype: Any = "float32", vdevice: Any = None, *, shape: Any = None
    ) -> Any:
        """A new type, or struct info if `ndim` is a shape, or there is one."""
        dims: Any = ndim if shape is None else shape
        if isinstance(dims, (list, tuple, rx.Expr)):
            return rx.TensorStructInfo(cast("rx.Expr", dims), dtype, vdevice)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        _check_rank(self.ndim)
        object.__setattr__(self, "dtype", VOID if self.dtype is None else DataType(self.dtype))


TensorType = DynTensorType
"""TVM's name for it."""


@dataclass(frozen=True, slots=True, repr=False)
class TupleType(Type):
    """A tuple, field by field; struct info, if one of them is."""

    _sinfo_class = "TupleStructInfo"
    _fields = ("fields",)
    fields: tuple[TypeKind, ...] = ()

    def __new__(cls, fields: Any = ()) -> Any:
        """A new type, or struct info if a field is struct info."""
        if _has_struct_info(fields):
            return rx.TupleStructInfo(fields)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", _types(self.fields))


@dataclass(frozen=True, slots=True, repr=False)
class FuncType(Type):
    """A function, which is pure by default (LEG-13); struct info, if a parameter or result is."""

    _sinfo_class = "FuncStructInfo"
    _fields = ("arg_types", "ret_type", "pure")
    arg_types: tuple[TypeKind, ...]
    ret_type: TypeKind
    pure: bool = True

    def __new__(cls, arg_types: Any = (), ret_type: Any = None, pure: bool = True) -> Any:
        """A new type, or struct info if a parameter or the result is struct info."""
        if _has_struct_info(arg_types) or isinstance(ret_type, rx.StructInfo):
            return rx.FuncStructInfo(arg_types, ret_type, pure)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        _check_type(self.ret_type)
        object.__setattr__(self, "arg_types", _types(self.arg_types))


@dataclass(frozen=True, slots=True, repr=False)
class PackedFuncType(Type):
    """A packed function."""


TypeKind: TypeAlias = (
    ObjectType | ShapeType | DynTensorType | TupleType | FuncType | PackedFuncType | PrimType
)


@user_facing
def erase_struct_info(sinfo: rx.StructInfo) -> TypeKind:
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


@user_facing
def wrap_type(ty: Type | PrimType) -> rx.StructInfo:
    """The least specific struct info of type `ty`.

    Rule:
        TYP-4, TYP-5.
    Errors:
        MisuseError (also TypeError): `ty` is not a type.
    """
    match None if isinstance(ty, rx.StructInfo) else ty:
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
        case PrimType():
            return ty.__struct_info__()
        case _:
            raise MisuseError(f"expected a Relax type, found {type(ty).__name__}", rule="TYP-1")
