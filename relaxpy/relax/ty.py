"""The static types of older versions of Relax: struct info without shapes."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.relax.nodes.static_type import (
        DynTensorType as DynTensorType,
        DynTensorType as TensorType,
        FuncType as FuncType,
        ObjectType as AnyType,
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
else:
    _face(
        globals(),
        """
        relaxpy.ir.relax.nodes.static_type: DynTensorType FuncType ObjectType PackedFuncType ShapeType
            TupleType Type erase_struct_info wrap_type AnyType=ObjectType TensorType=DynTensorType
        relaxpy.ir.relax.relations.static_types: find_glb find_lub is_subtype
        """,
    )
