"""PrimExprs: scalar arithmetic over variables, as shapes, indices and kernel bodies use it.

Nodes are interned: structurally equal expressions over the same variables are one object, so that
comparison and hashing are by identity. Constructors build exactly the node they name; the functions
of `ops`, which the Python operators call, match datatypes first and fold constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, TypeVar, Union, cast
from weakref import WeakValueDictionary

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError
from relaxpy.ir import hooks
from relaxpy.ir.dtype import BOOL, HANDLE, DataType
from relaxpy.ir.node import Node
from relaxpy.ir.op import Op
from relaxpy.ir.tir import ops
from relaxpy.ir.types import PointerType, PrimType

if TYPE_CHECKING:
    from relaxpy.errors import Span

E = TypeVar("E", bound="PrimExpr")
_interned: WeakValueDictionary[tuple[object, ...], PrimExpr] = WeakValueDictionary()


def _identity(value: object) -> object:
    """What stands for a field in the table of interned nodes."""
    if isinstance(value, Node):
        return id(value)
    if isinstance(value, tuple):
        return tuple(_identity(v) for v in value)
    if isinstance(value, float):
        return value.hex(), str(value)
    return value


class PrimExpr(Node):
    """A scalar (or vector) expression. `a == b` builds EQ, whose truth is structural equality."""

    __slots__ = ("dtype",)
    _stored: ClassVar[tuple[str, ...]] = ()
    dtype: DataType

    @override
    def __init_subclass__(cls) -> None:
        cls._stored = tuple(name for name in cls._fields if name != "dtype")

    @classmethod
    def _make(cls, dtype: DataType, *values: object) -> Self:
        key = (cls, dtype, *map(_identity, values))
        node = _interned.get(key)
        if node is None:
            node = object.__new__(cls)
            object.__setattr__(node, "dtype", dtype)
            for name, value in zip(cls._stored, values, strict=True):
                object.__setattr__(node, name, value)
            _interned[key] = node
        return cast("Self", node)

    @override
    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a {type(self).__name__} cannot be changed; build a new one")

    def with_fields(self, **changes: object) -> PrimExpr:
        """This node built anew over other fields; the datatype follows them."""
        names = self.__match_args__  # type: ignore[attr-defined]
        return type(self)(*(changes.get(n, getattr(self, n)) for n in names))

    @override
    def __reduce__(self) -> tuple[object, ...]:
        names = self.__match_args__  # type: ignore[attr-defined]
        return type(self), tuple(getattr(self, n) for n in names)

    @override
    def __str__(self) -> str:
        text: str = hooks.call("short_text", self)
        return text

    @override
    def __repr__(self) -> str:
        return str(self)

    @override
    def __hash__(self) -> int:
        return id(self) >> 4

    @override
    def __eq__(self, other: object) -> Any:
        return self._compared(EQ, other)

    @override
    def __ne__(self, other: object) -> Any:
        return self._compared(NE, other)

    def _compared(self, kind: type[CmpExpr], other: object) -> Any:
        """The comparison; what has no common datatype is not equal, as in `var in variables`."""
        if not isinstance(other, (PrimExpr, int, float, np.number, np.bool_)):
            return NotImplemented
        try:
            return ops.compare(kind, self, other)
        except MisuseError:
            return NotImplemented

    def __bool__(self) -> bool:
        raise MisuseError(
            f"the value of `{self}` is not known yet, so it has no truth",
            hint="use T.And, T.Or, T.Not or tir.all / tir.any in place of and, or, not",
        )

    def __add__(self, other: ExprLike) -> PrimExpr:
        return ops.add(self, other)

    def __radd__(self, other: ExprLike) -> PrimExpr:
        return ops.add(other, self)

    def __sub__(self, other: ExprLike) -> PrimExpr:
        return ops.sub(self, other)

    def __rsub__(self, other: ExprLike) -> PrimExpr:
        return ops.sub(other, self)

    def __mul__(self, other: ExprLike) -> PrimExpr:
        return ops.mul(self, other)

    def __rmul__(self, other: ExprLike) -> PrimExpr:
        return ops.mul(other, self)

    def __truediv__(self, other: ExprLike) -> PrimExpr:
        return ops.true_div(self, other)

    def __rtruediv__(self, other: ExprLike) -> PrimExpr:
        return ops.true_div(other, self)

    def __floordiv__(self, other: ExprLike) -> PrimExpr:
        return ops.floordiv(self, other)

    def __rfloordiv__(self, other: ExprLike) -> PrimExpr:
        return ops.floordiv(other, self)

    def __mod__(self, other: ExprLike) -> PrimExpr:
        return ops.floormod(self, other)

    def __rmod__(self, other: ExprLike) -> PrimExpr:
        return ops.floormod(other, self)

    def __neg__(self) -> PrimExpr:
        return ops.mul(self, ops.const(-1, self.dtype))

    def __lt__(self, other: ExprLike) -> PrimExpr:
        return ops.compare(LT, self, other)

    def __le__(self, other: ExprLike) -> PrimExpr:
        return ops.compare(LE, self, other)

    def __gt__(self, other: ExprLike) -> PrimExpr:
        return ops.compare(GT, self, other)

    def __ge__(self, other: ExprLike) -> PrimExpr:
        return ops.compare(GE, self, other)

    def __and__(self, other: ExprLike) -> PrimExpr:
        return ops.bitwise("tir.bitwise_and", self, other)

    def __rand__(self, other: ExprLike) -> PrimExpr:
        return ops.bitwise("tir.bitwise_and", other, self)

    def __or__(self, other: ExprLike) -> PrimExpr:
        return ops.bitwise("tir.bitwise_or", self, other)

    def __ror__(self, other: ExprLike) -> PrimExpr:
        return ops.bitwise("tir.bitwise_or", other, self)

    def __xor__(self, other: ExprLike) -> PrimExpr:
        return ops.bitwise("tir.bitwise_xor", self, other)

    def __rxor__(self, other: ExprLike) -> PrimExpr:
        return ops.bitwise("tir.bitwise_xor", other, self)

    def __lshift__(self, other: ExprLike) -> PrimExpr:
        return ops.bitwise("tir.shift_left", self, other)

    def __rlshift__(self, other: ExprLike) -> PrimExpr:
        return ops.bitwise("tir.shift_left", other, self)

    def __rshift__(self, other: ExprLike) -> PrimExpr:
        return ops.bitwise("tir.shift_right", self, other)

    def __rrshift__(self, other: ExprLike) -> PrimExpr:
        return ops.bitwise("tir.shift_right", other, self)

    def __invert__(self) -> PrimExpr:
        if not self.dtype.is_int:
            raise MisuseError(f"~ needs an integer, found {self.dtype}")
        return Call(self.dtype, "tir.bitwise_not", (self,))

    def equal(self, other: ExprLike) -> PrimExpr:
        """`self == other` as an expression."""
        return ops.compare(EQ, self, other)

    def astype(self, dtype: str) -> PrimExpr:
        """This value converted to `dtype`; itself if it has that datatype."""
        return ops.cast_to(self, dtype)


ExprLike: TypeAlias = Union[PrimExpr, bool, int, float, str, "np.number[Any]", np.bool_]


class Var(PrimExpr):
    """A TIR variable; in shapes, a shape variable. Two of one name are two variables (AST-21)."""

    __slots__ = ("name", "type_annotation")
    __match_args__ = ("name", "dtype")
    _fields: ClassVar[tuple[str, ...]] = ("dtype",)
    _variable = True
    name: str
    type_annotation: PrimType | PointerType

    def __new__(
        cls, name: str, dtype: str | PrimType | PointerType = "int32", span: Span | None = None
    ) -> Self:
        """A new variable; `dtype` may also be a pointer type."""
        node = object.__new__(cls)
        if isinstance(dtype, PointerType):
            annotation: PrimType | PointerType = dtype
            plain = HANDLE
        else:
            annotation = dtype if isinstance(dtype, PrimType) else PrimType(DataType(dtype))
            plain = annotation.dtype
        object.__setattr__(node, "name", name)
        object.__setattr__(node, "dtype", plain)
        object.__setattr__(node, "type_annotation", annotation)
        return node

    def renamed(self, name: str) -> Self:
        """A new variable of the same type."""
        return type(self)(name, self.type_annotation)


class SizeVar(Var):
    """A variable known to be at least 0."""

    __slots__ = ()


class ConstExpr(PrimExpr):
    """A literal; `value` is what it holds."""

    __slots__ = ("value",)
    __match_args__ = ("dtype", "value")
    _fields: ClassVar[tuple[str, ...]] = ("dtype", "value")
    value: int | float | str


class IntImm(ConstExpr):
    """An integer or Boolean literal, in the range of its datatype."""

    __slots__ = ()
    value: int

    def __new__(cls, dtype: str, value: int, span: Span | None = None) -> Self:
        """Errors: MisuseError if `dtype` is no scalar integer type or `value` is outside it."""
        kind = DataType(dtype)
        if not kind.is_int or kind.lanes != 1:
            raise MisuseError(f"an IntImm has a scalar integer dtype, found {str(kind)!r}")
        number = int(value)
        low, high = ops.int_range(kind)
        if not low <= number <= high:
            raise MisuseError(f"{number} is outside the range of {kind}")
        return cls._make(kind, number)

    def __int__(self) -> int:
        return self.value

    @override
    def __bool__(self) -> bool:
        return bool(self.value)


class FloatImm(ConstExpr):
    """A floating literal."""

    __slots__ = ()
    value: float

    def __new__(cls, dtype: str, value: float, span: Span | None = None) -> Self:
        """Errors: MisuseError if `dtype` is no scalar float type."""
        kind = DataType(dtype)
        if not kind.is_float or kind.lanes != 1:
            raise MisuseError(f"a FloatImm has a scalar float dtype, found {str(kind)!r}")
        return cls._make(kind, float(value))

    def __float__(self) -> float:
        return self.value


class StringImm(ConstExpr):
    """A string literal, as some intrinsics take it."""

    __slots__ = ()
    __match_args__ = ("value",)
    _fields = ("value",)
    value: str

    def __new__(cls, value: str, span: Span | None = None) -> Self:
        """The literal `value`."""
        return cls._make(HANDLE, str(value))


class Cast(PrimExpr):
    """`value` converted to `dtype`, lane by lane."""

    __slots__ = ("value",)
    __match_args__ = ("dtype", "value")
    _fields = ("dtype", "value")
    value: PrimExpr

    def __new__(cls, dtype: str, value: ExprLike, span: Span | None = None) -> Self:
        """Errors: MisuseError if the lanes differ."""
        kind, source = DataType(dtype), ops.convert(value)
        if kind.lanes != source.dtype.lanes:
            raise MisuseError(f"a cast keeps the lanes: {source.dtype} to {kind}")
        return cls._make(kind, source)


class BinaryOpExpr(PrimExpr):
    """An operation on two values of one datatype."""

    __slots__ = ("a", "b")
    __match_args__ = ("a", "b")
    _fields = ("a", "b")
    a: PrimExpr
    b: PrimExpr

    def __new__(cls, a: ExprLike, b: ExprLike, span: Span | None = None) -> Self:
        """Errors: MisuseError (also TypeError) if the datatypes differ."""
        left, right = ops.same_dtype(cls.__name__, a, b)
        return cls._make(cls._result(left.dtype), left, right)

    @classmethod
    def _result(cls, dtype: DataType) -> DataType:
        return dtype


class Add(BinaryOpExpr):
    """a + b, in the datatype of both."""

    __slots__ = ()


class Sub(BinaryOpExpr):
    """a - b, in the datatype of both."""

    __slots__ = ()


class Mul(BinaryOpExpr):
    """a * b, in the datatype of both."""

    __slots__ = ()


class Div(BinaryOpExpr):
    """a / b, on integers truncated toward zero (PX-2)."""

    __slots__ = ()


class Mod(BinaryOpExpr):
    """The remainder of Div, with the sign of `a`."""

    __slots__ = ()


class FloorDiv(BinaryOpExpr):
    """a / b rounded down."""

    __slots__ = ()


class FloorMod(BinaryOpExpr):
    """The remainder of FloorDiv, with the sign of `b`."""

    __slots__ = ()


class Min(BinaryOpExpr):
    """The smaller of a and b."""

    __slots__ = ()


class Max(BinaryOpExpr):
    """The larger of a and b."""

    __slots__ = ()


class CmpExpr(BinaryOpExpr):
    """A comparison: Bool with the lanes of its operands."""

    __slots__ = ()

    @override
    @classmethod
    def _result(cls, dtype: DataType) -> DataType:
        return BOOL.with_lanes(dtype.lanes) if dtype.lanes > 1 else BOOL


class EQ(CmpExpr):
    """a == b; as a Python truth value, whether the two are the same expression."""

    __slots__ = ()

    @override
    def __bool__(self) -> bool:
        return self.a is self.b


class NE(CmpExpr):
    """a != b; as a Python truth value, whether the two are different expressions."""

    __slots__ = ()

    @override
    def __bool__(self) -> bool:
        return self.a is not self.b


class LT(CmpExpr):
    """Whether a < b."""

    __slots__ = ()


class LE(CmpExpr):
    """Whether a <= b."""

    __slots__ = ()


class GT(CmpExpr):
    """Whether a > b."""

    __slots__ = ()


class GE(CmpExpr):
    """Whether a >= b."""

    __slots__ = ()


class LogicalExpr(PrimExpr):
    """An operation on truth values (PX-4)."""

    __slots__ = ()


class And(LogicalExpr):
    """Whether both a and b hold."""

    __slots__ = ("a", "b")
    __match_args__ = ("a", "b")
    _fields = ("a", "b")
    a: PrimExpr
    b: PrimExpr

    def __new__(cls, a: ExprLike, b: ExprLike, span: Span | None = None) -> Self:
        """Errors: MisuseError (also TypeError) if an operand is not Bool."""
        left, right = ops.same_dtype(cls.__name__, ops.truth(a), ops.truth(b))
        return cls._make(left.dtype, left, right)


class Or(And):
    """Whether a, b or both hold."""

    __slots__ = ()


class Not(LogicalExpr):
    """Whether a does not hold."""

    __slots__ = ("a",)
    __match_args__ = ("a",)
    _fields = ("a",)
    a: PrimExpr

    def __new__(cls, a: ExprLike, span: Span | None = None) -> Self:
        """Errors: MisuseError (also TypeError) if the operand is not Bool."""
        value = ops.truth(a)
        return cls._make(value.dtype, value)


class Select(PrimExpr):
    """`true_value` where the condition holds, else `false_value`; both may be evaluated (PX-5)."""

    __slots__ = ("condition", "false_value", "true_value")
    __match_args__ = ("condition", "true_value", "false_value")
    _fields = ("condition", "true_value", "false_value")
    condition: PrimExpr
    true_value: PrimExpr
    false_value: PrimExpr

    def __new__(
        cls,
        condition: ExprLike,
        true_value: ExprLike,
        false_value: ExprLike,
        span: Span | None = None,
    ) -> Self:
        """Errors: MisuseError if the condition is not Bool or the values differ in datatype."""
        test = ops.truth(condition)
        yes, no = ops.same_dtype("Select", true_value, false_value)
        if test.dtype.lanes not in (1, yes.dtype.lanes):
            raise MisuseError(
                f"Select: a condition of {test.dtype} cannot choose among {yes.dtype}"
            )
        return cls._make(yes.dtype, test, yes, no)


class Ramp(PrimExpr):
    """The vector base, base + stride, … of `lanes` members."""

    __slots__ = ("base", "lanes", "stride")
    __match_args__ = ("base", "stride", "lanes")
    _fields = ("base", "stride", "lanes")
    base: PrimExpr
    stride: PrimExpr
    lanes: int

    def __new__(
        cls, base: ExprLike, stride: ExprLike, lanes: int | IntImm, span: Span | None = None
    ) -> Self:
        """Errors: MisuseError if base or stride is a vector or `lanes` is below 2."""
        start = ops.convert(base)
        step = ops.cast_to(ops.convert(stride), start.dtype)
        if start.dtype.lanes != 1 or int(lanes) < 2:
            raise MisuseError("a Ramp has a scalar base and at least 2 lanes")
        return cls._make(start.dtype.with_lanes(int(lanes)), start, step, int(lanes))


class Broadcast(PrimExpr):
    """The vector of `lanes` copies of a scalar."""

    __slots__ = ("lanes", "value")
    __match_args__ = ("value", "lanes")
    _fields = ("value", "lanes")
    value: PrimExpr
    lanes: int

    def __new__(cls, value: ExprLike, lanes: int | IntImm, span: Span | None = None) -> Self:
        """Errors: MisuseError if the value is a vector or `lanes` is below 2."""
        scalar = ops.convert(value)
        if scalar.dtype.lanes != 1 or int(lanes) < 2:
            raise MisuseError("a Broadcast has a scalar value and at least 2 lanes")
        return cls._make(scalar.dtype.with_lanes(int(lanes)), scalar, int(lanes))


class Shuffle(PrimExpr):
    """The lanes `indices` of the concatenation of `vectors`."""

    __slots__ = ("indices", "vectors")
    __match_args__ = ("vectors", "indices")
    _fields = ("vectors", "indices")
    vectors: tuple[PrimExpr, ...]
    indices: tuple[PrimExpr, ...]

    def __new__(
        cls, vectors: Sequence[ExprLike], indices: Sequence[ExprLike], span: Span | None = None
    ) -> Self:
        """Errors: MisuseError if the element datatypes differ or nothing is chosen."""
        parts, chosen = tuple(map(ops.convert, vectors)), tuple(map(ops.convert, indices))
        if len({p.dtype.element for p in parts}) != 1 or not chosen:
            raise MisuseError("a Shuffle takes vectors of one element dtype and at least one index")
        return cls._make(parts[0].dtype.with_lanes(len(chosen)), parts, chosen)


class Let(PrimExpr):
    """`body` where `var` stands for `value`."""

    __slots__ = ("body", "value", "var")
    __match_args__ = ("var", "value", "body")
    _fields = ("value", "var", "body")
    _binds = frozenset(("var",))
    var: Var
    value: PrimExpr
    body: PrimExpr

    def __new__(cls, var: Var, value: ExprLike, body: ExprLike, span: Span | None = None) -> Self:
        """Errors: MisuseError if the value has another datatype than the variable."""
        bound, inner = ops.convert(value), ops.convert(body)
        if bound.dtype != var.dtype:
            raise MisuseError(f"Let binds {var.name} of {var.dtype} to a value of {bound.dtype}")
        return cls._make(inner.dtype, bound, var, inner)


class Call(PrimExpr):
    """A call of an intrinsic, or of a function of the module, giving a value of `dtype`."""

    __slots__ = ("args", "op")
    __match_args__ = ("dtype", "op", "args")
    _fields = ("dtype", "op", "args")
    op: Node
    args: tuple[PrimExpr, ...]

    def __new__(
        cls,
        dtype: str,
        op: Node | str,
        args: Sequence[ExprLike | Node],
        span: Span | None = None,
    ) -> Self:
        """`op` is an Op, the name of one beginning with `tir.`, or a GlobalVar."""
        if isinstance(op, str):
            if not op.startswith("tir."):
                raise MisuseError(f"an intrinsic's name begins with 'tir.', found {op!r}")
            op = Op(op)
        values = tuple(a if isinstance(a, Node) else ops.convert(a) for a in args)
        return cls._make(DataType(dtype), op, values)


class IterVarKind(IntEnum):
    """What an iteration variable does."""

    DataPar = 0
    ThreadIndex = 1
    CommReduce = 2
    Ordered = 3
    Opaque = 4
    Unrolled = 5
    Vectorized = 6
    Parallelized = 7
    Tensorized = 8
