"""What the scalar operations of a kernel mean, one value at a time, for the oracle.

Integers are Python integers brought into the range of their datatype after each operation (modulo
2**bits), Booleans are Python's, floats are scalars of NumPy or ml_dtypes that are rounded after
each operation. Nothing here comes from relaxpy; the definitions follow the rules that are named.

Where the rules leave an operation open (a shift by the width, scratch memory that is read before
it is written) it raises `UndefinedError`, and the program tests nothing but the absence of
bare exceptions. Where they allow another precision than the text (in a sum), `Precision` records
whether that could show.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

Scalar: TypeAlias = Any

BITS = {f"{kind}{bits}": bits for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
FLOATS = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32,
    "float64": np.float64,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
}
EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
EPSILON |= {"float8_e5m2": 2.0**-2, "float8_e4m3fn": 2.0**-3}
_TERMS = 8
"""How many numbers of few digits are exact in any order."""


class RefusedError(Exception):
    """The program ends in an error: an index outside, a division by zero, a failed check."""


class UndefinedError(Exception):
    """What the program does from here on is nobody's promise."""


@dataclass
class Precision:
    """Whether results depend on how precisely, or in which order, floats are computed."""

    rounded: int = 0
    largest: float = 0.0
    coarsest: float = 0.0
    negative_zeros: int = 0
    """Sums with -0.0, whose sign depends on what the others are added to."""
    cliffs: int = 0
    """Decisions and jumps that were taken on values that may differ in their last bits."""
    steepest: float = 1.0
    """By how much a function increased the relative error of a rounded operand, at the most."""

    def amplified(self, factor: float) -> None:
        """A relative error of a value becomes `factor` times as large in what it is used for."""
        if self.rounded and math.isfinite(factor):
            self.steepest = max(self.steepest, abs(factor))

    def note(self, dtype: str, result: Scalar, *, exact: bool) -> Scalar:
        """`result`, which is `exact` or was rounded to `dtype`."""
        value = float(result)
        if math.isfinite(value):
            self.largest = max(self.largest, abs(value))
        elif not exact:
            self.cliffs += 1
        if not exact:
            self.rounded += 1
            self.coarsest = max(self.coarsest, EPSILON[dtype])
        return result

    def cliff(self) -> None:
        """A small difference in a float may have a large effect here."""
        if self.rounded:
            self.cliffs += 1


def low_and_high(dtype: str) -> tuple[int, int]:
    """The least and the greatest integer of `dtype`."""
    bits = BITS[dtype]
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def wrap(dtype: str, value: int) -> int:
    """`value` modulo 2**bits, in the range of `dtype` (PX-1)."""
    low, high = low_and_high(dtype)
    return (value - low) % (high - low + 1) + low


def truncated(dtype: str, value: float) -> int:
    """`value` toward zero, in the lowest bits of what x86-64 computes (DT-6).

    Its instructions give integers of 32 or 64 bits, the least one for what is out of range and for
    NaN. Numbers from 2**63 on become uint64 through their distance from that.
    """

    def instruction(x: float, bits: int) -> int:
        least = -(2 ** (bits - 1))
        return int(x) if math.isfinite(x) and least <= int(x) < -least else least

    if dtype == "uint64" and value >= 2.0**63:
        return wrap(dtype, instruction(value - 2.0**63, 64) + 2**63)
    return wrap(dtype, instruction(value, 64 if BITS[dtype] == 64 or dtype == "uint32" else 32))


def digest(values: Iterable[int]) -> int:
    """A number of 32 bits for integers in their order."""
    return wrap("int32", sum(place * value for place, value in enumerate(values, 1)))


def is_float(dtype: str) -> bool:
    """Whether `dtype` is a floating point format."""
    return dtype in FLOATS


