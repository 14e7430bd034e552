"""Functionalises in-place operators and views while a graph is imported.

Nodes whose tensors have one memory form a tree: a view is a child of the tensor that it is of. A
change of a view is written into its parents, or by its strides into the root, and other views of
the memory are made again when they are read next.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import field
from typing import TYPE_CHECKING, Any

import torch
from torch._guards import detect_fake_mode

from relaxpy.plugins.torch.strides import fills_memory
from relaxpy.plugins.torch.symbols import sympy_of
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from relaxpy.plugins.torch.importer import Importer

#: Operators that may change their fourth argument, the mean, which their schemas do not say; the
#: argument that decides.
_CHANGES_STATISTICS = {"batch_norm": 5, "instance_norm": 5}
#: Operators whose results have the elements of the argument in its order.
_IN_ORDER = frozenset(
    [
        "view",
        "reshape",
        "_unsafe_view",
        "_reshape_alias",
        "view_as",
        "reshape_as",
        "flatten",
        "unflatten",
        "ravel",
        "squeeze",
        "unsqueeze",
        "expand",
        "expand_as",
        "contiguous",
        "to",
        "type_as",
        "detach",
        "detach_",
        "alias",
        "dropout",
        "feature_dropout",
        "alpha_dropout",
        "feature_alpha_dropout",
        "positive",
        "atleast_1d",
        "atleast_2d",
        "atleast_3d",
    ]
)
#: Composite operators that may return views of their arguments; their schemas do not say so.
_MAY_BE_VIEWS = frozenset(
    [
        *("einsum", "meshgrid", "broadcast_tensors", "cartesian_prod", "atleast_1d", "atleast_2d"),
        *("atleast_3d", "dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"),
        *("type_as", "sum_to_size", "conj_physical"),
    ]
)
#: Permutations that undo themselves.
_SWAPS = frozenset(["transpose", "swapaxes", "swapdims", "t", "numpy_T", "mT"])
#: Operators with several results, which are one after the other on an axis.
_SPLITS = frozenset(
    [
        "split",
        "split_with_sizes",
        "chunk",
        "tensor_split",
        "unsafe_split",
        "unsafe_split_with_sizes",
        "unsafe_chunk",
    ]
)


def is_overload(target: object) -> bool:
    """True if the target of a node is an overload of an operator."""
    return isinstance(target, torch._ops.OpOverload)


def changes_argument(node: Any) -> bool:
    """True if a node mutates one of its arguments."""
    if not is_overload(node.target):
        return False
    schema, name = node.target._schema, _packet(node)
    if name == "detach_":  # which no element shows, and which follows each `torch.tensor`
        return False
    at = _CHANGES_STATISTICS.get(name)
    if at is None or len(node.args) <= at:
        return bool(schema.is_mutable)
    return bool(node.args[at]) and node.args[3] is not None


def twin_of(target: Any) -> Any:
    """The operator that returns what this one writes to its first argument, or None."""
    namespace, name = target._schema.name.split("::")
    if name.startswith("__i") and name.endswith("__"):
        name = f"__{name[3:]}_"
    elif not name.endswith("_") or name.endswith("__"):
        return None
    packet = getattr(getattr(torch.ops, namespace), name[:-1], None)
    if packet is None or target._overloadname in packet.overloads():
        return getattr(packet, target._overloadname, None)
    # Some overloads have other names: `pow_.Tensor` is `pow.Tensor_Tensor`.
    overloads = (getattr(packet, overload) for overload in packet.overloads())
    parameters = _parameters(target)
    return next((twin for twin in overloads if _parameters(twin) == parameters), None)


def _parameters(target: Any) -> list[tuple[str, str]]:
    """The names and types of an operator's parameters."""
    return [(argument.name, str(argument.type)) for argument in target._schema.arguments]


