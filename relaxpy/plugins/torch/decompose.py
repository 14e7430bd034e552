"""Programs of `torch.export` without mutation, and operators as graphs of simpler ones."""

from __future__ import annotations

import contextlib
import functools
import operator
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch._decomp import _core_aten_decompositions_post_autograd, decomposition_table
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import detect_fake_mode
from torch._library.custom_ops import OPDEFS
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from relaxpy.plugins.importing.unsupported import FrontendError
from relaxpy.plugins.torch import quantized as quantized, sampled as sampled
from relaxpy.plugins.torch.backward import DECOMPOSITIONS, Tensor, decomposition
from relaxpy.plugins.torch.mutation import (
    changes_argument,
    changes_of,
    given_inputs,
    hidden_views,
    is_overload,
)
from relaxpy.plugins.torch.ops.control import checks_matrices
from relaxpy.plugins.torch.registry import found, is_converted

#: The kernels of operators that call others, and have no gradient of their own or need none.
_COMPOSED = torch._C.DispatchKey.CompositeExplicitAutograd
_IMPLICIT = torch._C.DispatchKey.CompositeImplicitAutograd


def names_of(target: Any) -> tuple[str, ...]:
    """The names by which a caller's converter of an operator may be given."""
    return (target.__name__, str(target), str(target._schema.name).rpartition(":")[2])


def graphs(module: Any) -> Iterable[Any]:
    """The graph of a module and those of the modules in it."""
    for inner in module.modules():
        if isinstance(inner, torch.fx.GraphModule):
            yield inner.graph


def _is_replaced(graph: Any) -> bool:
    """True if nodes begin and end `torch.vmap`, or read the parts of a tensor of a subclass."""
    return any(
        getattr(node.target, "__module__", "") == "torch._functorch.predispatch"
        or getattr(node.target, "namespace", "") == "export"
        for node in graph.nodes
    )


def functional(program: Any) -> Any:
    """The program, without what only PyTorch can remove.

    These are functions of `torch.vmap`, which are of batches there, weights of subclasses, as those
    that are quantised, and changes in place that the importer cannot follow.
    """
    inner = list(graphs(program.graph_module))
    given = given_inputs(program)
    follows = all(
        changes is not None and given.issuperset(changes.inputs) and (k == 0 or not changes.inputs)
        for k, changes in enumerate(map(changes_of, inner))
    )
    if follows and not any(map(_is_replaced, inner)):
        return program
    # PyTorch would keep mutations and views that the schema does not declare.
    hidden = {
        node.target
        for graph in inner
        for node in graph.nodes
        if changes_argument(node) and not node.target._schema.is_mutable
    }.union(*map(hidden_views, inner))
    return decomposed(program, {target: simpler_form(target) for target in hidden})


def decomposed(program: Any, table: Mapping[Any, Any] | None) -> Any:
    """The program after `run_decompositions`, without the warnings of PyTorch about itself.

    Errors:
        FrontendError: PyTorch cannot do it.
    """
    with warnings.catch_warnings(), _dropout_that_returns_its_operand():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            return program.run_decompositions(table)
        except Exception as error:  # of PyTorch, which meets what it cannot do with many kinds
            raise FrontendError(f"PyTorch cannot decompose the program: {error!s:.300}") from error


@contextlib.contextmanager
def _dropout_that_returns_its_operand() -> Iterator[None]:
    """A scope in which dropout that leaves nothing out copies nothing, as PyTorch's kernel.

    The decomposition that it has for tracing copies, and takes precedence over tables.
    """
    target = torch.ops.aten.dropout.default
    usual = dict(target.py_kernels)

    def dropout(x: Tensor, p: float, train: bool) -> Tensor:
        return torch.ops.aten.native_dropout(x, p, True)[0] if train and p else x

    target.py_kernels.update({key: dropout for key in usual if key != torch._C.DispatchKey.Meta})
    target._dispatch_cache.clear()
    try:
        yield
    finally:
        target.py_kernels.update(usual)
        target._dispatch_cache.clear()


def simpler_form(target: Any) -> Callable[..., Any] | None:
    """The decomposition of an operator into simpler ones; None if there is none.

    Listing those of all operators of PyTorch would take long.
    """
    own = found(target, DECOMPOSITIONS)
    if own is not None:
        return own
    if target in _core():
        return _core()[target]  # type: ignore[no-any-return]
    if target.has_kernel_for_dispatch_key(_IMPLICIT):
        # Not `decompose`, which finds what takes the place of the kernel while PyTorch traces.
        return functools.partial(target._op_dk, _IMPLICIT)
    return decomposition_table.get(target)  # type: ignore[no-any-return]


