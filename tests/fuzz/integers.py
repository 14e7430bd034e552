"""Random integer expressions, conditions, vectors and linear systems over a few variables.

`scalars.py` draws expressions of every datatype; what is drawn here is rich in the forms that the
simplifier and the solvers rewrite. What is varied:

- `expressions`, `conditions` (Hypothesis): every arithmetic operation, divisions of all four kinds
  by anything, zero included, or by a literal of either sign; choices; comparisons of all six kinds,
  joined and negated;
- `Integers.number`: many extrema, choices and quotients, by literals of either sign and by
  expressions, which may be 0;
- `Integers.condition`: comparisons of quotients, remainders, extrema and products, joined by `and`
  more often than by `or`, negated at times;
- `Integers.vector`: ramps over variables and their multiples, forwards and backwards, and copies;
  quotients of these by copies of a literal;
- `Integers.system`: equations and inequalities whose coefficients are of either sign or 0.

The variables, their order and datatype are the caller's; sizes are the number of leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from hypothesis import strategies as st

from relaxpy.ir.tir import expr as tir, intrin, ops

VARIABLES = tuple(tir.Var(name, "int64") for name in "xyz")
_LITERALS = (-7, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 8, 12)
_ARITHMETIC = (tir.Add, tir.Add, tir.Sub, tir.Sub, tir.Mul, tir.Min)
_DIVISIONS = (tir.FloorDiv, tir.FloorMod, tir.Div, tir.Mod)
_COMPARISONS = (tir.LT, tir.LE, tir.GT, tir.GE, tir.EQ, tir.NE)


def literal(value: int) -> tir.PrimExpr:
    return tir.IntImm("int64", value)


@st.composite
def expressions(
    draw: st.DrawFn, variables: Sequence[tir.Var] = VARIABLES, size: int = 8
) -> tir.PrimExpr:
    """Integer expressions over `variables` with up to `size` leaves, divisions by anything too."""
    if size < 2 or draw(st.integers(0, 5)) == 0:
        return draw(st.sampled_from([*variables, *variables, *map(literal, _LITERALS)]))
    share = draw(st.integers(1, size - 1))
    left = draw(expressions(variables, share))
    if draw(st.integers(0, 9)) == 0:
        return tir.Select(draw(_comparisons(variables, 2)), left, draw(expressions(variables, 2)))
    kind: type[tir.BinaryOpExpr] = draw(st.sampled_from([*_ARITHMETIC, *_DIVISIONS, tir.Max]))
    if kind in _DIVISIONS and draw(st.booleans()):
        return kind(left, literal(draw(st.sampled_from([v for v in _LITERALS if v]))))
    return kind(left, draw(expressions(variables, size - share)))


@st.composite
def _comparisons(draw: st.DrawFn, variables: Sequence[tir.Var], size: int) -> tir.PrimExpr:
    kind = draw(st.sampled_from(_COMPARISONS))
    return kind(draw(expressions(variables, size)), draw(expressions(variables, size)))


@st.composite
def conditions(
    draw: st.DrawFn, variables: Sequence[tir.Var] = VARIABLES, size: int = 3
) -> tir.PrimExpr:
    """Boolean expressions over up to `size` comparisons."""
    shape = draw(st.integers(0, 4)) if size > 1 else 0
    if shape < 2:
        return draw(_comparisons(variables, 4))
    first = draw(conditions(variables, size - 1))
    if shape == 2:
        return tir.Not(first)
    return (tir.And if shape == 3 else tir.Or)(first, draw(conditions(variables, 1)))


class Integers:
    """Draws over some variables; the first of them are drawn most often."""

    def __init__(self, random: Random, variables: Sequence[tir.Var]) -> None:
        self.random = random
        self.variables = variables
        self.dtype = variables[0].dtype

    def constant(self, low: int, high: int) -> tir.PrimExpr:
        return ops.const(self.random.randint(low, high), self.dtype)

    def number(self, leaves: int) -> tir.PrimExpr:
        """An expression with many extrema, choices, halves and divisions."""
        random = self.random
        if leaves < 2:
            return random.choice([*self.variables, *self.variables[:2], self.constant(-6, 6)])
        share, kind = random.randint(1, leaves - 1), random.random()
        divide = random.choice(_DIVISIONS)
        if kind < 0.25:
            divisor = ops.const(random.choice([-3, -2, 2, 2, 2, 3, 4, 5]), self.dtype)
            return divide(self.number(leaves - 1), divisor)
        one, other = self.number(share), self.number(leaves - share)
        if kind < 0.32:
            return divide(one, other)
        if kind < 0.55:
            return random.choice([tir.Min, tir.Max])(one, other)
        if kind < 0.68:
            first, second, *_, last = self.variables
            tests = [first < second, tir.LT(first, self.constant(-4, 4))]
            tests.append(tir.EQ(last, self.constant(-4, 4)))
            choose = tir.Select if random.random() < 0.5 else intrin.if_then_else
            return choose(random.choice(tests), one, other)
        return random.choice([tir.Add, tir.Sub, tir.Add, tir.Sub, tir.Mul])(one, other)

    def side(self) -> tir.PrimExpr:
        """One side of a comparison."""
        random = self.random
        x, y, *_ = self.variables
        divisor = random.choice([2, 3, 4, 5, -2, -3])
        inner = random.choice(
            [x, y, x + random.randint(-9, 9), x - y * random.randint(1, 5), x * 2 + y]
        )
        match random.randint(0, 8):
            case 0:
                return inner
            case 1:
                return ops.floordiv(inner, divisor)
            case 2:
                return ops.floormod(inner, divisor)
            case 3:
                return ops.truncdiv(inner, divisor)
            case 4:
                return ops.truncmod(inner, divisor)
            case 5:
                return ops.minimum(inner, random.randint(-9, 9))
            case 6:
                return ops.maximum(inner, y)
            case 7:
                return x * y
            case _:
                return self.constant(-9, 9)

    def condition(self, comparisons: int) -> tir.PrimExpr:
        """So many comparisons, joined."""
        random = self.random
        if comparisons == 1:
            return random.choice(_COMPARISONS)(self.side(), self.side())
        share = random.randint(1, comparisons - 1)
        join = random.choice([tir.And, tir.And, tir.Or])
        joined = join(self.condition(share), self.condition(comparisons - share))
        return tir.Not(joined) if random.random() < 0.1 else joined

    def vector(self, size: int, lanes: int) -> tir.PrimExpr:
        """A vector from so many ramps and copies."""
        random = self.random
        x, y, *_ = self.variables
        if size == 1:
            base = random.choice([x, y, x * 8 + 1, x * 4, y * 6 - 2, x + y, self.constant(-5, 5)])
            if random.random() < 0.4:
                return tir.Broadcast(base, lanes)
            return tir.Ramp(base, random.choice([-8, -4, -1, 1, 1, 2, 3, 4, 8]), lanes)
        if random.random() < 0.4:
            divisor = tir.Broadcast(random.choice([2, 4, 8, -3]), lanes)
            return random.choice(_DIVISIONS)(self.vector(size - 1, lanes), divisor)
        kind = random.choice([tir.Add, tir.Sub, tir.Mul, tir.Min, tir.Max, tir.FloorDiv])
        share = random.randint(1, size - 1)
        return kind(self.vector(share, lanes), self.vector(size - share, lanes))

    def compared_vector(self, size: int, lanes: int) -> tir.PrimExpr:
        """A vector, or a comparison of two."""
        vector = self.vector(size, lanes)
        if self.random.random() < 0.4:
            return self.random.choice(_COMPARISONS)(vector, self.vector(2, lanes))
        return vector

    def system(self, count: int, kinds: Sequence[type[tir.CmpExpr]]) -> list[tir.PrimExpr]:
        """So many linear relations of these kinds over all variables."""
        return [self.random.choice(kinds)(self.linear(), self.linear()) for _ in range(count)]

    def linear(self) -> tir.PrimExpr:
        products = (var * self.random.randint(-3, 3) for var in self.variables)
        return sum(products, self.constant(-4, 4))
