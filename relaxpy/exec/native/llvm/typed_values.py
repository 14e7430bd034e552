"""The types, constants and values of LLVM IR; operators of values write instructions."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from typing_extensions import override

from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from relaxpy.exec.native.llvm.instructions import Instructions
    from relaxpy.exec.native.llvm.writer import Function

FLOATS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}
"""The floating-point types, and their bits."""
SUFFIXES = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64", "ptr": "p0"}


class Type:
    """A scalar type of LLVM such as `float` or `i64`, or a vector of `lanes` of it.

    Equal types are one object.

    Fields:
        text: the name of the type.
        is_float: whether the elements are floating-point numbers.
        bits: the size of an element in bits.
        alignment: the size of an element in bytes, which is also its alignment.
        suffix: the type in the name of an intrinsic, such as `v16f32`.
    """

    __slots__ = ("alignment", "bits", "element", "is_float", "lanes", "suffix", "text")
    element: str
    lanes: int
    text: str
    is_float: bool
    bits: int
    alignment: int
    suffix: str

    @override
    def __new__(cls, element: str, lanes: int = 1) -> Type:
        known = _TYPES.get((element, lanes))
        if known is not None:
            return known
        new = object.__new__(cls)
        new.element, new.lanes, new.is_float = element, lanes, element in FLOATS
        new.bits = _BITS[element] if element in _BITS else int(element[1:])
        new.alignment = max(1, new.bits // 8)
        suffix = SUFFIXES.get(element, element)
        new.suffix = suffix if lanes == 1 else f"v{lanes}{suffix}"
        new.text = element if lanes == 1 else f"<{lanes} x {element}>"
        return _TYPES.setdefault((element, lanes), new)

    @override
    def __str__(self) -> str:
        return self.text

    def of(self, element: str) -> Type:
        """The type with the same number of lanes of `element`."""
        return Type(element, self.lanes)


_TYPES: Final[dict[tuple[str, int], Type]] = {}
_BITS: Final = {**FLOATS, "ptr": 64, "void": 0, "x86_amx": 8 << 10}


@dataclass(frozen=True, slots=True)
class Signature:
    """The types of the result and of the parameters of a function."""

    result: Type
    params: tuple[Type, ...]

    @override
    def __str__(self) -> str:
        return f"{self.result} ({', '.join(map(str, self.params))})"


BOOL = Type("i1")
I8 = Type("i8")
I16 = Type("i16")
I32 = Type("i32")
I64 = Type("i64")
I128 = Type("i128")
F32 = Type("float")
F64 = Type("double")
POINTER = Type("ptr")
VOID = Type("void")


class Value:
    """A value in a function. The operators of Python write an instruction.

    A number as the other operand becomes a constant of the same type, and a scalar is broadcast.
    `+`, `-` and `*` work on floats and on integers of either sign, `/` on floats. An i64 is
    divisible by its `multiple`, a power of two.
    """

    __slots__ = ("function", "multiple", "name", "type")
    function: Function

    def __init__(self, function: Instructions, type: Type, name: str) -> None:
        self.function = function  # type: ignore[assignment]  # all instructions are in functions
        self.type, self.name, self.multiple = type, name, 1

    @override
    def __str__(self) -> str:
        return f"{self.type.text} {self.name}"

    def __add__(self, other: Operand) -> Value:
        return self.function.arithmetic("add", self, other)

    def __radd__(self, other: Operand) -> Value:
        return self.function.arithmetic("add", self.function.like(self, other), self)

    def __sub__(self, other: Operand) -> Value:
        return self.function.arithmetic("sub", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return self.function.arithmetic("sub", self.function.like(self, other), self)

    def __mul__(self, other: Operand) -> Value:
        return self.function.arithmetic("mul", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return self.function.arithmetic("mul", self.function.like(self, other), self)

    def __truediv__(self, other: Operand) -> Value:
        return self.function.arithmetic("div", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self.function.arithmetic("div", self.function.like(self, other), self)

    def __neg__(self) -> Value:
        if self.type.is_float:
            return self.function.computed(self.type, f"fneg {self}")
        return 0 - self


Operand: TypeAlias = Value | int | float


_ARITHMETIC: Final[Mapping[str, Callable[[int, int], int]]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "and": operator.and_,
}
_ORDER: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "slt": operator.lt,
    "sle": operator.le,
    "sgt": operator.gt,
    "sge": operator.ge,
}
_NEUTRAL: Final = {"add": "0", "sub": "0", "mul": "1", "and": "true", "or": "false"}
"""The right identity of operations on integers."""


def literal(element: str, value: float) -> str:
    """A number as a constant of a scalar type.

    Floats are rounded to that type. LLVM writes `float` with the bits of the double.
    """
    if element == "i1":
        return "true" if value else "false"
    if element in ("float", "double"):
        if element == "float":
            value = _rounded(value)
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if element == "half":
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    if element == "bfloat":
        bits = struct.unpack("<I", struct.pack("<f", _rounded(value)))[0]
        # Round to nearest, ties to even; a NaN keeps a bit of its mantissa.
        upper = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 if value == value else 0x7FC0
        return f"0xR{upper:04X}"
    if element == "ptr":
        return f"inttoptr (i64 {int(value)} to ptr)" if value else "null"
    return str(int(value))


def folded(name: str, a: str, b: str, bits: int) -> str | None:
    """Constant-fold an operation on integers of `bits` bits, if possible."""
    if a[0] == b[0] == "%":
        return None
    kind = name.partition(" ")[0]
    neutral = _NEUTRAL.get(kind)
    if neutral is not None and b == neutral:
        return a
    if neutral is not None and a == neutral and kind != "sub":
        return b
    apply = _ARITHMETIC.get(kind)
    if apply is not None and _is_number(a) and _is_number(b):
        value = apply(int(a), int(b))
        return str(value) if -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None
    return None


def compared(predicate: str, a: str, b: str) -> bool | None:
    """The result of an integer `icmp`, if both are numbers or the same value."""
    if a == b and a[0] == "%":
        return {"eq": True, "ne": False, "slt": False, "sgt": False}.get(predicate)
    apply = _ORDER.get(predicate)
    if apply is None or not (_is_number(a) and _is_number(b)):
        return None
    return apply(int(a), int(b))


def power_of_two_in(value: int) -> int:
    """The largest power of two that divides an integer of 64 bits; 2**63 divides 0."""
    return value & -value or 1 << 63


def _is_number(name: str) -> bool:
    return name.lstrip("-").isdecimal()


def _rounded(value: float) -> float:
    """`value` rounded to float32; infinite beyond its range."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
