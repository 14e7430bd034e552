"""Functions with other variables, or with values instead of variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeGuard, TypeVar, cast

from relaxpy.errors import MisuseError
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.core.memo import memoised
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import last_first, map_children, rename, walk
from relaxpy.ir.relax.analysis.symbolic import defined_symbolic_vars
from relaxpy.ir.relax.analysis.variables import bound_vars, occurring_vars
from relaxpy.ir.relax.nodes import Call, Function, GlobalVar, StructInfo, TupleStructInfo, Var
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import replace

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
    """`root` with images instead of variables; dimensions that change are simplified.

    Variables whose struct info mentions a replaced one are replaced by new ones. Derived struct
    info is dropped, except for that of calls of module functions, which the operands do not tell.
    """
    changed: dict[int, Node] = {}

    def image(node: Node) -> Node:
        replaced = table.get(node) if node._variable else None  # type: ignore[arg-type]
        return changed.get(id(node), node) if replaced is None else replaced

    def operands(node: Node) -> Sequence[Node]:
        if node._variable and node in table:
            return ()
        if isinstance(node, TupleStructInfo) and _mentioned(node).isdisjoint(table):
            return ()
        below = node._children()
        if _calls_module_function(node) and node.struct_info is not None:
            return *below, node.struct_info
        return below

    for node, below in last_first(root, operands, set()):
        if any(image(child) is not child for child in below):
            changed[id(node)] = _over(image, node)
    return cast("N", image(root))


def _over(image: Callable[[Node], Node], node: Node) -> Node:
    """A node over the images of its operands."""
    new = map_children(image, node)
    if _calls_module_function(node) and node.struct_info is not None:
        assert isinstance(new, Call)
        sinfo = cast("StructInfo", image(node.struct_info))
        return new if sinfo is new.struct_info else replace(new, struct_info=sinfo)
    return simplify(new) if isinstance(new, tir.PrimExpr) else new


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
