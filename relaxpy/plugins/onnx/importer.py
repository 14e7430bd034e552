"""From the nodes of ONNX graphs to the bindings of Relax functions; `from_onnx`."""

from __future__ import annotations

import ast
import json
import operator
import os
import re
from collections import ChainMap
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import field
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from relaxpy.errors import Diagnostic, MisuseError, RelaxpyError, warn
from relaxpy.ir.core.dtype import Array, DataType
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.nodes import Constant, Expr, StructInfo, TensorStructInfo, Tuple, Var, const
from relaxpy.ir.relax.outputs import OUTPUT_TREE, STRING_SIZES
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing.tensors import (
    LIMIT,
    Contents,
    Names,
    identifier,
    literal,
    tensor_of as tensor_info,
)
from relaxpy.plugins.importing.unsupported import (
    FrontendError,
    UnsupportedError,
    UnsupportedNode,
    refuse_nodes,
)
from relaxpy.plugins.onnx import bodies, view, view as views
from relaxpy.plugins.onnx.context import (
    OBJECT,
    BranchesNeededError,
    Context,
    RanksDifferError,
    Strings,
    Value,
    find,
    storage,
    vocabulary_var,
)
from relaxpy.plugins.onnx.folding import FOLDED, UndecidedError, cast
from relaxpy.plugins.onnx.ops.branches import possible
from relaxpy.plugins.onnx.ops.sequences import parts_of
from relaxpy.support import progress
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing
from relaxpy.support.gc_pause import gc_paused

#: The value of the attribute `to` of a cast to strings.
_STRING = (TensorProto.STRING, "STRING")
#: How many bodies of functions may stand within each other.
_MAX_INLINED = 64
#: How many nodes the bodies of functions, loops and branches may have, counted for each use.
_MAX_NODES = 100_000
#: How many bytes all tensors may have that are computed at import: weights that a model fills with
#: one value among them, whose file has few bytes. Others are computed when the program runs.
_MAX_FOLDED = 1 << 28
#: How many branches may each have the rest of a graph within each other.
_MAX_SPLITS = 5


@dataclass(frozen=True)
class Options:
    """The options of `from_onnx`."""

    shapes: Mapping[str, Sequence[Any]]
    dtypes: Mapping[str, str]
    keep_params: bool
    sanitize: bool


class _Missing:
    """The value of a name that a node defines which cannot be imported."""


