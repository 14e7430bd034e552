"""Passes from Python functions that transform one Relax function or one dataflow block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relaxpy.errors import TransformError
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rewrite
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.functional import (
    FunctionalPass,
    ModuleFunction,
    map_functions,
    pass_decorator,
)
from relaxpy.ir.pass_infra.passes import PassContext
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.nodes import DataflowBlock, Function


class FunctionPass(FunctionalPass):
    """A pass from a function over Relax functions; `function_pass` creates it."""


class DataflowBlockPass(FunctionalPass):
    """A pass from a function over dataflow blocks; `dataflowblock_pass` creates it."""


def _each_function(step: Callable[..., Any]) -> ModuleFunction:
    """`step(func, mod, ctx)` for every Relax function; the results are normalised and derived."""

    def transform(mod: IRModule, ctx: PassContext) -> IRModule:
        result = map_functions(mod, Function, lambda func: step(func, mod, ctx))
        return result if result is mod else normalize_module(result)

    return transform


def _each_block(step: Callable[..., Any]) -> ModuleFunction:
    """`step(block, mod, ctx)` for every DataflowBlock, nested functions included."""

    def transform_function(func: Function, mod: IRModule, ctx: PassContext) -> Node:
        def rule(node: Node) -> Node | None:
            if not isinstance(node, DataflowBlock):
                return node
            result = step(node, mod, ctx)
            if isinstance(result, DataflowBlock):
                return result
            kind = type(result).__name__
            raise TransformError(f"a pass over dataflow blocks returned {kind} for one")

        return rewrite(func, rule)

    return _each_function(transform_function)


function_pass = pass_decorator(
    "function_pass", FunctionPass, "transform_function", "func, mod, ctx", _each_function
)
dataflowblock_pass = pass_decorator(
    "dataflowblock_pass",
    DataflowBlockPass,
    "transform_dataflowblock",
    "block, mod, ctx",
    _each_block,
)
