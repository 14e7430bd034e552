"""Models of ONNX under construction: values whose elements are known, and what draws operands.

Every node is computed as soon as it is drawn, by ONNX Runtime or, where that refuses, by ONNX's
reference. So each later node is drawn for the shapes and elements that its operands have, and what
the oracle refuses is drawn again.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime as ort
from onnx import AttributeProto, GraphProto, NodeProto, ValueInfoProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.fuzz.onnx_pools import POOLS, attributes_of, pool

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Content: TypeAlias = Array | list[Array]

FLOATS = ("float32", "float32", "float32", "float64", "float16")
SIGNED = ("int64", "int64", "int32", "int8", "int16")
UNSIGNED = ("uint8", "uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED
NUMBERS = FLOATS * 2 + INTEGERS
#: The datatype of NumPy's arrays of strings.
STRINGS = "object"
PLAIN = (*NUMBERS, "bool", "bool")
ANY = (*PLAIN, *(STRINGS,) * 4)
#: The domain of classical models.
CLASSICAL = "ai.onnx.ml"
WORDS = ("", "a", "b", "ab", "B", "Übergang", "two words", "-7", "ß")
#: Integers of less than a byte, and from where up to where they are.
NARROW = {"int4": (-8, 8), "uint4": (0, 16), "int2": (-2, 2), "uint2": (0, 4)}
#: How large numbers may be that other nodes compute with.
_CALM = 64
_STYLES = ("t{}", "block.{}/out:0", "{}", "/layers/{}/Übergang", "class {}")


class Redraw(Exception):  # noqa: N818
    """What was drawn is no model; something else is to be drawn."""


@dataclass(frozen=True, eq=False)
class Value:
    """A name of a graph with its elements; `exact`: whether they are the same in any rounding."""

    name: str
    content: Content
    exact: bool = True

    @property
    def array(self) -> Array:
        """The elements of a tensor."""
        assert not isinstance(self.content, list)
        return self.content

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""
        return self.array.shape

    @property
    def dtype(self) -> str:
        """The datatype."""
        return str(self.array.dtype)

    @property
    def is_calm(self) -> bool:
        """Whether other nodes may compute with it: a tensor of numbers that are not large."""
        if isinstance(self.content, list) or self.content.size > 20_000 or self.content.ndim > 7:
            return False
        if self.dtype == STRINGS:
            return all(len(text) < _CALM for text in self.content.flat)
        numbers = self.content.astype("float64")
        return bool(np.all(np.isfinite(numbers)) and np.all(np.abs(numbers) <= _CALM))


def type_proto(content: Content, sizes: Sequence[Any] | None = None) -> onnx.TypeProto:
    """The type of a value, with these sizes or none."""
    if isinstance(content, list):
        if not content:
            raise Redraw("an empty sequence has elements of no type")
        code = helper.np_dtype_to_tensor_dtype(content[0].dtype)
        return helper.make_sequence_type_proto(helper.make_tensor_type_proto(code, None))
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(content.dtype), sizes)


def value_info(
    name: str, content: Content, sizes: Sequence[Any] | None = None
) -> onnx.ValueInfoProto:
    """The declaration of a value."""
    return ValueInfoProto(name=name, type=type_proto(content, sizes))


def subgraphs(node: NodeProto) -> list[GraphProto]:
    """The graphs of a node's attributes."""
    return [a.g for a in node.attribute if a.type == AttributeProto.GRAPH]


def nodes_within(node: NodeProto) -> Iterator[NodeProto]:
    """The nodes of the graphs of a node, and of theirs."""
    for graph in subgraphs(node):
        for inner in graph.node:
            yield inner
            yield from nodes_within(inner)


def names_used(node: NodeProto) -> set[str]:
    """The names that a node reads, its graphs among them."""
    used = {name for name in node.input if name}
    for graph in subgraphs(node):
        inside = {i.name for i in (*graph.input, *graph.initializer)}
        for inner in graph.node:
            used |= names_used(inner) - inside
            inside |= set(inner.output)
        used |= {o.name for o in graph.output} - inside
    return used


