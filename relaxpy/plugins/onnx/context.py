"""The table of converters, and the context of one: operands, known numbers, new bindings."""

from __future__ import annotations

import json
import math
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cache, partial
from importlib import import_module
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from onnx import TensorProto

from relaxpy.errors import StructInfoError
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import Array, DataType
from relaxpy.ir.module import IRModule
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.te.topi.shapes import broadcast_sizes
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.ops import const as number_literal
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing.strings import CHECK, PREFIX, outside
from relaxpy.plugins.importing.tensors import (
    LIMIT,
    Contents,
    Element,
    Size,
    as_dtype,
    as_size,
    dtype_of,
    identifier,
    length_known,
    literal,
    number,
    objects,
    rank_of,
    ratio_of,
    require_count,
    reshaped,
    shape_of,
    tensor_info,
    tensor_of,
    to_integer,
)
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.onnx.view import NARROW, Graph, Node, code_of
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from relaxpy.plugins.onnx.importer import Importer


#: The value of a name of a graph: an expression, integers known at import, or None.
Value: TypeAlias = Expr | Contents | None
Function: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Converter:
    """A function from operands and attributes to the results, and the first opset it is for."""

    function: Function
    since: int
    #: The operands, and the attributes by name: a model needs those of few operators.
    parameters: Callable[[], tuple[Sequence[Parameter], Mapping[str, Parameter]]]
    #: Attributes that change nothing: hints for other engines.
    ignored: frozenset[str]
    #: Attributes that may only have one of these values.
    admitted: Mapping[str, Collection[Any]]
    #: True if operands may be tensors of strings.
    strings: bool

    @property
    def operands(self) -> Sequence[Parameter]:
        """The parameters of the function that are operands."""
        return self.parameters()[0]

    @property
    def attributes(self) -> Mapping[str, Parameter]:
        """The parameters of the function that are attributes, by name."""
        return self.parameters()[1]

    def require(self, attributes: Mapping[str, Any]) -> None:
        """Check attributes.

        Errors:
            UnsupportedError: one is missing, is not known, or has a value that is not imported.
        """
        for name, values in self.admitted.items():
            if name in attributes and attributes[name] not in values:
                raise UnsupportedError(
                    f"attribute {name!r} is {attributes[name]!r}, expected "
                    + " or ".join(map(repr, values))
                )
        known = {*self.attributes, *self.ignored, *self.admitted}
        unknown = [name for name in attributes if name not in known]
        if unknown:
            raise UnsupportedError(f"attribute {unknown[0]!r} is not known in opset {self.since}")
        missing = [
            name
            for name, parameter in self.attributes.items()
            if parameter.default is parameter.empty and name not in attributes
        ]
        if missing:
            raise UnsupportedError(f"attribute {missing[0]!r} is missing")

    def operands_of(self, values: Sequence[Value], tensor: Callable[[Value], Any]) -> list[Any]:
        """The positional arguments for the function.

        Errors:
            UnsupportedError: an operand is missing, or one too many.
        """
        result: list[Any] = []
        parameters = self.operands
        for k, value in enumerate(values):
            variadic = bool(parameters) and parameters[-1].kind is Parameter.VAR_POSITIONAL
            if k >= len(parameters) and not variadic:
                if value is None:
                    continue
                raise UnsupportedError(f"operand {k + 1} is one too many")
            parameter = parameters[min(k, len(parameters) - 1)]
            kind = str(parameter.annotation)
            may_lack = (kind.startswith("Value") and variadic) or kind.endswith("| None")
            if value is None and parameter.default is parameter.empty and not may_lack:
                raise UnsupportedError(f"operand {parameter.name} is missing")
            if value is None or kind.startswith("Value"):
                result.append(value)
            else:
                result.append(tensor(value))
        for parameter in parameters[len(result) :]:
            if parameter.kind is Parameter.VAR_POSITIONAL:
                break
            if parameter.default is parameter.empty:
                raise UnsupportedError(f"operand {parameter.name} is missing")
        return result


