"""Struct info: what is known of a value at compile time."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.struct_info")
if TYPE_CHECKING:
    from relaxpy.ir.relax.nodes import EnvFunc as EnvFunc, FuncStructInfo as FuncStructInfo, ObjectStructInfo as ObjectStructInfo, PrimStructInfo as PrimStructInfo, ShapeStructInfo as ShapeStructInfo, StructInfo as StructInfo, TensorStructInfo as TensorStructInfo, TupleStructInfo as TupleStructInfo
    from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo as DTensorStructInfo
