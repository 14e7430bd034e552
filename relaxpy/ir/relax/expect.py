"""What analyses are asked about: anything else is refused by name."""

from __future__ import annotations

from relaxpy.errors import MisuseError
from relaxpy.ir.core.node import Node
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.nodes import BindingBlock, Expr, Function, StructInfo
from relaxpy.ir.tir.prim_func.function import PrimFunc

_WORDS: dict[type, str] = {
    BindingBlock: "a dataflow block",
    Expr: "a Relax expression",
    Function: "a Relax function",
    IRModule: "a module",
    Node: "a part of a program",
    PrimFunc: "a PrimFunc",
    StructInfo: "an info",
}


def expect(value: object, *kinds: type) -> None:
    """Refuse a value that is of none of these kinds.

    Errors:
        MisuseError (also TypeError): it is not.
    """
    if not isinstance(value, kinds):
        wanted = " or ".join(_WORDS[kind] for kind in kinds)
        raise MisuseError(f"expected {wanted}, found {type(value).__name__}", about=value)
