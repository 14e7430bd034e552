"""Types, under the path of TVM."""

from relaxpy.ir.relay.ty import (
    FuncType as FuncType,
    GlobalTypeVar as GlobalTypeVar,
    IncompleteType as IncompleteType,
    RefType as RefType,
    TensorType as TensorType,
    TupleType as TupleType,
    Type as Type,
    TypeCall as TypeCall,
    TypeData as TypeData,
    TypeKind as TypeKind,
    TypeRelation as TypeRelation,
    TypeVar as TypeVar,
    UnknownDim as _UnknownDim,
    scalar_type as scalar_type,
    shape_var as _shape_var,
)

RelayRefType = RefType
Any = _UnknownDim
ShapeVar = _shape_var
