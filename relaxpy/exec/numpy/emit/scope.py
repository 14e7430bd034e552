"""Names, index arithmetic and literals of generated code, and NumPy's functions for TIR's."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from functools import lru_cache

from relaxpy.errors import CompileError
from relaxpy.exec.machine.process import own_platform
from relaxpy.exec.numpy import python_ast as py
from relaxpy.ir.arith.algebra.affine import IndexPoly, as_poly
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.op import Op
from relaxpy.ir.relax.nodes import GlobalVar
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.intrinsics import intrinsic_of
from relaxpy.support.pysource import Names

ELEMENTWISE: Mapping[type[tir.PrimExpr], str] = {
    tir.Add: "np.add",
    tir.Sub: "np.subtract",
    tir.Mul: "np.multiply",
    tir.Min: "np.minimum",
    tir.Max: "np.maximum",
    tir.EQ: "np.equal",
    tir.NE: "np.not_equal",
    tir.LT: "np.less",
    tir.LE: "np.less_equal",
    tir.GT: "np.greater",
    tir.GE: "np.greater_equal",
}
BOOLEAN: Mapping[type[tir.PrimExpr], str] = {
    **ELEMENTWISE,
    tir.Add: "np.logical_xor",
    tir.Sub: "np.logical_xor",
}
"""As `ELEMENTWISE`, for bools, which are 1-bit integers."""
INTEGER_DIVISION: Mapping[type[tir.PrimExpr], str] = {
    tir.FloorDiv: "floor_divide",
    tir.FloorMod: "remainder",
    tir.Div: "truncdiv",
    tir.Mod: "truncmod",
}
NUMPY_DIVISION: Mapping[str, str] = {
    "floor_divide": "np.floor_divide",
    "remainder": "np.remainder",
    "truncmod": "np.fmod",
}
"""The functions for divisions by non-zero integers."""
FLOAT_DIVISION: Mapping[type[tir.PrimExpr], str] = {
    tir.Div: "np.divide",
    tir.Mod: "np.fmod",
    tir.FloorDiv: "np.floor_divide",
    tir.FloorMod: "np.remainder",
}


def division(kind: type[tir.PrimExpr], dtype: DataType) -> str:
    """The function of `rt` for `kind`, a division of integers or bools."""
    if dtype.is_bool:
        return "bool_quotient" if kind in (tir.Div, tir.FloorDiv) else "bool_remainder"
    return INTEGER_DIVISION[kind]


class KernelScope:
    """The names of variables and buffers in a generated function.

    The variables `shape_vars` are never negative, nor are `dimensions`, those of the arguments.
    Values computed from `scalars`, the other integer parameters, wrap in comparisons; what wraps in
    sizes and indices is a `reinterpret` there. `functions` has the names of the functions of the
    module that can be called. The buffers in `views` are declared over memory that may be too small
    or not contiguous.
    """

    def __init__(
        self,
        names: Names,
        shape_vars: frozenset[tir.Var],
        dimensions: Iterable[tir.PrimExpr],
        functions: Mapping[str, str],
        scalars: Container[tir.Var] = (),
        views: Collection[Buffer] = (),
    ) -> None:
        self.names = names
        self.views = views
        self.shape_vars = shape_vars
        self.dimensions = tuple(
            size for size in map(as_poly, dimensions) if not size.is_at_least(0, shape_vars)
        )
        self.functions = functions
        self.scalars = scalars
        self.variables: dict[tir.Var, str] = {}
        self.buffers: dict[Buffer, str] = {}
        self.compute: Callable[[tir.PrimExpr], ast.expr] | None = None
        """Emits expressions that are not plain integer arithmetic."""

    def variable(self, var: tir.Var) -> str:
        """The name of `var`, created at its first use."""
        if var not in self.variables:
            self.variables[var] = self.names.fresh(var.name)
        return self.variables[var]

    def forget(self, var: tir.Var) -> None:
        """End the loop over `var`; its name may be reused."""
        self.names.free(self.variables.pop(var))

    def is_not_negative(self, size: IndexPoly) -> bool:
        """True if `size` is provably at least 0."""
        return size.is_at_least(0, self.shape_vars) or any(map(size.same, self.dimensions))

    def buffer(self, buffer: Buffer) -> str:
        """The name of `buffer`, created at its first use."""
        if buffer not in self.buffers:
            self.buffers[buffer] = self.names.fresh(buffer.name)
        return self.buffers[buffer]

    def function(self, var: GlobalVar) -> ast.expr:
        """The function of the module that `var` refers to.

        Errors:
            CompileError: the kernel is not compiled in a module with that function.
        """
        name = self.functions.get(var.name_hint)
        if name is None:
            raise CompileError(f"{var.name_hint} is called, and no function of that name is known")
        return py.path(name)

    def index(self, value: tir.PrimExpr | IndexPoly) -> ast.expr:
        """`value` computed in Python's unbounded integers, as shapes and indices are.

        Errors:
            CompileError: `value` is not integer arithmetic.
        """
        if isinstance(value, IndexPoly):
            return self.index(value.expr())
        match value:
            case tir.IntImm(value=number):
                return py.code(number)
            case tir.Var():
                return py.path(self.variable(value))
            case tir.Cast() | tir.BinaryOpExpr() if self.compute is not None and _is_typed(value):
                return py.call("int", self.compute(value))
            case tir.Cast(value=inner) if inner.dtype.is_int:
                return self.index(inner)
            case tir.Add(a=a, b=b):
                return self._plus(a, b)
            case tir.Sub(a=a, b=b):
                return py.binary(self.index(a), ast.Sub, self.index(b))
            case tir.Mul(a=a, b=b):
                return py.binary(self.index(a), ast.Mult, self.index(b))
            case tir.FloorDiv(a=a, b=b) if self._is_not_zero(b):
                return py.binary(self.index(a), ast.FloorDiv, self.index(b))
            case tir.FloorMod(a=a, b=b) if self._is_not_zero(b):
                return py.binary(self.index(a), ast.Mod, self.index(b))
            case tir.FloorDiv(a=a, b=b):
                return py.call("rt.int_floordiv", self.index(a), self.index(b))
            case tir.FloorMod(a=a, b=b):
                return py.call("rt.int_floormod", self.index(a), self.index(b))
            case tir.Div(a=a, b=b):
                return py.call("rt.int_truncdiv", self.index(a), self.index(b))
            case tir.Mod(a=a, b=b):
                return py.call("rt.int_truncmod", self.index(a), self.index(b))
            case tir.Min(a=a, b=b):
                return py.call("min", self.index(a), self.index(b))
            case tir.Max(a=a, b=b):
                return py.call("max", self.index(a), self.index(b))
            case tir.Select(condition=test, true_value=yes, false_value=no):
                return ast.IfExp(self.truth(test), self.index(yes), self.index(no))
            case tir.Call(op=Op(name="tir.if_then_else"), args=(test, yes, no)):
                return ast.IfExp(self.truth(test), self.index(yes), self.index(no))
            case _ if self.compute is not None and value.dtype.is_int:
                return py.call("int", self.compute(value))
            case _:
                raise CompileError(f"`{value}` cannot be computed as an index")

    def _plus(self, a: tir.PrimExpr, b: tir.PrimExpr) -> ast.expr:
        if isinstance(b, tir.IntImm) and b.value < 0:
            return py.binary(self.index(a), ast.Sub, py.code(-b.value))
        return py.binary(self.index(a), ast.Add, self.index(b))

    def _is_not_zero(self, divisor: tir.PrimExpr) -> bool:
        poly = as_poly(divisor)
        return poly.is_at_least(1, self.shape_vars) or (poly * -1).is_at_least(1, self.shape_vars)

    def truth(self, condition: tir.PrimExpr) -> ast.expr:
        """A condition on shapes and indices."""
        match condition:
            case tir.IntImm(value=number):
                return py.code(bool(number))
            case tir.Not(a=a):
                return ast.UnaryOp(ast.Not(), self.truth(a))
            case tir.Or(a=a, b=b):
                return py.either([self.truth(a), self.truth(b)])
            case tir.And(a=a, b=b):
                return py.both([self.truth(a), self.truth(b)])
            case tir.CmpExpr(a=a, b=b) if a.dtype.is_int:
                return py.compare(
                    self._compared(a), COMPARISONS[type(condition)], self._compared(b)
                )
            case _ if self.compute is not None:
                return self.compute(condition)
            case _:
                raise CompileError(f"`{condition}` cannot be decided from shapes")

    def _compared(self, value: tir.PrimExpr) -> ast.expr:
        """An operand of a comparison, which wraps if it is computed from data or large literals."""
        is_plain = isinstance(value, (tir.IntImm, tir.Var))
        if self.compute is None or is_plain or not any(map(self._may_wrap, walk(value))):
            return self.index(value)
        return py.call("int", self.compute(value))

    def _may_wrap(self, node: Node) -> bool:
        """True if sums of `node` may wrap around; those of loops, sizes, small literals do not."""
        is_datum = isinstance(node, BufferLoad) or node in self.scalars
        is_large = isinstance(node, tir.IntImm) and abs(node.value) >> max(node.dtype.bits - 8, 8)
        return bool(is_datum or is_large or _is_typed(node))


def _is_typed(node: Node) -> bool:
    """True if polynomials do not look into `node`: it has less than 32 bits, or no sign."""
    return isinstance(node, (tir.Cast, tir.BinaryOpExpr)) and (
        1 < node.dtype.bits < 32 or (node.dtype.family == "uint" and node.dtype.bits > 1)
    )


COMPARISONS: Mapping[type[tir.PrimExpr], type[ast.cmpop]] = {
    tir.EQ: ast.Eq,
    tir.NE: ast.NotEq,
    tir.LT: ast.Lt,
    tir.LE: ast.LtE,
    tir.GT: ast.Gt,
    tir.GE: ast.GtE,
}


@lru_cache(maxsize=1 << 8)
def dtype_name(dtype: DataType) -> str:
    """The name of the scalar type of `dtype` in generated code.

    Errors:
        CompileError: NumPy has no such type.
    """
    kind = dtype.numpy()
    if dtype.is_bool:
        return "np.bool_"
    return f"np.{kind.name}" if kind.isbuiltin == 1 else f"rt.small.{kind.name}"


def intermediate(source: DataType, target: DataType) -> DataType | None:
    """The intermediate datatype of a conversion that NumPy does not do as documented."""
    small = source.bits < 8 or (source.is_float and source.bits == 8)
    if source.is_bool or target.is_bool:
        return None
    if source.is_float and target == "uint32":
        # For values out of range, NumPy converts arrays differently from scalars.
        return DataType("int64")
    if small and source.is_float:
        # ml_dtypes saturates, and has no conversions from and to float8_e8m0fnu.
        return DataType("float32") if target.is_int or target.bits <= 8 else None
    if small and target.is_int and target.bits < 8:
        return DataType("int8")
    return None


def converted(node: ast.expr, source: DataType, target: DataType) -> ast.Call:
    """`node`, an array or scalar of datatype `source`, as `target`."""
    step = intermediate(source, target)
    if step is not None:
        node, source = converted(node, source, step), step
    if is_unspecified(source, target):
        return py.call("rt.integers", node, dtype_name(target))
    return py.call(py.attribute(node, "astype"), dtype_name(target))


def is_unspecified(source: DataType, target: DataType) -> bool:
    """True if NumPy converts values out of range as this CPU does, or differently by the size."""
    here = own_platform()
    saturates = here is not None and here.architecture.saturates
    return saturates and source.is_float and target.is_int and not target.is_bool


def literal(value: tir.IntImm | tir.FloatImm, *, typed: bool) -> ast.expr:
    """A literal; unless `typed`, a plain number if the other operand decides its datatype."""
    number: py.Code = value.value
    if value.dtype.is_bool:
        return py.code(bool(value.value)) if not typed else py.call("np.bool_", bool(value.value))
    if not typed and value.dtype.numpy().isbuiltin == 1:
        return py.code(number)
    return py.call(dtype_name(value.dtype), number)


def array_literal(value: tir.PrimExpr) -> ast.expr:
    """A literal as an operand of arrays: an array, which NumPy does not convert in each call."""
    assert isinstance(value, (tir.IntImm, tir.FloatImm))
    number = value.value
    # As keys of a table, zeros are equal, and NaNs are not.
    if value.dtype.is_bool or number != number or (number == 0 and math.copysign(1, number) < 0):
        return literal(value, typed=False)
    return py.item(f"rt.{value.dtype}", number)


def numpy_function(call_node: tir.Call) -> str:
    """The function of NumPy, or of `rt`, that computes an intrinsic; empty if there is none."""
    record = intrinsic_of(call_node.op)
    return "" if record is None else record.numpy


def intrinsic_name(call_node: tir.Call) -> str:
    """The name of the intrinsic that is called, without `tir.`."""
    op = call_node.op
    return op.name.removeprefix("tir.") if isinstance(op, Op) else str(op)


def title(kernel: str, buffer: Buffer) -> ast.expr:
    """The description of a kernel's buffer in run-time messages."""
    return py.text(f"{kernel}: {buffer.name}")
