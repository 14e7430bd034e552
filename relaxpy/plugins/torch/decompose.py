"""Programs of `torch.export` without mutation, and operators as graphs of simpler ones."""

# ruff: noqa: D103

from __future__ import annotations

import contextlib
import functools
import math
import operator
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._decomp import _core_aten_decompositions_post_autograd, decomposition_table
from torch._decomp.decompositions import upsample_compute_output_size
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import detect_fake_mode
from torch._higher_order_ops.auto_functionalize import (
    _generate_new_op_kwargs_from_bases,
    auto_functionalized_v2,
)
from torch._library.custom_ops import OPDEFS
from torch._meta_registrations import meta_index_Tensor
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, guard_or_false
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from relaxpy.plugins.importing.unsupported import FrontendError, UnsupportedError
from relaxpy.plugins.torch import recurrent as recurrent  # its operators have decompositions
from relaxpy.plugins.torch.backward import DECOMPOSITIONS, Tensor, aten, decomposition
from relaxpy.plugins.torch.mutation import (
    Followed,
    changes_argument,
    given_inputs,
    hidden_views,
    is_overload,
)
from relaxpy.plugins.torch.ops.control import checks_matrices
from relaxpy.plugins.torch.registry import found, is_converted
from relaxpy.plugins.torch.symbols import sympy_of

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


