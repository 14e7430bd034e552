"""What a converter asks: operands as expressions or as known integers, shapes, new bindings."""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from relaxpy.dataclass import dataclass
from relaxpy.frontend.onnx.registry import Value
from relaxpy.frontend.shared.contents import (
    LIMIT,
    Contents,
    Element,
    number,
    objects,
    ratio_of,
    to_integer,
)
from relaxpy.frontend.shared.unsupported import UnsupportedError
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.nodes import (
    Constant,
    Expr,
    ShapeExpr,
    ShapeStructInfo,
    TensorStructInfo,
    Var,
    const,
)
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.ops import const as number_literal
from relaxpy.ir.tir.prim_expr import PrimExpr

if TYPE_CHECKING:
    from relaxpy.frontend.onnx.importer import Importer
    from relaxpy.frontend.onnx.view import Graph, Node

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Size: TypeAlias = PrimExpr | int


def tensor_info(x: Expr) -> TensorStructInfo:
    """The struct info of a tensor.

    Errors:
        UnsupportedError: the value is something else.
    """
    info = x.struct_info
    if not isinstance(info, TensorStructInfo):
        raise UnsupportedError(f"expected a tensor, found {info}")
    return info


def as_size(size: Element) -> PrimExpr:
    """The size as an expression of int64."""
    return size if isinstance(size, PrimExpr) else number_literal(int(size), "int64")


def tensor_of(sizes: Sequence[Size] | None, dtype: str) -> TensorStructInfo:
    """The struct info of a tensor with these sizes; None: nothing is known of its shape."""
    shape = None if sizes is None else ShapeExpr(tuple(map(as_size, sizes)))
    return TensorStructInfo(shape, DataType(dtype))


def dtype_of(x: Expr) -> str:
    """The datatype of a tensor."""
    return str(tensor_info(x).dtype)


def is_float(x: Expr) -> bool:
    """Whether the elements of a tensor are floats."""
    return "float" in dtype_of(x)


def rank_of(x: Expr) -> int:
    """The rank of a tensor.

    Errors:
        UnsupportedError: it is not known.
    """
    ndim = tensor_info(x).ndim
    if ndim < 0:
        raise UnsupportedError("the rank of an operand is not known")
    return ndim


def shape_of(x: Expr) -> list[Size]:
    """The sizes of a tensor: ints where they are numbers.

    Errors:
        UnsupportedError: its rank is not known.
    """
    info = tensor_info(x)
    match info.shape:
        case ShapeExpr(values=values):
            return [int(v.value) if isinstance(v, tir.IntImm) else v for v in values]
        case Expr() as shape if isinstance(shape.struct_info, ShapeStructInfo):
            values_known = shape.struct_info.values
            if values_known is not None:
                return [int(v.value) if isinstance(v, tir.IntImm) else v for v in values_known]
    rank_of(x)
    raise UnsupportedError("the shape of an operand is not known")


def sizes_known(x: Expr) -> list[int]:
    """The sizes of a tensor, which have to be numbers.

    Errors:
        UnsupportedError: one is symbolic.
    """
    sizes = shape_of(x)
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) < len(sizes):
        raise UnsupportedError(f"expected a shape of numbers, found ({', '.join(map(str, sizes))})")
    return known


def product(sizes: Sequence[Size]) -> Size:
    """The product of sizes, simplified."""
    total: Any = math.prod(size for size in sizes if isinstance(size, int))
    for size in sizes:
        if not isinstance(size, int):
            total = size * total
    result = number(total)
    return result if isinstance(result, PrimExpr) else int(result)


def reshaped(x: Expr, sizes: Sequence[Element]) -> Expr:
    """`x` in another shape, in which a size of 0 is a size of 0."""
    result: Expr = R.reshape(x, ShapeExpr(tuple(map(as_size, sizes))))
    return result


def normal_axis(axis: int, rank: int) -> int:
    """The axis counted from the front.

    Errors:
        UnsupportedError: there is no such axis.
    """
    if not -rank <= axis < max(rank, 1):
        raise UnsupportedError(f"axis {axis} is not one of a tensor of rank {rank}")
    return axis % max(rank, 1)


