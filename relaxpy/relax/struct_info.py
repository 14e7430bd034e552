"""What is known of a value before it runs."""

from relaxpy.ir.relax.nodes import (
    EnvFunc,
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo

__all__ = [
    "DTensorStructInfo",
    "EnvFunc",
    "FuncStructInfo",
    "ObjectStructInfo",
    "PrimStructInfo",
    "ShapeStructInfo",
    "StructInfo",
    "TensorStructInfo",
    "TupleStructInfo",
]