def functional(program: Any, followed: Followed) -> Any:
    """The program, without what only PyTorch can remove.

    These are functions of `torch.vmap`, which are of batches there, weights of subclasses, as those
    that are quantised, and changes in place that the importer cannot follow.
    """
    inner = list(graphs(program.graph_module))
    given = given_inputs(program)
    follows = all(
        changes is not None and given.issuperset(changes.inputs) and (k == 0 or not changes.inputs)
        for k, changes in enumerate(map(followed.__getitem__, inner))
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
    with warnings.catch_warnings(), _traced_as({torch.ops.aten.dropout.default: _dropout}):
        warnings.simplefilter("ignore", FutureWarning)
        try:
            return program.run_decompositions(table)
        except Exception as error:  # of PyTorch, which meets what it cannot do with many kinds
            raise FrontendError(f"PyTorch cannot decompose the program: {error!s:.300}") from error


@contextlib.contextmanager
def _traced_as(kernels: Mapping[Any, Callable[..., Any] | None]) -> Iterator[None]:
    """A scope in which operators are traced by these kernels, or as themselves.

    Those that PyTorch has for tracing take precedence over tables of decompositions.
    """
    usual = {target: dict(target.py_kernels) for target in kernels}
    for target, kernel in kernels.items():
        for key in usual[target].keys() - {torch._C.DispatchKey.Meta}:
            del target.py_kernels[key]
            if kernel is not None:
                target.py_kernels[key] = kernel
        target._dispatch_cache.clear()
    try:
        yield
    finally:
        for target, before in usual.items():
            target.py_kernels.update(before)
            target._dispatch_cache.clear()


def _dropout(x: Tensor, p: float, train: bool) -> Tensor:
    """Dropout, which copies nothing where it leaves nothing out."""
    return torch.ops.aten.native_dropout(x, p, True)[0] if train and p else x


def resizing_whole() -> contextlib.AbstractContextManager[None]:
    """A scope in which images of known sizes are resized by one operator, as in `torch.export`.

    PyTorch traces indices and weights otherwise, and gradients of operators for known sizes only.
    """
    packets = [getattr(aten, name) for name in _RESIZES]
    kernels: dict[Any, Any] = {packet.default: None for packet in packets}
    kernels |= {packet.vec: _resize(packet) for packet in packets}
    return _traced_as(kernels)


_RESIZES = (
    *(f"upsample_{kind}" for kind in ("linear1d", "bilinear2d", "trilinear3d", "bicubic2d")),
    *(f"upsample_nearest{count}d" for count in (1, 2, 3)),
)


def _resize(packet: Any) -> Callable[..., Tensor]:
    usual = packet.vec.py_kernels[_IMPLICIT]

    def resized(x: Tensor, size: Any, *arguments: Any) -> Tensor:
        *options, scales = arguments
        sizes = upsample_compute_output_size(x.size(), size, scales)
        if any(isinstance(n, torch.SymInt) for n in (*x.shape, *sizes)):
            return usual(x, size, *arguments)
        return packet(x, sizes, *options, *(scales or [None] * len(sizes)))

    return resized


def simpler_form(target: Any) -> Callable[..., Any] | None:
    """The decomposition of an operator into simpler ones; None if there is none.

    A function is its own. Listing those of all operators of PyTorch would take long.
    """
    if not isinstance(target, torch._ops.OperatorBase):
        return target  # type: ignore[no-any-return]
    if target is auto_functionalized_v2:
        return _on_copies
    if isinstance(target, torch._ops.HigherOrderOperator):
        return target.py_kernels.get(_COMPOSED)  # type: ignore[no-any-return]
    own = found(target, DECOMPOSITIONS)
    if own is not None:
        return own
    if target in _core():
        return _core()[target]  # type: ignore[no-any-return]
    if target.has_kernel_for_dispatch_key(_IMPLICIT):
        # Not `decompose`, which finds what takes the place of the kernel while PyTorch traces.
        return functools.partial(target._op_dk, _IMPLICIT)
    return decomposition_table.get(target)  # type: ignore[no-any-return]


def _on_copies(
    target: Any, *, _all_bases: Sequence[Tensor | None] = (), **kwargs: Any
) -> tuple[Any, ...]:
    """The results of an operator that changes arguments, and copies of these as it leaves them.

    The arguments are views of the copies; `kwargs` says which.
    """
    copies = [base if base is None else base.clone() for base in _all_bases]
    if any(x is not None and x.storage_offset() for x in _all_bases):
        raise ValueError("a view of a tensor that begins within its memory")
    given, _ = _generate_new_op_kwargs_from_bases(target._schema, kwargs, copies, (), False)
    # A call of the operator, and of its kernel, would be copied again.
    results = OPDEFS[target._schema.name]._init_fn(**given)
    return (*(results if isinstance(results, tuple) else (results,)), *copies)


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


def traced(
    target: Any, args: Any, kwargs: Any, result: Any, known: dict[Any, Any]
) -> tuple[Any, list[Any]] | None:
    """The graph of simpler operators for an operator of these arguments, and its inputs.

    The arguments are those of a node, of whose value PyTorch knows `result`. The graph changes
    nothing in place. It is None if PyTorch has no simpler form, or traces none. `known` holds the
    graphs of the program by what they depend on: a loop without a loop applies an operator often.
    """
    simple, kernels = simpler_form(target), {}
    if simple is None:
        if not _has_kernel(target):
            return None
        simple, kernels = target, {target: _of_kernel(target)}
    leaves, spec = tree_flatten((args, kwargs))
    leaves = [_graph_of(leaf) or leaf for leaf in leaves]
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, torch.fx.Node)]
    nodes = [leaves[k] for k in places]
    inputs = [_described(node) for node in nodes]
    others = [leaf for leaf in leaves if not isinstance(leaf, torch.fx.Node)]
    key = (target, spec, *places, *map(_form, others), *_forms(inputs))
    if key in known:
        return known[key], nodes

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
    except UnsupportedError:
        raise
    except Exception:  # of PyTorch, which meets what it cannot do with many kinds
        return None
    if module.graph.find_nodes(op="call_function", target=target):
        return None
    module.graph.eliminate_dead_code(lambda node: node.is_impure() or checks_matrices(node))
    if not any(free_unbacked_symbols(node.meta.get("val")) for node in module.graph.nodes):
        known[key] = module  # a size that is not known is another one each time
    return module, nodes


def _graph_of(operand: Any) -> Any:
    """The graph that an operand is, or None."""
    is_read = isinstance(operand, torch.fx.Node) and operand.op == "get_attr"
    value = _described(operand) if is_read else None
    return value if isinstance(value, torch.fx.GraphModule) else None


def _form(value: Any) -> Any:
    """The properties of an operand on which a trace depends."""
    if isinstance(value, torch.fx.GraphModule):
        return value
    if not isinstance(value, torch.Tensor):
        return type(value), repr(sympy_of(value))  # in which -0.0 is not 0.0
    sizes = tuple(map(sympy_of, (*value.shape, *value.stride())))
    return type(value), value.dtype, value.is_conj(), value.is_neg(), sizes


