"""The types of the older documents, a view of StructInfo."""

from relaxpy.ir.relax.nodes.static_type import (
    AnyType,
    DynTensorType,
    DynTensorType as TensorType,
    FuncType,
    ObjectType,
    PackedFuncType,
    ShapeType,
    TupleType,
    Type,
    erase_struct_info,
    find_glb,
    find_lub,
    is_subtype,
    wrap_type,
)

__all__ = [
    "AnyType",
    "DynTensorType",
    "FuncType",
    "ObjectType",
    "PackedFuncType",
    "ShapeType",
    "TensorType",
    "TupleType",
    "Type",
    "erase_struct_info",
    "find_glb",
    "find_lub",
    "is_subtype",
    "wrap_type",
]
