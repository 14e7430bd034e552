"""The call graph: mentions between functions, cycles and recursion."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Final, TypeVar

from relaxpy.ir.core.memo import memoised
from relaxpy.ir.core.node import EMPTY_ATTRS, Node
from relaxpy.ir.core.traverse import reached, strongly_connected
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax.known import expect
from relaxpy.ir.relax.nodes import (
    Call,
    Constant,
    DataflowVar,
    Expr,
    Function,
    GlobalVar,
    PrimValue,
    ShapeExpr,
    TensorStructInfo,
    Var,
    VarBinding,
)
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.support.entry import user_facing

K = TypeVar("K", bound=Hashable)


@memoised
def mentioned_globals(expr: Expr) -> tuple[str, ...]:
    """The names of the module's functions that `expr` mentions, each once, in order."""
    names: dict[str, None] = {}
    visited: set[int] = set()
    stack: list[Node] = [expr]
    while stack:
        node = stack.pop()
        if type(node) is VarBinding:
            node = node.value
            if type(node) is Call:  # most are those of the function before a pass
                if mentioned := mentioned_globals(node):
                    names |= dict.fromkeys(mentioned)
                continue
        if isinstance(node, GlobalVar):
            names[node.name_hint] = None
        elif not node._variable and id(node) not in visited:
            visited.add(id(node))
            stack += reversed(_operands(node))
    return tuple(names)


def _operands(node: Node) -> list[Node]:
    """The children of a node that may mention functions, which most operands cannot."""
    nodes: Iterable[Node] = node._children()
    if type(node) is Call and not node.sinfo_args and node.attrs is EMPTY_ATTRS:
        nodes = node.op, *node.args
    return [
        child for child in nodes if child._bits_inside & _CALL and type(child) not in _WITHOUT_NAMES
    ]


_CALL: Final = tir.Call._bits
_WITHOUT_NAMES: Final = frozenset(
    (Op, Var, DataflowVar, Buffer, Constant, ShapeExpr, PrimValue, TensorStructInfo)
)
"""Kinds of nodes that mention no function; sizes call intrinsics alone."""


def call_graph(mod: IRModule) -> dict[str, tuple[str, ...]]:
    """The names that each Relax function of the module mentions, also in nested functions."""
    return {
        var.name_hint: mentioned_globals(func)
        for var, func in mod.items()
        if isinstance(func, Function)
    }


def recursive_groups(mod: IRModule) -> list[tuple[str, ...]]:
    """The names of functions that call each other, or themselves, after those that they call."""
    graph = call_graph(mod)
    groups = strongly_connected(graph)
    return [group for group in groups if len(group) > 1 or group[0] in graph[group[0]]]


def reachable_functions(mod: IRModule, roots: Iterable[str]) -> set[str]:
    """The names of the roots, and of all functions of the module that they lead to."""
    functions = mod.functions_by_name
    return set(
        reached(
            roots, lambda name: [n for n in mentioned_globals(functions[name]) if n in functions]
        )
    )


def reachable(graph: Mapping[K, Iterable[K]], roots: Iterable[K]) -> set[K]:
    """The roots, and all that the graph leads to from them."""
    return set(reached(roots, graph.__getitem__))


@user_facing
def detect_recursion(mod: IRModule) -> list[list[GlobalVar]]:
    """The groups of mutually recursive functions; one that calls itself is a group."""
    expect(mod, IRModule)
    return [[mod.get_global_var(name) for name in group] for group in recursive_groups(mod)]
