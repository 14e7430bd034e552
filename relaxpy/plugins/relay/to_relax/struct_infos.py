"""The struct info of Relay types, and where a value needs a cast to have it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.tir import expr as tir
from relaxpy.plugins.relay.infer.solver import substitute
from relaxpy.plugins.relay.op.relations import RelationError
from relaxpy.plugins.relay.op.struct_info import Names
from relaxpy.plugins.relay.ty import (
    FuncType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeKind,
    TypeVar,
    UnknownDim,
)


class UntranslatableError(RelationError):
    """Relax cannot express something of Relay; `rule` is the rule that defines it."""

    def __init__(self, message: str, rule: str) -> None:
        super().__init__(message)
        self.rule = rule


class StructInfos(Names):
    """The struct infos of the types in one function, whose type parameters have `instances`.

    A ShapeVar is one shape variable in the whole function; each `?` of a parameter is a new one.
    """

    def __init__(self, instances: Mapping[TypeVar, Any]) -> None:
        super().__init__()
        self.instances = dict(instances)

    def substituted(self, ty: Type) -> Type:
        """Return a type with the type parameters of the function replaced by their instances."""
        result: Type = substitute(ty, self.instances)
        return result

    @override
    def struct_info(self, ty: Type) -> rx.StructInfo:
        """Return the struct info of a parameter.

        Errors:
            UntranslatableError: Relax has no values of this type.
        """
        match ty:
            case FuncType():
                return self._function(ty)
            case TensorType() | TupleType():
                return super().struct_info(ty)
            case _:
                raise refusal(ty)

    def _function(self, ty: FuncType) -> rx.FuncStructInfo:
        if any(param.kind is TypeKind.Type for param in ty.type_params):
            raise refusal(ty)
        params = [self.struct_info(arg) for arg in ty.arg_types]
        return rx.FuncStructInfo(params, self.result(ty.ret_type, ty.arg_types))  # type: ignore[arg-type]

    def result(self, ty: Type, params: tuple[Type, ...]) -> rx.StructInfo:
        """Return the struct info of the result of a function with parameters of these types.

        A shape with a dimension that is not known, or that no parameter defines, is open.
        """
        bound = {dim for param in params for dim in _defined(param)}

        def visit(part: Type) -> rx.StructInfo:
            match part:
                case TupleType(fields=fields):
                    return rx.TupleStructInfo([visit(field) for field in fields])  # type: ignore[arg-type]
                case TensorType(shape=tuple() as shape, dtype=dtype) if any(
                    isinstance(dim, UnknownDim) or (isinstance(dim, TypeVar) and dim not in bound)
                    for dim in shape
                ):
                    known = dtype if isinstance(dtype, DataType) else DataType("")
                    return rx.TensorStructInfo(dtype=known, ndim=len(shape))
                case _:
                    return self.struct_info(part)

        return visit(ty)

    def needs_cast(self, sinfo: rx.StructInfo | None, ty: Type) -> bool:
        """Return whether struct info says less than a type does.

        Errors:
            UntranslatableError: a function does not have the type, and no cast can change that.
        """
        match ty, sinfo:
            case TensorType(), rx.TensorStructInfo():
                return self._tensor_needs_cast(sinfo, ty)
            case TupleType(fields=types), rx.TupleStructInfo(fields=fields):
                pairs = zip(fields, types, strict=True)
                return any(self.needs_cast(field, expected) for field, expected in pairs)
            case FuncType(), rx.FuncStructInfo():
                if not is_base_of(self.struct_info(ty), sinfo):
                    raise UntranslatableError(
                        f"a function that is expected to be {ty} has other dimensions", "RLY-88"
                    )
                return False
            case _:
                return True

    def _tensor_needs_cast(self, sinfo: rx.TensorStructInfo, ty: TensorType) -> bool:
        if isinstance(ty.dtype, DataType) and sinfo.dtype != ty.dtype:
            return True
        if not isinstance(ty.shape, tuple):
            return False
        shape = sinfo.get_shape()
        if shape is None or len(shape) != len(ty.shape):
            return True
        return any(
            self.variables.get(dim) is not size
            if isinstance(dim, TypeVar)
            else isinstance(dim, int) and not (isinstance(size, tir.IntImm) and size.value == dim)
            for dim, size in zip(ty.shape, shape, strict=True)
        )


def _defined(param: Type) -> list[TypeVar]:
    """Return the dimensions that a parameter defines: those of tensors in it."""
    match param:
        case TupleType(fields=fields):
            return [dim for field in fields for dim in _defined(field)]
        case TensorType(shape=tuple() as shape):
            return [dim for dim in shape if isinstance(dim, TypeVar)]
        case _:
            return []


def refusal(ty: Type) -> UntranslatableError:
    """Return the reason why Relax has no values of a type."""
    for part in reversed(list(walk(ty))):
        match part:
            case TypeCall():
                return UntranslatableError(f"{part} is a data type", "RLY-31")
            case RefType():
                return UntranslatableError(f"{part} is a reference cell", "RLY-105")
            case FuncType(type_params=params) if any(p.kind is TypeKind.Type for p in params):
                return UntranslatableError(f"{part} is a polymorphic function", "RLY-97")
            case _:
                pass
    return UntranslatableError(f"{ty} is a type parameter of no known instance", "RLY-97")
