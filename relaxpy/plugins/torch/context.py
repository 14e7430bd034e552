"""The context of a converter: operands as tensors of a datatype, sizes, new bindings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import ml_dtypes
import numpy as np
import torch

from relaxpy.ir.core.dtype import Array
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.te.tensor import compute
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing.tensors import (
    Size,
    as_size,
    dtype_of,
    number,
    rank_of,
    reshaped,
    scalar,
    tensor_of,
)
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.torch.arrays import dtype_name, part_name
from relaxpy.plugins.torch.registry import Converter, Value
from relaxpy.plugins.torch.symbols import is_symbolic
from relaxpy.support.dataclass import dataclass, replace

if TYPE_CHECKING:
    from relaxpy.plugins.torch.importer import Importer

#: Floats of 16 bits.
NARROW: Final = ("float16", "bfloat16")
#: The largest number of float8_e4m3fn.
_LARGEST: Final = 448


@dataclass(frozen=True, eq=False)
class Context:
    """The place where a node is converted."""

    importer: Importer
    #: The node of `torch.fx`.
    node: Any
    #: True if 16-bit floats are computed in float32.
    is_wide: bool = False

    def converted(
        self, entry: Converter, target: Any, args: Sequence[Value], kwargs: Mapping[str, Value]
    ) -> Any:
        """The result of a converter for the arguments of an operator.

        Errors:
            UnsupportedError: it does not take them.
        """
        positional, named = entry.arguments(target._schema, args, kwargs)
        if not entry.is_wide:
            return entry.function(self, *positional, **named)
        positional, named = torch.fx.node.map_aggregate((positional, named), _widened)
        return entry.function(replace(self, is_wide=True), *positional, **named)

    @property
    def builder(self) -> BlockBuilder:
        """The builder of the module."""
        return self.importer.builder

    @property
    def name(self) -> str:
        """The name of the node."""
        return str(self.node.name)

    def meta(self, index: int | None = None) -> Any:
        """PyTorch's fake tensor for the result, or for one of several."""
        value = self.node.meta["val"]
        return value if index is None else value[index]

    def result_dtype(self, index: int | None = None) -> str:
        """The datatype of the result, or of one of several; of its parts, if it is complex.

        It is that in which a converter computes it, if that is wide.
        """
        return self._computed(part_name(self.meta(index).dtype))

    def _computed(self, dtype: str) -> str:
        return "float32" if self.is_wide and dtype in NARROW else dtype

    def result_shape(self, index: int | None = None) -> list[Size]:
        """The sizes of the result, or of one of several."""
        return self.sizes(self.meta(index).shape)

    def uses(self, *indices: int) -> bool:
        """True if one of these results of the node is used."""
        users = (user for user in self.node.users if user.users and len(user.args) > 1)
        return any(user.args[1] in indices for user in users)

    def operand_meta(self, position: int) -> Any:
        """PyTorch's fake tensor for the operand at a position, or an operand that is not a node."""
        operand = self.node.args[position]
        return operand.meta["val"] if isinstance(operand, torch.fx.Node) else operand

    def sizes(self, shape: Sequence[Any]) -> list[Size]:
        """The sizes of a shape of PyTorch."""
        return [self.importer.symbols.expr(size) for size in shape]

    def promoted(self, *positions: int) -> str:
        """The datatype that the operands at these positions have in common.

        PyTorch promotes tensors with axes before tensors of rank 0, and these before numbers. Of
        complex numbers it is that of their parts.
        """
        metas = [self.operand_meta(k) for k in positions if k < len(self.node.args)]
        values = [_example(meta) for meta in metas]
        dtype = torch.result_type(values[0], values[1] if len(values) > 1 else values[0])
        for value in values[2:]:
            dtype = torch.promote_types(dtype, torch.result_type(value, value))
        return self._computed(part_name(dtype))

    def values(self, arguments: Any) -> Any:
        """Arguments of a node, with nodes in them as their values."""
        return self.importer.values(arguments)

    def emit(self, expr: rx.Expr, name: str = "") -> rx.Var:
        """Bind an expression."""
        return self.builder.emit(expr, name or self.name)

    def match(self, expr: rx.Expr, sizes: Sequence[Size], dtype: str) -> rx.Var:
        """Bind a tensor that has this shape when it runs; new variables in it are bound."""
        cast = self.builder.match_cast(self.emit(expr), tensor_of(sizes, dtype), self.name)
        assert cast is not None
        return cast

    def te(self, function: Callable[..., Any], *args: Any, name: str = "") -> rx.Expr:
        """A call of the kernel that `function` makes of tensor expressions."""
        kernel = name or function.__name__.strip("_")
        return self.emit(self.builder.call_te(function, *args, primfunc_name_hint=kernel))

    def tensor(self, value: Value, dtype: str | None = None) -> rx.Expr:
        """A tensor, or a number as a tensor of rank 0, in a datatype."""
        if isinstance(value, rx.Expr):
            return value if dtype is None else cast(value, dtype)
        if isinstance(value, PrimExpr) and "int" not in str(value.dtype):
            return self.tensor(self.te(lambda: compute((), lambda: value), name="number"), dtype)
        if isinstance(value, PrimExpr):
            tensor = self.shape_tensor([value])
            element = reshaped(tensor, [])
            return element if dtype is None else cast(element, dtype)
        if isinstance(value, (bool, int, float)):
            if dtype is None:
                kinds = {bool: "bool", int: "int64", float: dtype_name(torch.get_default_dtype())}
                dtype = kinds[type(value)]
            return _literal(value, dtype)
        raise UnsupportedError(f"expected a tensor, found {value}")

    def shape_tensor(self, sizes: Sequence[Size]) -> rx.Expr:
        """A vector of int64 with these elements."""
        if all(isinstance(size, int) for size in sizes):
            return rx.const(np.array(sizes, np.int64), "int64")
        vector: rx.Expr = R.shape_to_tensor(rx.ShapeExpr(tuple(map(as_size, sizes))))
        return vector

    def number_of(self, tensor: rx.Expr, name: str) -> PrimExpr:
        """A variable for the element of a tensor of one integer, which is known when it runs."""
        vector = reshaped(self.tensor(tensor, "int64"), [1])
        variable = self.importer.symbols.new(name)
        shape = self.builder.emit(R.tensor_to_shape(vector))
        self.builder.match_cast(shape, rx.ShapeStructInfo((variable,)), bind=False)
        return variable

    def axis(self, axis: int, x: rx.Expr) -> int:
        """The axis of a tensor counted from the front; a tensor of rank 0 has one, too."""
        rank = max(rank_of(x), 1)
        if not -rank <= axis < rank:
            raise UnsupportedError(f"axis {axis} is not one of a tensor of rank {rank_of(x)}")
        return axis % rank

    def axes(self, axes: int | Sequence[int] | None, x: rx.Expr) -> list[int]:
        """Axes counted from the front; None and an empty list are all of them."""
        chosen = [axes] if isinstance(axes, int) else axes
        if not chosen:
            return list(range(rank_of(x)))
        return [self.axis(axis, x) for axis in chosen] if rank_of(x) else []

    @staticmethod
    def written_axes(axes: int | Sequence[int] | None) -> list[int] | None:
        """Axes unchanged, for operators that count from the end, too; None is all."""
        return [axes] if isinstance(axes, int) else list(axes or ()) or None

    def constant(self, value: Value) -> Array | None:
        """The elements of a tensor that is a constant, or None."""
        return value.data if isinstance(value, rx.Constant) else None

    def simplify(self, size: Any) -> Any:
        """A size, simplified; an int where it is known."""
        return number(size, self.importer.symbols.analyzer)

    def is_size(self, size: Size, value: int) -> bool:
        """True if a size is known to be a number."""
        return isinstance(size, int) and size == value


