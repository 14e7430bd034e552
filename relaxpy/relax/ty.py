"""The static types of older versions of Relax: struct info without shapes."""

from relaxpy.ir.relax.nodes.static_type import (
    DynTensorType as DynTensorType,
    FuncType as FuncType,
    ObjectType as ObjectType,
    PackedFuncType as PackedFuncType,
    ShapeType as ShapeType,
    TupleType as TupleType,
    Type as Type,
    erase_struct_info as erase_struct_info,
    wrap_type as wrap_type,
)
from relaxpy.ir.relax.relations.static_types import (
    find_glb as find_glb,
    find_lub as find_lub,
    is_subtype as is_subtype,
)

AnyType = ObjectType
TensorType = DynTensorType
