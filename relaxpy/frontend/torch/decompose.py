"""Programs of `torch.export` without mutation, and operators as simpler ones."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from relaxpy.frontend.torch.registry import find

#: Operators whose schemas do not say that they change an argument, and the argument that decides.
_CHANGES_STATISTICS = {"batch_norm": 5, "instance_norm": 5}


def is_overload(target: object) -> bool:
    """Whether the target of a node is an overload of an operator."""
    return isinstance(target, torch._ops.OpOverload)


def names_of(target: Any) -> tuple[str, ...]:
    """The names by which a caller's converter of an operator may be given."""
    return (target.__name__, str(target), str(target._schema.name).rpartition(":")[2])


def graphs(module: Any) -> Iterable[Any]:
    """The graph of a module and those of the modules in it."""
    for inner in module.modules():
        if isinstance(inner, torch.fx.GraphModule):
            yield inner.graph


def changes_memory(module: Any) -> bool:
    """Whether a node of the graphs changes one of its arguments."""
    return any(
        is_overload(node.target) and _changes_argument(node)
        for graph in graphs(module)
        for node in graph.nodes
    )


def _changes_argument(node: Any) -> bool:
    schema = node.target._schema
    name = schema.name.rpartition(":")[2]
    at = _CHANGES_STATISTICS.get(name)
    return bool(schema.is_mutable) or (at is not None and len(node.args) > at and node.args[at])


def functional(program: Any) -> Any:
    """The program with operators that return what others change in place."""
    return decomposed(program, {}) if changes_memory(program.graph_module) else program


def decomposed(program: Any, table: Mapping[Any, Any] | None) -> Any:
    """The program after `run_decompositions`, without the warnings of PyTorch about itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return program.run_decompositions(table)


@functools.cache
def decompositions() -> Mapping[Any, Callable[..., Any]]:
    """What PyTorch computes operators by, as functions of simpler ones."""
    from torch._decomp import decomposition_table  # fills on import

    return {**decomposition_table, **torch.export.default_decompositions().materialize()}


def table_for_graphs() -> dict[Any, Callable[..., Any]]:
    """What operators without a converter are replaced by while a graph is captured."""
    return {
        target: simple
        for target, simple in decompositions().items()
        if is_overload(target) and find(target) is None
    }


def simpler(program: Any, custom: Mapping[str, Any], more: Iterable[Any] = ()) -> Any:
    """The program in which operators without a converter, and `more`, are simpler ones.

    An operator of which PyTorch has no simpler form stays, as does one with a converter in
    `custom`.
    """
    chosen = set(more)
    for _ in range(8):
        missing = {
            node.target
            for graph in graphs(program.graph_module)
            for node in graph.nodes
            if is_overload(node.target)
            and (node.target in chosen or find(node.target) is None)
            and custom.keys().isdisjoint(names_of(node.target))
        }
        table = {target: decompositions()[target] for target in missing & decompositions().keys()}
        if not table:
            return program
        program = decomposed(program, table)
    return program