@dataclass(eq=False)
class Importer:
    """Builds the function `main`; `unsupported` collects the nodes that cannot be imported."""

    model: view.Model
    options: Options
    is_dataflow: bool = True
    builder: BlockBuilder = field(default_factory=BlockBuilder)
    unsupported: list[UnsupportedNode] = field(default_factory=list)
    #: Constants that are parameters, by their variables.
    params: dict[Var, Constant] = field(default_factory=dict)
    _sizes: dict[str, tir.PrimExpr] = field(default_factory=dict)
    _names: Names = field(default_factory=lambda: Names(lambda name: name))
    _size_names: Names = field(default_factory=lambda: Names(lambda name: identifier(name, "n")))
    #: The element types of tensors of sub-byte elements, which are stored one per byte here.
    narrow: dict[Expr, int] = field(default_factory=dict)
    #: The datatypes and ranks of the values of sequences.
    items: dict[Expr, TensorStructInfo] = field(default_factory=dict)
    #: The element of optionals that are not empty.
    optionals: dict[Expr, StructInfo] = field(default_factory=dict)
    #: The types of the dictionaries among the inputs.
    maps: dict[Expr, view.MapType] = field(default_factory=dict)
    strings: Strings = field(init=False)
    #: Nodes on which no output depends.
    unused: set[view.Node] = field(default_factory=set)
    #: The ranks that the graph that is converted states of values.
    ranks: Mapping[str, int] = field(default_factory=dict)
    _depth: int = 0
    _splits: int = 0
    _inlined_nodes: int = 0
    _folded_bytes: int = 0

    def __post_init__(self) -> None:
        self.text_infos: dict[str, StructInfo] = {}
        """The struct info of inputs that have strings, as places in the vocabulary."""
        self.strings = Strings(vocabulary_var(is_dataflow=self.is_dataflow))

    def module(self) -> IRModule:
        """The module.

        Errors:
            OpNotImplemented: nodes cannot be imported; the error lists all of them.
            FrontendError: the graph is not well-formed.
        """
        try:
            return self._module()
        except BranchesNeededError:
            return Importer(self.model, self.options, is_dataflow=False)._module()

    def _module(self) -> IRModule:
        graph = self.model.graph
        inputs = {name: self._parameter(name, kind) for name, kind in graph.inputs.items()}
        scope: dict[str, Value] = dict(inputs)
        for name, initializer in graph.initializers.items():
            try:
                value = self.literal(initializer.array)
            except UnsupportedError as error:
                raise FrontendError(f"the initializer {name!r}: {error}") from None
            if self.options.keep_params and value not in self.strings.values:
                var = Var(self._name(name), value.struct_info)
                self.params[var] = value
                if value in self.narrow:
                    self.narrow[var] = self.narrow[value]
                scope[name] = var
            else:
                scope[name] = value
        parameters = [*inputs.values(), *self.params]
        attrs: dict[str, object] = {
            "num_input": len(inputs),
            OUTPUT_TREE: {name: k for k, name in enumerate(graph.outputs)},
        }
        if self.text_infos:
            attrs[STRING_SIZES] = {
                inputs[name].name_hint: _sizes_of(info) for name, info in self.text_infos.items()
            }
        if self.params:
            attrs["params"] = [value.data for value in self.params.values()]
        with self.builder.function("main", parameters, attrs):
            if self.is_dataflow:
                with self.builder.dataflow():
                    output = self.builder.emit_output(self._results(graph, scope))
            else:
                output = self.builder.emit(self._results(graph, scope))
            self.builder.emit_func_output(output)
        return self.strings.with_vocabulary(self.builder.finalize())

    def _results(self, graph: view.Graph, scope: Mapping[str, Value]) -> Expr:
        self.builder.declare(self.strings.vocabulary)
        values = self.convert(graph, {**scope, **self._encoded(scope)}, self.model.opsets)
        refuse_nodes(self.unsupported, "ONNX")
        place = Context(self, _OUTPUT, 0, {})
        try:
            exprs = [self._decoded(place, place.tensor(value)) for value in values]
        except UnsupportedError as error:
            raise FrontendError(f"an output of the graph cannot be imported: {error}") from None
        return exprs[0] if len(exprs) == 1 else Tuple(tuple(exprs))

    def _encoded(self, scope: Mapping[str, Any]) -> dict[str, Value]:
        """The inputs that have strings, as the places of these in the vocabulary."""
        result: dict[str, Value] = {}
        infos = self.text_infos
        # A size may be an expression of sizes that another input has alone.
        for name in sorted(infos, key=lambda name: _has_expressions(infos[name])):
            var, info = scope[name], infos[name]
            is_tensor = isinstance(info, TensorStructInfo)
            read = tensor_info(None, "int64") if is_tensor else info
            stated = json.dumps(_sizes_of(info))
            codes = self.builder.emit(
                self.strings.call("encode", read, var, var.name_hint, stated),
                f"{identifier(name)}_codes",
            )
            if is_tensor:
                cast = self.builder.match_cast(codes, info, identifier(name))
                assert cast is not None
                codes = cast
            if var in self.items:
                self.items[codes] = self.items[var]
            if var in self.optionals:
                self.optionals[codes] = self.optionals[var]
            result[name] = codes
        self.strings.values |= set(result.values())
        return result

    def _decoded(self, place: Context, value: Expr) -> Expr:
        """A result of the graph, in which the places of strings are these."""
        if value not in self.strings.values:
            return value
        is_tensor = isinstance(value.struct_info, TensorStructInfo)
        parts = None if is_tensor else parts_of(place, value)
        if parts is not None:
            return Tuple(tuple(self.strings.call("decode", OBJECT, part) for part in parts))
        return self.strings.call("decode", OBJECT, value)

    def convert(
        self, graph: view.Graph, scope: Mapping[str, Value], opsets: Mapping[str, int]
    ) -> list[Value]:
        """The values of the outputs of a graph whose inputs are in `scope`, emitted here."""
        inner: ChainMap[str, Any] = ChainMap({}, scope)  # type: ignore[arg-type]
        if self._depth:
            for name, initializer in graph.initializers.items():
                try:
                    inner[name] = self.literal(initializer.array)
                except UnsupportedError as error:
                    raise FrontendError(f"the initializer {name!r}: {error}") from None
        self._depth += 1
        if self._depth > _MAX_INLINED:
            raise FrontendError("the functions of the model call each other without end")
        if self._depth > 1:
            self._inlined_nodes += len(graph.nodes)
        if self._inlined_nodes > _MAX_NODES:
            raise FrontendError(
                f"the functions and branches of the model have more than {_MAX_NODES} nodes where "
                "each use has its own"
            )
        graph.require_distinct_names()
        self.unused |= graph.unused_nodes()
        outer, self.ranks = self.ranks, graph.ranks
        try:
            return self._nodes(graph.nodes, inner, opsets, graph.outputs)
        finally:
            self._depth -= 1
            self.ranks = outer

    @property
    def may_split(self) -> bool:
        """True if the rest of a graph may be imported once for each way of a branch."""
        return self._splits < _MAX_SPLITS

    def _nodes(
        self,
        nodes: Sequence[view.Node],
        scope: MutableMapping[str, Any],
        opsets: Mapping[str, int],
        outputs: Sequence[str],
    ) -> list[Value]:
        """The values of outputs after these nodes."""
        for k, node in enumerate(nodes):
            progress.now(f"{node.op}, {k + 1} of {len(nodes)}")
            try:
                self._convert_node(node, scope, opsets)
            except RanksDifferError as found:
                rest = [
                    partial(self._rest, way, node, nodes[k + 1 :], scope, opsets, outputs)
                    for way in found.ways
                ]
                self._splits += 1
                try:
                    return possible(found.context, found.test, rest)
                except UnsupportedError as error:
                    self.unsupported.append(UnsupportedNode(node.where, node.op, str(error), ()))
                    return [None] * len(outputs)
                finally:
                    self._splits -= 1
        return [self._lookup(name, scope, f"output {name!r}") for name in outputs]

    def _rest(
        self,
        way: Callable[[], Sequence[Value]],
        node: view.Node,
        nodes: Sequence[view.Node],
        scope: MutableMapping[str, Any],
        opsets: Mapping[str, int],
        outputs: Sequence[str],
    ) -> list[Value]:
        """The values of outputs after these nodes, where a branch has gone one way."""
        inner: ChainMap[str, Any] = ChainMap({}, scope)
        for name, value in zip(node.outputs, way(), strict=False):
            inner[name] = self._named(value, name)
        before = len(self.unsupported)
        result = self._nodes(nodes, inner, opsets, outputs)
        if len(self.unsupported) > before:
            reason = str(self.unsupported[before])
            del self.unsupported[before:]
            raise UnsupportedError(reason)
        return result

    def _lookup(self, name: str, scope: Mapping[str, Any], user: str) -> Value:
        if name not in scope:
            raise FrontendError(
                f"{user} uses {name!r}, which no node before it defines",
                hint="a name is that of an input, an initializer, or an output of a node that does "
                "not depend on its reader",
            )
        value = scope[name]
        return None if isinstance(value, _Missing) else value

    def _convert_node(
        self, node: view.Node, scope: MutableMapping[str, Any], opsets: Mapping[str, int]
    ) -> None:
        operands: list[Value] = []
        for name in node.inputs:
            if (
                name
                and self._lookup(name, scope, node.where) is None
                and (isinstance(scope[name], _Missing))
            ):
                scope.update(dict.fromkeys(filter(None, node.outputs), _Missing()))
                return
            operands.append(self._lookup(name, scope, node.where) if name else None)
        if node in self.unused:
            scope.update(dict.fromkeys(filter(None, node.outputs), _Missing()))
            return
        try:
            called = self._call(node, operands, scope, opsets)
            names = [*node.outputs, *[""] * len(called)]
            results = [
                self._named(value, name) if name else value
                for name, value in zip(names, called, strict=False)
            ]
            self._keep_narrow(node, operands, results, opsets)
        except UnsupportedError as error:
            reason = str(error)
        except FrontendError:
            raise
        except RelaxpyError as error:
            reason = error.diagnostics[0].message
        except (ValueError, TypeError, LookupError, ArithmeticError) as error:
            reason = f"its operands and attributes do not fit together: {error}"
        else:
            scope.update((n, v) for n, v in zip(node.outputs, results, strict=False) if n)
            left = [name for name in node.outputs[len(results) :] if name]
            if not left:
                return
            reason = f"output {left[0]!r} is not computed"
        version = opsets.get(node.domain, 0)
        domain = f"{node.domain or 'ai.onnx'} {version}"
        infos = tuple(
            f"{name or '-'}: {self._shown(value)}"
            for name, value in zip(node.inputs, operands, strict=True)
        )
        self.unsupported.append(
            UnsupportedNode(node.where, f"{node.op} of {domain}", reason, infos)
        )
        scope.update(dict.fromkeys(filter(None, node.outputs), _Missing()))

    def _keep_narrow(
        self,
        node: view.Node,
        operands: Sequence[Value],
        results: Sequence[Value],
        opsets: Mapping[str, int],
    ) -> None:
        """Results that have the type of an operand with elements of less than a byte have those."""
        codes = [self.narrow.get(value) if isinstance(value, Expr) else None for value in operands]
        if not any(codes) or (node.domain, node.op) in self.model.functions:
            return
        pairs = bodies.types_of_results(node, len(operands), opsets.get(node.domain, 1))
        for value, source in zip(results, pairs, strict=False):
            code = None if source is None else codes[source]
            if code is not None and isinstance(value, Expr):
                self.narrow[value] = code

    def _named(self, value: Value, name: str) -> Value:
        if value is None or isinstance(value, (Contents, Constant, Var, Tuple)):
            return value
        return Context(self, _OUTPUT, 0, {}).emit(value, identifier(name))

    def _call(
        self,
        node: view.Node,
        operands: Sequence[Value],
        scope: Mapping[str, Value],
        opsets: Mapping[str, int],
    ) -> Sequence[Value]:
        """The values of the outputs of a node."""
        local = self.model.functions.get((node.domain, node.op))
        if local is not None:
            body = local.instance(node.attributes)
            return self._inlined(body, operands, {**opsets, **local.opsets})
        version = opsets.get(node.domain, 1 if node.domain else None)
        if version is None:
            raise UnsupportedError(f"the model imports no version of the domain {node.domain!r}")
        stated = bodies.stated_attributes(node, version)
        bodies.require_positions(node, operands, version)
        entry = find(node.domain, node.op, version)
        if entry is None:
            found = bodies.schema_body(node, operands, version, self.items, self.strings.values)
            if found is None:
                raise UnsupportedError("there is no converter for it")
            body, used = found
            return self._inlined(body, operands, {**opsets, **used}, scope)
        entry.require(stated)
        are_strings: Sequence[bool] = ()
        if not self.strings.values.isdisjoint(operands):
            if not entry.strings:
                raise UnsupportedError("operands that are strings are not imported")
            are_strings = bodies.string_outputs(node, operands, version, self.strings.values)
        folded = None if node.domain else self._folded(node, operands)
        if folded is not None:
            return self._with_strings([folded], node, are_strings)
        context = Context(self, node, version, scope, opsets)
        positional = entry.operands_of(operands, context.tensor)
        attributes = {name: value for name, value in stated.items() if name in entry.attributes}
        result = entry.function(context, *positional, **attributes)
        results = result if isinstance(result, (tuple, list)) else [result]
        ranks = map(self.ranks.get, node.outputs)
        results = [*map(context.with_stated_rank, results, ranks, node.outputs)]
        return self._with_strings(results, node, are_strings)

    def _with_strings(
        self, values: Sequence[Value], node: view.Node, are_strings: Sequence[bool]
    ) -> Sequence[Value]:
        """The results of a node; those that are strings are recorded as such."""
        found = list(values)
        for k, is_string in enumerate(are_strings[: len(found)]):
            if is_string:
                found[k] = self._named(found[k], node.outputs[k])
                self.strings.values.add(found[k])
        return found

    def _inlined(
        self,
        body: view.Graph,
        operands: Sequence[Value],
        opsets: Mapping[str, int],
        captured: Mapping[str, Value] = MappingProxyType({}),
    ) -> Sequence[Value]:
        """The results of a body, whose graphs among its attributes use names of `captured`."""
        names = list(body.inputs)
        if len(operands) > len(names):
            raise UnsupportedError(f"operand {len(names) + 1} is one too many")
        padded = [*operands, *[None] * (len(names) - len(operands))]
        inputs: dict[str, Any] = dict(zip(names, padded, strict=True))
        return self.convert(body, ChainMap(inputs, captured), opsets)  # type: ignore[arg-type]

    def _folded(self, node: view.Node, operands: Sequence[Value]) -> Value:
        """The value of a node whose operands are known at import, or None."""
        if (node.op not in FOLDED and node.op != "Cast") or not operands:
            return None
        if node.op == "Cast" and (
            operands[0] in self.strings.values or node.attributes["to"] in _STRING
        ):
            return None
        constants = [self.constant_of(value) for value in operands]
        arrays = []
        for value, constant in zip(operands, constants, strict=True):
            if isinstance(value, Contents) and value.array.size <= LIMIT:
                arrays.append(value.array)
            elif constant is not None and constant.size <= LIMIT:
                arrays.append(constant.data)
            else:
                return None
        symbolic = any(isinstance(value, Contents) for value in operands)
        if not symbolic and any(array.dtype.kind not in "iub" for array in arrays):
            return None
        try:
            if node.op == "Cast":
                if node.attributes["to"] in view.NARROW:
                    return None
                dtype = views.dtype_of(node.attributes["to"])
                result = cast(arrays[0], dtype)
            else:
                result = np.asarray(FOLDED[node.op](node.attributes, *arrays))
                dtype = str(result.dtype)
                if result.dtype == object and not symbolic:
                    return None
                if result.dtype == object:
                    dtype = next(v.dtype for v in operands if isinstance(v, Contents))
        except (UndecidedError, ValueError, IndexError, TypeError, KeyError, ZeroDivisionError):
            return None
        total = self._folded_bytes + result.nbytes
        if total > _MAX_FOLDED:
            return None
        self._folded_bytes = total
        if result.dtype != object:
            return self.literal(result)
        contents = Contents(result, dtype)
        if contents.is_constant:
            return const(np.array(contents.elements).reshape(result.shape), dtype)
        return contents

    def literal(self, array: Array) -> Constant:
        """A constant of an array of a file: strings, or elements of less than a byte, too.

        Errors:
            UnsupportedError: Relax has no such elements.
        """
        if array.dtype == object:
            return self.strings.constant(array.reshape(-1).tolist(), array.shape)
        code = view.NARROW_CODES.get(array.dtype.name)
        if code is None:
            return literal(array)
        constant = literal(array.astype(view.NARROW[code][1]))
        self.narrow[constant] = code
        return constant

    def constant_of(self, value: Value) -> Constant | None:
        """The constant of a value, also of a parameter; None if it is not constant."""
        if isinstance(value, Var):
            return self.params.get(value)
        return value if isinstance(value, Constant) else None

    def new_size(self, name: str) -> tir.Var:
        """A new variable for a size."""
        return tir.Var(self._size_names.new(name), "int64")

    def _name(self, name: str) -> str:
        """The name of a parameter; a warning says where it differs."""
        if not self.options.sanitize:
            return self._names.new(name)
        made = name.replace(".", "_") or "empty_0"
        if not (made[0].isalpha() or made[0] == "_"):
            made = f"input_{made}"
        made = self._names.new(made)
        if made != name:
            warn(Diagnostic(f"the input {name!r} is named {made!r}"))
        return made

    def _parameter(self, name: str, kind: view.ValueType) -> Var:
        info = self.struct_info(name, kind)
        if _has_strings(kind):
            self.text_infos[name], info = info, OBJECT
        var = Var(self._name(name), info)
        if isinstance(kind, view.MapType):
            self.maps[var] = kind
        if isinstance(kind, view.TensorType) and kind.code in view.NARROW:
            self.narrow[var] = kind.code
        item = kind.item if isinstance(kind, view.OptionalType) else kind
        if item is not None and isinstance(kind, view.OptionalType):
            self.optionals[var] = self.struct_info(name, item)
        if isinstance(item, view.SequenceType) and isinstance(item.item, view.TensorType):
            inner = item.item
            rank = -1 if inner.sizes is None else len(inner.sizes)
            self.items[var] = TensorStructInfo(None, DataType(storage(inner.dtype)), ndim=rank)
        return var

    def struct_info(self, name: str, kind: view.ValueType) -> StructInfo:
        """The struct info of an input; strings are their places in the vocabulary."""
        match kind:
            case view.TensorType(dtype, sizes, _):
                dtype = self.options.dtypes.get(name, storage(dtype))
                given = self.options.shapes.get(name)
                if given is not None:
                    return tensor_info([self._given(size) for size in given], dtype)
                if sizes is None:
                    return tensor_info(None, dtype)
                return tensor_info(
                    [self._size(size, f"{name}_{k}") for k, size in enumerate(sizes)], dtype
                )
            case view.SequenceType() | view.OptionalType() | view.MapType():
                return OBJECT
            case _:
                raise FrontendError(f"the input {name!r} is not a tensor of a known type")

    def _shown(self, value: Value) -> str:
        match value:
            case None:
                return "none"
            case Contents():
                return f"{value.dtype}{list(value.array.shape)}"
            case _:
                shown = str(value.struct_info)
                return f"strings in {shown}" if value in self.strings.values else shown

    def _given(self, size: Any) -> Any:
        return self._size(size, size) if isinstance(size, str) else size

    def _size(self, size: int | str | None, name: str) -> tir.PrimExpr | int:
        if isinstance(size, int):
            return size
        if size is None or size == "?":
            return self.new_size(name)
        if size not in self._sizes:
            plain = re.fullmatch(r"\w+", size) is not None
            found = None if plain else expression(size, self._stated)
            self._sizes[size] = self.new_size(size if plain else name) if found is None else found
        return self._sizes[size]

    def _stated(self, name: str) -> tir.PrimExpr | None:
        """The size of this name; None where no size of an input is this name alone."""
        return self._size(name, name) if name in self._alone else None  # type: ignore[return-value]

    @cached_property
    def _alone(self) -> set[str]:
        """The names that are sizes of inputs by themselves, not in expressions only."""
        return {
            size
            for name, kind in self.model.graph.inputs.items()
            for size in self.options.shapes.get(name, getattr(kind, "sizes", None) or ())
            if isinstance(size, str)
        }


