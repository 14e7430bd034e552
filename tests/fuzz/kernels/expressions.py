"""Random indices, conditions and values over the loops and buffers in scope.

The generator knows the sizes of the first call, so that it can keep most indices inside their
buffers: an `Index` carries the bounds of its value in that call. What remains outside, by a small
share of chance or in the later calls, is to end in an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from ml_dtypes import finfo

from tests.fuzz.kernels.names import PLAIN, colliding
from tests.fuzz.kernels.semantics import BITS, FLOATS, low_and_high

X = TypeVar("X")

INTEGERS = tuple(BITS)
FUNCTIONS = {
    "float": ("exp", "sqrt", "floor", "ceil", "trunc", "round", "fabs", "tanh", "sigmoid", "erf"),
    "more": ("sin", "cos", "exp2", "log", "rsqrt", "log2", "log1p", "nearbyint"),
}


_CAST = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True)
class Size:
    """A size as it is written, and its value in the first call."""

    text: str
    value: int

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Index:
    """An integer as it is written, and its bounds in the first call; none where low > high."""

    text: str
    low: int
    high: int
    over: str = ""
    """The size that it runs over, if it takes all its values."""

    def __str__(self) -> str:
        return self.text


@dataclass(eq=False)
class Tensor:
    """A buffer of the program."""

    name: str
    dtype: str
    shape: tuple[Size, ...]
    filled: bool = True
    stored: bool = True
    """Whether random statements may store into it."""

    @property
    def empty(self) -> bool:
        return any(size.value <= 0 for size in self.shape)


class Expressions:
    """Draws expressions; the subclass writes the statements around them."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.plain = self.chance(0.5)
        self.style = random.choices(["small", "special", "smooth"], [7, 2, 1])[0]
        self.names: set[str] = set()
        """The names in scope."""
        self.lasting: set[str] = set()
        """The names of scratch, which is declared before all statements, wherever it is used."""
        self.loops: list[Index] = []
        self.integers: list[Index] = []
        """Sizes and scalar arguments that are integers."""
        self.scalars: list[tuple[str, str]] = []
        self.wide: list[tuple[str, str]] = []
        """Scalar arguments near the ends of their datatype, which sums and products overflow."""
        self.lets: list[tuple[str, str]] = []
        self.buffers: list[Tensor] = []
        self.tame = False
        """Whether every access is at the place that the loops count, as in most kernels."""
        self.carriers: dict[str, str] = {}
        """Variables for `T.Let`, by datatype."""

    # ---- drawing

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def pick(self, choices: Sequence[X]) -> X:
        return self.random.choice(choices)

    def fresh(self, hint: str = "") -> str:
        """A name that nothing in scope has."""
        if self.plain and hint and hint not in self.names:
            found = hint
        else:
            found = self.pick(PLAIN if self.plain else colliding())
            number = 0
            while found in self.names:
                number += 1
                found = f"{self.pick(PLAIN if self.plain else colliding())}{'_' * (number > 5)}"
        self.names.add(found)
        return found

    @property
    def dead(self) -> bool:
        """Whether a loop around has no iteration in the first call."""
        return any(i.low > i.high for i in self.loops)

    # ---- indices

    def index(self, size: Size) -> str:
        """An index for a dimension, mostly inside it."""
        fitting = [i for i in self.loops if i.over == size.text]
        if self.wide and not self.tame and size.value > 0 and self.chance(0.3):
            return self.wrapped_index(size)
        if fitting and (self.tame or self.chance(0.2)):
            return self.pick(fitting).text
        found = self.affine(size)
        for _ in range(5):
            if (found.low >= 0 and found.high < size.value) or self.dead or self.chance(0.01):
                return found.text
            found = self.affine(size)
        if size.value <= 0:
            return found.text
        kind = self.random.randint(0, 3)
        if kind == 0 and self.loops:
            return f"(({found} + {size}) % {size})" if found.low >= 0 else f"({found} % {size})"
        if kind == 1 and self.loops:
            return f"T.min(T.max({found}, 0), {size} - 1)"
        return self.number(self.random.randrange(size.value))

    def wrapped_index(self, size: Size) -> str:
        """An index computed from what wraps around: in bounds as a remainder, or an extreme."""
        dtype = self.pick(["int32", "int64"])
        found, limit = self.wrapped(dtype, 2), f'T.Cast("{dtype}", {size})'
        match self.random.randint(0, 9):
            case 0 | 1 | 2:
                place = f"T.floormod({found}, {limit})"
            case 3:
                place = f"T.truncmod(T.max({found}, T.{dtype}(0)), {limit})"
            case 4 | 5:
                place = f"T.min(T.max({found}, T.{dtype}(0)), {limit} - T.{dtype}(1))"
            case 6:
                top = 2 ** (BITS[dtype] - 2)
                place = f"T.floormod(T.floordiv({found}, T.{dtype}({top})), {limit})"
            case 7:
                place = f"T.Select({found} < {limit} and {found} >= T.{dtype}(0), {found}, 0)"
            case 8 if self.chance(0.2):
                place = found
            case _:
                i = self.pick([*self.loops, Index("0", 0, 0)])
                place = f'T.floormod({found} + T.Cast("{dtype}", {i}), {limit})'
        return f'T.Cast("int64", {place})' if dtype == "int32" and self.chance(0.3) else place

    def wrapped(self, dtype: str, depth: int) -> str:
        """Arithmetic that overflows: of a scalar near the ends of its datatype, and anything."""
        name, own = self.pick(self.wide)
        found = name if own == dtype else f'T.Cast("{dtype}", {name})'
        for _ in range(self.random.randint(1, depth)):
            other = self.datum(dtype)
            match self.random.randint(0, 9):
                case 0:
                    function = self.pick(["min", "max"])
                    found = f"T.{function}({found}, {other})"
                case 1:
                    narrow = self.pick(["int8", "int16", "int32", "uint8", "uint32", "float64"])
                    found = f'T.Cast("{dtype}", T.Cast("{narrow}", {found}))'
                case 2:
                    divisor = self.pick([2, 3, 7, -1])
                    found = (
                        f"T.{self.pick(['floordiv', 'truncdiv'])}({found}, T.{dtype}({divisor}))"
                    )
                case _:
                    a, b = self.random.sample([found, other], 2)
                    found = f"({a} {self.pick(['+', '-', '*', '*'])} {b})"
        return found

    def datum(self, dtype: str) -> str:
        """An operand that may be large: a literal, an element, a let, a loop, another scalar."""
        low, high = low_and_high(dtype)
        kind = self.random.random()
        if kind < 0.3:
            ends = [2**bits for bits in (7, 8, 15, 16, 30, 31, 32, 62) if 2**bits <= high]
            near = self.pick([low, high, *ends, *(-end for end in ends)])
            value = min(max(near + self.random.randint(-1, 1), low), high)
            return f"T.{dtype}({value})"
        if kind < 0.5:
            return f"T.{dtype}({self.random.randint(-3, 5)})"
        if kind < 0.6 and (found := [name for name, of in self.lets if of == dtype]):
            return self.pick(found)
        whole = [b for b in self.readable() if b.dtype in BITS and not b.empty and b.filled]
        if kind < 0.75 and whole:
            buffer = self.pick(whole)
            at = ", ".join(self.number(self.random.randrange(s.value)) for s in buffer.shape)
            return f'T.Cast("{dtype}", {buffer.name}[{at or "()"}])'
        if kind < 0.9 and self.loops:
            return f'T.Cast("{dtype}", {self.pick(self.loops)})'
        name, _ = self.pick(self.wide)
        return f'T.Cast("{dtype}", {name})'

    def number(self, value: int) -> str:
        """An integer literal of one or the other spelling."""
        return self.pick([str(value), str(value), f"T.int64({value})", f"T.int32({value})"])

    def affine(self, size: Size | None = None) -> Index:
        """An integer made of loops, sizes, and numbers."""
        top = size.value if size is not None and size.value > 0 else 3
        if not self.loops or self.chance(0.08):
            if self.integers and self.chance(0.2):
                return self.pick(self.integers)
            value = self.random.randrange(top)
            return Index(self.number(value), value, value)
        i, j = self.pick(self.loops), self.pick(self.loops)
        c = self.random.randint(1, 3)
        match self.random.randint(0, 19):
            case 0 | 1 | 2 | 3 | 4 | 5:
                return i
            case 6 if size is not None:
                return Index(f"({size} - 1 - {i})", size.value - 1 - i.high, size.value - 1 - i.low)
            case 7:
                return Index(f"({i} + {c})", i.low + c, i.high + c)
            case 8:
                return Index(f"({i} - {c})", i.low - c, i.high - c)
            case 9:
                return Index(f"({i} * 2 + {j})", i.low * 2 + j.low, i.high * 2 + j.high)
            case 10:
                return Index(f"({i} + {j})", i.low + j.low, i.high + j.high)
            case 11:
                return Index(f"({i} // {c})", i.low // c, i.high // c)
            case 12:
                return Index(f"({i} % {c})", 0, c - 1)
            case 13:
                name = self.pick(["min", "max"])
                pick = min if name == "min" else max
                return Index(f"T.{name}({i}, {j})", pick(i.low, j.low), pick(i.high, j.high))
            case 14:
                return Index(f"(({i} + {j}) // 2)", (i.low + j.low) // 2, (i.high + j.high) // 2)
            case 15:
                corners = [a * b for a in (i.low, i.high) for b in (j.low, j.high)]
                return Index(f"({i} * {j})", min(corners), max(corners))
            case 16:
                name = self.pick(["T.truncmod", "T.floormod"])
                if i.low < 0 and name == "T.truncmod":
                    return Index(f"{name}({i}, {c})", 1 - c, c - 1)
                return Index(f"{name}({i}, {c})", 0, c - 1)
            case 17 if min(i.low, j.low) >= 0:
                return Index(f"T.truncdiv({i}, {c})", i.low // c, i.high // c)
            case 18:
                name = self.pick(["Select", "if_then_else"])
                choice = f"T.{name}({i} < {c}, {i}, {i} - {c})"
                return Index(choice, min(i.low, 0), max(i.high - c, min(i.high, c - 1)))
            case _:
                return self.indirect(i)

    def indirect(self, other: Index) -> Index:
        """An index that is read from a buffer."""
        found = [
            b for b in self.buffers if b.dtype in ("int32", "int64") and b.filled and not b.empty
        ]
        if not found:
            return Index(
                f'T.Cast("{self.pick(["int32", "int64"])}", {other})', other.low, other.high
            )
        buffer = self.pick(found)
        # Whatever it holds: the caller brings it into bounds, or takes the risk.
        places = ", ".join(self.number(self.random.randrange(s.value)) for s in buffer.shape)
        simple = [
            i for i in self.loops if buffer.shape and i.low >= 0 and i.high < buffer.shape[-1].value
        ]
        if simple and len(buffer.shape) == 1:
            places = str(self.pick(simple))
        return Index(f"{buffer.name}[{places or '()'}]", 0, 2 if self.style == "small" else 99)

    def places(self, buffer: Tensor) -> str:
        """Indices of one element."""
        return ", ".join(map(self.index, buffer.shape)) or "()"

    # ---- conditions

    def condition(self, depth: int = 2) -> str:
        """A condition on loops, sizes and data: at times, always or never true."""
        kind = self.random.randint(0, 13 if depth else 6)
        if self.wide and self.chance(0.3):
            return self.overflow()
        if kind <= 3 and (self.loops or self.integers):
            symbol = self.pick(["<", "<=", ">", ">=", "==", "!="])
            a = self.affine()
            if self.integers and self.chance(0.3):
                return f"({a} {symbol} {self.pick(self.integers)})"
            typed = a.text in [i.text for i in self.loops + self.integers]
            number = str if typed else "T.int64({})".format
            return f"({a} {symbol} {number(self.random.randint(-1, 4))})"
        if kind == 4:
            a = self.affine()
            return self.pick([f"({a} < T.int64(0))", f"({a} >= T.int64(0))", "T.bool(False)"])
        if kind <= 8:
            dtype = self.pick([b.dtype for b in self.readable()] or ["int32"])
            if dtype == "bool":
                return self.leaf("bool")
            if dtype in FLOATS and self.chance(0.1):
                return f"T.isnan({self.value(dtype, 0)})"
            symbol = self.pick(["<", "<=", ">", ">=", "==", "!="])
            return f"({self.value(dtype, depth - 1)} {symbol} {self.value(dtype, depth - 2)})"
        a, b = self.value("bool", depth), self.value("bool", depth)
        if kind == 9:
            return f"(not {a})"
        return f"({a} {self.pick(['and', 'or'])} {b})"

    def overflow(self) -> str:
        """A comparison of what wraps around, as loops and sizes are added to a wide scalar."""
        name, dtype = self.pick(self.wide)
        if self.chance(0.4):
            dtype = self.pick(["int32", "int64"])
            a, b = self.wrapped(dtype, 2), self.datum(dtype)
            return f"({a} {self.pick(['<', '<=', '>', '>=', '==', '!='])} {b})"
        number = f'T.Cast("{dtype}", {self.typed_index()})'
        a, b = self.random.sample([number, name], 2)
        wrapped = f"({a} {self.pick(['+', '-', '*', '*'])} {b})"
        small = max(self.random.randint(-1, 1), low_and_high(dtype)[0])
        limit = self.pick([f"T.{dtype}({small})", number])
        a, b = self.random.sample([wrapped, limit], 2)
        return f"({a} {self.pick(['<', '<=', '>', '>=', '==', '!='])} {b})"

    # ---- values

    def readable(self) -> list[Tensor]:
        found = [b for b in self.buffers if b.filled and (not b.empty or self.dead)]
        if self.tame:
            over = {i.over for i in self.loops}
            fitting = [b for b in found if {s.text for s in b.shape} <= over]
            return fitting or found
        return found if not self.chance(0.01) else self.buffers

    def literal(self, dtype: str) -> str:
        """A literal, at times an extreme one."""
        if dtype == "bool":
            return f"T.bool({self.chance(0.5)})"
        if dtype in BITS:
            low, high = low_and_high(dtype)
            special = self.style == "special" and self.chance(0.3)
            value = self.pick([low, high, high - 1]) if special else self.random.randint(-3, 5)
            return f"T.{dtype}({max(value, low)})"
        return f"T.{dtype}({self.real_text(dtype)})"

    def real_text(self, dtype: str) -> str:
        value = self.real(dtype)
        return (
            f'"{value}"'
            if value != value or value in (float("inf"), -float("inf"))
            else repr(value)
        )

    def real(self, dtype: str) -> float:
        """A float: a small one whose sums are exact, a special one, or any."""
        if self.style == "special" and self.chance(0.3):
            tiny, large = (
                float(x)
                for x in (finfo(FLOATS[dtype]).smallest_subnormal, finfo(FLOATS[dtype]).max)
            )
            return self.pick([float("nan"), float("inf"), -float("inf"), -0.0, 0.0, tiny, large])
        if self.style == "smooth":
            return round(self.random.uniform(-2, 2), 3)
        return self.pick([0.0, 1.0, 2.0, 3.0, -1.0, -2.0, 0.5, -3.0])

    def leaf(self, dtype: str) -> str:
        """A literal, an element, a let, a scalar argument, or what a loop counts."""
        kind = self.random.random()
        if kind < 0.15:
            return self.literal(dtype)
        if kind < 0.3:
            found = [name for name, of in [*self.lets, *self.scalars] if of == dtype]
            if found:
                return self.pick(found)
        if kind < 0.45 and dtype != "bool":
            return f'T.Cast("{dtype}", {self.typed_index()})'
        readable = self.readable()
        same = [b for b in readable if b.dtype == dtype]
        if same:
            buffer = self.pick(same)
            return f"{buffer.name}[{self.places(buffer)}]"
        if readable:
            buffer = self.pick(readable)
            return f'T.Cast("{dtype}", {buffer.name}[{self.places(buffer)}])'
        return self.literal(dtype)

    def typed_index(self) -> str:
        found = self.affine()
        return found.text if any(str(i) in found.text for i in self.loops) else "T.int64(1)"

    def value(self, dtype: str, depth: int) -> str:
        """An expression of `dtype`."""
        if self.tame and dtype != "bool" and depth > 0:
            a, b = self.value(dtype, depth - 1), self.leaf(dtype)
            if self.chance(0.3):
                return f"T.{self.pick(['min', 'max'])}({a}, {b})"
            return f"({a} {self.pick(['+', '-', '*', '*'])} {b})" if self.chance(0.7) else a
        if depth <= 0 or self.chance(0.2):
            return self.leaf(dtype)
        kind = self.random.random()
        if dtype == "bool" and kind >= 0.2:
            return self.condition(depth - 1)
        if kind < 0.1:
            a, b = self.value(dtype, depth - 1), self.value(dtype, depth - 1)
            test = self.condition(depth - 1)
            if self.chance(0.2):
                return f"({a} if {test} else {b})"
            return f"T.{self.pick(['Select', 'if_then_else'])}({test}, {a}, {b})"
        if kind < 0.13 and dtype != "bool":
            return self.chain(dtype)
        if kind < 0.17 or dtype == "bool":
            return f'T.Cast("{dtype}", {self.value(self.source(dtype), depth - 1)})'
        if kind < 0.21 and dtype in self.carriers:
            name = self.carriers[dtype]
            bound = self.value(dtype, depth - 1)
            self.lets.append((name, dtype))
            body = self.value(dtype, depth - 1)
            self.lets.pop()
            return f"T.Let({body}, where={{{name}: {bound}}})"
        if dtype in FLOATS:
            return self.floating(dtype, depth)
        return self.whole(dtype, depth)

    def chain(self, dtype: str) -> str:
        """Three casts, one of the other, of anything."""
        first, second, source = (self.pick([*INTEGERS, *_CAST, "bool"]) for _ in range(3))
        found = self.leaf(source)
        if self.wide and self.chance(0.5):
            found = self.wrapped(self.pick(["int32", "int64"]), 1)
        for target in (first, second, dtype):
            found = f'T.Cast("{target}", {found})'
        return found

    def source(self, dtype: str) -> str:
        """A datatype to convert from."""
        if dtype in FLOATS or self.chance(0.7):
            return self.pick(["bool", "int32", "int64", "uint8", "float32", "float64", "bfloat16"])
        return self.pick([*INTEGERS, *FLOATS])

    def floating(self, dtype: str, depth: int) -> str:
        a = self.value(dtype, depth - 1)
        kind = self.random.random()
        if kind < 0.12:
            group = FUNCTIONS["float" if self.chance(0.8) else "more"]
            return f"T.{self.pick(group)}({a})"
        if kind < 0.15:
            return f"(-{a})"
        if kind < 0.25:
            number = self.pick(["1.0", "2.0", "0.5", "3", "-1.0"])
            return f"({a} {self.pick(['+', '-', '*'])} {number})"
        b = self.value(dtype, depth - 1)
        if kind < 0.32:
            name = self.pick(["pow", "fmod", "atan2", "hypot", "copysign", "truncmod"])
            return f"T.{name}({a}, {b})" if self.chance(0.5) else f"({a} / {b})"
        if kind < 0.5:
            return f"T.{self.pick(['min', 'max'])}({a}, {b})"
        return f"({a} {self.pick(['+', '-', '*', '+', '*'])} {b})"

    def whole(self, dtype: str, depth: int) -> str:
        a = self.value(dtype, depth - 1)
        kind = self.random.random()
        if kind < 0.06:
            return f"(-{a})" if not dtype.startswith("u") else f"(~{a})"
        if kind < 0.12:
            return f"T.{self.pick(['abs', 'bitwise_not', 'popcount'])}({a})"
        if kind < 0.2:
            symbol = self.pick(["+", "-", "*", "//", "%"])
            number = self.pick([1, 2, 3, 5, 3 if dtype.startswith("u") else -3])
            return f"({a} {symbol} {number})"
        b = self.value(dtype, depth - 1)
        if kind < 0.3:
            if self.chance(0.7):
                b = f"T.max({b}, T.{dtype}(1))"
            name = self.pick(["//", "%", "truncdiv", "truncmod", "floordiv", "floormod"])
            return f"({a} {name} {b})" if name in ("//", "%") else f"T.{name}({a}, {b})"
        if kind < 0.4:
            return f"({a} {self.pick(['&', '|', '^'])} {b})"
        if kind < 0.45:
            amount = f"T.{dtype}({self.random.randint(0, BITS[dtype] - 1)})"
            return f"({a} {self.pick(['<<', '>>'])} {amount})"
        if kind < 0.6:
            return f"T.{self.pick(['min', 'max'])}({a}, {b})"
        return f"({a} {self.pick(['+', '-', '*', '+'])} {b})"
