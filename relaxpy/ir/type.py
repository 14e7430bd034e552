"""Types, under TVM's module name."""

from relaxpy.ir.core.types import PointerType, PrimType
from relaxpy.ir.relax.nodes.static_type import FuncType, TupleType, Type

__all__ = ["FuncType", "PointerType", "PrimType", "TupleType", "Type"]
