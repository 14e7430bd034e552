"""Checks of the arguments of analyses."""

from __future__ import annotations

from relaxpy.errors import MisuseError
from relaxpy.ir.core.node import Node
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.nodes import BindingBlock, Call, Expr, Function, Var
from relaxpy.ir.tir.prim_func import PrimFunc

_NAMES: dict[type, str] = {
    BindingBlock: "a dataflow block",
    Call: "a call",
    Expr: "a Relax expression",
    Function: "a Relax function",
    IRModule: "a module",
    Node: "a node",
    PrimFunc: "a PrimFunc",
    Var: "a variable",
}


def expect(value: object, *kinds: type) -> None:
    """Raise MisuseError (also TypeError) if a value is not of one of these kinds."""
    if not isinstance(value, kinds):
        expected = " or ".join(_NAMES[kind] for kind in kinds)
        raise MisuseError(f"expected {expected}, found {type(value).__name__}", about=value)