class BranchesNeededError(Exception):
    """The function that is built has branches, so it is no dataflow block."""


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
        inputs = dict(zip(graph.inputs, operands, strict=True))
        values = self.importer.convert(graph, ChainMap(inputs, self.scope), self.opsets)  # type: ignore[arg-type]
        if len(self.importer.unsupported) > before:
            raise UnsupportedError(f"graph {graph.name!r} has nodes that cannot be imported")
        return values

    def require_branches(self) -> None:
        """Import the model without a dataflow block, which holds no branches and functions."""
        if self.builder.current_block_is_dataflow():
            raise BranchesNeededError

    def emit(self, expr: Expr, name: str = "") -> Var:
        """Bind an expression; a tensor of known rank has new variables for sizes not known."""
        var = self.builder.emit(expr, name)
        info = var.struct_info
        if isinstance(info, TensorStructInfo) and info.shape is None and info.ndim >= 0:
            sizes = [self.importer.new_size(f"{name or 'd'}_{k}") for k in range(info.ndim)]
            cast = self.builder.match_cast(var, tensor_of(sizes, str(info.dtype)), name)
            assert cast is not None
            return cast
        return var

    def match(self, expr: Expr, sizes: Sequence[Size], dtype: str, name: str = "") -> Var:
        """Bind a tensor that has this shape when it runs; new variables in it are bound."""
        cast = self.builder.match_cast(self.builder.emit(expr, name), tensor_of(sizes, dtype), name)
        assert cast is not None
        return cast

    def new_size(self, name: str) -> tir.Var:
        """A variable for a size that is known when the program runs."""
        return self.importer.new_size(name)

    def te(self, function: Callable[..., Any], *args: Any, name: str = "") -> Expr:
        """A call of the kernel that `function` makes of tensor expressions."""
        kernel = name or function.__name__
        return self.emit(self.builder.call_te(function, *args, primfunc_name_hint=kernel))

    def tensor(self, value: Value) -> Expr:
        """The value as an expression: a tensor is made of known elements."""
        if isinstance(value, Contents):
            return self._materialized(value)
        assert value is not None
        return value

    def _materialized(self, contents: Contents) -> Expr:
        elements = contents.elements
        if contents.is_constant:
            return const(np.array(elements).reshape(contents.array.shape), contents.dtype)
        ratios = [ratio_of(element) for element in elements]
        known = [ratio for ratio in ratios if ratio is not None]
        if len(known) < len(ratios) or contents.dtype == "bool":
            raise UnsupportedError("its value depends on sizes in a way that has no expression")
        shape = contents.array.shape
        flat = R.shape_to_tensor(ShapeExpr(tuple(as_size(above) for above, _ in known)))
        result = flat if len(shape) == 1 else reshaped(flat, shape)
        if contents.dtype != "int64":
            result = R.astype(result, contents.dtype)
        if any(below != 1 for _, below in known):
            below = const(np.array([below for _, below in known]).reshape(shape), contents.dtype)
            result = R.divide(result, below)
        return self.emit(result, "sizes")

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
        """The elements of a tensor as far as they are numbers or expressions; else None."""
        if isinstance(value, Contents):
            return value.elements
        constant = self.importer.constant_of(value)
        if constant is None or constant.data.size > LIMIT:
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

    def sizes_at_run_time(self, tensor: Expr, count: int, name: str) -> list[Size]:
        """Variables for the `count` elements of a vector of integers that are not negative."""
        vector = tensor if dtype_of(tensor) == "int64" else R.astype(tensor, "int64")
        if rank_of(vector) != 1:
            vector = R.reshape(vector, (count,))
        sizes = [self.new_size(f"{name}_{k}") for k in range(count)]
        shape = self.builder.emit(R.tensor_to_shape(self.emit(vector)))
        self.builder.match_cast(shape, ShapeStructInfo(tuple(sizes)), name)
        return list(sizes)

    def contents(self, elements: Sequence[Element], shape: Sequence[int], dtype: str) -> Contents:
        """A tensor of these elements, which are known."""
        return Contents(objects([number(item) for item in elements], shape), dtype)


class RanksDifferError(Exception):
    """The ranks of values depend on a condition; the nodes after it are imported for each case."""

    def __init__(
        self, context: Context, test: Expr, ways: Sequence[Callable[[], Sequence[Value]]]
    ) -> None:
        super().__init__()
        self.context, self.test, self.ways = context, test, ways


def scalar(value: float, x: Expr) -> Constant:
    """A constant of rank 0 in the datatype of `x`."""
    return const(value, dtype_of(x))


def literal(array: Array) -> Constant:
    """A constant of the array's own datatype."""
    data = np.asarray(array)
    return const(data, data.dtype.name)
