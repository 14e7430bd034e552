"""Types, under the path of TVM."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relay.ty")
if TYPE_CHECKING:
    from relaxpy.plugins.relay.ty import FuncType as FuncType, GlobalTypeVar as GlobalTypeVar, IncompleteType as IncompleteType, RefType as RefType, TensorType as TensorType, TupleType as TupleType, Type as Type, TypeCall as TypeCall, TypeData as TypeData, TypeKind as TypeKind, TypeRelation as TypeRelation, TypeVar as TypeVar, scalar_type as scalar_type
    from relaxpy.plugins.relay.ty import UnknownDim as Any
    from relaxpy.plugins.relay.ty import RefType as RelayRefType
    from relaxpy.plugins.relay.ty import shape_var as ShapeVar
    __all__ = ['Any', 'FuncType', 'GlobalTypeVar', 'IncompleteType', 'RefType', 'RelayRefType', 'ShapeVar', 'TensorType', 'TupleType', 'Type', 'TypeCall', 'TypeData', 'TypeKind', 'TypeRelation', 'TypeVar', 'scalar_type']