def _forms(inputs: list[Any]) -> Iterator[Any]:
    """The properties of inputs on which a trace depends; several may be one tensor."""
    for k, value in enumerate(inputs):
        yield _form(value), next((at for at in range(k) if inputs[at] is value), k)


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


@decomposition("affine_grid_generator")
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    # Where an axis has one element, PyTorch's own creates a constant, which AOTAutograd refuses.
    batch, _, *sizes = size
    count = len(sizes)
    like = {"dtype": theta.dtype, "device": theta.device}
    columns = []
    for axis in reversed(range(count)):
        length = sizes[axis]
        line = torch.linspace(-1, 1, length, **like) if length > 1 else torch.zeros(length, **like)
        if not align_corners:
            line = line * ((length - 1) / length)
        shape = [length if k == axis else 1 for k in range(count)]
        columns.append(line.reshape(shape).expand(sizes))
    columns.append(torch.ones(sizes, **like))
    base = torch.stack(columns, -1).reshape(-1, count + 1, 1)
    return (base * theta.mT.unsqueeze(1)).sum(-2).reshape(batch, *sizes, count)


@decomposition("unfold_backward")
def unfold_backward(grad: Tensor, sizes: Sequence[int], axis: int, size: int, step: int) -> Tensor:
    # PyTorch takes it for the new value of what changes in place by a view of its windows, too.
    if torch._C._current_autograd_node() is None and not _is_covered(sizes, axis, size, step):
        raise UnsupportedError(
            f"a view by unfold({axis}, {size}, {step}) changes in place: PyTorch would lose the "
            "elements outside of the windows; take the view by as_strided"
        )
    return decomposition_table[aten.unfold_backward.default](grad, sizes, axis, size, step)


def _is_covered(sizes: Sequence[int], axis: int, size: int, step: int) -> bool:
    """True if all elements along an axis are in windows."""
    rest = sizes[axis] - size if sizes else 0
    return bool(rest % step == 0 and (size >= step or rest == 0))


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


# ---- pools whose windows begin at random places


@decomposition("fractional_max_pool2d", "fractional_max_pool3d")
def fractional_max_pool(
    x: Tensor, kernel: Sequence[int], outputs: Sequence[int], numbers: Tensor
) -> tuple[Tensor, Tensor]:
    count = len(kernel)
    outer, sizes = x.shape[: x.dim() - count], x.shape[x.dim() - count :]
    planes = math.prod(outer)
    rows = numbers.reshape(-1, count)[:planes]
    place = torch.zeros([planes] + [1] * (2 * count), dtype=torch.int64, device=x.device)
    for k, (size, window, wanted) in enumerate(zip(sizes, kernel, outputs, strict=True)):
        # The numbers of images are those of columns and of rows, in this order.
        number = rows[:, count - 1 - k if count == 2 else k, None]
        begin = _begins(number, size - window, wanted)
        at = begin[..., None] + torch.arange(window, device=x.device)
        shape = [planes] + [1] * (2 * count)
        shape[1 + k], shape[1 + count + k] = wanted, window
        place = place * size + at.reshape(shape)
    flat = place.reshape(planes, math.prod(place.shape[1:]))
    shape = [*outer, *outputs, math.prod(kernel)]
    windows = x.reshape(planes, math.prod(sizes)).gather(1, flat).reshape(shape)
    best = windows.argmax(-1, keepdim=True)
    return windows.gather(-1, best)[..., 0], place.reshape(shape).gather(-1, best)[..., 0]


def _begins(number: Tensor, last: int, wanted: int) -> Tensor:
    """Where windows begin, from 0 to `last`, by a number from 0 to 1."""
    end = torch.full_like(number, last, dtype=torch.int64)
    if wanted == 1:
        return end
    step = last / (wanted - 1)
    k = torch.arange(wanted - 1, device=number.device).to(number.dtype)
    begins = ((k + number) * step).to(torch.int64) - (number * step).to(torch.int64)
    return torch.cat([begins, end], 1)


# ---- resized images; an axis whose size does not change is copied


