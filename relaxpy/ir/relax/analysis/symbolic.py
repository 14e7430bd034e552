"""Shape variables of functions and infos: defined, used, free; sizes that cannot be negative."""

from __future__ import annotations

from collections.abc import Iterator

from relaxpy.entry import user_facing
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, walk
from relaxpy.ir.relax.expect import expect
from relaxpy.ir.relax.nodes import (
    Function,
    MatchCast,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    Var,
)
from relaxpy.ir.relax.relations.shape_vars import (
    definable_shape_vars,
    free_shape_vars,
    sizes_of,
    variables_of,
)
from relaxpy.ir.tir import expr as tir


@user_facing
def tir_vars_in_struct_info(sinfo: StructInfo) -> list[tir.Var]:
    """The shape variables in an info, those that its Func infos own included, in order."""
    expect(sinfo, StructInfo)
    return list(dict.fromkeys(node for node in walk(sinfo) if isinstance(node, tir.Var)))


@user_facing
def definable_tir_vars_in_struct_info(sinfo: StructInfo) -> list[tir.Var]:
    """The shape variables that a value of this info determines, in order (WF-6a).

    Those stand alone as a dimension, member or value outside Func infos.
    """
    expect(sinfo, StructInfo)
    return list(definable_shape_vars(sinfo))


@user_facing
def collect_non_negative_expressions(sinfo: StructInfo) -> list[tir.PrimExpr]:
    """The sizes in tensor and shape infos that are no literals, in order."""
    expect(sinfo, StructInfo)
    found: dict[tir.PrimExpr, None] = {}
    for info in walk(sinfo):
        if isinstance(info, (TensorStructInfo, ShapeStructInfo)):
            found.update((s, None) for s in sizes_of(info) if not isinstance(s, tir.IntImm))
    return list(found)


def _signature(func: Function) -> list[StructInfo]:
    return [p.struct_info for p in func.params if p.struct_info is not None]


def _defined(node: Node) -> tuple[tir.Var, ...]:
    """The variables that a node itself defines."""
    if isinstance(node, Function):
        return definable_shape_vars(*_signature(node))
    if isinstance(node, MatchCast):
        return definable_shape_vars(node.struct_info)
    return ()


@user_facing
def defined_symbolic_vars(func: Function) -> list[tir.Var]:
    """The shape variables that parameters and match_casts in `func` define, in order."""
    expect(func, Function)
    found: dict[tir.Var, None] = dict.fromkeys(_defined(func))
    for node in walk(func):
        found.update(dict.fromkeys(_defined(node)))
    return list(found)


def _used(func: Function) -> Iterator[tir.Var]:
    """Every shape variable that is met, less those that Func infos own, in order."""
    seen: set[int] = set()
    waiting: list[Node] = [func]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        match node:
            case StructInfo():
                yield from free_shape_vars(node)
            case tir.PrimExpr():
                yield from variables_of(node)
            case Var(struct_info=info):
                waiting += [] if info is None else [info]
            case _:
                waiting += reversed(list(children(node)))


@user_facing
def free_symbolic_vars(func: Function) -> list[tir.Var]:
    """The shape variables that `func` uses and does not define, in order."""
    expect(func, Function)
    defined = set(defined_symbolic_vars(func))
    return list(dict.fromkeys(var for var in _used(func) if var not in defined))
