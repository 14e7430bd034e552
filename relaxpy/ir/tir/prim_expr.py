"""PrimExpr, the base class of scalar expressions, with interning and Python operators.

Nodes are interned (hash-consed): structurally equal expressions over the same variables are one
object, so that comparison and hashing are by identity.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Mapping
from itertools import count
from threading import RLock
from typing import Any, ClassVar, Self, TypeAlias, Union
from weakref import ref

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError
from relaxpy.ir import hooks
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.float_text import exact_hex
from relaxpy.ir.core.node import PLAIN_TYPES, Node, collect_nodes
from relaxpy.ir.core.types import PointerType, PrimType, scalar_type
from relaxpy.ir.tir import expr, ops


class _Entry(ref[Any]):
    """A weak reference to an interned node, with the key of that node."""

    __slots__ = ("key",)
    key: tuple[object, ...]


class _Interned(dict[tuple[object, ...], _Entry]):
    """The nodes that are alive.

    Threads that build the same expression get one object. The lock is reentrant, since finalisers
    that the garbage collector runs may build expressions, too.
    """

    def __init__(self) -> None:
        self.renew_lock()

    def renew_lock(self) -> None:
        self.lock = RLock()

    def forget(self, entry: _Entry) -> None:
        """Remove the entry of a node that is gone, unless another one has taken its place."""
        # Nodes may die after Python has cleared this module: no global name is used here.
        with self.lock:
            if self.get(entry.key) is entry:
                del self[entry.key]


_interned = _Interned()


if hasattr(os, "register_at_fork"):
    # A forked child has no threads that hold the lock. (A ForkLock would take longer.)
    os.register_at_fork(after_in_child=_interned.renew_lock)

_class_bits = (1 << n for n in count(1))
_set_field = object.__setattr__
_CHAINED = frozenset(DataType(f"int{bits}") for bits in (8, 16, 32, 64))


def _identity(value: object) -> object:
    """The key of a field in the table of interned nodes."""
    if isinstance(value, tuple):
        return tuple([id(v) if isinstance(v, Node) else _identity(v) for v in value])
    if isinstance(value, Node):
        return id(value)
    if isinstance(value, float):
        return exact_hex(value), str(value)
    return value


def _function(name: str, *, reflected: bool = False) -> Callable[[Any, ExprLike], PrimExpr]:
    """The method of an operator, which is a function of `ops`."""

    def apply(self: ScalarOperators, other: ExprLike) -> PrimExpr:
        result: PrimExpr = getattr(ops, name)(self.__prim_expr__(), other)
        return result

    def applied(self: ScalarOperators, other: ExprLike) -> PrimExpr:
        result: PrimExpr = getattr(ops, name)(other, self.__prim_expr__())
        return result

    return applied if reflected else apply


def _bitwise(name: str, *, reflected: bool = False) -> Callable[[Any, ExprLike], PrimExpr]:
    def apply(self: ScalarOperators, other: ExprLike) -> PrimExpr:
        value = self.__prim_expr__()
        return ops.bitwise(f"tir.{name}", *((other, value) if reflected else (value, other)))

    return apply


def _comparison(name: str) -> Callable[[Any, ExprLike], PrimExpr]:
    def apply(self: ScalarOperators, other: ExprLike) -> PrimExpr:
        return ops.compare(getattr(expr, name), self.__prim_expr__(), other)

    return apply


class ScalarOperators:
    """The operators of Python on scalar expressions, and on objects that convert to one."""

    __slots__ = ()

    __add__, __radd__ = _function("add"), _function("add", reflected=True)
    __sub__, __rsub__ = _function("sub"), _function("sub", reflected=True)
    __mul__, __rmul__ = _function("mul"), _function("mul", reflected=True)
    __truediv__, __rtruediv__ = _function("true_div"), _function("true_div", reflected=True)
    __floordiv__, __rfloordiv__ = _function("floordiv"), _function("floordiv", reflected=True)
    __mod__, __rmod__ = _function("floormod"), _function("floormod", reflected=True)
    __and__, __rand__ = _bitwise("bitwise_and"), _bitwise("bitwise_and", reflected=True)
    __or__, __ror__ = _bitwise("bitwise_or"), _bitwise("bitwise_or", reflected=True)
    __xor__, __rxor__ = _bitwise("bitwise_xor"), _bitwise("bitwise_xor", reflected=True)
    __lshift__, __rlshift__ = _bitwise("shift_left"), _bitwise("shift_left", reflected=True)
    __rshift__, __rrshift__ = _bitwise("shift_right"), _bitwise("shift_right", reflected=True)
    __lt__, __le__ = _comparison("LT"), _comparison("LE")
    __gt__, __ge__ = _comparison("GT"), _comparison("GE")

    @abstractmethod
    def __prim_expr__(self) -> PrimExpr:
        """The scalar expression."""

    def __neg__(self) -> PrimExpr:
        return -self.__prim_expr__()

    def __invert__(self) -> PrimExpr:
        return ~self.__prim_expr__()

    def equal(self, other: ExprLike) -> PrimExpr:
        """The comparison `self == other` as an expression."""
        return ops.compare(expr.EQ, self.__prim_expr__(), other)

    def astype(self, dtype: str) -> PrimExpr:
        """Convert this value to `dtype`."""
        return self.__prim_expr__().astype(dtype)


class PrimExpr(Node, ScalarOperators):
    """A scalar (or vector) expression. `a == b` builds EQ, whose bool is structural equality."""

    __slots__ = ("_bits_inside", "dtype", "height")
    _bits = 0
    _own_bit: ClassVar[int]
    _stored: ClassVar[tuple[str, ...]] = ()
    #: Chained signed operations, such as a + b - c, count as one level of nesting.
    _chain: ClassVar[str | None] = None
    dtype: DataType
    height: int
    """The height of the expression tree; 0 for leaves."""

    @property
    def ty(self) -> PrimType | PointerType:
        """The type of the value, the name of its `dtype` in TVM after v0.27."""
        return scalar_type(self.dtype)

    @override
    def __init_subclass__(cls) -> None:
        own = vars(cls)
        if "__match_args__" in own and "_fields" not in own:
            cls._fields = own["__match_args__"]
        cls._stored = tuple(name for name in cls._fields if name != "dtype")
        cls._own_bit, cls._bits = next(_class_bits), 0
        for base in cls.__mro__:
            if issubclass(base, PrimExpr):
                base._bits |= cls._own_bit

    @classmethod
    def _make(cls, dtype: DataType, *values: object) -> Self:
        key = (cls, dtype, *[id(v) if isinstance(v, Node) else _identity(v) for v in values])
        entry = _interned.get(key)
        node: Self | None = None if entry is None else entry()
        return cls._create(key, dtype, values) if node is None else node

    @classmethod
    def _known(cls, *key: object) -> Self | None:
        """The node of this class that is interned under its datatype and fields, if any is."""
        entry = _interned.get((cls, *key))
        node: Self | None = None if entry is None else entry()
        return node

    @classmethod
    def _create(cls, key: tuple[object, ...], dtype: DataType, values: tuple[object, ...]) -> Self:
        """A new node, unless another thread has interned one in the meantime."""
        new = object.__new__(cls)
        for name, value in zip(cls._stored, values, strict=True):
            _set_field(new, name, value)
        operands: list[Node] = []
        for value in values:
            if isinstance(value, Node):
                operands.append(value)
            elif type(value) not in PLAIN_TYPES:
                collect_nodes(value, operands)
        height, bits, chain = 0, cls._own_bit, cls._chain
        for operand in operands:
            if isinstance(operand, PrimExpr):
                bits |= operand._bits_inside
                above = operand.height
                if chain is None or chain != operand._chain or operand.dtype not in _CHAINED:
                    above += 1
                if above > height:
                    height = above
            elif not operand._variable and operand._children():
                bits = -1
        _set_field(new, "dtype", dtype)
        _set_field(new, "_nodes", tuple(operands))
        _set_field(new, "height", height)
        _set_field(new, "_bits_inside", bits)
        fresh = _Entry(new, _interned.forget)
        fresh.key = key
        with _interned.lock:
            entry = _interned.get(key)
            node: Self | None = None if entry is None else entry()
            if node is None:
                _interned[key], node = fresh, new
        return node

    @override
    def _children(self) -> tuple[Node, ...]:
        return self._nodes

    def _may_stop(self) -> bool:
        """True if this operation, apart from its operands, may fail or have an effect."""
        return False

    @override
    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a {type(self).__name__} cannot be changed; build a new one")

    def with_fields(self, **changes: object) -> PrimExpr:
        """Rebuild this node with other fields; the datatype is inferred from them."""
        names = self.__match_args__  # type: ignore[attr-defined]
        return type(self)(*[changes[n] if n in changes else getattr(self, n) for n in names])

    @override
    def _alike(self, changes: Mapping[str, object]) -> Self:
        values = [changes[n] if n in changes else getattr(self, n) for n in self._stored]
        return self._make(self.dtype, *values)

    @override
    def __str__(self) -> str:
        text: str = hooks.call("short_text", self)
        return text

    @override
    def __repr__(self) -> str:
        return str(self)

    __hash__ = object.__hash__  # by identity, without a Python call

    @override
    def __eq__(self, other: object) -> Any:
        return self._compared(expr.EQ, other)

    @override
    def __ne__(self, other: object) -> Any:
        return self._compared(expr.NE, other)

    def _compared(self, kind: type[expr.CmpExpr], other: object) -> Any:
        """Build a comparison; operands without a common datatype are unequal."""
        if not isinstance(other, (PrimExpr, int, float, np.number, np.bool_)):
            return NotImplemented
        try:
            return ops.compare(kind, self, other)
        except MisuseError:
            return NotImplemented

    def __bool__(self) -> bool:
        raise MisuseError(
            f"the value of `{self}` is not known yet, so it has no truth value",
            hint="use T.if_then_else(condition, a, b), or an if in the text of a kernel; "
            "instead of and, or, not use T.And, T.Or, T.Not or tir.all, tir.any",
        )

    @override
    def __neg__(self) -> PrimExpr:
        if self.dtype.family == "uint":
            raise MisuseError(
                f"- needs a number with a sign, found {self.dtype}", hint="cast it first"
            )
        return ops.mul(self, ops.const(-1, self.dtype))

    @override
    def __invert__(self) -> PrimExpr:
        if not self.dtype.is_int:
            raise MisuseError(f"~ needs an integer, found {self.dtype}")
        return expr.Call(self.dtype, "tir.bitwise_not", (self,))

    @override
    def __prim_expr__(self) -> PrimExpr:
        return self

    @override
    def astype(self, dtype: str) -> PrimExpr:
        """Convert this value to `dtype`, or return it if it has that datatype."""
        return ops.cast_to(self, dtype)


ExprLike: TypeAlias = Union[PrimExpr, bool, int, float, str, "np.number[Any]", np.bool_]