def _copying(name: str, options: int) -> None:
    """PyTorch's decomposition, which resamples such an axis by its scale."""
    packet = getattr(aten, name)

    @decomposition(name)
    def resized(x: Tensor, size: Any, *arguments: Any) -> Tensor:
        fixed, scales = arguments[:options], arguments[options:]
        count = x.dim() - 2
        if len(scales) == 1 and (count > 1 or isinstance(scales[0], (list, tuple))):
            scales = tuple(scales[0] or ())
            size = upsample_compute_output_size(x.size(), size, scales or None)
        scales = (*scales, *[None] * (count - len(scales)))
        triples = zip(x.shape[2:], size, scales, strict=True)
        kept = [None if guard_or_false(old == new) else scale for old, new, scale in triples]
        return decomposition_table[packet.default](x, size, *fixed, *kept)


for _name, _options in (
    ("upsample_nearest2d", 0),
    ("upsample_linear1d", 1),
    ("upsample_bilinear2d", 1),
    ("upsample_trilinear3d", 1),
):
    _copying(_name, _options)


# ---- the largest elements of windows, put back


@decomposition("max_unpool2d", "max_unpool3d")
def max_unpool(x: Tensor, indices: Tensor, sizes: Sequence[Any], *window: Any) -> Tensor:
    """PyTorch's decomposition takes indices below 0, which its kernel refuses."""
    outer = x.shape[: x.dim() - len(sizes)]
    zeros = x.new_zeros([*outer, math.prod(sizes)])
    found = zeros.scatter(-1, *(t.flatten(len(outer)) for t in (indices, x)))
    return found.reshape([*outer, *sizes])


# ---- channels that are left out


def _kept(x: Tensor, p: float) -> Tensor:
    """1 for channels that stay, 0 for others."""
    shape = [*x.shape[:2], *[1] * (x.dim() - 2)]
    return torch.bernoulli(x.new_zeros(shape), 1 - p)


@decomposition("feature_dropout")
def feature_dropout(x: Tensor, p: float, train: bool) -> Tensor:
    if not train or p in (0, 1):
        return x * float(not train or p == 0)
    return x * (_kept(x, p) / (1 - p))


#: Where alpha dropout puts what is left out: what SELU tends to.
_LOWEST = -1.7580993408473766


@decomposition("feature_alpha_dropout")
def feature_alpha_dropout(x: Tensor, p: float, train: bool) -> Tensor:
    if not train or p in (0, 1):
        return x * float(not train or p == 0)
    scale = ((_LOWEST * _LOWEST * p + 1) * (1 - p)) ** -0.5
    kept = _kept(x, p)
    return x * (kept * scale) + ((1 - kept) * scale + p * -scale) * _LOWEST


# ---- masked indices


