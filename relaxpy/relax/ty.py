"""The static types of older versions of Relax: struct info without shapes."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.ty")
if TYPE_CHECKING:
    from relaxpy.ir.relax.nodes.static_type import DynTensorType as DynTensorType, FuncType as FuncType, ObjectType as ObjectType, PackedFuncType as PackedFuncType, ShapeType as ShapeType, TupleType as TupleType, Type as Type, erase_struct_info as erase_struct_info, wrap_type as wrap_type
    from relaxpy.ir.relax.nodes.static_type import ObjectType as AnyType
    from relaxpy.ir.relax.nodes.static_type import DynTensorType as TensorType
    from relaxpy.tvm.relax.helpers import find_glb as find_glb, find_lub as find_lub, is_subtype as is_subtype
    __all__ = ['AnyType', 'DynTensorType', 'FuncType', 'ObjectType', 'PackedFuncType', 'ShapeType', 'TensorType', 'TupleType', 'Type', 'erase_struct_info', 'find_glb', 'find_lub', 'is_subtype', 'wrap_type']