def _parameters_of(function: Function) -> tuple[Sequence[Parameter], Mapping[str, Parameter]]:
    parameters = list(signature(function).parameters.values())[1:]
    keyword, unpacked = Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD
    attributes = [p for p in parameters if p.kind is keyword]
    for record in (p for p in parameters if p.kind is unpacked):
        kind = record.annotation.removeprefix("Unpack[").removesuffix("]")
        names_of = function.__globals__[kind].__annotations__
        attributes += [Parameter(n, keyword, default=None) for n in names_of]
    operands = [p for p in parameters if p.kind not in (keyword, unpacked)]
    return operands, {p.name: p for p in attributes}


#: Domain and operator, then converters with the newest first, of the families that are loaded.
CONVERTERS: dict[tuple[str, str], list[Converter]] = {}
#: The modules of converters, which `find` loads in this order until one has the operator.
FAMILIES: Final = (
    *("elementwise", "conv", "movement", "reduce", "normalize", "creation", "images"),
    *("quantized", "recurrent", "attention", "branches", "loops", "sequences", "signal"),
    *("training", "microsoft", "microsoft_quantized", "classical", "trees"),
)
MICROSOFT: Final = "com.microsoft"
CLASSICAL: Final = "ai.onnx.ml"


def converter(
    *names: str,
    since: int = 1,
    domain: str = "",
    ignored: Sequence[str] = (),
    admitted: Mapping[str, Collection[Any]] | None = None,
    strings: bool = False,
) -> Callable[[Function], Function]:
    """Register a function as the converter of operators, from the opset `since` on.

    Its first parameter is the `Context`; then come operands, as expressions (parameters with the
    annotation `Value` take what is known instead); keyword parameters are attributes, with the
    defaults of ONNX, and so are the members of a `TypedDict` that is unpacked into them; those in
    `ignored` may be there, and those in `admitted` with one of these values. With `strings`, the
    operands that the schema says may be tensors of strings, which are their places in a vocabulary:
    the function compares or moves elements, or calls a packed function on strings.
    """

    def register(function: Function) -> Function:
        hints = frozenset({"consumed_inputs", *ignored})
        parameters = cache(partial(_parameters_of, function))
        entry = Converter(function, since, parameters, hints, admitted or {}, strings)
        for name in names:
            entries = CONVERTERS.setdefault((domain, name), [])
            entries.append(entry)
            entries.sort(key=lambda item: -item.since)
        return function

    return register


def find(domain: str, op: str, opset: int) -> Converter | None:
    """The newest converter that is not above the opset."""
    for family in FAMILIES:
        if (domain, op) in CONVERTERS:
            break
        import_module(f"relaxpy.plugins.onnx.ops.{family}")
    entries = CONVERTERS.get((domain, op), [])
    if entries:
        import_module(entries[0].function.__module__)  # which another thread may be loading
    return next((entry for entry in entries if entry.since <= opset), None)


OBJECT = rx.ObjectStructInfo()


def call(name: str, result: rx.StructInfo, *args: Any) -> rx.Expr:
    """A call of a packed function on strings."""
    made: rx.Expr = R.call_pure_packed(PREFIX + name, *map(_argument, args), sinfo_args=[result])
    return made


def _argument(value: Any) -> Any:
    if isinstance(value, int):
        return rx.PrimValue(as_size(value))
    return rx.StringImm(value) if isinstance(value, str) else value


def storage(dtype: str) -> str:
    """The datatype in Relax of tensors of a datatype of ONNX, "string" for strings."""
    return "int64" if dtype == "string" else dtype


def shaped_as(x: rx.Expr, dtype: str) -> rx.TensorStructInfo:
    """The struct info of a tensor that has the shape of another."""
    info = tensor_info(x)
    return rx.TensorStructInfo(info.shape, DataType(dtype), ndim=info.ndim)


