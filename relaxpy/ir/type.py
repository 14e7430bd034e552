"""Types, under TVM's module name."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.ir.type")
if TYPE_CHECKING:
    from relaxpy.ir.core.types import PointerType as PointerType, PrimType as PrimType
    from relaxpy.ir.relax.nodes.static_type import FuncType as FuncType, TupleType as TupleType, Type as Type
