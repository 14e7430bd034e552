"""Types, under the path of TVM."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.relay.ty import (
        FuncType as FuncType,
        GlobalTypeVar as GlobalTypeVar,
        IncompleteType as IncompleteType,
        RefType as RefType,
        RefType as RelayRefType,
        TensorType as TensorType,
        TupleType as TupleType,
        Type as Type,
        TypeCall as TypeCall,
        TypeData as TypeData,
        TypeKind as TypeKind,
        TypeRelation as TypeRelation,
        TypeVar as TypeVar,
        UnknownDim as Any,
        scalar_type as scalar_type,
        shape_var as ShapeVar,
    )
else:
    _face(
        globals(),
        """
        relaxpy.ir.relay.ty: FuncType GlobalTypeVar IncompleteType RefType TensorType TupleType Type
            TypeCall TypeData TypeKind TypeRelation TypeVar scalar_type RelayRefType=RefType
            Any=UnknownDim ShapeVar=shape_var
        """,
    )
