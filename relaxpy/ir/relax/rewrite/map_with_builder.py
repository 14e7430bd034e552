"""The driver of passes over Relax functions that add functions to the module."""

from __future__ import annotations

from collections.abc import Callable

from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.nodes import Function


def map_with_builder(mod: IRModule, step: Callable[[Function, BlockBuilder], Function]) -> IRModule:
    """The module with `step(func, builder)` instead of each Relax function.

    It has the functions that the steps add to the builder, too. If no Relax function changes, it is
    the module itself.
    """
    builder = BlockBuilder(mod)
    changed: dict[str, Function] = {}
    for var, func in mod.items():
        if isinstance(func, Function):
            new = step(func, builder)
            if new is not func:
                changed[var.name_hint] = new
    if not changed:
        return mod
    result = builder.get()
    for name, func in changed.items():
        result[name] = func
    return result