@dataclass(eq=False)
class Strings:
    """The strings of a model, and the values that are tensors or sequences of strings."""

    #: The vocabulary of a call, an object.
    vocabulary: rx.Var
    #: The places of the strings of the model. Padding is 0, so the empty string is the first.
    places: dict[str, int] = field(default_factory=lambda: {"": 0})
    values: set[Value] = field(default_factory=set)
    _is_read: bool = False

    def codes(self, texts: Iterable[str]) -> list[int]:
        """The places of strings of the model."""
        return [self.places.setdefault(text, len(self.places)) for text in texts]

    def constant(self, texts: Iterable[str], shape: Sequence[int]) -> rx.Constant:
        """A tensor of strings that is known at import."""
        result = literal(np.array(self.codes(texts), np.int64).reshape(tuple(shape)))
        self.values.add(result)
        return result

    def call(self, name: str, result: rx.StructInfo, *args: Any) -> rx.Expr:
        """A call of a packed function that reads or adds strings."""
        self._is_read = True
        return call(name, result, self.vocabulary, *args)

    def with_vocabulary(self, module: IRModule) -> IRModule:
        """The module, whose function `main` begins with the vocabulary if a function reads it."""
        if not self._is_read:
            return module
        words = json.dumps(list(self.places), ensure_ascii=False)
        binding = rx.VarBinding(self.vocabulary, call("vocabulary", OBJECT, words))
        main = module["main"]
        assert isinstance(main, rx.Function)
        first, *others = main.body.blocks
        blocks = (replace(first, bindings=(binding, *first.bindings)), *others)
        module["main"] = replace(main, body=replace(main.body, blocks=blocks))
        return module


def vocabulary_var(*, is_dataflow: bool) -> rx.Var:
    """The variable of the vocabulary, which a dataflow block binds or another one."""
    return (rx.DataflowVar if is_dataflow else rx.Var)("vocabulary", OBJECT)


_NO_EXPRESSION = "its value is not an arithmetic expression of symbolic dimensions"
_MAX_INT = (1 << 63) - 1
_ARITHMETIC = {tir.Add: R.add, tir.Sub: R.subtract, tir.Mul: R.multiply, tir.Div: R.divide}


class BranchesNeededError(Exception):
    """The function under construction has branches, so it cannot be one dataflow block."""


