"""The removal of bindings whose values nothing uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from relaxpy.ir.core.node import Node
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import makes_impure_call
from relaxpy.ir.relax.analysis.variables import (
    binding_key,
    binding_operands,
    occurring_vars,
    used_shape_vars,
)
from relaxpy.ir.relax.block_builder.normalize import ATOMS
from relaxpy.ir.relax.expect import expect
from relaxpy.ir.relax.relations.shape_vars import definable_shape_vars
from relaxpy.ir.relax.rewrite.map_bindings import map_bindings
from relaxpy.ir.tir import expr as tir
from relaxpy.support.entry import user_facing

E = TypeVar("E", bound=rx.Expr)
Keep = Callable[[rx.Binding], bool]


@user_facing
def remove_all_unused(func: E) -> E:
    """`func` without the bindings whose variables nothing uses; itself if there are none.

    Casts and impure calls stay, with the bindings that they use; dataflow blocks have no impure
    calls (PU-5). Empty blocks are removed, and the blocks next to them are merged (NF-8, NF-9,
    NF-11).
    """
    expect(func, rx.Expr)
    return without_unused(func, lambda binding: isinstance(binding, rx.MatchCast))


def without_unused(
    expr: E, keep: Keep, has_effect: Callable[[rx.Expr], bool] = makes_impure_call
) -> E:
    """`expr` without bindings that nothing uses, except for impure calls and those to `keep`."""
    needed = needed_bindings(expr, keep, has_effect)
    return map_bindings(expr, lambda binding, _: None if binding_key(binding) in needed else ())


def needed_bindings(
    root: rx.Expr,
    keep: Keep = lambda _: False,
    has_effect: Callable[[rx.Expr], bool] = makes_impure_call,
) -> set[rx.Var | rx.Binding]:
    """The variables that results, effects and bindings to `keep` depend on, and the other casts.

    A cast is also needed for the shape variables that it binds (OPT-9).
    """
    needed: set[rx.Var | rx.Binding] = set()
    used: set[rx.Var] = set()
    binders: dict[rx.Var, list[rx.Binding]] = {}
    casts = _casts_by_shape_var(root)
    waiting: list[Node] = [root]
    while waiting:
        node = waiting.pop()
        match node:
            case rx.Var():
                if node not in used:
                    used.add(node)
                    waiting += (*occurring_vars(node), *binders.get(node, ()))
            case rx.VarBinding() | rx.MatchCast():
                if binding_key(node) not in needed:
                    needed.add(binding_key(node))
                    waiting += binding_operands(node)
            case rx.SeqExpr(blocks=blocks, body=body):
                waiting.append(body)
                for block in blocks:
                    for binding in block.bindings:
                        if binding.var is not None:
                            binders.setdefault(binding.var, []).append(binding)
                        dataflow = isinstance(block, rx.DataflowBlock)
                        effects = not dataflow and has_effect(binding.value)
                        if binding.var in used or effects or keep(binding):
                            waiting.append(binding)
            case rx.If(cond=cond, true_branch=yes, false_branch=no):
                waiting += (cond, yes, no)
            case rx.Function(params=params, body=body, ret_struct_info=ret):
                waiting += (*params, body) if ret is None else (*params, ret, body)
            case _:
                waiting += occurring_vars(node)
                if casts:
                    for size in used_shape_vars(node, of_variables=False):
                        waiting += casts.pop(size, ())
    return needed | used


def _casts_by_shape_var(root: rx.Expr) -> dict[tir.Var, list[rx.MatchCast]]:
    """The casts that may bind each shape variable that is not bound by a parameter."""
    casts: dict[tir.Var, list[rx.MatchCast]] = {}
    nodes = list(_above_leaves(root))
    for node in nodes:
        if isinstance(node, rx.MatchCast):
            for var in definable_shape_vars(node.struct_info):
                casts.setdefault(var, []).append(node)
    for node in nodes if casts else ():
        if isinstance(node, rx.Function):
            for param in node.params:
                if param.struct_info is not None:
                    for var in definable_shape_vars(param.struct_info):
                        casts.pop(var, None)
    return casts


def _above_leaves(root: rx.Expr) -> Iterator[Node]:
    """Visit the nodes under `root` once that are neither leaves nor struct info, in order."""
    visited: set[int] = set()
    stack: list[Node] = [root]
    while stack:
        node = stack.pop()
        if type(node) in _LEAVES or isinstance(node, rx.StructInfo) or id(node) in visited:
            continue
        visited.add(id(node))
        yield node
        stack += reversed(node._children())


_LEAVES: Final = ATOMS | {Op, rx.ExternFunc}
