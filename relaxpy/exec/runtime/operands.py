"""Run-time values as operands of a call, with open or literal dimensions and scalars."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from functools import cache
from typing import Literal, TypeAlias

from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.runtime.values import Category, Value, category_of, describe, prim_dtype
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.support.dataclass import dataclass

Prims: TypeAlias = Literal["open", "symbolic", "literal"]


class OperatorCall:
    """The call of an operator, and its open operands, which are not literals."""

    __slots__ = ("call", "open_operands")

    def __init__(self, call: rx.Call) -> None:
        self.call = call
        self.open_operands = tuple(a for a in _operands(call.args) if not _is_literal(a))

    @property
    def key(self) -> object:
        """A key that is equal for calls that differ only in their open operands."""
        call = self.call
        return call.op, call.attrs, call.sinfo_args, tuple(map(_literal_key, call.args))

    @property
    def has_arrays(self) -> bool:
        """True if the key keeps constants alive that are more than scalars."""
        return any(isinstance(a, rx.Constant) and a.data.ndim for a in _operands(self.call.args))

    def filled(self, operands: Iterable[rx.Expr]) -> rx.Call:
        """The call with the open operands replaced in order, without derived struct info.

        It has no span, as calls at several positions share its program.
        """
        rest = iter(operands)
        call = self.call
        args = tuple(_filled(arg, rest) for arg in call.args)
        return rx.Call(call.op, args, call.attrs, call.sinfo_args)


def _is_literal(expr: rx.Expr) -> bool:
    match expr:
        case rx.Constant() | rx.StringImm() | rx.DataTypeImm():
            return True
        case rx.PrimValue(value=value):
            return isinstance(value, tir.ConstExpr)
        case rx.ShapeExpr(values=values):
            return all(isinstance(v, tir.IntImm) for v in values)
        case _:
            return False


def _operands(args: Sequence[rx.Expr]) -> Iterator[rx.Expr]:
    """The operands, and the fields of tuples in their place."""
    for arg in args:
        if isinstance(arg, rx.Tuple):
            yield from _operands(arg.fields)
        else:
            yield arg


def _filled(arg: rx.Expr, rest: Iterator[rx.Expr]) -> rx.Expr:
    if isinstance(arg, rx.Tuple):
        return rx.Tuple(tuple(_filled(f, rest) for f in arg.fields))
    return arg if _is_literal(arg) else next(rest)


def _literal_key(arg: rx.Expr) -> object:
    match arg:
        case rx.Tuple(fields=fields):
            return tuple(map(_literal_key, fields))
        case rx.Constant(data=data) if not data.ndim:
            return data.dtype.name, data.tobytes()
        case rx.PrimValue() | rx.ShapeExpr() if _is_literal(arg):
            return arg.struct_info
        case rx.StringImm(value=text):
            return text
        case rx.DataTypeImm(value=dtype):
            return rx.DataTypeImm, dtype
        case _ if _is_literal(arg):
            return arg
        case _:
            return None


@cache
def _size(index: int) -> tir.Var:
    return tir.Var(f"size{index}", INT64)


@cache
def _scalar(index: int, dtype: DataType) -> tir.Var:
    return tir.Var(f"scalar{index}", dtype)


@dataclass(slots=True)
class Form:
    """Values as operands, and the parameters of a function that takes them.

    Dimensions are literals. If `symbolic`, equal dimensions become one variable, except for 0 and
    1, which broadcasting depends on. Scalars are left open, become variables, or are literals. One
    function serves all values with the same `key`.
    """

    symbolic: bool
    prims: Prims
    params: list[rx.Var] = field(default_factory=list)
    key: list[object] = field(default_factory=list)
    bound: dict[tir.Var, Value] = field(default_factory=dict)
    _sizes: dict[int, tir.Var] = field(default_factory=dict)

    def operand(self, value: Value) -> rx.Expr:
        """The operand for `value` in a call.

        Errors:
            RuntimeCheckError: it is a tensor with swapped bytes.
        """
        match category_of(value):
            case Category.TENSOR:
                if not value.dtype.isnative:
                    raise RuntimeCheckError(f"no operator takes {describe(value)}", rule="MC-3")
                shape, dtype = self._members(value.shape), DataType(value.dtype.name)
                return self._param(rx.TensorStructInfo(rx.ShapeExpr(shape), dtype), dtype, shape)
            case Category.SHAPE:
                shape = self._members(value)
                self._param(rx.ShapeStructInfo(shape), "shape", shape)
                return rx.ShapeExpr(shape)
            case Category.PRIM:
                return self._prim(value)
            case Category.TUPLE:
                self.key.append(len(value))
                return rx.Tuple(tuple(map(self.operand, value)))
            case category:
                return self._param(rx.ObjectStructInfo(), category)

    def _param(self, sinfo: rx.StructInfo, *key: object) -> rx.Var:
        self.key.append(key)
        self.params.append(rx.Var(f"x{len(self.params)}", sinfo))
        return self.params[-1]

    def _members(self, sizes: Sequence[int]) -> tuple[tir.PrimExpr, ...]:
        return tuple(map(self._member, sizes))

    def _member(self, size: int) -> tir.PrimExpr:
        if not self.symbolic or size in (0, 1):
            return tir.IntImm(INT64, size)
        var = self._sizes.setdefault(size, _size(len(self._sizes)))
        self.bound[var] = size
        return var

    def _prim(self, value: Value) -> rx.Expr:
        dtype = prim_dtype(value)
        if self.prims == "open":
            return self._param(rx.PrimStructInfo(dtype), dtype)
        if self.prims == "symbolic":
            var = _scalar(len(self.params), dtype)
            self.bound[var] = value
            return self._param(rx.PrimStructInfo(dtype, var), dtype, var)
        literal = ops.const(int(value) if dtype.is_int else float(value), dtype)
        self._param(rx.PrimStructInfo(dtype), dtype, literal)
        return rx.PrimValue(literal)


def leaves(values: Iterable[Value]) -> Iterator[Value]:
    """The values, with tuples flattened."""
    for value in values:
        if type(value) is tuple:
            yield from leaves(value)
        else:
            yield value
