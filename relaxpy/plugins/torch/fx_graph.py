"""A graph of `torch.fx` with its inputs, and the constraints on their sizes.

It is exported, traced, or captured while it runs.
"""

from __future__ import annotations

import sys
from collections import defaultdict, namedtuple
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import field, is_dataclass
from enum import Enum
from typing import Any, Final

import sympy
import torch

from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr, PrimValue
from relaxpy.ir.short_text.nodes import ShortText
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing.unsupported import FrontendError
from relaxpy.plugins.torch.decompose import graphs
from relaxpy.plugins.torch.mutation import Changes, Followed
from relaxpy.plugins.torch.ops.control import asserts
from relaxpy.plugins.torch.ops.creation import draws
from relaxpy.plugins.torch.symbols import Symbols, is_symbolic, sympy_of
from relaxpy.support.dataclass import dataclass, replace


class Kind(Enum):
    """The kind of an input of a graph."""

    INPUT = "a parameter of the function"
    PARAMETER = "a parameter of the model"
    BOUND = "a buffer or a tensor of the program"
    LITERAL = "a value that is known"
    SIZE = "a size of an input"


@dataclass(frozen=True, eq=False)
class Input:
    """An input of a graph: its node, its fake tensor, and the tensor that it stands for."""

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
    #: The form of what the model returns, a TreeSpec, which are the last results; None without one.
    form: Any = None
    followed: Followed = field(default_factory=Followed)

    @property
    def output(self) -> Any:
        """The node of the results."""
        return output_of(self.graph)

    @property
    def has_branches(self) -> bool:
        """True if a node calls graphs, under a condition or in a loop."""
        names = {"cond", "while_loop", "map_impl", "scan"}
        return any(
            isinstance(node.target, torch._ops.HigherOrderOperator) and node.target.name() in names
            for node in self.nodes()
        )

    @property
    def is_pure(self) -> bool:
        """True if no node draws random numbers or asserts something about values."""
        return not any(draws(node) or asserts(node) for node in self.nodes())

    def nodes(self) -> Iterator[Any]:
        """The nodes of the graph and of those in it."""
        for graph in graphs(self.graph.owning_module):
            yield from graph.nodes


def named_outputs(form: Any, places: Iterator[int | None]) -> Any:
    """The places of results in the form in which the model returns them.

    Dictionaries and the fields of classes are mappings, all else is a list.
    """
    if form.is_leaf():
        return next(places)
    members = [named_outputs(member, places) for member in form.children()]
    names = form.context
    if form.type is namedtuple:
        names = form.context._fields
    elif issubclass(form.type, defaultdict):
        names = form.context[1]
    elif not issubclass(form.type, Mapping) and is_dataclass(form.type):
        names = form.context[0]  # of fields that are not None
    elif not issubclass(form.type, Mapping):
        return members
    return {str(name): member for name, member in zip(names, members, strict=True)}


def has_names(tree: Any) -> bool:
    """True if one of the outputs has a name."""
    return isinstance(tree, dict) or (isinstance(tree, list) and any(map(has_names, tree)))


def of_exported(exported: Any, given: Mapping[int, Any], followed: Followed) -> Program:
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
    inputs = _with_own_memory(exported, bound, followed[exported.graph])
    conditions = Conditions.of_exported(exported)
    return Program(exported.graph, inputs, conditions, exported.call_spec.out_spec, followed)


def _with_own_memory(
    exported: Any, inputs: Iterable[Input], changes: Changes | None
) -> list[Input]:
    """The inputs, with copies of the tensors that a call of the program changes."""
    signature = exported.graph_signature
    targets = {s.target for s in signature.output_specs if "MUTATION" in s.kind.name}
    names = {s.arg.name for s in signature.input_specs if s.target in targets} | targets
    if changes is not None:
        names.update(node.name for node in changes.inputs)
    return [
        replace(item, tensor=item.tensor.clone())
        if item.name in names and item.tensor is not None
        else item
        for item in inputs
    ]


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


#: PyTorch calls sizes from here on usual, and computes with 0 and 1 all the same.
_USUAL: Final = 2
_UNBOUNDED: Final = sys.maxsize - 1


@dataclass(frozen=True, eq=False)
class Conditions:
    """The conditions that a graph comes with, and those that are noted while it is imported."""

    env: Any
    ranges: Mapping[Any, Any]
    #: The conditions before these are checked by whoever calls the graph.
    first: int = 0

    @classmethod
    def of_graph(cls, graph: Any) -> Conditions:
        """The conditions of a captured graph; PyTorch checks those that it knows."""
        env = _environment(graph)
        return cls(env, {}, len(_noted(env)))

    @classmethod
    def of_exported(cls, exported: Any) -> Conditions:
        """The conditions of an exported program, which may have been read from a file."""
        env = _environment(exported.graph)
        if exported._guards_code and not _noted(env):
            checks = getattr(exported.module(), "_guards_fn", None)
            if checks is not None:  # whose calls are noted as those of the model have been
                users = exported.graph_signature.user_inputs
                nodes = {node.name: node for node in exported.graph.find_nodes(op="placeholder")}
                checks(*(nodes[name].meta["val"] if name in nodes else name for name in users))
        return cls(env, exported.range_constraints)

    @property
    def count(self) -> int:
        """How many conditions PyTorch has noted so far."""
        return len(_noted(self.env))

    def assertions(self, symbols: Symbols) -> list[Expr]:
        """Assertions of the conditions on sizes that are known.

        Errors:
            UnsupportedError: a condition has a function without a form in TIR.
        """
        analyzer = Analyzer()
        result: list[Expr] = []
        with ExitStack() as known:
            for condition in dict.fromkeys(self._all()):
                if symbols.unknown(condition):
                    continue  # on strides, which say nothing here, or on sizes found when it runs
                test = symbols.expr(condition)
                if isinstance(test, PrimExpr) and not analyzer.can_prove(test):
                    known.enter_context(analyzer.constraint_scope(test))
                    result.append(_assertion(test))
        return result

    def _all(self) -> Iterator[Any]:
        for symbol, bounds in self.ranges.items():
            if bounds.lower > _USUAL:
                yield sympy.Ge(symbol, bounds.lower)
            if bounds.upper < _UNBOUNDED:
                yield sympy.Le(symbol, bounds.upper)
        for guard in _noted(self.env)[self.first :]:
            yield self.env.replace(guard.expr)


def _environment(graph: Any) -> Any:
    """Where PyTorch notes the conditions on the sizes of a graph's inputs; None without any."""
    for node in graph.find_nodes(op="placeholder"):
        meta = node.meta.get("val")
        for size in meta.shape if isinstance(meta, torch.Tensor) else (meta,):
            if is_symbolic(size):
                return size.node.shape_env
    return None


def _noted(env: Any) -> Sequence[Any]:
    return () if env is None else env.guards


def _assertion(test: PrimExpr) -> Expr:
    sizes = list(dict.fromkeys(node for node in walk(test) if isinstance(node, tir.Var)))
    found = ", ".join(f"{size.name} = {{}}" for size in sizes)
    required = ShortText().prim(test, INT64)
    text = f"the program was exported for sizes where {required}, found {found}"
    assertion: Expr = R.assert_op(PrimValue(test), [PrimValue(size) for size in sizes], text)
    return assertion