_OPTIONS = ort.SessionOptions()
_OPTIONS.intra_op_num_threads = 1
_OPTIONS.log_severity_level = 4


def run_runtime(model: onnx.ModelProto, feed: Mapping[str, Content]) -> list[Any]:
    """The outputs of a model by ONNX Runtime.

    Errors:
        Redraw: it refuses the model.
    """
    try:
        data = model.SerializeToString()
        session = ort.InferenceSession(data, _OPTIONS, providers=["CPUExecutionProvider"])
        return list(session.run(None, dict(feed)))
    except Exception as error:  # its errors have no class of their own
        raise Redraw(str(error)) from None


def _is_wrong_in_reference(node: NodeProto, opset: int) -> bool:
    """Whether ONNX's reference is known not to compute what ONNX says for this node."""
    # Norms of p = 1 are sums of signed numbers; what iterations give is joined along its own first
    # axis; LRN counts the channels by the batch size; clip has no effect; the greatest elements of
    # images are those along two axes, whatever their number; groups of transposed convolutions take
    # each other's places. In old opsets slopes are along the last axis, `beta` is 1, sums of
    # exponentials are along one axis, means count padding, and `axis` has no effect on how operands
    # broadcast. The scale of zeros is not 0. Images end at a size that is not whole, and round in
    # float64.
    if node.op_type == "LpNormalization":
        return any(a.name == "p" and a.i == 1 for a in node.attribute)
    if node.op_type in ("LSTM", "GRU", "RNN"):
        return any(a.name == "clip" for a in node.attribute)
    if node.op_type in ("PRelu", "Gemm", "AveragePool"):
        return opset < 7
    if node.op_type in ("Softmax", "LogSoftmax", "Hardmax"):
        return opset < 13
    if any(a.name == "broadcast" for a in node.attribute):
        return any(a.name == "axis" for a in node.attribute)
    if node.op_type == "Resize":
        stated = attributes_of(node)
        place = stated.get("coordinate_transformation_mode")
        is_rounded = stated.get("mode", "nearest") == "nearest"
        return is_rounded or place in ("align_corners", "tf_crop_and_resize")
    wrong = ("Loop", "LRN", "GlobalMaxPool", "ConvTranspose", "DynamicQuantizeLinear")
    return node.op_type in wrong


def run_reference(model: onnx.ModelProto, feed: Mapping[str, Content]) -> list[Any]:
    """The outputs of a model by ONNX's reference.

    Errors:
        Redraw: the model is not well-formed, or the reference fails.
    """
    opset = model.opset_import[0].version
    outer = [*model.graph.node, *(node for f in model.functions for node in f.node)]
    nodes = [*outer, *(inner for node in outer for inner in nodes_within(node))]
    if any(_is_wrong_in_reference(node, opset) for node in nodes):
        raise Redraw("there is no oracle")
    try:
        onnx.checker.check_model(model, full_check=True)
        found = ReferenceEvaluator(model).run(None, dict(feed))
    except Exception as error:  # whatever it is, there is no oracle
        raise Redraw(str(error)) from None
    return [item if isinstance(item, list) else _array(item) for item in found]


def _array(item: Any) -> Array:
    array = np.asarray(item)
    return array.astype(object) if array.dtype.kind in "UT" else array


Wrong: TypeAlias = Callable[[NodeProto, Mapping[str, Content], int], bool]


