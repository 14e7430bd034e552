"""Programs of `torch.export` without mutation, and operators as simpler ones."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch._library.custom_ops import OPDEFS
from torch.fx.experimental.proxy_tensor import make_fx

from relaxpy.frontend.shared.unsupported import FrontendError
from relaxpy.frontend.torch import (
    factorised as factorised,
    quantized as quantized,
    sampled as sampled,
)
from relaxpy.frontend.torch.backward import DECOMPOSITIONS
from relaxpy.frontend.torch.mutation import (
    changes_of,
    given_inputs,
    is_overload,
    twin_of,
)
from relaxpy.frontend.torch.registry import is_converted

#: The kernels of operators that call others, and have no gradient of their own.
_COMPOSED = torch._C.DispatchKey.CompositeExplicitAutograd


def names_of(target: Any) -> tuple[str, ...]:
    """The names by which a caller's converter of an operator may be given."""
    return (target.__name__, str(target), str(target._schema.name).rpartition(":")[2])


def graphs(module: Any) -> Iterable[Any]:
    """The graph of a module and those of the modules in it."""
    for inner in module.modules():
        if isinstance(inner, torch.fx.GraphModule):
            yield inner.graph


def _maps_batches(graph: Any) -> bool:
    """Whether nodes begin and end `torch.vmap`, which PyTorch replaces."""
    return any(
        getattr(node.target, "__module__", "") == "torch._functorch.predispatch"
        for node in graph.nodes
    )


def functional(program: Any) -> Any:
    """The program, without what only PyTorch can remove.

    These are functions of `torch.vmap`, which are of batches there, and changes in place that the
    importer cannot follow.
    """
    inner = list(graphs(program.graph_module))
    given = given_inputs(program)
    follows = all(
        changes is not None and given.issuperset(changes.inputs) and (k == 0 or not changes.inputs)
        for k, changes in enumerate(map(changes_of, inner))
    )
    return program if follows and not any(map(_maps_batches, inner)) else decomposed(program, {})


def decomposed(program: Any, table: Mapping[Any, Any] | None) -> Any:
    """The program after `run_decompositions`, without the warnings of PyTorch about itself.

    Errors:
        FrontendError: PyTorch cannot do it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            return program.run_decompositions(table)
        except Exception as error:  # of PyTorch, which meets what it cannot do with many kinds
            raise FrontendError(f"PyTorch cannot decompose the program: {error!s:.300}") from error


@functools.cache
def decompositions() -> Mapping[Any, Callable[..., Any]]:
    """What operators are computed by, as functions of simpler ones."""
    from torch._decomp import decomposition_table  # fills on import

    of_pytorch = torch.export.default_decompositions().materialize()
    return {**decomposition_table, **of_pytorch, **DECOMPOSITIONS}


def table_for_graphs() -> dict[Any, Callable[..., Any]]:
    """What operators without a converter are replaced by while a graph is captured."""
    own = [definition._opoverload for definition in OPDEFS.values()]
    return {
        **{target: _of_kernel(target) for target in own if _has_kernel(target)},
        **{
            target: simple
            for target, simple in decompositions().items()
            if is_overload(target) and not is_converted(target)
        },
    }


def retraced(module: Any, targets: Iterable[Any]) -> Any:
    """A captured graph, for the same inputs, in which these operators are simpler ones."""
    inputs = [node.meta["val"] for node in module.graph.nodes if node.op == "placeholder"]
    table = {target: decompositions()[target] for target in targets}
    mode = detect_fake_mode(inputs)
    with torch.fx.traceback.preserve_node_meta(), mode or contextlib.nullcontext():
        return make_fx(torch.fx.Interpreter(module).run, table)(*inputs)


def _has_kernel(target: Any) -> bool:
    """Whether an operator of an extension is a function of PyTorch's for tensors of all kinds."""
    return target.namespace not in ("aten", "prims") and bool(
        target.has_kernel_for_dispatch_key(_COMPOSED)
    )


def _of_kernel(target: Any) -> Callable[..., Any]:
    """What an operator computes, as a function that is traced; it stays where that cannot be."""

    def simple(*args: Any, **kwargs: Any) -> Any:
        try:
            return target._op_dk(_COMPOSED, *args, **kwargs)
        except Exception:  # of the function, which needs more than sizes and datatypes
            return NotImplemented

    return simple


def _plain(target: Any) -> Any:
    return (twin_of(target) or target) if target._schema.is_mutable else target


def simpler(program: Any, custom: Mapping[str, Any], more: Iterable[Any] = ()) -> Any:
    """The program in which operators without a converter, and `more`, are simpler ones.

    An operator of which PyTorch has no simpler form stays, as does one with a converter in
    `custom`.
    """
    chosen = set(more)
    opaque: set[Any] = set()
    for _ in range(8):
        missing = {
            node.target
            for graph in graphs(program.graph_module)
            for node in graph.nodes
            if is_overload(node.target)
            and (node.target in chosen or not is_converted(_plain(node.target)))
            and custom.keys().isdisjoint(names_of(node.target))
        }
        table = {target: decompositions()[target] for target in missing & decompositions().keys()}
        kernels = {t for t in missing - table.keys() - opaque if _has_kernel(t)}
        table.update((target, _of_kernel(target)) for target in kernels)
        if not table:
            return program
        program = decomposed(program, table)
        opaque |= kernels
    return program
