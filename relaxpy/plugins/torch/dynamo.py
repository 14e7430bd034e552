"""`torch.compile` with relaxpy, and the graphs that it captures as a module.

Weights of captured graphs are constants while they do not change.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence, Set
from operator import attrgetter
from typing import Any, Final
from weakref import WeakValueDictionary, ref

import numpy as np
import torch
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.optim.optimizer import register_optimizer_step_post_hook

from relaxpy.errors import MisuseError, RelaxpyError, close_names, unexpected
from relaxpy.exec.api.compile import compile as compile_module
from relaxpy.exec.runtime.values import ShapeTuple
from relaxpy.ir.core.tensor import as_numpy, as_torch
from relaxpy.ir.module import IRModule
from relaxpy.ir.passes.bind_params import BindParams
from relaxpy.ir.relax.nodes import Function
from relaxpy.plugins.torch import recurrent
from relaxpy.plugins.torch.api import import_exported
from relaxpy.plugins.torch.arrays import complex_view, constant, real_view
from relaxpy.plugins.torch.decompose import resizing_whole, table_for_graphs
from relaxpy.plugins.torch.fx_graph import Program, of_graph
from relaxpy.plugins.torch.importer import Options, imported
from relaxpy.plugins.torch.strides import fills_memory, has_memory, memory_order
from relaxpy.plugins.torch.symbols import is_symbolic, sympy_of
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing

# Recurrent layers are in graphs then. PyTorch reads it before it calls a backend.
torch._dynamo.config.allow_rnn = True

_TOKEN = np.zeros(0, np.float32)
Backend = Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]]


@user_facing
def relax_dynamo(
    pipeline: str | Callable[[IRModule], IRModule] | None = None,
    *,
    target: Any = None,
    freezing: bool = True,
) -> Backend:
    """A backend for `torch.compile` that compiles with a pipeline, for a target.

    The pipeline is a pass, the name of one, or None for the default one. Forward and backward
    graphs are compiled, sizes that PyTorch treats as dynamic are shape variables.

    With `freezing`, the weights of graphs without gradients are constants, as those of exported
    programs: they are packed once. A change of a weight has the graph compiled again. PyTorch does
    not count changes through `weight.data` and arrays of NumPy: these are noticed if they change
    one of 1,024 elements of a weight, which are all that a small weight has, and are spread over a
    large one. Without `freezing` weights are arguments, whose changes are all seen.

    Errors, when a graph is compiled:
        OpNotImplemented (also NotImplementedError): nodes cannot be imported.
    """
    # It loads TorchDynamo and Inductor, which no other importer needs.
    from torch._dynamo.backends.common import aot_autograd

    def compiled(module: Any, example_inputs: Sequence[Any]) -> Callable[[list[Any]], list[Any]]:
        with unset_fake_temporarily():  # PyTorch calls this where tensors have no elements
            return _Graph(module, pipeline or "default", target)

    def forward(module: Any, example_inputs: Sequence[Any]) -> Callable[[list[Any]], list[Any]]:
        count = returned_count()
        with unset_fake_temporarily():
            return _Graph(module, pipeline or "default", target, count)

    def frozen(module: Any, example_inputs: Sequence[Any]) -> Callable[[list[Any]], list[Any]]:
        count, fixed = returned_count(), static_inputs()
        with unset_fake_temporarily():
            return _Graph(module, pipeline or "default", target, count, fixed)

    compiler = aot_autograd(
        fw_compiler=forward,
        bw_compiler=compiled,
        inference_compiler=frozen if freezing else forward,
        decompositions=table_for_graphs,
    )

    def backend(module: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        for node in module.graph.nodes:
            if node.op == "call_function":
                node.target = _FORMS.get(node.target, node.target)
        module.recompile()
        with resizing_whole():
            return compiler(module, example_inputs)  # type: ignore[no-any-return]

    return backend


def _one_hot(x: Any, num_classes: int = -1) -> Any:
    """A one_hot that raises for invalid classes; PyTorch's traced version returns zeros there."""
    if num_classes == -1:
        return torch.nn.functional.one_hot(x)
    zeros = torch.zeros([*x.shape, num_classes], dtype=torch.int64, device=x.device)
    return zeros.scatter(-1, x.unsqueeze(-1), 1)