_OUTPUT = view.Node("outputs", -1, "", "", (), (), {}, onnx.NodeProto())


def _sizes_of(info: StructInfo) -> list[int | str] | None:
    """The sizes of an input of strings, numbers or names, if its rank is stated."""
    sizes = info.get_shape() if isinstance(info, TensorStructInfo) else None
    if sizes is None:
        return None
    return [s.value if isinstance(s, tir.IntImm) else str(s) for s in sizes]


def _has_strings(kind: view.ValueType) -> bool:
    """True if values of a type have strings."""
    if isinstance(kind, view.TensorType):
        return kind.dtype == "string"
    return isinstance(kind, (view.SequenceType, view.OptionalType)) and _has_strings(kind.item)


def _has_expressions(info: StructInfo) -> bool:
    """True if a dimension of a tensor is more than a number or a variable."""
    sizes = info.get_shape() if isinstance(info, TensorStructInfo) else None
    return not all(isinstance(size, (tir.IntImm, tir.Var)) for size in sizes or ())


@user_facing
@gc_paused
def from_onnx(
    model: onnx.ModelProto | str | bytes | os.PathLike[str],
    shape_dict: Mapping[str, Sequence[Any]] | None = None,
    dtype_dict: str | Mapping[str, str] = "float32",
    opset: int | None = None,
    keep_params_in_input: bool = False,
    sanitize_input_names: bool = True,
) -> IRModule:
    """The module whose function `main` computes an ONNX model.

    `model` is a ModelProto, the path of a file (whose external data are mapped from its folder), or
    the bytes of one. The parameters of `main` are the inputs of the graph, and with
    `keep_params_in_input` its initializers, whose values are then the attribute `params`
    (`detach_params` takes them out). `shape_dict` replaces shapes of inputs by name, `dtype_dict`
    their datatypes, `opset` the version of the default domain. Sizes that the model names are shape
    variables of these names. `sanitize_input_names` makes names of inputs such that Relax can
    print them.

    Errors:
        OpNotImplemented (also ValueError, NotImplementedError): nodes cannot be imported; the
            message has each with the reason.
        FrontendError (also ValueError): the model is damaged, or not well-formed.
        MissingFileError (also FileNotFoundError): there is no such file; UnreadableFileError (also
            OSError): it cannot be read.
    """
    shapes = dict(shape_dict or {})
    dtypes = dict(dtype_dict) if isinstance(dtype_dict, Mapping) else {}
    read = view.read_model(model, opset)
    unknown = [name for name in (*shapes, *dtypes) if name not in read.graph.inputs]
    if unknown:
        raise MisuseError(
            f"the model has no input {unknown[0]!r}",
            hint=f"its inputs are {', '.join(read.graph.inputs) or 'none'}",
        )
    options = Options(shapes, dtypes, keep_params_in_input, sanitize_input_names)
    with progress.long_work("importing"):
        return Importer(read, options).module()


