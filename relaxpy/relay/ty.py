"""Types, under the path of TVM."""

from relaxpy.ir.relay.ty import (  # noqa: N812
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    RefType as RelayRefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeData,
    TypeKind,
    TypeRelation,
    TypeVar,
    UnknownDim as Any,
    scalar_type,
    shape_var as ShapeVar,
)

__all__ = [
    "Any",
    "FuncType",
    "GlobalTypeVar",
    "IncompleteType",
    "RefType",
    "RelayRefType",
    "ShapeVar",
    "TensorType",
    "TupleType",
    "Type",
    "TypeCall",
    "TypeData",
    "TypeKind",
    "TypeRelation",
    "TypeVar",
    "scalar_type",
]
