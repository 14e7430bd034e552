"""Shape variables of functions and struct infos: defined, used and free."""

from __future__ import annotations

from collections.abc import Iterator

from relaxpy.ir.core.memo import memoised
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, walk
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.expect import expect
from relaxpy.ir.relax.relations import shape_vars
from relaxpy.ir.tir import expr as tir
from relaxpy.support.entry import user_facing


@user_facing
def tir_vars_in_struct_info(sinfo: rx.StructInfo) -> list[tir.Var]:
    """The shape variables in `sinfo`, in order, including those that Callables bind."""
    nodes = walk(rx.as_struct_info(sinfo))
    return list(dict.fromkeys(node for node in nodes if isinstance(node, tir.Var)))


@user_facing
def definable_tir_vars_in_struct_info(sinfo: rx.StructInfo) -> list[tir.Var]:
    """The shape variables that a value of this struct info determines, in order (WF-6a).

    These are a whole dimension, member or value outside Callables.
    """
    return list(shape_vars.definable_shape_vars(rx.as_struct_info(sinfo)))


@user_facing
def collect_non_negative_expressions(sinfo: rx.StructInfo) -> list[tir.PrimExpr]:
    """The dimensions of tensors and shapes that are not literals, in order."""
    sizes = [
        size
        for node in walk(rx.as_struct_info(sinfo))
        if isinstance(node, (rx.TensorStructInfo, rx.ShapeStructInfo))
        for size in shape_vars.sizes_of(node)
    ]
    return list(dict.fromkeys(size for size in sizes if not isinstance(size, tir.IntImm)))


def _defined(node: Node) -> tuple[tir.Var, ...]:
    """The variables that a node itself defines."""
    if isinstance(node, rx.Function):
        sinfos = [p.struct_info for p in node.params if p.struct_info is not None]
        return shape_vars.definable_shape_vars(*sinfos)
    if isinstance(node, rx.MatchCast):
        return shape_vars.definable_shape_vars(node.struct_info)
    return ()


@user_facing
def defined_symbolic_vars(func: rx.Function) -> list[tir.Var]:
    """The shape variables that parameters and match_casts in `func` define, in order."""
    expect(func, rx.Function)
    return list(_defined_in(func))


@memoised
def _defined_in(func: rx.Function) -> tuple[tir.Var, ...]:
    nodes = (func, *walk(func))  # the parameters of `func` come first
    defining = (node for node in nodes if isinstance(node, (rx.Function, rx.MatchCast)))
    return tuple(dict.fromkeys(var for node in defining for var in _defined(node)))


def used_shape_vars(root: Node, *, of_variables: bool = True) -> Iterator[tir.Var]:
    """The shape variables in `root` that no Callable binds, in order.

    Those in the struct info of variables are included only if `of_variables`.
    """
    seen: set[int] = set()
    waiting: list[Node] = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        match node:
            case rx.StructInfo():
                yield from shape_vars.free_shape_vars(node)
            case tir.PrimExpr():
                yield from shape_vars.variables_of(node)
            case rx.Var(struct_info=sinfo):
                waiting += [sinfo] if of_variables and sinfo is not None else []
            case _:
                waiting += reversed(list(children(node)))


@user_facing
def free_symbolic_vars(func: rx.Function) -> list[tir.Var]:
    """The shape variables that `func` uses and does not define, in order."""
    expect(func, rx.Function)
    defined = set(defined_symbolic_vars(func))
    return list(dict.fromkeys(var for var in used_shape_vars(func) if var not in defined))
