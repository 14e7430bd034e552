"""A graph of `torch.fx` with its inputs, whether exported, traced or captured while it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import torch

from relaxpy.dataclass import dataclass
from relaxpy.frontend.shared.unsupported import FrontendError
from relaxpy.frontend.torch.conditions import Conditions
from relaxpy.frontend.torch.decompose import graphs
from relaxpy.frontend.torch.ops.random import draws
from relaxpy.frontend.torch.symbols import is_symbolic, sympy_of


class Kind(Enum):
    """What an input of a graph is."""

    INPUT = "a parameter of the function"
    PARAMETER = "a parameter of the model"
    BOUND = "a buffer or a tensor of the program"
    LITERAL = "a value that is known"
    SIZE = "a size of an input"


@dataclass(frozen=True, eq=False)
class Input:
    """An input of a graph: its node, what is known of it, and the tensor that it stands for."""

    kind: Kind
    name: str
    node: Any
    meta: Any
    tensor: Any = None


@dataclass(frozen=True, eq=False)
class Program:
    """A graph of ATen operators."""

    graph: Any
    inputs: Sequence[Input]
    conditions: Conditions

    @property
    def output(self) -> Any:
        """The node of the results."""
        return output_of(self.graph)

    @property
    def has_branches(self) -> bool:
        """Whether a node calls graphs, under a condition or in a loop."""
        names = {"cond", "while_loop", "map_impl", "scan"}
        return any(
            isinstance(node.target, torch._ops.HigherOrderOperator) and node.target.name() in names
            for node in self.nodes()
        )

    @property
    def is_pure(self) -> bool:
        """Whether no node draws random numbers."""
        return not any(draws(node) for node in self.nodes())

    def nodes(self) -> Iterator[Any]:
        """The nodes of the graph and of those in it."""
        for graph in graphs(self.graph.owning_module):
            yield from graph.nodes


def of_exported(exported: Any, given: Mapping[int, Any]) -> Program:
    """The graph of an exported program, in which some inputs are given tensors, by position.

    Errors:
        FrontendError: an input is an object that has no form in Relax.
    """
    signature = exported.graph_signature
    nodes = {node.name: node for node in exported.graph.nodes if node.op == "placeholder"}
    kinds = torch.export.graph_signature.InputKind
    bound: list[Input] = []
    count = 0
    for spec in signature.input_specs:
        node = nodes.get(spec.arg.name)
        if node is None or "val" not in node.meta:
            raise FrontendError(f"the program does not describe its input {spec.arg.name!r}")
        meta = node.meta["val"]
        match spec.kind:
            case kinds.PARAMETER:
                tensor = _stored(exported.state_dict, spec.target)
                bound.append(Input(Kind.PARAMETER, node.name, node, meta, tensor))
            case kinds.BUFFER | kinds.CONSTANT_TENSOR:
                tensor = exported.state_dict.get(spec.target)
                if tensor is None:
                    tensor = _stored(exported.constants, spec.target)
                bound.append(Input(Kind.BOUND, node.name, node, meta, tensor))
            case kinds.USER_INPUT:
                tensor = given.get(count)
                count += 1
                bound.append(Input(_kind(meta, tensor), node.name, node, meta, tensor))
            case kinds.TOKEN:
                bound.append(Input(Kind.LITERAL, node.name, node, None))
            case kinds.CUSTOM_OBJ if generator := _argument_of(exported, spec, nodes.values()):
                bound.append(Input(Kind.LITERAL, node.name, node, generator))
            case _:
                hint = None
                if isinstance(exported.constants.get(spec.target), torch.Generator):
                    hint = "pass the generator as an argument of the model"
                raise FrontendError(
                    f"the input {node.name!r} is a {spec.kind.name.lower()}, "
                    "which Relax does not have",
                    hint=hint,
                )
    return Program(exported.graph, bound, Conditions.of_exported(exported))


def output_of(graph: Any) -> Any:
    """The node of the results of a graph.

    Errors:
        FrontendError: there is none.
    """
    last = next(iter(reversed(graph.nodes)), None)
    if last is None or last.op != "output":
        raise FrontendError("the graph has no output")
    return last


def _stored(tensors: Mapping[str, Any], name: str) -> Any:
    if name not in tensors:
        raise FrontendError(f"the program has no tensor for {name!r}")
    return tensors[name]


def _argument_of(exported: Any, spec: Any, nodes: Iterable[Any]) -> Any:
    """The node of the argument that is a generator of the program, which PyTorch takes apart."""
    found = exported.constants.get(spec.target)
    if not isinstance(found, torch.Generator):
        return None
    given = ((node, node.meta.get("val")) for node in nodes)
    return next(
        (n for n, g in given if isinstance(g, torch.Generator) and g._cdata == found._cdata), None
    )


def _kind(meta: Any, tensor: Any) -> Kind:
    if tensor is not None:
        return Kind.PARAMETER if isinstance(tensor, torch.nn.Parameter) else Kind.BOUND
    literal = not isinstance(meta, (torch.Tensor, torch.Generator)) and not is_symbolic(meta)
    return Kind.LITERAL if literal else Kind.INPUT


def of_graph(module: Any) -> Program:
    """The graph of a module whose inputs are tensors, and sizes of these."""
    nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
    sizes = {
        sympy_of(size)
        for node in nodes
        if isinstance(node.meta["val"], torch.Tensor)
        for size in node.meta["val"].shape
        if is_symbolic(size)
    }
    inputs: list[Input] = []
    for node in nodes:
        meta = node.meta["val"]
        kind = Kind.INPUT
        if not isinstance(meta, torch.Tensor):
            symbolic = is_symbolic(meta)
            kind = Kind.SIZE if symbolic and sympy_of(meta) in sizes else kind
            kind = kind if symbolic else Kind.LITERAL
        inputs.append(Input(kind, node.name, node, meta))
    return Program(module.graph, inputs, Conditions.of_graph(module.graph))
