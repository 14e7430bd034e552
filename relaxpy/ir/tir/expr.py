"""The classes of PrimExprs: scalar arithmetic for shapes, indices and kernel bodies.

A constructor builds exactly its node. The functions of `ops`, which implement the Python operators,
match datatypes and fold constants first.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from enum import IntEnum
from itertools import count
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, cast

from typing_extensions import override

from relaxpy.errors import MisuseError, check_type, counted, unexpected
from relaxpy.ir.core.dtype import BOOL, HANDLE, INT32, DataType
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.types import PointerType, PrimType, scalar_type
from relaxpy.ir.op import Op
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.prim_expr import ExprLike as ExprLike, PrimExpr as PrimExpr
from relaxpy.support.frames import is_user_frame
from relaxpy.support.missing import digits

if TYPE_CHECKING:
    from relaxpy.errors import Span


_numbers = count()


class Var(PrimExpr):
    """A TIR variable; in shapes, a shape variable. Variables compare by identity (AST-21)."""

    __slots__ = ("name", "number", "type_annotation")
    __match_args__ = ("name", "dtype")
    _fields: ClassVar[tuple[str, ...]] = ("dtype",)
    _compared_as: ClassVar[Mapping[str, str]] = {"dtype": "value_type"}
    _variable = True
    name: str
    number: int
    """The creation index, which gives an order that is the same in every run."""
    type_annotation: PrimType | PointerType

    def __new__(
        cls,
        name: str,
        dtype: str | PrimType | PointerType = "int32",
        span: Span | None = None,
        *,
        ty: str | PrimType | PointerType | None = None,
    ) -> Self:
        """Create a variable; `dtype` may also be a pointer type, and be called `ty`."""
        if type(name) is not str:
            check_type(name, str, "a variable is named by a string")
        dtype = dtype if ty is None else ty
        node, set_field = object.__new__(cls), object.__setattr__
        if isinstance(dtype, PointerType):
            annotation: PrimType | PointerType = dtype
            value_dtype = HANDLE
        else:
            annotation = dtype if isinstance(dtype, PrimType) else scalar_type(DataType(dtype))
            value_dtype = annotation.dtype
        set_field(node, "name", name)
        set_field(node, "number", next(_numbers))
        set_field(node, "_nodes", ())
        set_field(node, "height", 0)
        set_field(node, "_bits_inside", cls._own_bit)
        set_field(node, "dtype", value_dtype)
        set_field(node, "type_annotation", annotation)
        return node

    @override
    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.name, self.type_annotation)

    @property
    @override
    def ty(self) -> PrimType | PointerType:
        """The name of `type_annotation` in TVM after v0.27."""
        return self.type_annotation

    @property
    def value_type(self) -> DataType | PointerType:
        """The datatype, or the pointer type, whose empty storage scope is global memory."""
        kind = self.type_annotation
        if isinstance(kind, PrimType):
            return self.dtype
        return PointerType(kind.element_type, kind.storage_scope or "global")

    def renamed(self, name: str) -> Self:
        """Create a variable of the same type with another name."""
        return type(self)(name, self.type_annotation)

    @override
    def with_fields(self, **changes: Any) -> Self:
        """Create a variable with other fields, of the same type unless the datatype changes."""
        return type(self)(
            changes.get("name", self.name), changes.get("dtype", self.type_annotation)
        )

    @override
    def _alike(self, changes: Mapping[str, object]) -> Self:
        return self.with_fields(**changes)


class SizeVar(Var):
    """A variable known to be at least 0."""

    __slots__ = ()


class ConstExpr(PrimExpr):
    """The base class of literals."""

    __slots__ = ("value",)
    __match_args__ = ("dtype", "value")
    value: int | float | str


class IntImm(ConstExpr):
    """An integer or Boolean literal, in the range of its datatype."""

    __slots__ = ()
    value: int

    def __new__(cls, dtype: str, value: int, span: Span | None = None) -> Self:
        """Errors: MisuseError if `dtype` is not a scalar integer type or `value` is outside it."""
        if type(value) is int and isinstance(dtype, str):
            known = cls._known(dtype, value)
            if known is not None:
                return known
        kind = DataType(dtype)
        if not kind.is_int or kind.lanes != 1:
            raise unexpected(str(kind), "an IntImm has a scalar integer dtype")
        number = value if type(value) is int else ops.as_int(value)
        low, high = ops.int_range(kind)
        if not low <= number <= high:
            raise MisuseError(f"{digits(number)} is outside the range of {kind}", about=value)
        return cls._make(kind, number)

    def __int__(self) -> int:
        return self.value

    @override
    def __bool__(self) -> bool:
        return bool(self.value)

    def __attr__(self) -> object:
        """Convert a Boolean or int32 literal to a Python value for attributes."""
        if self.dtype.is_bool:
            return bool(self.value)
        return self.value if self.dtype == INT32 else self


class FloatImm(ConstExpr):
    """A floating-point literal."""

    __slots__ = ()
    value: float

    def __new__(cls, dtype: str, value: float, span: Span | None = None) -> Self:
        """Errors: MisuseError if `dtype` is not a scalar float type or too narrow for `value`."""
        kind = DataType(dtype)
        if not kind.is_float or kind.lanes != 1:
            raise unexpected(str(kind), "a FloatImm has a scalar float dtype")
        return cls._make(kind, ops.as_float(value, kind))

    def __float__(self) -> float:
        return self.value


class StringImm(ConstExpr):
    """A string literal, an argument of some intrinsics."""

    __slots__ = ()
    __match_args__ = ("value",)
    value: str

    def __new__(cls, value: str, span: Span | None = None) -> Self:
        """Create the literal `value`."""
        return cls._make(HANDLE, str(value))

    def __attr__(self) -> object:
        """Convert the literal to a Python string for attributes."""
        return self.value

    @override
    def __eq__(self, other: object) -> Any:
        return self.value == other if isinstance(other, str) else PrimExpr.__eq__(self, other)

    @override
    def __ne__(self, other: object) -> Any:
        return self.value != other if isinstance(other, str) else PrimExpr.__ne__(self, other)

    __hash__ = PrimExpr.__hash__


class Cast(PrimExpr):
    """`value` converted to `dtype`, lane by lane."""

    __slots__ = ("value",)
    __match_args__ = ("dtype", "value")
    value: PrimExpr

    def __new__(cls, dtype: str, value: ExprLike, span: Span | None = None) -> Self:
        """Errors: MisuseError if the lanes differ."""
        kind, source = DataType(dtype), ops.convert(value)
        if kind.vector != source.dtype.vector or kind.is_void:
            raise MisuseError(f"a cast keeps the lanes: {source.dtype} to {kind or 'void'}")
        return cls._make(kind, source)


class BinaryOpExpr(PrimExpr):
    """An operation on two values of one datatype."""

    __slots__ = ("a", "b")
    __match_args__ = ("a", "b")
    a: PrimExpr
    b: PrimExpr

    def __new__(cls, a: ExprLike, b: ExprLike, span: Span | None = None) -> Self:
        """Errors: MisuseError (also TypeError) if the datatypes differ; arithmetic on strings."""
        left, right = ops.same_dtype(cls.__name__, a, b)
        if (type(left) is StringImm or type(right) is StringImm) and not issubclass(cls, CmpExpr):
            text = left if type(left) is StringImm else right
            raise MisuseError(f"{cls.__name__} needs numbers, found {text!s:.60}", about=text)
        return cls._make(cls._result(left.dtype), left, right)

    @classmethod
    def _result(cls, dtype: DataType) -> DataType:
        return dtype


class Add(BinaryOpExpr):
    """a + b, in the datatype of both."""

    __slots__ = ()
    _chain = "sum"


class Sub(BinaryOpExpr):
    """a - b, in the datatype of both."""

    __slots__ = ()
    _chain = "sum"


class Mul(BinaryOpExpr):
    """a * b, in the datatype of both."""

    __slots__ = ()


class _Division(BinaryOpExpr):
    __slots__ = ()

    @override
    def _may_stop(self) -> bool:
        return self.dtype.is_int and not (isinstance(self.b, IntImm) and self.b.value != 0)


class Div(_Division):
    """a / b; the quotient of integers is truncated toward zero (PX-2)."""

    __slots__ = ()


class Mod(_Division):
    """The remainder of Div, with the sign of `a`."""

    __slots__ = ()


class FloorDiv(_Division):
    """a / b rounded down."""

    __slots__ = ()


class FloorMod(_Division):
    """The remainder of FloorDiv, with the sign of `b`."""

    __slots__ = ()


class Min(BinaryOpExpr):
    """The smaller of a and b."""

    __slots__ = ()
    _chain = "min"


class Max(BinaryOpExpr):
    """The larger of a and b."""

    __slots__ = ()
    _chain = "max"


class CmpExpr(BinaryOpExpr):
    """A comparison: Bool with the lanes of its operands."""

    __slots__ = ()

    @override
    @classmethod
    def _result(cls, dtype: DataType) -> DataType:
        return DataType(BOOL + dtype.vector) if dtype.vector else BOOL

    def asobject(self) -> CmpExpr:
        """This expression, as TVM converts what `a == b` returns."""
        return self


#: True while Python code that a program calls is running. Such code cannot know whether symbolic
#: scalars are equal, so that `bool(a == b)` for different expressions is an error in user code and
#: in builtins such as `sorted`. In relaxpy's own code it means structural equality.
CALLED_BY_TEXT: Final[ContextVar[bool]] = ContextVar("relaxpy_called_by_text", default=False)
#: The global variable that marks modules which evaluate conditions of a program.
ASKS_FOR_TEXT: Final = "__asks_for_text__"


def _refused(frame: FrameType) -> bool:
    return CALLED_BY_TEXT.get() and (is_user_frame(frame) or ASKS_FOR_TEXT in frame.f_globals)


class EQ(CmpExpr):
    """a == b; its `bool` tells whether the two are the same expression."""

    __slots__ = ()

    @override
    def __bool__(self) -> bool:
        if self.a is not self.b and _refused(sys._getframe(1)):
            return PrimExpr.__bool__(self)
        return self.a is self.b


class NE(CmpExpr):
    """a != b; its `bool` tells whether the two are different expressions."""

    __slots__ = ()

    @override
    def __bool__(self) -> bool:
        if self.a is not self.b and _refused(sys._getframe(1)):
            return PrimExpr.__bool__(self)
        return self.a is not self.b


class LT(CmpExpr):
    """The comparison a < b."""

    __slots__ = ()


class LE(CmpExpr):
    """The comparison a <= b."""

    __slots__ = ()


class GT(CmpExpr):
    """The comparison a > b."""

    __slots__ = ()


class GE(CmpExpr):
    """The comparison a >= b."""

    __slots__ = ()


class LogicalExpr(PrimExpr):
    """An operation on Booleans (PX-4)."""

    __slots__ = ()


class Junction(LogicalExpr):
    """`And` or `Or`."""

    __slots__ = ("a", "b")
    __match_args__ = ("a", "b")
    a: PrimExpr
    b: PrimExpr

    def __new__(cls, a: ExprLike, b: ExprLike, span: Span | None = None) -> Self:
        """Errors: MisuseError (also TypeError) if an operand is not Bool."""
        left, right = ops.same_dtype(cls.__name__, ops.truth(a), ops.truth(b))
        return cls._make(left.dtype, left, right)


class And(Junction):
    """The conjunction of a and b."""

    __slots__ = ()


class Or(Junction):
    """The disjunction of a and b."""

    __slots__ = ()


class Not(LogicalExpr):
    """The negation of a."""

    __slots__ = ("a",)
    __match_args__ = ("a",)
    a: PrimExpr

    def __new__(cls, a: ExprLike, span: Span | None = None) -> Self:
        """Errors: MisuseError (also TypeError) if the operand is not Bool."""
        value = ops.truth(a)
        return cls._make(value.dtype, value)


class Select(PrimExpr):
    """`true_value` if the condition holds, else `false_value`; both may be evaluated (PX-5)."""

    __slots__ = ("condition", "false_value", "true_value")
    __match_args__ = ("condition", "true_value", "false_value")
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
    """The vector base, base + stride, …; `lanes` is a number or a multiple of vscale."""

    __slots__ = ("base", "lanes", "stride")
    __match_args__ = ("base", "stride", "lanes")
    base: PrimExpr
    stride: PrimExpr
    lanes: int | PrimExpr

    def __new__(
        cls, base: ExprLike, stride: ExprLike, lanes: int | PrimExpr, span: Span | None = None
    ) -> Self:
        """Errors: MisuseError if base or stride is a vector or `lanes` is below 2."""
        start = ops.convert(base)
        count, dtype = ops.vector_of(start.dtype, lanes, "a Ramp has a scalar base")
        return cls._make(dtype, start, ops.cast_to(ops.convert(stride), start.dtype), count)


class Broadcast(PrimExpr):
    """The vector of `lanes` copies of a scalar; `lanes` is a number or a multiple of vscale."""

    __slots__ = ("lanes", "value")
    __match_args__ = ("value", "lanes")
    value: PrimExpr
    lanes: int | PrimExpr

    def __new__(cls, value: ExprLike, lanes: int | PrimExpr, span: Span | None = None) -> Self:
        """Errors: MisuseError if the value is a vector or `lanes` is below 2."""
        scalar = ops.convert(value)
        count, dtype = ops.vector_of(scalar.dtype, lanes, "a Broadcast has a scalar value")
        return cls._make(dtype, scalar, count)


class Shuffle(PrimExpr):
    """The lanes `indices` of the concatenation of `vectors`."""

    __slots__ = ("indices", "vectors")
    __match_args__ = ("vectors", "indices")
    vectors: tuple[PrimExpr, ...]
    indices: tuple[PrimExpr, ...]

    def __new__(
        cls, vectors: Sequence[ExprLike], indices: Sequence[ExprLike], span: Span | None = None
    ) -> Self:
        """Errors: MisuseError if element datatypes differ, or an index is out of range."""
        operands, chosen = ops.convert_all(vectors), ops.convert_all(indices)
        if len({v.dtype.element for v in operands}) != 1 or not chosen:
            raise MisuseError("a Shuffle takes vectors of one element dtype and at least one index")
        lanes = sum(v.dtype.lanes for v in operands)
        for index in chosen:
            if not index.dtype.is_int:
                raise MisuseError(f"an index of a Shuffle is an integer, found `{index}`")
            if isinstance(index, IntImm) and not 0 <= index.value < lanes:
                raise MisuseError(f"a Shuffle of {lanes} lanes has no lane {index}")
        return cls._make(operands[0].dtype.with_lanes(len(chosen)), operands, chosen)


class Let(PrimExpr):
    """`body` with `var` bound to `value`."""

    __slots__ = ("body", "value", "var")
    __match_args__ = ("var", "value", "body")
    _fields = ("value", "var", "body")
    _binds = frozenset(("var",))
    var: Var
    value: PrimExpr
    body: PrimExpr

    def __new__(cls, var: Var, value: ExprLike, body: ExprLike, span: Span | None = None) -> Self:
        """Errors: MisuseError if the value has another datatype than the variable."""
        bound, body_expr = ops.convert(value), ops.convert(body)
        ops.check_variable(var, "Let")
        if bound.dtype != var.dtype:
            raise MisuseError(f"Let binds {var.name} of {var.dtype} to a value of {bound.dtype}")
        return cls._make(body_expr.dtype, bound, var, body_expr)


class Call(PrimExpr):
    """A call of an intrinsic, or of a function of the module, with a result of `dtype`."""

    __slots__ = ("args", "op")
    __match_args__ = ("dtype", "op", "args")
    op: Node
    args: tuple[PrimExpr, ...]

    def __new__(
        cls, dtype: str, op: Node | str, args: Sequence[ExprLike | Node], span: Span | None = None
    ) -> Self:
        """`op` is an Op, its name, which begins with `tir.`, or a GlobalVar."""
        if isinstance(op, str):
            if not op.startswith("tir."):
                raise unexpected(op, "an intrinsic's name begins with 'tir.'")
            op = Op(op)
        elif not isinstance(op, Node) or isinstance(op, PrimExpr):
            raise unexpected(op, "a call needs an Op or a GlobalVar")
        check_type(args, (list, tuple), "expected a list of arguments")
        values = tuple(a if isinstance(a, Node) else ops.convert(a) for a in args)
        count = op.get_attr("num_inputs") if isinstance(op, Op) else None
        if count is not None and count != len(values):
            raise MisuseError(
                f"{op} takes {counted(cast('int', count), 'operand')}, found {len(values)}",
                about=args,
            )
        return cls._make(DataType(dtype), op, values)

    @override
    def _may_stop(self) -> bool:
        return True


class IterVarKind(IntEnum):
    """The kinds of iteration variables."""

    DataPar = 0
    ThreadIndex = 1
    CommReduce = 2
    Ordered = 3
    Opaque = 4
    Unrolled = 5
    Vectorized = 6
    Parallelized = 7
    Tensorized = 8