def model_module(model: onnx.ModelProto | os.PathLike[str] | str) -> IRModule:
    """The module of a model that `relaxpy.load` gets. Errors: as for `from_onnx`."""
    return from_onnx(model)


#: The characters of the longest text that may be an expression.
_LONGEST = 200
_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def expression(text: str, size: Callable[[str], PrimExpr | None]) -> PrimExpr | None:
    """The sum, difference, product or quotient of sizes that a text is; `/` rounds down.

    None where the text is not an expression, or `size` does not know one of its names.
    """
    if len(text) > _LONGEST:
        return None
    try:
        found = _value(ast.parse(text.strip(), mode="eval").body, size)
    except (SyntaxError, ValueError, MemoryError, RecursionError, _NotASizeError):
        return None
    return found if isinstance(found, PrimExpr) else None


class _NotASizeError(Exception):
    """The text has something else than sizes, numbers and arithmetic."""


def _value(tree: ast.expr, size: Callable[[str], PrimExpr | None]) -> PrimExpr | int:
    match tree:
        case ast.Name(id=name):
            known = size(name)
            if known is not None:
                return known
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return number
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            a, b = _value(left, size), _value(right, size)
            if not (isinstance(op, (ast.Div, ast.FloorDiv, ast.Mod)) and b == 0):
                result: PrimExpr | int = _OPERATORS[type(op)](a, b)
                return result
    raise _NotASizeError