def cast(x: rx.Expr, dtype: str) -> rx.Expr:
    """A tensor in a datatype, as PyTorch converts elements.

    Rule:
        Of numbers as truth values, zero is false. Of numbers as float8_e4m3fn, those beyond the
        largest one become it, infinities among them.
    """
    source = dtype_of(x)
    if source == dtype:
        return x
    converted: rx.Expr
    if dtype == "bool":
        converted = R.not_equal(x, scalar(0, x))
        return converted
    limits: Any = ml_dtypes.finfo if "float" in source else ml_dtypes.iinfo
    if dtype == "float8_e4m3fn" and source != "bool" and limits(source).max > _LARGEST:
        x = R.clip(x, max(-_LARGEST, limits(source).min), _LARGEST)
    converted = R.astype(x, dtype)
    return converted


def _widened(value: Any) -> Any:
    """A value; a tensor of 16-bit floats as float32."""
    if not isinstance(value, rx.Expr) or not isinstance(value.struct_info, rx.TensorStructInfo):
        return value
    return R.astype(value, "float32") if dtype_of(value) in NARROW else value


def _example(meta: Any) -> Any:
    """A value of the kind of an operand, for the rules of promotion."""
    if is_symbolic(meta):
        return {torch.SymInt: 1, torch.SymFloat: 1.0}.get(type(meta), True)
    return meta


def _literal(value: float, dtype: str) -> rx.Constant:
    if dtype == "bool":
        return rx.const(bool(value), "bool")
    if "int" in dtype:
        bits = np.iinfo(dtype).bits
        wrapped = int(value) & ((1 << bits) - 1)
        if not dtype.startswith("u") and wrapped >> (bits - 1):
            wrapped -= 1 << bits
        return rx.const(wrapped, dtype)
    return rx.const(float(value), dtype)
