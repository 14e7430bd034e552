"""Functions with other variables, or with values in place of variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeGuard, TypeVar, cast

from relaxpy.errors import MisuseError
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.core.memo import memoised
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, map_children, rename, walk
from relaxpy.ir.relax.analysis.symbolic import defined_symbolic_vars
from relaxpy.ir.relax.analysis.variables import bound_vars, occurring_vars
from relaxpy.ir.relax.nodes import Call, Function, GlobalVar, TupleStructInfo, Var
from relaxpy.ir.tir import expr as tir

N = TypeVar("N", bound=Node)
V = TypeVar("V", bound=Node)


def copy_with_new_vars(func: Function) -> Function:
    """A copy with new variables and shape variables, so that one module can have both (SC-9).

    Errors:
        MisuseError (also TypeError): `func` is not a Relax function.
    """
    if not isinstance(func, Function):
        raise MisuseError(f"expected a Function, found {type(func).__name__}", about=func)
    shape_vars, variables = _definitions(func)
    return rename(func, {var: var.renamed(var.name) for var in shape_vars}, variables)


@memoised
def _definitions(func: Function) -> tuple[list[tir.Var], list[Var]]:
    """The shape variables and the variables that a function defines."""
    return defined_symbolic_vars(func), bound_vars(func)


def replace_variables(root: N, table: Mapping[V, Node]) -> N:
    """`root` with images in place of variables; dimensions that change are simplified.

    Variables whose struct info mentions a replaced one are replaced by new ones. Derived struct
    info is dropped, except for that of calls of module functions, which the operands do not tell.
    """
    done: dict[int, Node] = {}
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if id(node) in done:
            continue
        if node._variable and node in table:
            done[id(node)] = table[node]  # type: ignore[index]
            continue
        if isinstance(node, TupleStructInfo) and _mentioned(node).isdisjoint(table):
            done[id(node)] = node
            continue
        sinfo = node.struct_info if _calls_module_function(node) else None
        if ready:
            new = map_children(lambda child: done[id(child)], node)
            if sinfo is not None and done[id(sinfo)] is not new.struct_info:  # type: ignore[attr-defined]
                new = replace(new, struct_info=done[id(sinfo)])  # type: ignore[type-var]
            elif isinstance(new, tir.PrimExpr) and new is not node:
                new = simplify(new)
            done[id(node)] = new
            continue
        stack.append((node, True))
        stack += [(child, False) for child in children(node) if id(child) not in done]
        if sinfo is not None:
            stack.append((sinfo, False))
    return cast("N", done[id(root)])


@memoised
def _mentioned(sinfo: TupleStructInfo) -> frozenset[Node]:
    """The variables that the struct info of a tuple mentions.

    A tuple of many fields is often the operand of as many projections.
    """
    return frozenset(node for node in walk(sinfo) if node._variable) | frozenset(
        occurring_vars(sinfo)
    )


def _calls_module_function(node: Node) -> TypeGuard[Call]:
    return isinstance(node, Call) and isinstance(node.op, GlobalVar)
