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
from relaxpy.frontend.torch.registry import find, is_converted

#: The kernels of operators that call others, and have no gradient of their own.
_COMPOSED = torch._C.DispatchKey.CompositeExplicitAutograd
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


#: Operators that PyTorch composes of others, and that return a new tensor all the same.
_FRESH = frozenset(
    [
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "linear",
        "matmul",
        "batch_norm",
        "layer_norm",
        "group_norm",
        "rms_norm",
        "max_pool1d",
        "max_pool2d",
        "max_pool3d",
        "embedding",
        "adaptive_avg_pool1d",
        "adaptive_avg_pool2d",
        "adaptive_avg_pool3d",
        "softmax",
        "log_softmax",
        "relu6",
        "scaled_dot_product_attention",
    ]
)


def twin_of(target: Any) -> Any:
    """The operator that returns what this one writes to its first argument, or None."""
    namespace, name = target._schema.name.split("::")
    if not name.endswith("_") or name.endswith("__"):
        return None
    packet = getattr(getattr(torch.ops, namespace), name[:-1], None)
    return getattr(packet, target._overloadname, None)


def _may_alias(target: Any) -> bool:
    """Whether a result of an operator may have the memory of an argument."""
    if not is_overload(target):
        return True
    if target._schema.name.partition("::")[2] in _FRESH:
        return False
    composed = torch._C.DispatchKey.CompositeImplicitAutograd
    return any(item.alias_info is not None for item in target._schema.returns) or bool(
        target.has_kernel_for_dispatch_key(composed)
    )


def changes_only_its_own(graph: Any) -> bool:
    """Whether what nodes change in place is always a new tensor of which there is no view yet.

    Then a later use of it is a use of the result of the last change.
    """
    places = {node: k for k, node in enumerate(graph.nodes)}
    roots: dict[Any, Any] = {}
    last: dict[Any, int] = {}
    for node, place in places.items():
        if node.op != "call_function" or not is_overload(node.target):
            continue
        if _changes_argument(node):
            twin, root = twin_of(node.target), roots.get(node.args[0])
            if root is None or twin is None or find(twin) is None:
                return False
            roots[node], last[root] = root, place
        elif not _may_alias(node.target):
            roots[node] = node
    return all(
        places[user] >= last[root]
        or (user.op == "call_function" and (roots.get(user) is root or not _may_alias(user.target)))
        for node, root in roots.items()
        if root in last
        for user in node.users
    )


def _maps_batches(graph: Any) -> bool:
    """Whether nodes begin and end `torch.vmap`, which PyTorch replaces."""
    return any(
        getattr(node.target, "__module__", "") == "torch._functorch.predispatch"
        for node in graph.nodes
    )


def functional(program: Any) -> Any:
    """The program with operators that return what others change in place.

    Functions of `torch.vmap` are of batches there. Where `changes_only_its_own` holds it is left to
    the importer, which costs less.
    """
    inner = list(graphs(program.graph_module))
    if any(_maps_batches(graph) for graph in inner):
        return decomposed(program, {})
    if len(inner) == 1 and changes_only_its_own(inner[0]):
        return program
    return decomposed(program, {}) if changes_memory(program.graph_module) else program


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