@dataclass(eq=False)
class Model:
    """What all graphs of a model share."""

    rng: random.Random
    opset: int
    wrong: Wrong
    inputs: dict[str, Array] = field(default_factory=dict)
    #: Inputs whose elements are a shape, indices or the like, and stay as they are at other sizes.
    fixed: set[str] = field(default_factory=set)
    #: Those whose number of elements the model does not state.
    open: set[str] = field(default_factory=set)
    initializers: dict[str, Array] = field(default_factory=dict)
    functions: list[onnx.FunctionProto] = field(default_factory=list)
    #: Values that ONNX Runtime is known to compute wrongly.
    doubted: set[str] = field(default_factory=set)
    count: int = 0

    def name(self) -> str:
        """A new name."""
        self.count += 1
        style = self.rng.choice(_STYLES) if self.count % 3 == 0 else _STYLES[0]
        return style.format(self.count)

    def proto(
        self,
        nodes: Sequence[NodeProto],
        inputs: Sequence[ValueInfoProto],
        outputs: Sequence[ValueInfoProto],
        initializers: Mapping[str, Array],
    ) -> onnx.ModelProto:
        """The model of these nodes."""
        tensors = [numpy_helper.from_array(a, name) for name, a in initializers.items()]
        graph = helper.make_graph(list(nodes), "graph", list(inputs), list(outputs), tensors)
        imports = [helper.make_opsetid("", self.opset)]
        if self.functions:
            imports.append(helper.make_opsetid("local", 1))
        inner = (n for node in nodes for n in (node, *nodes_within(node)))
        if any(node.domain == CLASSICAL for node in inner):
            imports.append(helper.make_opsetid(CLASSICAL, 3))
        return helper.make_model(
            graph, opset_imports=imports, functions=self.functions, ir_version=10
        )