def _memory(value: Any) -> int | None:
    """The memory of a tensor, or of several that are in one."""
    if isinstance(value, (tuple, list)) and value:
        found = {_memory(item) for item in value}
        return found.pop() if len(found) == 1 else None
    while isinstance(value, torch.Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(
        value
    ):
        value = torch._C._functorch.get_unwrapped(value)  # one of a batch of `torch.vmap`
    strided = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return value.untyped_storage()._cdata if strided else None


def _is_composite(node: Any) -> bool:
    """True for an operator made of others, which may be views though its schema has none."""
    return _packet(node) in _MAY_BE_VIEWS


def hidden_views(graph: Any) -> set[Any]:
    """The operators whose results are views of arguments, which their schemas do not say."""
    changing = [node for node in graph.nodes if changes_argument(node)]
    memories = _memories(graph, changing) if changing else {}
    if memories is None:  # any of them may be a view
        return {node.target for node in filter(_is_composite, graph.nodes)}
    return {
        node.target
        for node in filter(_is_composite, memories)
        if {memories[n] for n in node.all_input_nodes}.intersection(
            memories.get(n) for n in (node, *node.users)
        )
        - {None}
    }


class _Propagation(torch.fx.Interpreter):  # type: ignore[misc]
    """Runs some nodes of a graph on fake tensors, and keeps the results and other values."""

    def run_node(self, n: Any) -> Any:
        if n.op != "placeholder" and (n in self.again or self.values.get(n) is None):
            self.values[n] = super().run_node(n)
        return self.values[n]

    def values_for(self, again: Set[Any], values: Mapping[Any, Any]) -> Mapping[Any, Any]:
        self.again, self.values = again, dict(values)
        self.run()
        return self.values


def _may_share(node: Any) -> bool:
    """True if the results of a node may be in the memory of its arguments."""
    if not is_overload(node.target) or _is_composite(node) or changes_argument(node):
        return True
    return any(result.alias_info is not None for result in node.target._schema.returns)


def _sharing(changes: Iterable[Any], values: Mapping[Any, Any]) -> set[Any]:
    """The nodes that may have the memory of what changes, by their operators or their values."""
    of_memory: dict[int | None, list[Any]] = {}
    for node, value in values.items():
        of_memory.setdefault(_memory(value), []).append(node)
    found: set[Any] = set()
    open_nodes = list(changes)
    while open_nodes:
        node = open_nodes.pop()
        if node in found or node not in values:
            continue
        found.add(node)
        place = _memory(values[node])
        open_nodes += of_memory[place] if place is not None else ()
        open_nodes += node.all_input_nodes if _may_share(node) else ()
        open_nodes += filter(_may_share, node.users)
    return found


def _memories(graph: Any, changes: Iterable[Any]) -> Mapping[Any, int | None] | None:
    """The memory of each node.

    Where the graph was loaded, or `torch.export` has kept an operator as one that returns new
    tensors, the nodes that may share memory with those that change are run to see it.
    """
    nodes = [node for node in graph.nodes if node.op != "output"]
    values = {node: node.meta.get("val") for node in nodes}
    sharing = _sharing(changes, values)
    if any(map(_is_composite, sharing)) or any(
        _memory(values[node]) != _memory(values[node.args[0]]) for node in changes
    ):
        mode = detect_fake_mode([values[node] for node in nodes if node.op == "placeholder"])
        try:
            with contextlib.ExitStack() as scope:
                if mode is not None:
                    scope.enter_context(mode)
                    if mode.shape_env is not None:
                        # PyTorch would look for new symbols in the results of the program.
                        scope.enter_context(mode.shape_env.ignore_fresh_unbacked_symbols())
                run = _Propagation(graph.owning_module).values_for(sharing, values)
                values = {node: run.get(node) for node in nodes}
        except Exception:  # of PyTorch, where values decide more than sizes
            return None
    return {node: _memory(value) for node, value in values.items()}


@dataclass(eq=False)
class Changes:
    """The nodes that share memory which the graph changes, and which of their values are old."""

    #: The memory of nodes, if it changes.
    memory: Mapping[Any, int] = field(default_factory=dict)
    #: The parent of each view.
    parents: Mapping[Any, Any] = field(default_factory=dict)
    #: Results of operators in place, and the first node that is this tensor.
    first: Mapping[Any, Any] = field(default_factory=dict)
    #: Inputs that change, in their order.
    inputs: tuple[Any, ...] = ()
    _count: dict[int, int] = field(default_factory=dict)
    _seen: dict[Any, int] = field(default_factory=dict)

    def begun(self) -> Changes:
        """These changes before the graph is imported, which notes how far it is."""
        return Changes(self.memory, self.parents, self.first, self.inputs)

    def note(self, node: Any, importer: Importer) -> None:
        """The value of this node has just been computed."""
        if node in self.first:
            self._write(node, importer)
        elif node in self.memory:
            self._seen[node] = self._count.get(self.memory[node], 0)

    def _is_old(self, node: Any) -> bool:
        count = self._count.get(self.memory[node], 0)
        return self._seen.get(node, count) != count

    def refresh(self, node: Any, importer: Importer) -> None:
        """Compute the value of this node again if its memory changed."""
        tensor = self.first.get(node, node)
        if tensor not in self.memory:
            return
        old = []
        while self._is_old(tensor):
            old.append(tensor)
            tensor = self.parents[tensor]
        for view in reversed(old):
            for operand in view.all_input_nodes:
                importer.env[operand] = importer.env[self.first.get(operand, operand)]
            importer.compute(view)
            self.note(view, importer)
        importer.env[node] = importer.env[self.first.get(node, node)]

    def _write(self, node: Any, importer: Importer) -> None:
        """From now on the first argument has the value of this node."""
        child = self.first[node]
        env, memory = importer.env, self.memory[child]
        count = self._count[memory] = self._count.get(memory, 0) + 1
        env[child] = env[node]
        self._seen[child] = count
        path = [child, *_bases(child, self.parents)]
        if not all(map(_is_written_back, path, path[1:])):
            root = path[-1]
            env[root] = importer.of_function(root, _scattered, root, child)
            self._seen[root] = count
            return
        while child in self.parents:
            parent = self.parents[child]
            if not isinstance(parent.meta["val"], (tuple, list)):
                env[parent] = _written(importer, parent, child)
                child = parent
            else:
                tensor = self.parents[parent]
                env[tensor] = _written_part(importer, tensor, parent, child)
                child = tensor
            self._seen[child] = count


def _bases(view: Any, parents: Mapping[Any, Any]) -> Iterator[Any]:
    """The base of a view, the base of that, and so on up to the root."""
    while view in parents:
        view = parents[view]
        yield view


def _scattered(root: Any, view: Any) -> Any:
    """The value of the root after a view of it has changed."""
    return torch.as_strided_scatter(root, view, view.shape, view.stride(), view.storage_offset())


def _packet(node: Any) -> str:
    """The name of a node's operator; that of an extension may mean something else."""
    is_own = is_overload(node.target) and node.target.namespace == "aten"
    return str(node.target._schema.name.rpartition(":")[2]) if is_own else ""


def _written(importer: Importer, parent: Any, view: Any) -> Any:
    """The value of a tensor after that of a view of it has changed."""
    ops, name, args = torch.ops.aten, _packet(view), view.args[1:]

    def call(target: Any, *more: Any) -> Any:
        return importer.applied(parent, target, more)

    if name in _IN_ORDER:
        return call(ops.reshape.default, view, list(parent.meta["val"].shape))
    if name in _SWAPS:
        return call(view.target, view, *args)
    if name == "permute":
        rank = len(args[0])
        places = [axis % rank for axis in args[0]]
        return call(ops.permute.default, view, [places.index(k) for k in range(rank)])
    if name == "narrow":
        axis, start, length = importer.values(args)
        return call(ops.slice_scatter.default, parent, view, axis, start, start + length)
    return call(_SCATTERS[name], parent, view, *args)


_SCATTERS: dict[str, Any] = {
    "slice": torch.ops.aten.slice_scatter.default,
    "select": torch.ops.aten.select_scatter.default,
    "diagonal": torch.ops.aten.diagonal_scatter.default,
}


def _written_part(importer: Importer, tensor: Any, parts: Any, item: Any) -> Any:
    """The value of a tensor after one of the parts that it is split into has changed."""
    ops, index, metas = torch.ops.aten, item.args[1], parts.meta["val"]
    args = {a.name: v for a, v in zip(parts.target._schema.arguments, parts.args, strict=False)}
    axis = {**args, **parts.kwargs}.get("dim", 0)
    if _packet(parts) == "unbind":
        return importer.applied(tensor, ops.select_scatter.default, (tensor, item, axis, index))
    begin = sum(meta.shape[axis] for meta in metas[:index])
    bounds = (begin, begin + metas[index].shape[axis])
    return importer.applied(tensor, ops.slice_scatter.default, (tensor, item, axis, *bounds))


def _is_written_back(view: Any, parent: Any) -> bool:
    """True if an operator writes a change of a view into its base tensor."""
    if isinstance(view.meta["val"], (tuple, list)):
        return _packet(view) in _SPLITS or _packet(view) == "unbind"
    if isinstance(parent.meta["val"], (tuple, list)):
        return not is_overload(view.target)
    name = _packet(view)
    one, other = view.meta["val"], parent.meta["val"]
    if one.dtype != other.dtype or one.is_conj() != other.is_conj():
        return False
    if name in _IN_ORDER:
        return "expand" not in name or sympy_of(one.numel()) == sympy_of(other.numel())
    return name in _SWAPS or name in _SCATTERS or name in ("permute", "narrow")


def _is_strided(view: Any, root: Any) -> bool:
    """True if the strides of a view say which elements of the root it has."""
    one, other = view.meta["val"], root.meta["val"]
    return (
        isinstance(other, torch.Tensor)
        and _memory(one) == _memory(other)
        and one.dtype == other.dtype
        and one.is_conj() == other.is_conj()
        and one.is_neg() == other.is_neg()
        and fills_memory(other)
    )


class Followed(dict[Any, Changes | None]):
    """The in-place changes of unchanged graphs, by graph; looked for once."""

    def __missing__(self, graph: Any) -> Changes | None:
        self[graph] = found = changes_of(graph)
        return found


def changes_of(graph: Any) -> Changes | None:
    """The in-place changes of a graph, or None if the importer cannot follow them."""
    changing = [node for node in graph.nodes if changes_argument(node)]
    if not changing:
        return Changes()
    if not all(map(_has_twin, changing)):
        return None
    memories = _memories(graph, changing)
    if memories is None:
        return None
    written = {memories[node.args[0]] for node in changing}
    memory: dict[Any, int] = {}
    parents: dict[Any, Any] = {}
    first: dict[Any, Any] = {}
    known: set[int] = set()
    for node, place in memories.items():
        if place is None or place not in written or _is_lifted(node):
            continue
        if changes_argument(node):
            first[node] = first.get(node.args[0], node.args[0])
            continue
        if place in known:
            of = next((n for n in node.all_input_nodes if memories[n] == place), None)
            if of is None:
                return None
            parents[node] = first.get(of, of)
        elif isinstance(node.meta["val"], (tuple, list)) or node.op == "get_attr":
            return None
        memory[node] = place
        known.add(place)
    for node in changing:
        view = first.get(node)
        if view is None:
            return None
        path = [view, *_bases(view, parents)]
        if not all(map(_is_written_back, path, path[1:])) and not _is_strided(view, path[-1]):
            return None
    inputs = tuple(node for node in memory if node.op == "placeholder")
    return Changes(memory, parents, first, inputs)


def _is_lifted(node: Any) -> bool:
    """True for a constant of which the graph reads one copy, which fake tensors show as a view."""
    return node.op in ("placeholder", "get_attr") and [*map(_packet, node.users)] == [
        "lift_fresh_copy"
    ]


def _has_twin(node: Any) -> bool:
    """True if the new value of a node's first argument is the result of an operator."""
    schema = node.target._schema
    aliases = [argument.alias_info for argument in schema.arguments]
    changed = [k for k, alias in enumerate(aliases) if alias is not None and alias.is_write]
    moves = torch.Tag.inplace_view in node.target.tags
    twin = twin_of(node.target)
    return changed == [0] and bool(node.args) and not moves and twin is not None


def given_inputs(program: Any) -> set[Any]:
    """The inputs of an exported program that are buffers, or tensors that the caller gives."""
    kinds = torch.export.graph_signature.InputKind
    specs = {spec.arg.name: spec.kind for spec in program.graph_signature.input_specs}
    return {
        node
        for node in program.graph.find_nodes(op="placeholder")
        if specs[node.name] in (kinds.BUFFER, kinds.USER_INPUT)
    }