#: Functions by those of PyTorch that they stand in for.
_FORMS: Final[dict[Any, Callable[..., Any]]] = {
    **dict.fromkeys((torch.nn.functional.one_hot, torch.ops.aten.one_hot.default), _one_hot),
    **recurrent.FORMS,
}

_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def relaxpy_backend(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """The backend that `torch.compile(model, backend="relaxpy")` finds.

    `options` has `pipeline`, `target` and `freezing`, as for `relax_dynamo`. Every `mode` of
    PyTorch is the same here: nothing is tuned by measuring, and there is no overhead of devices to
    reduce.

    Errors:
        MisuseError (also ValueError): PyTorch has no such mode, or there is no such option.
    """
    if mode is not None and mode not in _MODES:
        raise unexpected(mode, f"expected one of the modes {', '.join(_MODES)}")
    known = inspect.signature(relax_dynamo).parameters
    for name in options or {}:
        if name not in known:
            message = f"there is no option {name!r}; options are {', '.join(known)}"
            raise MisuseError(message, about=name, hint=close_names(name, known))
    return relax_dynamo(**(options or {}))(module, example_inputs)


class _Graph:
    """A compiled graph, called with a list of tensors and sizes, which it empties.

    The first `count` results have the strides that PyTorch reports. The inputs at positions `fixed`
    are constants as long as they do not change.
    """

    def __init__(
        self, module: Any, pipeline: Any, target: Any, count: int = 0, fixed: Set[int] = frozenset()
    ) -> None:
        self._boxed_call = True
        graph = of_graph(module)
        items = _items(graph.output.args[0])
        self._aliases = Aliases(graph, items, count)
        computed = [None if k in self._aliases.views else item for k, item in enumerate(items)]
        self._count = len(items)
        items = [*computed, *self._aliases.bases]
        graph.output.args = (tuple(items),)
        orders = arrange(graph.graph, [*range(count), *range(self._count, len(items))])
        importer, mod = imported(graph, Options(unit_tuple=False), "main")

        def compiled(module: IRModule) -> Callable[..., Any]:
            return compile_module(module, target, relax_pipeline=pipeline)["main"]

        #: The position of each parameter, and its place among the inputs.
        self._all = [*enumerate(importer.input_places())]
        self._free = [(k, place) for k, place in self._all if place not in fixed]
        self._fixed = [place for _, place in self._all if place in fixed]
        positions = [k for k, place in self._all if place in fixed]
        self._freezer = Freezer(mod, positions, compiled) if positions else None
        self._compiled = functools.cache(functools.partial(compiled, mod))
        if self._freezer is None:
            self._compiled()
        #: For each result: how to make it of a result of the executable, or what it is.
        self._results = [_result(item, orders.get(k)) for k, item in enumerate(items)]
        self._is_run = any(make is not None for make, _ in self._results) or any(
            node.op == "call_function" and node.is_impure() for node in graph.graph.nodes
        )
        self._arrays: list[tuple[ref[Any], int, Any] | None] = [None] * len(self._all)

    def __call__(self, args: list[Any]) -> list[Any]:
        run, used = None, self._free
        if self._freezer is not None:
            run = self._freezer.run([args[place] for place in self._fixed])
        if run is None:
            run, used = self._compiled(), self._all
        # Where memory begins that results must not be in; empty ones, at 0, could not grow there.
        memory = {0}
        arrays = [self._array(k, args[place], memory) for k, place in used]
        views, spread = self._aliases.views, self._aliases.spread
        numbers = self._aliases.numbers(args) if views or spread else {}
        bases = {k: args[view.index] for k, view in views.items() if view.of_argument}
        args.clear()
        try:
            results = run(*arrays) if self._is_run else ()
        except RelaxpyError as error:  # PyTorch calls this, so no frame of the user's is near
            error.hide_internal_frames()
            raise
        made = iter(results if isinstance(results, tuple) else (results,))
        values = [
            value if make is None else make(next(made), memory) for make, value in self._results
        ]
        for k, strides in spread.items():
            values[k] = _spread(values[k], tuple(_integer(n, numbers) for n in strides))
        for k, view in views.items():
            base = bases[k] if view.of_argument else values[view.index]
            values[k] = view.made(base, numbers)
        return values[: self._count]

    def _array(self, k: int, value: Any, memory: set[int]) -> Any:
        """The array over the memory of an argument; that of a parameter is kept as long as it."""
        if value is None:  # a token, which stands for the order of effects
            return _TOKEN
        if not isinstance(value, torch.Tensor):
            return ShapeTuple((value,))
        kept, place = self._arrays[k], value.data_ptr()
        memory.add(place)
        if kept is not None and kept[0]() is value and kept[1] == place:
            return kept[2]
        array = value.numpy() if _is_plain(value) else as_numpy(real_view(value))
        if isinstance(value, torch.nn.Parameter):
            forget = functools.partial(_forget, self._arrays, k)
            self._arrays[k] = (ref(value, forget), place, array)
        return array


def _forget(arrays: list[Any], k: int, _: object) -> None:
    arrays[k] = None


_PLAIN: Final = frozenset((torch.float32, torch.float64, torch.int32, torch.int64, torch.bool))


def _is_plain(value: Any) -> bool:
    """True if NumPy can read the memory of a tensor; a shortcut for the slower `as_numpy`."""
    is_plain = type(value) is torch.Tensor and value.dtype in _PLAIN and value.is_cpu
    return is_plain and not (value.requires_grad or value.is_neg())


def _items(output: Any) -> list[Any]:
    return list(output) if isinstance(output, (tuple, list)) else [output]


def _result(
    item: Any, order: Sequence[int] | None
) -> tuple[Callable[[Any, set[int]], Any] | None, Any]:
    if not isinstance(item, torch.fx.Node):
        return (None, item) if item is None else (_number, None)
    meta = item.meta.get("val")
    if isinstance(meta, torch.Tensor):
        convert = _complex if meta.is_complex() else as_torch

        def tensor(value: Any, memory: set[int]) -> Any:
            result = _apart(convert(value), memory)
            return result if order is None else unrelated(result.permute(order))

        return tensor, None
    return _number, None


def _apart(result: Any, memory: set[int]) -> Any:
    """A result in memory of its own: one that is a copy for PyTorch is its operand in Relax."""
    place = result.data_ptr()
    if place in memory:
        return result.clone(memory_format=torch.contiguous_format)
    memory.add(place)
    return result


def _spread(result: Any, strides: tuple[int, ...]) -> Any:
    """A result with these strides, between which memory has gaps."""
    if result.stride() == strides:
        return result
    return torch.empty_strided(result.shape, strides, dtype=result.dtype).copy_(result)


def _complex(pair: Any) -> Any:
    return unrelated(complex_view(as_torch(pair)))


def _number(value: Any, memory: set[int]) -> Any:
    return value.item()


@user_facing
def dynamo_capture_subgraphs(
    model: Callable[..., Any], *params: Any, keep_params_as_input: bool = False, **kwargs: Any
) -> IRModule:
    """The graphs that `torch.compile` captures in a call, as `subgraph_0`, `subgraph_1`, ….

    `params` and other keyword arguments are those of the call.

    Errors:
        OpNotImplemented (also NotImplementedError): nodes cannot be imported.
    """
    if not callable(model):
        raise MisuseError(
            f"expected a module or a function, found {type(model).__name__}", about=model
        )
    captured: list[tuple[Any, Sequence[Any]]] = []

    def backend(module: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        captured.append((module, list(example_inputs)))
        return module.forward  # type: ignore[no-any-return]

    torch._dynamo.reset()
    torch.compile(model, backend=backend)(*params, **kwargs)
    mod = IRModule()
    for k, (module, inputs) in enumerate(captured):
        options = Options(
            keep_params_as_input, input_prefix="inp_", bound=_of_model(module, inputs)
        )
        exported = torch.export.export(module, tuple(inputs))
        mod = import_exported(exported, options, f"subgraph_{k}", mod)
    return mod


def _of_model(module: Any, inputs: Sequence[Any]) -> dict[int, Any]:
    """The inputs of a captured graph that are parameters and buffers of the model, by position."""
    nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
    return {
        k: tensor
        for k, (node, tensor) in enumerate(zip(nodes, inputs, strict=True))
        if "_dynamo_static_input_type" in node.meta.get("tensor_dict", {})
    }


def returned_count() -> int:
    """How many results of the graph that is being compiled are not for its backward graph alone."""
    context = TracingContext.try_get()
    known = None if context is None else context.fw_metadata
    return 0 if known is None else known.num_forward_returns


def arrange(graph: Any, places: Sequence[int]) -> dict[int, list[int]]:
    """Have a graph return results at these places with their axes in the order of memory.

    The result has, by the place of each one, the permutation that restores its axes.
    """
    output = graph.output_node()
    items = list(output.args[0])
    found: dict[int, list[int]] = {}
    for k in places:
        meta = items[k].meta.get("val") if isinstance(items[k], torch.fx.Node) else None
        if not isinstance(meta, torch.Tensor) or (order := memory_order(meta)) is None:
            continue
        with graph.inserting_before(output):
            items[k] = graph.call_function(torch.ops.aten.permute.default, (items[k], order))
        items[k].meta["val"] = meta.permute(order)
        found[k] = [order.index(axis) for axis in range(len(order))]
    output.args = (tuple(items),)
    return found


_Run = Callable[..., Any]


def static_inputs() -> frozenset[int]:
    """The positions of the inputs that are weights not mutated by the graph being compiled."""
    context = TracingContext.try_get()
    known = None if context is None else context.fw_metadata
    if known is None:
        return frozenset()
    changed = {k for k, given in enumerate(known.input_info) if given.mutates_data}
    return frozenset(known.static_input_indices) - changed


class _Weights:
    """Weights of a call, and the graph compiled with them, if any.

    PyTorch counts the changes of a tensor, except those by optimisers that are fused, through
    `weight.data` and through arrays of NumPy. Samples of the elements show most of these.
    """

    def __init__(
        self, tensors: Sequence[Any], patience: int, forget: Callable[[object], object]
    ) -> None:
        #: While all of them live, no other tensors have their ids.
        self.refs = [ref(x, forget) for x in tensors]
        self.ids = [*map(id, tensors)]
        self.versions = [*map(_VERSION, tensors)]
        self.addresses = [*map(_ADDRESS, tensors)]
        #: Keep the memory of the tensors alive, so that their addresses are not reused.
        self.samples = [*map(_sample, tensors)]
        self.elements = [*map(_ELEMENTS, self.samples)]
        #: How many calls there were, and after how many these weights are compiled.
        self.calls, self.patience = 0, patience
        self.stepped = False
        self.run: _Run | None = None

    def are(self, tensors: Sequence[Any]) -> bool:
        """True if these are the same tensors with the same elements as before."""
        return (  # by maps, which take little time for each of many weights
            not self.stepped
            and [*map(id, tensors)] == self.ids
            and [*map(_VERSION, tensors)] == self.versions
            and [*map(_ADDRESS, tensors)] == self.addresses
            and [*map(_ELEMENTS, self.samples)] == self.elements
        )


_VERSION, _ADDRESS, _ELEMENTS = attrgetter("_version"), torch.Tensor.data_ptr, np.ndarray.tobytes
_SAMPLES: Final = 1024


def _sample(x: Any) -> Any:
    """The elements of a tensor as an array over its memory; `_SAMPLES` of them if it has more."""
    last = sum((size - 1) * step for size, step in zip(x.shape, x.stride(), strict=True))
    step = last // _SAMPLES + 1
    while math.gcd(step, x.numel()) > 1:  # samples would be in a few of the columns
        step += 1
    count = last // step + 1 if x.numel() else 0
    return as_numpy(real_view(x.detach().as_strided((count,), (step,))))


class Freezer:
    """Compiles a module with the weights that it is called with as constants.

    Modules with the same code share a graph; each has an executable of its own, which ends with
    its weights. After each 16 executables, weights wait for one call more before they are compiled,
    so that weights that are soon replaced do not have one each. When weights change, they wait for
    twice as many calls each time.
    """

    def __init__(
        self, module: IRModule, positions: Sequence[int], compiled: Callable[[IRModule], _Run]
    ) -> None:
        func = module["main"]
        assert isinstance(func, Function)
        self._module, self._compiled = module, compiled
        self._params = [func.params[k] for k in positions]
        self._known: dict[int, _Weights] = {}
        #: How many executables have been compiled.
        self._count = 0
        _note_steps()

    def run(self, weights: Sequence[Any]) -> _Run | None:
        """The function of the other parameters that is compiled with these weights, if one is."""
        key = id(weights[0])
        known = self._known.get(key)
        if known is None or not known.are(weights):
            if any(x.is_inference() or x.is_conj() or x.is_neg() for x in weights):
                return None  # their changes are not counted, or their memory has other elements
            patience = self._count // 16 if known is None else known.patience
            known = _Weights(weights, patience, lambda _: self._known.pop(key, None))
            self._known[key] = known
            _ALL[id(known)] = known
        if known.run is None:
            if known.calls >= known.patience:
                known.patience = 2 * known.patience + 1
                values = map(constant, map(real_view, weights))
                bound = BindParams("main", dict(zip(self._params, values, strict=True)))
                known.run = self._compiled(bound(self._module))
                self._count += 1
            known.calls += 1
        return known.run


_ALL: WeakValueDictionary[int, _Weights] = WeakValueDictionary()


@functools.cache
def _note_steps() -> None:
    """From now on, steps of optimisers are noted."""
    register_optimizer_step_post_hook(_after_step)


def _after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    changed = {id(param) for group in optimizer.param_groups for param in group["params"]}
    for known in _ALL.valuerefs():  # a copy, as another thread may add some
        weights = known()
        if weights is not None and not changed.isdisjoint(weights.ids):
            weights.stepped = True


@dataclass(frozen=True)
class View:
    """A view of an argument or of a result, whose numbers may depend on sizes of arguments."""

    of_argument: bool
    index: int
    #: Its fake tensor.
    meta: Any
    sizes: Sequence[Any]
    strides: Sequence[Any]
    #: The bytes from the first element of the tensor that it is of.
    offset: Any
    #: True if PyTorch shares version counters, so that autograd sees changes of either.
    is_counted: bool

    def made(self, base: Any, numbers: Mapping[Any, int]) -> Any:
        """The view of this tensor."""
        sizes, strides = ([_integer(n, numbers) for n in v] for v in (self.sizes, self.strides))
        offset = base.storage_offset() * base.itemsize + _integer(self.offset, numbers)
        offset //= self.meta.itemsize
        if self.is_counted:
            return base.detach().as_strided(sizes, strides, offset)
        view = _tensor(base, self.meta.dtype, offset, sizes, strides)
        view = view.conj() if self.meta.is_conj() else view
        return torch._neg_view(view) if self.meta.is_neg() else view


def _tensor(of: Any, dtype: Any, offset: int, sizes: Any, strides: Any) -> Any:
    """A tensor in the memory of another one, which is not a view for autograd.

    PyTorch compiles no graph that changes one of several arguments in one memory if some of them
    are views and some are not; the results of its own backends are not views.
    """
    return torch.empty(0, dtype=dtype).set_(of.untyped_storage(), offset, sizes, strides)


def unrelated(view: Any) -> Any:
    """The same tensor as a view, but not a view for autograd."""
    return _tensor(view, view.dtype, view.storage_offset(), view.shape, view.stride())


def _integer(value: Any, numbers: Mapping[Any, int]) -> int:
    return value if isinstance(value, int) else int(value.xreplace(numbers))


class Aliases:
    """The results of a graph that are views, by their positions.

    The first `count` results are for the caller, those after them for the backward graph. `bases`
    are nodes that results are views of though the graph does not return them: it has to, since
    results that alias in eager mode alias here, with the same strides.
    """

    def __init__(self, program: Program, results: Sequence[Any], count: int) -> None:
        metas = [_meta(item) for item in results]
        given = [item.meta for item in program.inputs]
        #: Where arguments have the sizes of symbols: their positions, and axes of tensors.
        self._places: dict[Any, tuple[int, int | None]] = {}
        for k, meta in enumerate(given):
            sizes = [*enumerate(meta.shape)] if isinstance(meta, torch.Tensor) else [(None, meta)]
            for axis, size in sizes:
                if is_symbolic(size) and sympy_of(size).is_Symbol:
                    self._places.setdefault(sympy_of(size), (k, axis))
        self.bases: list[Any] = []
        self.views: dict[int, View] = {}
        #: The strides of results for the caller that are no views, but have gaps in their memory.
        self.spread: dict[int, Sequence[Any]] = {}
        arguments = {_memory(meta): k for k, meta in enumerate(given) if has_memory(meta)}
        known = {
            _memory(meta): (k, meta)
            for k, meta in enumerate(metas)
            if fills_memory(meta, in_order=k >= count)
        }
        for k, meta in enumerate(metas):
            if not has_memory(meta):
                continue
            memory = _memory(meta)
            if memory in arguments:
                place = arguments[memory]
                if _kind(meta) == _kind(given[place]):
                    self._add(k, _view(True, place, meta, given[place], is_counted=True))
            elif memory in known:
                place, base = known[memory]
                is_counted = count <= max(k, place) < len(metas)
                if place != k and (not is_counted or _kind(meta) == _kind(base)):
                    self._add(k, _view(False, place, meta, base, is_counted=is_counted))
            elif k < count and (node := _filling(program.graph, memory)) is not None:
                place, base = len(metas) + len(self.bases), node.meta["val"]
                if self._add(k, _view(False, place, meta, base, is_counted=False)):
                    known[memory] = place, base
                    self.bases.append(node)
            if k < count and k not in self.views and not fills_memory(meta):
                strides = tuple(map(sympy_of, meta.stride()))
                if 0 not in strides and self._are_known(strides):
                    self.spread[k] = strides

    def _add(self, k: int, view: View) -> bool:
        """Note that a result is a view; whether the numbers of it can be computed."""
        is_known = self._are_known((*view.sizes, *view.strides, view.offset))
        if is_known:
            self.views[k] = view
        return is_known

    def _are_known(self, numbers: Sequence[Any]) -> bool:
        """True if the numbers can be computed from the sizes of arguments."""
        return all(isinstance(n, int) or n.free_symbols <= self._places.keys() for n in numbers)

    def numbers(self, args: Sequence[Any]) -> dict[Any, int]:
        """The numbers that symbols stand for, by the arguments of a call."""
        return {
            symbol: args[k] if axis is None else args[k].shape[axis]
            for symbol, (k, axis) in self._places.items()
        }


def _meta(item: Any) -> Any:
    return item.meta.get("val") if isinstance(item, torch.fx.Node) else None


def _kind(meta: Any) -> tuple[Any, bool, bool]:
    """The key of how memory is read as elements: datatype, conjugate bit, negative bit."""
    return meta.dtype, meta.is_conj(), meta.is_neg()


def _memory(meta: Any) -> Any:
    return meta.untyped_storage()._cdata


def _filling(graph: Any, memory: Any) -> Any:
    """The node that computes the elements in a memory; None if the graph has none."""
    nodes = ((node, _meta(node)) for node in graph.nodes if node.op == "call_function")
    filling = (node for node, meta in nodes if fills_memory(meta) and _memory(meta) == memory)
    return next(filling, None)


def _view(of_argument: bool, index: int, meta: Any, base: Any, *, is_counted: bool) -> View:
    sizes, strides = (tuple(map(sympy_of, v)) for v in (meta.shape, meta.stride()))
    offset = sympy_of(meta.storage_offset()) * meta.itemsize
    offset -= sympy_of(base.storage_offset()) * base.itemsize
    return View(of_argument, index, meta, sizes, strides, offset, is_counted)