@dataclass(eq=False)
class Draw:
    """A graph under construction, and what draws operands and attributes for its nodes."""

    model: Model
    outer: Sequence[Value] = ()
    nodes: list[NodeProto] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    #: Whether new operands may be constants of this graph only.
    closed: bool = False
    #: How many graphs this one stands in.
    depth: int = 0

    @property
    def rng(self) -> random.Random:
        """The generator of random numbers."""
        return self.model.rng

    @property
    def opset(self) -> int:
        """The version of the default domain."""
        return self.model.opset

    def chance(self, probability: float = 0.5) -> bool:
        """True so often."""
        return self.rng.random() < probability

    def some(self, **attributes: Any) -> dict[str, Any]:
        """Some of these attributes; the others are left at their defaults."""
        return {name: value for name, value in attributes.items() if self.chance(0.6)}

    def shape(self, low: int = 0, high: int = 6) -> tuple[int, ...]:
        """Sizes, 0 and 1 among them; high ranks are rare."""
        rank = self.rng.choice([*range(low, high + 1), *range(low, min(high, 4) + 1)])
        return tuple(self.rng.choice((0, 1, 1, 2, 3, 3, 4, 5)) for _ in range(rank))

    def array(self, shape: Sequence[int], dtype: str, *, steps: int = 4) -> Array:
        """Strings, or small numbers; those of floats are multiples of 1 / `steps`."""
        rng = np.random.default_rng(self.rng.randrange(1 << 30))
        if dtype == STRINGS:
            return np.asarray(np.array(WORDS, object)[rng.integers(0, len(WORDS), shape)], object)
        if dtype == "bool":
            return np.asarray(rng.integers(0, 2, shape).astype(bool))
        if dtype in NARROW:
            return np.asarray(rng.integers(*NARROW[dtype], shape).astype(dtype))
        if dtype.startswith("u"):
            return np.asarray(rng.integers(0, 6, shape).astype(dtype))
        if "float" not in dtype:
            return np.asarray(rng.integers(-4, 5, shape).astype(dtype))
        return np.asarray((rng.integers(-3 * steps, 3 * steps + 1, shape) / steps).astype(dtype))

    def new(self, array: Array, *, fixed: bool = False, constant: bool = False) -> Value:
        """A new operand with these elements: an input, an initialiser, or a Constant."""
        value = Value(self.model.name(), array)
        way = self.rng.random()
        if self.closed or way < 0.2:
            tensor = numpy_helper.from_array(array, "value")
            self.nodes.append(helper.make_node("Constant", [], [value.name], value=tensor))
            self.values.append(value)
        elif constant or way < 0.55:
            self.model.initializers[value.name] = array
        else:
            self.model.inputs[value.name] = array
            if fixed:
                self.model.fixed.add(value.name)
        return value

    def visible(self) -> list[Value]:
        """The values that nodes here may read."""
        return [*self.outer, *self.values]

    def pick(self, kinds: Sequence[str], fits: Callable[[Value], bool]) -> Value | None:
        """A value of the graph that fits, recent ones more often."""
        found = [v for v in self.visible() if v.is_calm and v.dtype in kinds and fits(v)]
        return self.rng.choice(found[-4:]) if found else None

    def tensor(
        self,
        kinds: Sequence[str] = ANY,
        low: int = 0,
        high: int = 6,
        *,
        exact: bool = False,
        fits: Callable[[Value], bool] = lambda value: True,
    ) -> Value:
        """An operand of one of these datatypes and ranks; `exact`: it has no rounding errors."""

        def all_fits(v: Value) -> bool:
            return low <= len(v.shape) <= high and (v.exact or not exact) and fits(v)

        found = self.pick(kinds, all_fits) if self.chance(0.85) else None
        if found is not None:
            return found
        value = self.new(self.array(self.shape(low, high), self.rng.choice(kinds)))
        if not fits(value):
            raise Redraw("the shape does not fit")
        self.outer = [*self.outer, value] if value not in self.values else self.outer
        return value

    def like(self, shape: Sequence[int], dtype: str, *, exact: bool = False) -> Value:
        """An operand of this shape and datatype."""
        fits = [
            v
            for v in self.visible()
            if v.is_calm and v.shape == tuple(shape) and v.dtype == dtype and (v.exact or not exact)
        ]
        if fits and self.chance(0.4):
            return self.rng.choice(fits)
        return self.new(self.array(shape, dtype))

    def broadcast(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that broadcasts to this one."""
        first = self.rng.choice((0, 0, 0, *range(len(shape) + 1)))
        return tuple(size if self.chance(0.6) else 1 for size in shape[first:])

    def axis(self, rank: int) -> int:
        """An axis, also counted from the end."""
        if not rank:
            raise Redraw("a scalar has no axes")
        return self.rng.randrange(-rank, rank)

    def axes(self, rank: int, *, signed: bool = True) -> list[int]:
        """Some axes, each once, in any order."""
        chosen = self.rng.sample(range(rank), self.rng.randint(0, rank))
        return [a - rank if signed and self.chance(0.4) else a for a in chosen]

    def known(self, elements: Any, dtype: str = "int64") -> Value:
        """An operand with just these elements, such as a shape: given, or computed of shapes."""
        array = np.array(elements, dtype)
        if array.ndim == 1 and dtype == "int64" and self.chance(0.3):
            found = self._computed([int(e) for e in array])
            if found is not None:
                return found
        return self.new(array, fixed=True)

    def _computed(self, elements: list[int]) -> Value | None:
        """A vector computed from shapes of values, as exporters write it."""
        parts: list[Value] = []
        for element in elements:
            sources = [
                (v, k)
                for v in self.visible()
                if not isinstance(v.content, list)
                for k, size in enumerate(v.shape)
                if size == element or size * 2 == element
            ]
            if not sources:
                parts.append(self.new(np.array([element]), fixed=True))
                continue
            source, k = self.rng.choice(sources[-6:])
            (shape,) = self.node("Shape", [source])
            index = self.new(np.array([k] if self.chance() else k, "int64"), fixed=True)
            (size,) = self.node("Gather", [shape, index], axis=0)
            if not size.shape:
                axes = {"axes": [0]} if self.opset < 13 else {}
                more = [] if self.opset < 13 else [self.new(np.array([0]), constant=True)]
                (size,) = self.node("Unsqueeze", [size, *more], **axes)
            if size.array[0] != element:
                (size,) = self.node("Mul", [size, self.new(np.array([2]), fixed=True)])
            parts.append(size)
        if not parts:
            return None
        return self.node("Concat", parts, axis=0)[0]

    def node(
        self,
        op: str,
        inputs: Sequence[Value | None],
        outputs: int | Sequence[bool] = 1,
        *,
        rounds: bool = False,
        domain: str = "",
        **attributes: Any,
    ) -> list[Value]:
        """The results of a new node; `rounds`: they depend on how sums are rounded.

        Errors:
            Redraw: there is no such operator in the opset, or no oracle computes it.
        """
        if not domain:
            self._require(op)
        wanted = [True] * outputs if isinstance(outputs, int) else list(outputs)
        names = ["" if value is None else value.name for value in inputs]
        while names and not names[-1]:
            names.pop()
        made = [self.model.name() if keep else "" for keep in wanted]
        try:
            node = helper.make_node(op, names, made, domain=domain, **attributes)
        except ValueError as error:  # a list without elements has no type
            raise Redraw(str(error)) from None
        contents = self._computed_by_oracle(node)
        exact = not rounds and all(value is None or value.exact for value in inputs)
        exact = exact and all(v.exact for v in self.visible() if v.name in names_used(node))
        self.nodes.append(node)
        named = zip([name for name in made if name], contents, strict=True)
        found = [Value(name, content, exact) for name, content in named]
        self.values += found
        return found

    def _require(self, op: str) -> None:
        try:
            schema = onnx.defs.get_schema(op, self.opset, "")
        except onnx.defs.SchemaError:
            raise Redraw(f"{op} is not in opset {self.opset}") from None
        if schema.deprecated:
            raise Redraw(f"{op} is deprecated")

    def _computed_by_oracle(self, node: NodeProto) -> list[Content]:
        used = names_used(node)
        known = {v.name: v.content for v in self.visible()}
        known |= {**self.model.inputs, **self.model.initializers}
        feed = {name: known[name] for name in sorted(used)}
        infos = [
            value_info(name, content, None if isinstance(content, list) else content.shape)
            for name, content in feed.items()
        ]
        results = [ValueInfoProto(name=name) for name in node.output if name]
        model = self.model.proto([node], infos, results, {})
        bodies = [n for f in self.model.functions if f.name == node.op_type for n in f.node]
        inside = [*bodies, *(n for outer in (node, *bodies) for n in nodes_within(outer))]
        if self.model.doubted & {name for inner in inside for name in inner.output}:
            raise Redraw("there is no oracle")
        if self.model.wrong(node, feed, self.opset):
            self.model.doubted.update(node.output)
        else:
            with contextlib.suppress(Redraw):
                return run_runtime(model, feed)
        if node.op_type in POOLS:
            found = pool(node, feed[node.input[0]])
            if found is None:
                raise Redraw("a window has no elements")
            return list(found)
        for result in results:  # the checker wants their types
            result.CopyFrom(ValueInfoProto(name=result.name))
        try:
            inferred = onnx.shape_inference.infer_shapes(model, True, True)
        except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
            raise Redraw(str(error)) from None
        contents = run_reference(inferred, feed)
        for stated, content in zip(inferred.graph.output, contents, strict=True):
            kind = stated.type.tensor_type.elem_type
            if kind and helper.tensor_dtype_to_np_dtype(kind) != content.dtype:
                raise Redraw("the reference returns another datatype than the schema states")
        return contents

    def inner(self, *, closed: bool = False) -> Draw:
        """A graph within this one."""
        if self.depth == 2:
            raise Redraw("graphs stand in each other two deep")
        outer = () if closed else self.visible()
        return Draw(self.model, outer, closed=closed, depth=self.depth + 1)

    def graph(
        self, name: str, inputs: Sequence[Value], outputs: Sequence[Value], *, typed: bool
    ) -> GraphProto:
        """This graph as an attribute of a node."""
        given = [
            value_info(v.name, v.content) if typed else ValueInfoProto(name=v.name) for v in inputs
        ]
        return helper.make_graph(
            self.nodes, name, given, [value_info(v.name, v.content) for v in outputs]
        )


Step: TypeAlias = Callable[[Draw, str], object]
#: What a node may be drawn by, with the operators it draws.
STEPS: list[tuple[Step, Sequence[str]]] = []


def step(*ops: str) -> Callable[[Step], Step]:
    """Register what draws a node of one of these operators."""

    def register(function: Step) -> Step:
        STEPS.append((function, ops))
        return function

    return register


def draw_step(draw: Draw) -> None:
    """Draw one step; every operator is drawn equally often."""
    pairs = [(function, op) for function, ops in STEPS for op in ops]
    for _ in range(40):
        nodes, values = len(draw.nodes), len(draw.values)
        function, op = draw.rng.choice(pairs)
        try:
            function(draw, op)
        except Redraw:
            del draw.nodes[nodes:], draw.values[values:]
        else:
            return
    raise Redraw("no step was possible")