class Semantics:
    """The operations, with a record of how precise their results are."""

    def __init__(self) -> None:
        self.precision = Precision()

    # ---- arithmetic

    def binary(self, name: str, dtype: str, a: Scalar, b: Scalar) -> Scalar:
        """`name` of two values of `dtype`."""
        if is_float(dtype):
            return self._float(name, dtype, a, b)
        if dtype == "bool":
            if name in ("min", "max", "bitwise_and", "bitwise_or", "bitwise_xor"):
                both = {"min": a and b, "max": a or b, "bitwise_and": a and b}
                return both.get(name, (a or b) if name == "bitwise_or" else a != b)
            raise UndefinedError(f"{name} of truth values")
        return wrap(dtype, self._whole(name, dtype, a, b))

    def _whole(self, name: str, dtype: str, a: int, b: int) -> int:
        match name:
            case "add":
                return a + b
            case "sub":
                return a - b
            case "mul":
                return a * b
            case "min":
                return min(a, b)
            case "max":
                return max(a, b)
            case "floordiv" | "floormod" | "truncdiv" | "truncmod":
                if b == 0:
                    raise RefusedError("division: by zero [PX-3]")
                if name == "floordiv":
                    return a // b
                if name == "floormod":
                    return a % b
                quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)  # PX-2
                return quotient if name == "truncdiv" else a - b * quotient
            case "bitwise_and":
                return a & b
            case "bitwise_or":
                return a | b
            case "bitwise_xor":
                return a ^ b
            case "shift_left" | "shift_right":
                if not 0 <= b < BITS[dtype]:
                    raise UndefinedError("shift by the width or more")
                return a << b if name == "shift_left" else a >> b
        raise AssertionError(name)

    def _float(self, name: str, dtype: str, a: Scalar, b: Scalar) -> Scalar:
        kind = FLOATS[dtype]
        match name:
            case "min" | "max":
                if a != a or b != b:
                    return a if a != a else b
                if a == b and math.copysign(1, a) != math.copysign(1, b):
                    raise UndefinedError("the lesser of two zeros")
                first = (a <= b) if name == "min" else (a >= b)
                return a if first else b
            case "truncmod" | "fmod":
                self.precision.cliff()
                return kind(np.fmod(np.float64(a), np.float64(b)))
            case "copysign":
                if b != b:
                    raise UndefinedError("the sign of what is no number")
                self.precision.cliff()
                return kind(np.copysign(np.float64(a), np.float64(b)))
            case "add":
                result = a + b
            case "sub":
                result = a - b
            case "mul":
                result = a * b
            case "div":
                result = a / b
            case "pow" | "atan2" | "hypot":
                function = {"pow": np.power, "atan2": np.arctan2, "hypot": np.hypot}[name]
                found = kind(function(np.float64(a), np.float64(b)))
                if not math.isfinite(found):
                    self.precision.cliff()
                if name == "pow":
                    with np.errstate(all="ignore"):
                        self.precision.amplified(float(b * max(1.0, np.log(abs(np.float64(a))))))
                return self.precision.note(dtype, found, exact=False)
            case _:
                raise AssertionError(name)
        if name in ("add", "sub") and any(x == 0 and np.signbit(x) for x in (a, b)):
            self.precision.negative_zeros += 1
        result = kind(result)
        return self.precision.note(dtype, result, exact=_is_exact(name, dtype, a, b, result))

    def compare(self, symbol: str, dtype: str, a: Scalar, b: Scalar) -> bool:
        """A comparison; with a NaN all but `!=` are false."""
        if is_float(dtype):
            self.precision.cliff()
        match symbol:
            case "<":
                return bool(a < b)
            case "<=":
                return bool(a <= b)
            case ">":
                return bool(a > b)
            case ">=":
                return bool(a >= b)
            case "==":
                return bool(a == b)
            case "!=":
                return bool(a != b)
        raise AssertionError(symbol)

    # ---- conversions

    def cast(self, source: str, target: str, value: Scalar) -> Scalar:
        """`value` as C converts it: floats to integers toward zero, numbers to Bool by != 0."""
        if source == target:
            return value
        if target == "bool":
            if is_float(source):
                self.precision.cliff()
            return bool(value != 0)
        if is_float(target):
            return self._to_float(source, target, value)
        if is_float(source):
            self.precision.cliff()
            return truncated(target, float(value))
        return wrap(target, int(value))

    def _to_float(self, source: str, target: str, value: Scalar) -> Scalar:
        kind = FLOATS[target]
        if is_float(source):
            found = kind(float(value))
            exact = not math.isfinite(value) or float(found) == float(value)
        else:
            # Through the integer's own NumPy type: rounded once, everywhere to the same number.
            found = np.array(value, source).astype(kind)[()]
            exact = True
        return self.precision.note(target, found, exact=exact)

    # ---- functions

    def unary(self, name: str, dtype: str, x: Scalar) -> Scalar:
        """Intrinsic `name` of one value."""
        if is_float(dtype):
            return self._function(name, dtype, x)
        match name:
            case "neg":
                return wrap(dtype, -x)
            case "abs":
                return wrap(dtype, abs(x))
            case "floor" | "ceil" | "trunc" | "round" | "nearbyint":
                return x
            case "bitwise_not":
                return (not x) if dtype == "bool" else wrap(dtype, ~x)
            case "popcount":
                return (x % 2 ** BITS[dtype]).bit_count()
            case "clz":
                return BITS[dtype] - (x % 2 ** BITS[dtype]).bit_length()
        raise AssertionError(name)

    def _function(self, name: str, dtype: str, x: Scalar) -> Scalar:
        kind = FLOATS[dtype]
        double = np.float64(x)
        steps = {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint}
        steps["nearbyint"] = np.rint
        if name in steps:
            self.precision.cliff()
            return kind(steps[name](double))
        match name:
            case "neg":
                return kind(-x)
            case "abs" | "fabs":
                return kind(np.fabs(double))
            case "rsqrt":
                found = 1 / np.sqrt(double)
            case "sigmoid":
                found = 1 / (1 + np.exp(-double))
            case "erf":
                found = np.float64(math.erf(double))
            case "exp10":
                found = np.power(np.float64(10), double)
            case _:
                found = getattr(np, name)(double)
        if name in ("exp", "exp2", "exp10", "sinh", "cosh"):
            self.precision.amplified(float(double) * (2.4 if name == "exp10" else 1.0))
        result = kind(found)
        exact = bool(result != result) or (name == "sqrt" and _is_square(x, result))
        if not exact and not math.isfinite(result):
            self.precision.cliff()
        # The functions of NumPy are good to a few units in the last place.
        for _ in range(4):
            self.precision.note(dtype, result, exact=exact)
        return result

    def isnan(self, dtype: str, x: Scalar) -> bool:
        """Whether `x` is not a number."""
        return is_float(dtype) and bool(x != x)


def _is_exact(name: str, dtype: str, a: Scalar, b: Scalar, result: Scalar) -> bool:
    """Whether `result` is the very number, so that no other order or precision gives another."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return True
    if not math.isfinite(result):
        return bool(name == "div" and b == 0)
    x, y, found = Fraction(float(a)), Fraction(float(b)), Fraction(float(result))
    match name:
        case "add" | "sub":
            # In another order the sums of a loop have as many digits as all operands together.
            unit = max(x.denominator, y.denominator)
            short = max(abs(x), abs(y), abs(found)) * unit <= 1 / (_TERMS * EPSILON[dtype])
            return short and (x + y if name == "add" else x - y) == found
        case "mul":
            return x * y == found
        case _:
            return y * found == x


def _is_square(x: Scalar, root: Scalar) -> bool:
    return not math.isfinite(root) or Fraction(float(root)) ** 2 == Fraction(float(x))