@functools.cache
def _core() -> Any:
    return _core_aten_decompositions_post_autograd()


def table_for_graphs() -> dict[Any, Callable[..., Any]]:
    """The decompositions of operators without a converter, for capturing a graph."""
    extensions = [definition._opoverload for definition in OPDEFS.values()]
    of_pytorch = {**decomposition_table, **torch.export.default_decompositions().materialize()}
    return {
        **{target: _of_kernel(target) for target in extensions if _has_kernel(target)},
        **{
            target: found(target, DECOMPOSITIONS) or simple
            for target, simple in of_pytorch.items()
            if is_overload(target) and not is_converted(target)
        },
    }


def is_decomposed(target: Any) -> bool:
    """True if an operator has a decomposition."""
    return is_overload(target) and (simpler_form(target) is not None or _has_kernel(target))


def traced(target: Any, args: Any, kwargs: Any, result: Any) -> tuple[Any, list[Any]] | None:
    """The graph of simpler operators for an operator of these arguments, and its inputs.

    The arguments are those of a node, of whose value PyTorch knows `result`. The graph changes
    nothing in place. It is None if PyTorch has no simpler form, or traces none.
    """
    simple, kernels = simpler_form(target), {}
    if simple is None:
        if not _has_kernel(target):
            return None
        simple, kernels = target, {target: _of_kernel(target)}
    leaves, spec = tree_flatten((args, kwargs))
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, torch.fx.Node)]
    nodes = [leaves[k] for k in places]
    inputs = [_described(node) for node in nodes]

    def run(*operands: Any) -> Any:
        values = dict(zip(places, operands, strict=True))
        positional, named = tree_unflatten([values.get(k, x) for k, x in enumerate(leaves)], spec)
        found = simple(*positional, **named)
        return tuple(found) if isinstance(found, (tuple, list)) else found

    mode = detect_fake_mode([*inputs, *tree_leaves(result)])
    try:
        with _tracing(mode):
            module = make_fx(run, kernels)(*inputs)
            if any(map(changes_argument, module.graph.nodes)):
                module = make_fx(dispatch_functionalize(run), kernels)(*inputs)
    except Exception:  # of PyTorch, which meets what it cannot do with many kinds
        return None
    if module.graph.find_nodes(op="call_function", target=target):
        return None
    module.graph.eliminate_dead_code(lambda node: node.is_impure() or checks_matrices(node))
    return module, nodes


@contextlib.contextmanager
def _tracing(mode: Any) -> Iterator[None]:
    """The scope in which operators are traced, without gradients and for sizes of all kinds."""
    with mode or contextlib.nullcontext(), torch.no_grad(), enable_python_dispatcher():
        yield


def _described(node: Any) -> Any:
    """The fake tensor of a value, or the value of an attribute of the graph's module."""
    if "val" in node.meta or node.op != "get_attr":
        return node.meta.get("val")
    return operator.attrgetter(node.target)(node.graph.owning_module)


def _has_kernel(target: Any) -> bool:
    """True if an operator of an extension is a function of PyTorch's for tensors of all kinds."""
    return target.namespace not in ("aten", "prims") and bool(
        target.has_kernel_for_dispatch_key(_COMPOSED)
    )


def _of_kernel(target: Any) -> Callable[..., Any]:
    """A function that traces the kernel of an operator; it returns NotImplemented if that fails.

    What the kernel changes in place are new values in the trace.
    """
    functional = dispatch_functionalize(functools.partial(target._op_dk, _COMPOSED))

    def simple(*args: Any, **kwargs: Any) -> Any:
        try:
            return functional(*args, **kwargs)
        except Exception:  # of the function, which needs more than sizes and datatypes
            return NotImplemented

    return simple


@decomposition("linalg_polar")
def linalg_polar(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The unitary and the positive factor of a matrix."""
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    return left @ right, right.mH @ (values[..., None] * right)


@decomposition("linalg_matrix_sqrth")
def linalg_matrix_sqrth(matrix: Tensor) -> Tensor:
    """The square root of a Hermitian matrix."""
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.sqrt()[..., None, :]) @ vectors.mH