def _near(x: Tensor, indices: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Indices clamped to [-size, size - 1]."""
    pairs = zip(indices, x.shape, strict=False)
    return [None if index is None else index.clamp(-size, size - 1) for index, size in pairs]


@decomposition("_unsafe_masked_index")
def masked_index(
    x: Tensor, mask: Tensor, indices: Sequence[Tensor | None], fill: complex
) -> Tensor:
    if guard_or_false(x.numel() == 0):
        return x.new_full(meta_index_Tensor(x, list(indices)).shape, fill)
    return aten._unsafe_index(x, _near(x, indices)).masked_fill(~mask, fill)


@decomposition("_unsafe_masked_index_put_accumulate")
def masked_index_put(
    x: Tensor, mask: Tensor, indices: Sequence[Tensor | None], values: Tensor
) -> Tensor:
    if guard_or_false(x.numel() == 0):
        return x.clone()
    return aten._unsafe_index_put(x, _near(x, indices), values.masked_fill(~mask, 0), True)


@decomposition("index_fill")
def index_fill(x: Tensor, axis: int, indices: Tensor, value: Tensor | complex) -> Tensor:
    if not x.dim():
        return index_fill(x[None], 0, indices, value)[0]
    before = [None] * (axis % x.dim())
    filling = torch.as_tensor(value, dtype=x.dtype, device=x.device)
    return aten.index_put(x, [*before, indices], filling)


# ---- members


@decomposition("isin")
def isin(
    elements: Tensor, members: Tensor, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """isin: PyTorch's decomposition is for some sizes only."""
    if not isinstance(elements, torch.Tensor) or not isinstance(members, torch.Tensor):
        return torch.ne(elements, members) if invert else torch.eq(elements, members)
    dtype = torch.result_type(elements, members)
    ordered, elements = members.to(dtype).flatten().sort().values, elements.to(dtype)
    place = torch.searchsorted(ordered, elements.contiguous())
    found = torch.cat([ordered, ordered.new_zeros(1)])[place]  # there may be no greater member
    same = (found == elements) & (place < ordered.numel())
    return ~same if invert else same


_PROGRAMS = "quantized_decomposed"


@decomposition("fake_quantize_per_tensor_affine_cachemask")
def fake_quantize(x: Tensor, scale: Any, zero: Any, least: int, most: int) -> tuple[Tensor, Tensor]:
    """The numbers that are left by quantisation, and where they were not out of its range."""
    number = torch.round(x * (1 / scale)) + zero
    left = (number.clamp(least, most) - zero) * scale
    return left.to(x.dtype), (number >= least) & (number <= most)


@decomposition("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
def fake_quantize_by_tensors(
    x: Tensor, scale: Tensor, zero: Tensor, enabled: Tensor, least: int, most: int
) -> tuple[Tensor, Tensor]:
    left, inside = fake_quantize(x, scale, zero, least, most)
    return torch.where(enabled == 1, left, x), inside | (enabled != 1)


@decomposition("fake_quantize_per_channel_affine_cachemask")
def fake_quantize_per_channel(
    x: Tensor, scale: Tensor, zero: Tensor, axis: int, least: int, most: int
) -> tuple[Tensor, Tensor]:
    shape = [1] * x.dim()
    shape[axis] = -1
    return fake_quantize(x, scale.reshape(shape), zero.reshape(shape), least, most)


# ---- programs that PyTorch has quantised, whose scales may be tensors


@decomposition("quantize_per_tensor.tensor", "quantize_per_tensor.tensor2", namespace=_PROGRAMS)
def quantize(x: Tensor, scale: Tensor, zero: Tensor, least: Any, most: Any, dtype: Any) -> Tensor:
    inverse = (1 / scale.double()).float()  # PyTorch makes it a number of Python
    return (torch.round(x.float() * inverse) + zero).clamp(least, most).to(dtype)


@decomposition("choose_qparams.tensor", namespace=_PROGRAMS)
def choose_parameters(
    x: Tensor, least: int, most: int, eps: float, dtype: Any
) -> tuple[Tensor, Tensor]:
    low, high = x.amin().clamp(max=0), x.amax().clamp(min=0)
    scale = torch.maximum((high - low) / (most - least), torch.full([1], eps, device=x.device))
    zero = (least - torch.round(low / scale).to(torch.int32)).clamp(least, most)
    return scale.double(), zero.long()


@decomposition("choose_qparams_symmetric.tensor", namespace=_PROGRAMS)
def choose_symmetric_parameters(
    x: Tensor, least: int, most: int, eps: float, dtype: Any
) -> tuple[Tensor, Tensor]:
    scale = torch.maximum(-x.amin().clamp(max=0), x.amax().clamp(min=0)) / ((most - least) / 2)
    scale = torch.maximum(scale, torch.full([1], eps, device=x.device)).double()
    return scale, torch.full_like(scale, 128 * (dtype == torch.uint8), dtype=torch.int64)


@decomposition("quantize_per_channel_group", namespace=_PROGRAMS)
def quantize_groups(
    x: Tensor, scales: Tensor, zeros: Tensor, least: int, most: int, dtype: Any, size: int = 128
) -> Tensor:
    groups = x.reshape(scales.numel(), -1)
    number = groups * (1 / scales.reshape(-1, 1)) + zeros.reshape(-1, 1)
    return torch.round(number).clamp(least, most).to(dtype).reshape(x.shape)


@decomposition("fake_quant_per_channel", namespace=_PROGRAMS)
def fake_quantize_channels(
    x: Tensor, scale: Tensor, zero: Tensor, axis: int, least: int, most: int
) -> Tensor:
    return fake_quantize_per_channel(x, scale.float(), zero, axis, least, most)[0]
