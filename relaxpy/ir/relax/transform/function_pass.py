"""Passes made of Python functions over one Relax function, or one dataflow block, at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relaxpy.errors import TransformError
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rewrite
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.map_functions import map_functions
from relaxpy.ir.pass_infra.passes import (
    FunctionalPass,
    ModuleFunction,
    PassContext,
    Requirement,
    pass_decorator,
)
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.nodes import DataflowBlock, Function


class FunctionPass(FunctionalPass):
    """A pass of a function over Relax functions; `function_pass` makes it."""


class DataflowBlockPass(FunctionalPass):
    """A pass of a function over dataflow blocks; `dataflowblock_pass` makes it."""


def _each_function(step: Callable[..., Any]) -> ModuleFunction:
    """`step(func, mod, ctx)` on every Relax function; what it builds is normalised and derived."""

    def transform(mod: IRModule, ctx: PassContext) -> IRModule:
        result = map_functions(mod, Function, lambda func: step(func, mod, ctx))
        return result if result is mod else normalize_module(result)

    return transform


def _each_block(step: Callable[..., Any]) -> ModuleFunction:
    """`step(block, mod, ctx)` on every DataflowBlock, those of nested functions included."""

    def transform_function(func: Function, mod: IRModule, ctx: PassContext) -> Node:
        def rule(node: Node) -> Node | None:
            if not isinstance(node, DataflowBlock):
                return None
            changed = step(node, mod, ctx)
            if not isinstance(changed, DataflowBlock):
                raise TransformError(
                    f"a pass over dataflow blocks gave {type(changed).__name__} for one"
                )
            return changed

        return rewrite(func, rule)

    return _each_function(transform_function)


def function_pass(
    pass_func: object | None = None,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[Requirement] | None = None,
    traceable: bool = False,
) -> Any:
    """A pass of `f(func, mod, ctx)`, or of a class with `transform_function(func, mod, ctx)`.

    Errors:
        MisuseError (also TypeError): it is neither, or no `opt_level` is given.
    """
    return pass_decorator(
        FunctionPass,
        "transform_function",
        _each_function,
        pass_func,
        opt_level,
        name,
        required,
        traceable,
    )


def dataflowblock_pass(
    pass_func: object | None = None,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[Requirement] | None = None,
    traceable: bool = False,
) -> Any:
    """A pass of `f(block, mod, ctx)`, or of a class with such a method `transform_dataflowblock`.

    Errors:
        MisuseError (also TypeError): it is neither, or no `opt_level` is given.
    """
    return pass_decorator(
        DataflowBlockPass,
        "transform_dataflowblock",
        _each_block,
        pass_func,
        opt_level,
        name,
        required,
        traceable,
    )
