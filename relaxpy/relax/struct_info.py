"""What is known of a value before it runs."""

from relaxpy.ir.relax.distributed import DTensorStructInfo
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
