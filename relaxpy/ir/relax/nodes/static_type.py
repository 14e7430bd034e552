"""The static types of older versions of Relax: struct info without shapes, and its order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError, StructInfoTypeError
from relaxpy.ir.core.dtype import VOID, DataType
from relaxpy.ir.core.node import Node
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
    _check_types(*types)
    return types


@dataclass(frozen=True, slots=True, repr=False)
class ObjectType(Type):
    """Any value."""


@dataclass(frozen=True, slots=True, repr=False)
class ShapeType(Type):
    """A shape of rank `ndim` (-1: unknown)."""

    _fields = ("ndim",)
    ndim: int = -1

    def __post_init__(self) -> None:
        _check_rank(self.ndim)


@dataclass(frozen=True, slots=True, repr=False)
class DynTensorType(Type):
    """A tensor of rank `ndim` (-1: unknown) and datatype `dtype` (Void: unknown)."""

    _fields = ("ndim", "dtype")
    ndim: int = -1
    dtype: DataType = DataType("float32")  # noqa: RUF009

    def __post_init__(self) -> None:
        _check_rank(self.ndim)
        object.__setattr__(self, "dtype", VOID if self.dtype is None else DataType(self.dtype))


TensorType = DynTensorType
"""TVM's name for it."""


@dataclass(frozen=True, slots=True, repr=False)
class TupleType(Type):
    """A tuple, field by field."""

    _fields = ("fields",)
    fields: tuple[AnyType, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", _types(self.fields))


@dataclass(frozen=True, slots=True, repr=False)
class FuncType(Type):
    """A function, which is pure by default (LEG-13)."""

    _fields = ("arg_types", "ret_type", "pure")
    arg_types: tuple[AnyType, ...]
    ret_type: AnyType
    pure: bool = True

    def __post_init__(self) -> None:
        check_kind(self.ret_type, Type, "a Relax type", "TYP-1")
        object.__setattr__(self, "arg_types", _types(self.arg_types))


@dataclass(frozen=True, slots=True, repr=False)
class PackedFuncType(Type):
    """A packed function."""


AnyType: TypeAlias = ObjectType | ShapeType | DynTensorType | TupleType | FuncType | PackedFuncType


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


def wrap_type(ty: Type) -> rx.StructInfo:
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
        case _:
            raise MisuseError(f"expected a Relax type, found {type(ty).__name__}", rule="TYP-1")


def _check_types(*values: object) -> None:
    for value in values:
        check_kind(value, Type, "a Relax type", "TYP-1")


@user_facing
def is_subtype(sub: AnyType, base: AnyType) -> bool:
    """Whether `sub <: base`.

    Rule:
        TYP-7, TYP-8, TYP-9, TYP-10, TYP-11, TYP-12.
    Errors:
        MisuseError (also TypeError): an operand is not a type.
    """
    _check_types(sub, base)
    match sub, base:
        case _, ObjectType():
            return True
        case DynTensorType(), DynTensorType():
            return base.ndim in (-1, sub.ndim) and base.dtype in (VOID, sub.dtype)
        case ShapeType(), ShapeType():
            return base.ndim in (-1, sub.ndim)
        case TupleType(fields=a), TupleType(fields=b):
            return len(a) == len(b) and all(map(is_subtype, a, b))
        case FuncType(arg_types=a), FuncType(arg_types=b):
            return (
                len(a) == len(b)
                and all(map(is_subtype, b, a))
                and is_subtype(sub.ret_type, base.ret_type)
                and (sub.pure or not base.pure)
            )
        case _:
            return sub == base


@user_facing
def find_lub(a: AnyType, b: AnyType) -> AnyType:
    """The least upper bound.

    Rule:
        TYP-13, TYP-14.
    Errors:
        MisuseError (also TypeError): an operand is not a type.
    """
    _check_types(a, b)
    match a, b:
        case DynTensorType(), DynTensorType():
            ndim = a.ndim if a.ndim == b.ndim else -1
            return DynTensorType(ndim, a.dtype if a.dtype == b.dtype else VOID)
        case ShapeType(), ShapeType():
            return ShapeType(a.ndim if a.ndim == b.ndim else -1)
        case TupleType(fields=p), TupleType(fields=q) if len(p) == len(q):
            return TupleType(tuple(map(find_lub, p, q)))
        case FuncType(arg_types=p), FuncType(arg_types=q) if len(p) == len(q):
            args = [find_glb(x, y) for x, y in zip(p, q, strict=True)]
            known = tuple(x for x in args if x is not None)
            if len(known) != len(args):
                return ObjectType()
            return FuncType(known, find_lub(a.ret_type, b.ret_type), a.pure and b.pure)
        case _:
            return a if a == b else ObjectType()


@user_facing
def find_glb(a: AnyType, b: AnyType) -> AnyType | None:
    """The greatest lower bound, or None if there is none.

    Rule:
        TYP-15, TYP-16.
    Errors:
        MisuseError (also TypeError): an operand is not a type.
    """
    _check_types(a, b)
    match a, b:
        case ObjectType(), _:
            return b
        case _, ObjectType():
            return a
        case DynTensorType(), DynTensorType():
            ranks = {a.ndim, b.ndim} - {-1}
            dtypes = {a.dtype, b.dtype} - {VOID}
            if len(ranks) > 1 or len(dtypes) > 1:
                return None
            return DynTensorType(ranks.pop() if ranks else -1, dtypes.pop() if dtypes else VOID)
        case ShapeType(), ShapeType():
            ranks = {a.ndim, b.ndim} - {-1}
            return None if len(ranks) > 1 else ShapeType(ranks.pop() if ranks else -1)
        case TupleType(fields=p), TupleType(fields=q) if len(p) == len(q):
            fields = [find_glb(x, y) for x, y in zip(p, q, strict=True)]
            known = tuple(x for x in fields if x is not None)
            return TupleType(known) if len(known) == len(fields) else None
        case FuncType(arg_types=p), FuncType(arg_types=q) if len(p) == len(q):
            ret = find_glb(a.ret_type, b.ret_type)
            args = tuple(map(find_lub, p, q))
            return None if ret is None else FuncType(args, ret, a.pure or b.pure)
        case _:
            return a if a == b else None


def require_subtype(actual: AnyType, expected: AnyType) -> None:
    """Check that a value of type `actual` can be used as an `expected`.

    Rule:
        TYP-17, TYP-18.
    Errors:
        StructInfoTypeError: it cannot; the hint is a cast if `actual` is the wider type.
    """
    if is_subtype(actual, expected):
        return
    hint = None
    if is_subtype(expected, actual):
        hint = f"check it at run time: R.match_cast(value, {expected})"
    raise StructInfoTypeError(f"{actual} is not {expected}", rule="TYP-18", hint=hint)
