"""The module that a function of the public face is given, as one or as a function."""

from __future__ import annotations

from relaxpy.errors import MisuseError
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir.prim_func.function import PrimFunc


def as_module(mod: object, taker: str) -> IRModule:
    """The module, or one with the function `mod`.

    Errors:
        MisuseError (also TypeError): it is neither; `taker` is the function that takes it.
    """
    if isinstance(mod, IRModule):
        return mod
    if isinstance(mod, (rx.Function, PrimFunc)):
        if "global_symbol" not in mod.attrs:
            mod = mod.with_attr("global_symbol", "main")
        return IRModule.from_expr(mod)
    found, hint = type(mod).__name__, None
    if isinstance(mod, type):
        found, hint = (
            f"the class {mod.__name__}",
            f"decorate it: @I.ir_module class {mod.__name__}",
        )
    elif callable(mod) and hasattr(mod, "__code__"):
        found, hint = (
            "a plain Python function",
            "decorate it with @R.function or @T.prim_func",
        )
    elif isinstance(mod, str):
        found, hint = "a string", "relaxpy.script.from_source(text) reads a program"
    raise MisuseError(
        f"{taker} takes an IRModule or a function, found {found}", about=mod, hint=hint
    )