@dataclass(frozen=True, eq=False)
class Context:
    """The place where a node is converted."""

    importer: Importer
    node: Node
    #: The version of the node's domain.
    opset: int
    #: The values of the names that are visible.
    scope: Mapping[str, Value]
    #: The versions of all domains.
    opsets: Mapping[str, int] = field(default_factory=dict)

    @property
    def builder(self) -> BlockBuilder:
        """The builder of the module."""
        return self.importer.builder

    def subgraph(self, graph: Graph, operands: Sequence[Value]) -> list[Value]:
        """The results of a graph of an attribute, emitted here, for these values of its inputs.

        Errors:
            UnsupportedError: it has other inputs, or nodes that cannot be imported.
        """
        if len(graph.inputs) != len(operands):
            raise UnsupportedError(
                f"graph {graph.name!r} has {len(graph.inputs)} inputs, expected {len(operands)}"
            )
        before = len(self.importer.unsupported)
        inputs = {
            name: self.with_stated_rank(value, graph.ranks.get(name), name)
            for name, value in zip(graph.inputs, operands, strict=True)
        }
        values = self.importer.convert(graph, ChainMap(inputs, self.scope), self.opsets)  # type: ignore[arg-type]
        # A result is missing, too, if it needs a node outside of the graph that is not imported.
        is_missing = bool(self.importer.unsupported) and any(value is None for value in values)
        if len(self.importer.unsupported) > before or is_missing:
            raise UnsupportedError(f"graph {graph.name!r} has nodes that cannot be imported")
        return values

    def require_branches(self) -> None:
        """Import the model without a dataflow block, which holds no branches and functions."""
        if self.builder.current_block_is_dataflow():
            raise BranchesNeededError

    def emit(self, expr: rx.Expr, name: str = "") -> rx.Var:
        """Bind an expression; a tensor of known rank has new variables for sizes not known."""
        var = self.builder.emit(expr, name)
        info = var.struct_info
        if isinstance(info, rx.TensorStructInfo) and info.shape is None and info.ndim >= 0:
            sizes = [self.importer.new_size(f"{name or 'd'}_{k}") for k in range(info.ndim)]
            cast = self.builder.match_cast(var, tensor_of(sizes, str(info.dtype)), name)
            assert cast is not None
            return cast
        return var

    def element_type(self, value: rx.Expr) -> int:
        """The element type of ONNX of a tensor, which its datatype does not tell below a byte."""
        return self.importer.narrow.get(value, code_of(dtype_of(value)))

    def code(self, value: Value) -> int | None:
        """The element type of ONNX that a datatype does not tell: strings, and below a byte."""
        if self.has_strings(value):
            return TensorProto.STRING
        return self.importer.narrow.get(value) if isinstance(value, rx.Expr) else None

    def of_element_type(self, expr: rx.Expr, code: int | None) -> rx.Expr:
        """The tensor, with elements of this type of ONNX, unless its datatype tells it."""
        if code == TensorProto.STRING:
            return self.strings(expr)
        if code is None or code not in NARROW:
            return expr
        var = expr if isinstance(expr, rx.Var) else self.emit(expr)
        self.importer.narrow[var] = code
        return var

    def match(self, expr: rx.Expr, sizes: Sequence[Size], dtype: str, name: str = "") -> rx.Var:
        """Bind a tensor that has this shape when it runs; new variables in it are bound."""
        cast = self.builder.match_cast(self.builder.emit(expr, name), tensor_of(sizes, dtype), name)
        assert cast is not None
        return cast

    def new_size(self, name: str) -> tir.Var:
        """A variable for a size that is known when the program runs."""
        return self.importer.new_size(name)

    def has_strings(self, value: Value) -> bool:
        """True if a value is a tensor of strings or a sequence of strings."""
        return value in self.importer.strings.values

    def strings(self, expr: rx.Expr) -> rx.Expr:
        """The expression, which is a tensor or a sequence of strings."""
        bound = expr if isinstance(expr, (rx.Constant, rx.Tuple, rx.Var)) else self.emit(expr)
        self.importer.strings.values.add(bound)
        return bound

    def as_strings(self, expr: rx.Expr, *like: Value) -> rx.Expr:
        """The expression, which has strings if one of the other values has."""
        return self.strings(expr) if any(map(self.has_strings, like)) else expr

    def te(self, function: Callable[..., Any], *args: Any, name: str = "") -> rx.Expr:
        """A call of the kernel that `function` makes of tensor expressions."""
        kernel = name or function.__name__
        return self.emit(self.builder.call_te(function, *args, primfunc_name_hint=kernel))

    def tensor(self, value: Value) -> rx.Expr:
        """The value as an expression: a tensor is made of known elements."""
        if isinstance(value, Contents):
            return self._materialized(value)
        if value is None:
            raise UnsupportedError("its operator does not compute this optional result")
        return value

    def _materialized(self, contents: Contents) -> rx.Expr:
        elements = contents.elements
        if contents.is_constant:
            return rx.const(np.array(elements).reshape(contents.array.shape), contents.dtype)
        ratios = [ratio_of(element) for element in elements]
        known = [ratio for ratio in ratios if ratio is not None]
        shape = contents.array.shape
        if len(known) < len(ratios) and "float" in contents.dtype:
            floats = [self._float(element, contents.dtype) for element in elements]
            return self.emit(reshaped(R.stack(floats), shape), "sizes")
        if len(known) < len(ratios) or contents.dtype == "bool":
            raise UnsupportedError(_NO_EXPRESSION)
        flat = R.shape_to_tensor(rx.ShapeExpr(tuple(as_size(above) for above, _ in known)))
        result = flat if len(shape) == 1 else reshaped(flat, shape)
        if contents.dtype != "int64":
            result = R.astype(result, contents.dtype)
        if any(below != 1 for _, below in known):
            below = rx.const(np.array([below for _, below in known]).reshape(shape), contents.dtype)
            result = result / below
        return self.emit(result, "sizes")

    def _float(self, element: Element, dtype: str) -> rx.Expr:
        """A number that sizes are computed to, as a tensor of rank 0."""
        if ratio_of(element) is not None:
            return self._materialized(Contents(np.array(element, object), dtype))
        match element:
            case tir.Add(a=a, b=b) | tir.Sub(a=a, b=b) | tir.Mul(a=a, b=b) | tir.Div(a=a, b=b):
                sides = [self._float(side, dtype) for side in (a, b)]
                return self.emit(_ARITHMETIC[type(element)](*sides))
            case _:
                raise UnsupportedError(_NO_EXPRESSION)

    def array(self, value: Value) -> Array | None:
        """The elements of a tensor that is constant, or None."""
        if isinstance(value, Contents):
            if not value.is_constant:
                return None
            return np.array(value.elements).reshape(value.array.shape).astype(value.dtype)
        constant = self.importer.constant_of(value)
        return None if constant is None else constant.data

    def required_array(self, value: Value, what: str) -> Array:
        """The elements of a tensor that has to be constant.

        Errors:
            UnsupportedError: it is computed when the program runs.
        """
        array = self.array(value)
        if array is None:
            raise UnsupportedError(f"{what} is computed when the program runs, expected a constant")
        return array

    def elements(self, value: Value) -> list[Element] | None:
        """The elements of a tensor if they are known as numbers or expressions; else None."""
        if isinstance(value, Contents):
            return value.elements
        constant = self.importer.constant_of(value)
        if constant is None or constant.size > LIMIT:
            return None
        return [item.item() for item in constant.data.reshape(-1)]

    def integers(self, value: Value) -> list[Size] | None:
        """The elements of a tensor of integers, or None where they are known at run time only."""
        found = self.elements(value)
        if found is None:
            return None
        whole = [to_integer(element) for element in found]
        return None if any(e is None for e in whole) else [e for e in whole if e is not None]  # type: ignore[misc]

    def numbers(self, value: Value, what: str) -> list[int]:
        """The elements of a tensor of integers that has to be constant.

        Errors:
            UnsupportedError: it is computed when the program runs, or of sizes.
        """
        return [int(item) for item in self.required_array(value, what).reshape(-1)]

    def broadcast(self, op: Callable[..., rx.Expr], *operands: rx.Expr) -> rx.Expr:
        """`op` on operands that broadcast; what is known of each dimension stays known."""
        result = op(*operands)
        info = tensor_info(result)
        shapes = [tensor_info(x).get_shape() for x in operands]
        if info.shape is not None or info.ndim < 0 or any(shape is None for shape in shapes):
            return result
        name = identifier(self.node.outputs[0])
        sizes: Sequence[PrimExpr] = ()
        for shape in shapes:
            sizes = broadcast_sizes(
                sizes,
                shape or (),
                partial(self._joint_size, name),
                lambda axis: StructInfoError(f"dimension {axis} does not broadcast"),
            )
        return self.match(result, sizes, str(info.dtype), name)

    def _joint_size(self, name: str, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """The dimension that two broadcast to: the one that is never 1, else a new variable."""
        one = number_literal(1, "int64")
        for size in (a, b):
            if prove_equal(size, one) is False:
                return size
        return self.new_size(name)

    def unified(self, tensors: Sequence[rx.Expr], skip: int) -> list[rx.Expr]:
        """Tensors whose dimensions have to be equal except along one axis, cast to one shape.

        Empty operands are left out, since ONNX Runtime lets them have any shape.
        """
        shapes = [tensor_info(x).get_shape() for x in tensors]
        known = [shape for shape in shapes if shape is not None]
        if len(known) < len(shapes) or len(set(map(len, known))) > 1:
            return list(tensors)
        zero = number_literal(0, "int64")
        filled = [k for k, shape in enumerate(known) if prove_equal(shape[skip], zero) is not True]
        tensors = [tensors[k] for k in filled or [0]]
        known = [known[k] for k in filled or [0]]
        common = [
            next((size for size in sizes if isinstance(size, tir.IntImm)), sizes[0])
            for sizes in zip(*known, strict=True)
        ]
        result: list[rx.Expr] = []
        for x, shape in zip(tensors, known, strict=True):
            wanted = [*common[:skip], shape[skip], *common[skip + 1 :]]
            same = [prove_equal(a, b) for a, b in zip(shape, wanted, strict=True)]
            if None in same and False not in same:
                result.append(self.match(x, wanted, dtype_of(x)))
            else:
                result.append(x)
        return result

    def sizes_at_run_time(
        self, tensor: rx.Expr, count: int, name: str, like: rx.Expr | None = None
    ) -> list[Size]:
        """The `count` elements of a vector of integers that are not negative.

        Positive constants that are joined in `like`, or else in `tensor`, are numbers; for the
        other elements there are variables.

        Errors:
            UnsupportedError: the tensor has another number of elements.
        """
        extents = tensor_info(tensor).get_shape()
        known = [size.value for size in extents or () if isinstance(size, tir.IntImm)]
        if extents is not None and len(known) == len(extents) and math.prod(known) != count:
            raise UnsupportedError(f"it has {math.prod(known)} sizes, expected {count}")
        joined = self._joined(tensor if like is None else like)
        vector = as_dtype(tensor, "int64")
        if rank_of(vector) != 1:
            vector = R.reshape(vector, (count,))
        sizes: list[Size] = [
            self.new_size(f"{name}_{k}") if item is None or item <= 0 else item
            for k, item in enumerate(joined if len(joined) == count else [None] * count)
        ]
        shape = self.builder.emit(R.tensor_to_shape(self.emit(vector)))
        self.builder.match_cast(shape, rx.ShapeStructInfo(tuple(map(as_size, sizes))), name)
        return sizes

    def sizes_or_shape(self, value: Value) -> list[Size] | rx.Expr:
        """The elements of a vector of sizes; a shape of unknown rank if it has unknown length."""
        known = self.integers(value)
        if known is None and not isinstance(shape_of(self.tensor(value), 1)[0], int):
            return self.shape_at_run_time(self.tensor(value))
        return self.sizes(value, "size") if known is None else known

    def shape_at_run_time(self, vector: rx.Expr) -> rx.Expr:
        """The shape of unknown rank whose sizes are the elements of a vector."""
        return self.emit(R.tensor_to_shape(self.emit(as_dtype(vector, "int64"))))

    def with_stated_rank(self, value: Value, rank: int | None, name: str) -> Value:
        """A value, cast to the rank that the model states of it if it has an unknown one."""
        if rank is None or not isinstance(value, rx.Expr):
            return value
        info = value.struct_info
        if not isinstance(info, rx.TensorStructInfo) or info.ndim >= 0:
            return value
        sizes = [self.new_size(f"{identifier(name)}_{k}") for k in range(rank)]
        return self.match(value, sizes, str(info.dtype), identifier(name))

    def within(
        self, x: rx.Expr, name: str, least: Size | float = 0, most: Size | None = None
    ) -> rx.Expr:
        """The tensor, whose elements have to be from `least` to `most`, or else the program stops.

        Errors:
            UnsupportedError: an element is known, and is outside.
        """
        array = self.array(x)
        bounds: list[Any] = [least, _MAX_INT if most is None else most]
        if array is not None and not any(isinstance(bound, PrimExpr) for bound in bounds):
            problem = outside(name, array, *bounds)
            if problem:
                raise UnsupportedError(problem)
            return x
        named = rx.StringImm(f"{self.node.op} ({self.node.where}): {name}")
        limits = [
            rx.PrimValue(number_literal(b, "float64") if isinstance(b, float) else as_size(b))
            for b in bounds
        ]
        call = R.call_pure_packed(CHECK, named, x, *limits, sinfo_args=[tensor_info(x)])
        return self.emit(call, identifier(name))

    def shaped(self, x: rx.Expr, name: str, sizes: Sequence[Size]) -> rx.Expr:
        """The tensor, which has to have this shape, or else the program stops.

        Errors:
            UnsupportedError: it is known to have another.
        """
        pairs = list(zip(shape_of(x, len(sizes)), sizes, strict=True))
        same = [prove_equal(as_size(a), as_size(b)) for a, b in pairs]
        if False in same:
            found, expected = (", ".join(map(str, side)) for side in zip(*pairs, strict=True))
            raise UnsupportedError(f"{name} has the shape ({found}), expected ({expected})")
        return x if all(same) else self.match(x, sizes, dtype_of(x), identifier(name))

    def sizes(self, value: Value, name: str, count: int | None = None) -> list[Size]:
        """The elements of a vector of integers; those not known at import are variables.

        There are `count` of them where the shape of the vector does not say how many.

        Errors:
            UnsupportedError: their number is not known.
        """
        known = self.integers(value)
        if known is not None:
            return known
        vector = self.tensor(value)
        if count is None or isinstance(shape_of(vector)[0], int):
            count = length_known(vector)
        return self.sizes_at_run_time(vector, count, name)

    def _joined(self, vector: rx.Expr) -> list[int | None]:
        """The elements of a concatenated vector; None for those that are not constant."""
        value = self.builder.lookup_binding(vector) if isinstance(vector, rx.Var) else vector
        constant = self.importer.constant_of(value) if value is not None else None
        if constant is not None:
            return [int(item) for item in constant.data.reshape(-1)]
        if rx.is_call_of(value, "relax.concat"):
            [parts] = value.args
            if isinstance(parts, rx.Tuple):
                return [item for part in parts.fields for item in self._joined(part)]
        sizes = tensor_info(vector).get_shape()
        length = sizes[0] if sizes is not None and len(sizes) == 1 else None
        count = length.value if isinstance(length, tir.IntImm) else 0
        return [None] * (count if count <= LIMIT else 0)

    def size_in(self, value: Value, name: str = "length", least: int = 0) -> Size:
        """The only element of a tensor of one size, which is at least `least`.

        Errors:
            UnsupportedError: it is known to be less, or there are more elements.
        """
        known = self.integers(value)
        if known is None:
            vector = R.reshape(self.within(self.tensor(value), name, least), (1,))
            return self.sizes_at_run_time(vector, 1, name)[0]
        require_count(name, known, 1)
        if isinstance(known[0], int) and known[0] < least:
            raise UnsupportedError(f"{name} is {known[0]}, expected at least {least}")
        return known[0]

    def contents(self, elements: Sequence[Element], shape: Sequence[int], dtype: str) -> Contents:
        """A tensor of these elements, which are known."""
        return Contents(objects([number(item) for item in elements], shape), dtype)


class RanksDifferError(Exception):
    """The ranks of values depend on a condition; the nodes after it are imported for each case."""

    def __init__(
        self, context: Context, test: rx.Expr, ways: Sequence[Callable[[], Sequence[Value]]]
    ) -> None:
        super().__init__()
        self.context, self.test, self.ways = context, test, ways
