"""The rewrites of integer reasoning: what goes in, what has the same simplest form, and when.

`a => b` is exactly what `simplify` makes of `a`; in `a = b`, both have one form. Conditions follow
after `if`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from relaxpy.ir.tir import expr as tir, intrin, ops

E = tir.PrimExpr
VARIABLES = ("x", "y", "z", "n", "m", "nx", "ny", "i0", "i1")
NODES = ("EQ", "NE", "LT", "LE", "GT", "GE", "And", "Or", "Not", "Add", "Sub", "Mul", "Let", "Cast")


@dataclass(frozen=True)
class Rewrite:
    """A row of the table, of expressions of a datatype."""

    before: E
    after: E
    conditions: tuple[E, ...] = ()
    sign: str = "="

    def __str__(self) -> str:
        return f"{self.before} {self.sign} {self.after}"


def names(dtype: str) -> dict[str, object]:
    """What the rows are written with: `n`, `x` and others are variables of the datatype."""

    def const(value: complex, dtype: str = dtype) -> E:
        return ops.const(value, dtype)

    def call(name: str, *args: E) -> E:
        return tir.Call(dtype, f"tir.{name}", args)

    def bits(name: str, *args: E) -> E:
        return ops.bitwise(f"tir.{name}", *args)

    variables = {name: tir.Var(name, dtype) for name in VARIABLES}
    others = {"i": "int32", "j": "int32", "flag": "bool", "u": "uint8", "h": "float16"}
    return {
        **variables,
        **{name: tir.Var(name, other) for name, other in others.items()},
        **{name: getattr(tir, name) for name in NODES},
        "Sel": tir.Select,
        "all_of": ops.all_of,
        "fld": ops.floordiv,
        "flm": ops.floormod,
        "tdiv": ops.truncdiv,
        "tmod": ops.truncmod,
        "lo": ops.minimum,
        "hi": ops.maximum,
        "ite": intrin.if_then_else,
        "let": tir.Let(variables["x"], const(1), variables["x"] + 1),
        "c": const,
        "call": call,
        "bits": bits,
        "likely": intrin.likely,
        "true": ops.const(True),
        "false": ops.const(False),
    }


def rewrites(dtype: str) -> Iterator[Rewrite]:
    """The rows of the table over integers of a datatype."""
    known = names(dtype)
    for line in re.sub(r"\n +", " ", TABLE).strip().splitlines():
        if line.startswith("#"):
            continue
        row, _, conditions = line.partition(" if ")
        before, sign, after = re.split(r" (=>|=) ", row)
        sides = (ops.convert(eval(side, known)) for side in (before, after))
        yield Rewrite(*sides, tuple(eval(f"[{conditions}]", known)), sign)


TABLE = """
# sums and products
3 - y + x = x - y + 3
x * y + x * 10 = (y + 10) * x
x + 2 + 3 + 4 + x * 3 => x * 4 + 9
x + (y - x) => y
x + y - (x + z) => y - z
(x + 2) * 3 => x * 3 + 6
(x - y) * -2 = (y - x) * 2
x * 2 * 3 => x * 6
y * x + x = x * (y + 1)
x * y - x = x * (y - 1)
y * x - x * z = x * (y - z)
x - (y + 1) + (y + 1) => x
x - 10 + (10 - z) => x - z
lo(x, y - z) + z => lo(x + z, y)
hi(x, y - 10) + 10 => hi(x + 10, y)
hi(x, y * 2) + lo(x, y * 2) => x + y * 2
hi(x, y + 2) - 2 => hi(x - 2, y)
lo(x + 2, y + 3) - 2 => lo(x, y + 1)
hi(c(0), 1 - x * 4) + x * 4 => hi(x * 4, 1)
lo(2 - x * 4, 0) + x * 4 = lo(x * 4, 2)
2 * z + lo(x, y - 2 * z) => lo(x + z * 2, y)
lo(x, y) - x = lo(c(0), y - x)
x - lo(x, y) = hi(c(0), x - y)
x - hi(x, y) = lo(c(0), x - y)
lo(x + y, z) - x = lo(y, z - x)
x - lo(x + y, z) = hi(0 - y, x - z)
lo(x, y) - lo(x + 10, y + 10) => c(-10)
lo(x + 10, y + 1) - lo(x, y - 9) => c(10)
x - hi(x + y, 0) = lo(0 - y, x)
lo(x, y) * hi(x, y) => x * y
hi(x - 2, flm(y + 5, n) - 2) + 2 => hi(x, flm(y + 5, n))
lo(x + 1, flm(y + 5, n) + 1) - 1 => lo(x, flm(y + 5, n))
hi(flm(x + 3, n), flm(y + 5, m) + 3) - 3 => hi(flm(x + 3, n) - 3, flm(y + 5, m))
hi(x + 4, tmod(y - 5, n)) + 1 => hi(x + 5, tmod(y - 5, n) + 1)
2 + (3 * x + z + y + 1) * 4 + x = x * 13 + z * 4 + y * 4 + 6
x * 3 - 4 * x + 1 => 1 - x
y * x + 10 * x = (y + 10) * x
x * y + x = (y + 1) * x
x - (x + y) = 0 - y
x * y - 10 * x = (y + (-10)) * x
x + 10 - 20 = x + (-10)
3 - y + x => x + 3 - y
# quotients and remainders
fld(fld(x, 2), 3) => fld(x, 6)
fld(fld(x, 2) + 1, 3) => fld(x + 2, 6)
tdiv(tdiv(x, 2), 3) => tdiv(x, 6)
tdiv(tdiv(x, 2) + 1, 3) = tdiv(x + 2, 6) if x >= 0, y >= 0, z >= 0
fld(4 * x + y, 2) = 2 * x + fld(y, 2)
flm(10 * x + y, 2) => flm(y, 2)
tdiv(x * 4 + y, 2) = x * 2 + tdiv(y, 2) if x >= 0, y >= 0, z >= 0
tmod(x * 10 + y, 2) = tmod(y, 2) if x >= 0, y >= 0, z >= 0
fld(2 * x, 4) => fld(x, 2)
fld(8 * x + 39, 16) => fld(x, 2) + 2
flm(9600 * x, 6400) = flm(3200 * x, 6400)
fld(x * 8 + 7, 16) => fld(x, 2)
fld(x * 8 - 9, 16) => fld(x, 2) - 1
fld(x * 8 - 1, 16) => fld(x + 1, 2) - 1
fld(360 * x + y, 16) = 22 * x if x >= 0, x < 2, y >= 0, y < 7
fld(360 * x + y, 25) = 14 * x if x >= 0, x < 2, y >= 0, y < 7
fld(32 * x + y, 64) => fld(x, 2) if y >= 0, y < 32
fld(x * 128 + y * 4 + z, 512) => fld(x, 4) if y >= 0, y < 32, z >= 0, z < 4
fld(x, 8) * 8 + flm(x, 8) => x
x - fld(x, 3) * 3 => flm(x, 3)
fld(x, 2) + flm(x, 2) => fld(x + 1, 2)
tdiv(x, 8) * 8 + tmod(x, 8) => x
y * flm(x, 8) + 10 * flm(x, 8) = flm(x, 8) * (y + 10)
fld(flm(x, 2) + 7, 2) + fld(x, 2) = fld(x + 7, 2)
fld(x + 5, 3) - fld(x, 3) = fld(flm(x, 3) + 5, 3)
fld(x + 5, 3) - fld(x + 2, 3) = fld(flm(x + 2, 3), 3) + 1
tdiv(x + 5, 3) - tdiv(x, 3) = tdiv(tmod(x, 3) + 5, 3) if x >= 0
tdiv(x + 5, 3) - tdiv(x + 1, 3) = tdiv(tmod(x + 1, 3) + 4, 3) if x >= -1
tdiv(x + y, x) = tdiv(y, x) + 1 if x >= 0, y >= 0, z >= 0
fld(x * z * 2 + y, 2 * z) = x + fld(y, 2 * z) if 2 * z >= 0
fld(x + y, x) => fld(y, x) + 1 if x >= 0
tdiv(x * z + y, z) = x + tdiv(y, z) if x >= 0, y >= 0, z >= 0
tdiv(x * y, y) => x if x >= 0, y >= 0, z >= 0
tdiv(x + y + z, x) = tdiv(y + z, x) + 1 if x >= 0, y >= 0, z >= 0
tdiv(x, x) => c(1)
fld(lo(6 * x, y), 2) = lo(3 * x, fld(y, 2))
fld(hi(y, x * 6), 2) = hi(fld(y, 2), x * 3)
tdiv(lo(x * 6, y), 2) = lo(x * 3, tdiv(y, 2)) if x >= 0, y >= 0, z >= 0
tdiv(hi(x * 6, y), 2) = hi(x * 3, tdiv(y, 2)) if x >= 0, y >= 0, z >= 0
tdiv(x * 6 - y + (y + 3), 2) => x * 3 + 1 if x >= 0, y >= 0, z >= 0
tdiv(x + 4, 2) = tdiv(x, 2) + 2 if x >= 0, y >= 0, z >= 0
flm(x - flm(x, 9), 9) => c(0)
flm(x + flm(-x, 9), 9) => c(0)
flm(x - flm(x, -9), 9) => c(0)
flm(x + flm(8 * x, 9), 9) => c(0)
flm(x - flm(x, y), y) => c(0)
flm(x - flm(x, -y), y) => c(0)
flm(x + flm(-x, y), y) => c(0)
flm(x, 2) + flm(x + 1, 2) => c(1)
fld(x + 1, 2) - fld(x, 2) => flm(x, 2)
flm(x + 5, 2) => flm(x + 1, 2)
fld(x, 2) - fld(x - 1, 2) = flm(x, 2) * -1 + 1
fld(x + 5, 2) - fld(x - 2, 2) => flm(x, 2) + 3
fld(x + 5, 2) - fld(x - 3, 2) => c(4)
fld(flm(x, 2) + 1, 2) => flm(x, 2)
fld(x + 1, 2) - flm(x, 2) => fld(x, 2)
tmod(10 * x, -2) => c(0)
y - tdiv(y, -5) * -5 => tmod(y, 5)
tmod(x * 10, -2) => c(0) if x <= 0
tmod(x * 10 + y, -2) = tmod(y, 2) if x >= 0, y >= 0, z >= 0
tmod(x * -10, 2) => c(0)
tmod(nx * -10 + y, 2) = tmod(y, 2) if nx <= 0, y >= 0
tmod(nx * -10 + 1 + ny * -2 + 2, 2) => c(1) if nx <= 0, ny <= 0
tmod(x * 10 + 1 + y * 2 + 2, -2) => c(1) if x >= 0, y >= 0, z >= 0
y - fld(y - 6, 5) * 5 => flm(y + 4, 5) + 6
fld(y, 3) * 3 - y = 0 - flm(y, 3)
y - fld(y + z, 5) * 5 = flm(y + z, 5) - z
y * 5 - fld(y + z, 2) * 10 = (flm(y + z, 2) - z) * 5
fld(y + z, 3) * 6 - y * 2 = (z - flm(y + z, 3)) * 2
y - tdiv(y - 6, 5) * 5 => tmod(y - 6, 5) + 6
y * 3 - tdiv(y, 2) * 6 => tmod(y, 2) * 3
y * 5 - tdiv(y - z, 2) * 10 = (tmod(y - z, 2) + z) * 5
flm(x * 360 + y, 16) => flm(x * 8 + y, 16)
flm(x * -10 + y, 2) => flm(y, 2)
flm(x * 32 + y, 64) = flm(x, 2) * 32 + y if y >= 0, y < 32
flm(x * z * 2 + y, z * 2) => flm(y, z * 2) if z * 2 >= 0
fld(x - flm(x, 21), 21) => fld(x, 21)
fld(x, 6) * 6 + flm(fld(x, 3), 2) * 3 + flm(x, 3) => x
flm(8 * x, 16) => flm(x, 2) * 8
fld(fld(flm(x, 16), 2) * 2, 4) => fld(flm(x, 16), 4)
fld(fld(flm(x, 16), 2) * 2 + 1, 6) => fld(flm(x, 16), 6)
fld(fld(flm(x, 16), 2) * -3, 9) = fld(0 - fld(flm(x, 16), 2), 3)
tmod(tmod(x, 20), 4) => tmod(x, 4)
tdiv(tmod(x + y, 20), -4) * 4 = tmod(x + y, 4) - tmod(x + y, 20)
fld(flm(x, 2), 8) => c(0)
fld(17 + 48 * x, 16) = 3 * x + 1
tmod(0 - x, 2) = tmod(x, -2) * -1
flm(x * 32 * x, x) => c(0)
fld(2 * x * x * z, 4 * x * x * x) = fld(z, 2 * x)
flm(z * x * 6 + y * 0, z * x * 6) => c(0)
fld((i0 * 3 + i1), 12) * 12 + fld(flm((i0 * 3 + i1), 12), 4) * 4 + flm(flm((i0 * 3 + i1), 12), 4)
    => (i0 * 3 + i1) if i0 >= 0, i0 < 8, i1 >= 0, i1 < 3
flm(flm(x * 4 + y - 466036, 24528) - 24512, 16) = flm(4 * x + y + 12, 16)
flm(x * 10 + 1 + y * 2 + 2, 2) => c(1)
fld(flm(x, y), y) => c(0) if y > 0
flm(flm(x, y), y) => flm(x, y) if y > 0
tdiv(y - z, 5) * 5 - y = 0 - tmod(y - z, 5) - z
fld(x * 8 - 1, 16) = fld(x * 8 + (-1), 16)
fld(x * 6 + y + z, 2) => x * 3 + fld(y + z, 2)
flm(x * 9600, 6400) = flm(x * 3200, 6400)
flm(x + y * 360, 16) => flm(x + y * 8, 16)
tdiv(y + x * 4, 2) = tdiv(y, 2) + x * 2 if x >= 0, y >= 0
tdiv(tdiv(x, 2) + 1, 3) = tdiv(x + 2, 6) if x >= 0
tmod(x * 10 + y, -2) = tmod(y, 2) if x >= 0, y >= 0
fld(y + (z + x), x) => fld(y + z, x) + 1 if x >= 0
fld(x * 32 + y, 64) => fld(x, 2) if y >= 0, y < 32
fld(4 * x + y, 2) => x * 2 + fld(y, 2)
fld(x, 12) * 12 + fld(flm(x, 12), 4) * 4 + flm(x, 4) => x
flm(fld(x, 4), 2) => fld(flm(x, 8), 4)
fld(flm(x, 4), 4) => c(0)
fld(flm(x, 32) + 32 * y, 64) => fld(y, 2)
0 - fld(0 - n, 4) => fld(n + 3, 4)
flm(x + flm(0 - x, 9), 9) => c(0)
fld(n * m, m) => n
fld(x * z * 2 + y, z * 2) => x + fld(y, z * 2)
fld(x * x * z * 2, x * x * x * 4) => fld(z, x * 2)
fld(n * m + n, m + 1) => n
tdiv(x, 3) * 3 + tmod(x, 3) => x
tmod(0 - x, 2) => tmod(x, 2) * -1
# extrema and choices
lo(x + 1, x + 10) => x + 1
lo(flm(x, 2), flm(y, 2) + 10) => flm(x, 2)
lo(tmod(x, 2), tmod(y, 2) + 10) => tmod(x, 2)
lo(hi(x, y), x) => x
hi(x, hi(x, y)) => hi(x, y)
lo(y + x, z + x) = lo(y, z) + x
lo(x - y, x - z) => x - hi(y, z)
lo(y - x, z - x) => lo(y, z) - x
lo(lo(lo(x, y), z), y) => lo(lo(x, y), z)
lo(lo(lo(lo(x, y), z), x * 2), y) = lo(lo(lo(x, y), z), x * 2)
lo(hi(x, y), hi(x, z)) = hi(lo(y, z), x)
hi(lo(x, y), lo(z, x)) = lo(hi(y, z), x)
lo(hi(x, y), lo(y, x)) => lo(x, y)
lo(tdiv(x, 10), tdiv(y, 10)) => tdiv(lo(x, y), 10)
lo(tdiv(x, -10), tdiv(y, -10)) = tdiv(hi(x, y), -10)
hi(fld(x, 10), fld(y, 10)) => fld(hi(x, y), 10)
lo(fld(x, -10), fld(y, -10)) = fld(hi(x, y), -10)
lo(x * 3, 9) => lo(x, 3) * 3
lo(-2 * x, 4) => hi(x, -2) * -2
lo(0 - x * 2, 0) => hi(x, 0) * -2
lo(3 - x, 2) = 3 - hi(x, 1)
hi(3 - x, 1) = 3 - lo(x, 2)
lo(lo(x, 11), 10) => lo(x, 10)
lo(tdiv(x + 3, 4) * 4, x) => x
lo(fld(x + 3, 4) * 4, x) => x
lo(x, fld(x, 4) * 4) => fld(x, 4) * 4
hi(fld(x + 3, 4) * 4, x) => fld(x + 3, 4) * 4
hi(tdiv(x + 3, 4) * 4, x) => tdiv(x + 3, 4) * 4
lo(fld(x + 3, 4) * 4, hi(x, 4)) => hi(x, 4) if x > 0
lo(tdiv(x + 3, 4) * 4, hi(x, 4)) => hi(x, 4) if x > 0
hi(x, y) + lo(x, y) => x + y
Sel(x < 0, y, 0) + Sel(x < 0, 1, z) => Sel(x < 0, y + 1, z)
Sel(x < 0, y, 1) - Sel(x < 0, 1, z) => Sel(x < 0, y - 1, 1 - z)
Sel(x < 0, y, z) - y => Sel(x < 0, 0, z - y)
Sel(x < 0, y, z) - z => Sel(x < 0, y - z, 0)
lo(Sel(x < 0, y, 0), Sel(x < 0, 1, z)) = Sel(x < 0, lo(y, 1), lo(c(0), z))
Sel(x * 3 + 1 == 0, y, z) => z
Sel(x * 3 + 1 != 0, y, z) => y
Sel(x > 0, y + 1, y + 1) => y + 1
Sel(x >= 10, ite(tdiv(x, 3) > 2, x, 0), 0) => Sel(LE(10, x), x, 0)
Sel(x >= 10, ite(tdiv(x, 3) < 2, x, 0), 0) => c(0)
hi(x, y + 2) + (-2) = hi(x + (-2), y)
lo(x + 2, y + 3) + (-2) => lo(x, y + 1)
lo(x + y, z + x) = lo(y, z) + x
hi(z, y + x) - x = hi(z - x, y)
x - hi(0, x + y) = lo(x, 0 - y)
lo(hi(x, y), hi(z, x)) = hi(lo(y, z), x)
lo(x * -2, 4) => hi(x, -2) * -2
lo(x + 111, x + 10) => x + 10
lo(y + x, z + x) => x + lo(y, z)
lo(3 * x, 9) => lo(x, 3) * 3
hi(hi(z, x), y) => hi(hi(x, y), z)
Sel(x < y, z + z, z * 2) => z * 2
ite(flm(x, 4) < 4, x, y) => x
hi(hi(x, c(0)), c(0)) => hi(x, c(0))
# conditions
x + 10 < y + 5 => x + 5 < y
x + 1 > 100 => LT(99, x)
2 * x >= 3 => LE(2, x)
-2 * x >= 1 => x <= -1
x + y < x + z => y < z
x * 3 < y * 3 => x < y
x * -3 < y * -3 => y < x
x - 1 < y => x <= y
x - 3 < y - 2 => x <= y
x < z + x => LT(0, z)
100 - x > 1 => LT(x, 99)
(10 - x).equal(0) => x.equal(10)
0 - x * 3 <= 0 => LE(0, x)
x - 5 < y - 10 => x + 5 < y
fld(x, 2) <= 1 => x <= 3
LT(-3, fld(x, 2)) => LT(-5, x)
tdiv(x, 2) >= 0 => LE(-1, x)
fld(x, 4) * 4 < x => LT(0, flm(x, 4))
tdiv(x, 2) < 3 => x < 6
LT(3, tdiv(x, 2)) => LT(7, x)
tdiv(x, 3) >= 0 => LE(-2, x)
tdiv(x, 2) >= 1 => LE(2, x)
tdiv(x, 2) >= -1 => LE(-3, x)
tdiv(x, 2) <= 1 => x <= 3
tdiv(x, 2) <= -1 => x <= -2
tdiv(x, 2) <= 0 => x <= 1
tdiv(x, 4) * 4 < x => LT(0, tmod(x, 4))
tdiv(x, 4) * 4 >= x => LE(tmod(x, 4), 0)
tdiv(x, 4) * 4 < x - y => LT(y, tmod(x, 4))
tdiv(x + 2, 4) * 4 >= x - y = LE(tmod(x + 2, 4), y + 2)
fld(x, 4) * 4 >= x => EQ(flm(x, 4), 0)
fld(x + 2, 4) * 4 >= x + y = LE(flm(x + 2, 4) + y, 2)
fld(x, 4) * 4 < x + y = LT(0, flm(x, 4) + y)
all_of(fld(x, 8).equal(3), flm(x, 8).equal(4)) => x.equal(28)
all_of(flm(x, 8).equal(4), fld(x, 8).equal(-3)) => x.equal(-20)
all_of(LE(0, x - y * 5), x - y * 5 < 5) => EQ(y, fld(x, 5))
all_of(x - y * 5 < 5, LE(0, x - y * 5)) => EQ(y, fld(x, 5))
all_of(x <= 19, flm(x, 5) < 2) => all_of(x < 17, flm(x, 5) < 2)
all_of(fld(x, 10).equal(5), flm(x, 10) < 7) => all_of(LE(50, x), x < 57)
all_of(fld(x, 10).equal(-5), flm(x, 10) <= 7) => all_of(LE(-50, x), x <= -43)
all_of(fld(x, 10).equal(5), LT(7, flm(x, 10))) => all_of(LT(57, x), x < 60)
all_of(fld(x, 10).equal(-5), LE(7, flm(x, 10))) => all_of(LE(-43, x), x < -40)
(x * y).equal(0) => Or(x.equal(0), y.equal(0))
lo(x, 11) < 10 => x < 10
lo(x, 8) < 10 => true
hi(c(8), x) > 10 => LT(10, x)
x + 1 < hi(c(8), x) => x < 7
x < 11 => true if x <= 10
x + y >= -10 => true if x >= 0, y >= -10
z - 5 <= y + 10 => true if z <= 5, y >= -10
all_of(x > -1, z <= x + 5) => true if x >= 0, z <= 5
x * y <= 0 => true if x >= 0, y <= 0
(x + 1) * (y - 1) < 0 => true if x >= 0, y <= 0
y * y >= 0 => true if y <= 0
x * 6 <= -3 => false if x >= 0
x + y <= 10 => true if x <= 10, y <= 0
x * y < (x + y) * 2048 => true if x > 0, y > 0, x < 2048
x * y < (x + y) * 2048 => true if x > 0, y > 0, x < 4096, y < 4096
x * y * 8192 < (y + x) * 16777216 => true if x > 0, y > 0, x < 4096, y < 4096
x * y * 59 < (y + x) * 176128 => true if x > 0, y > 0, x < 4096, y < 4096
And(EQ(x, y), NE(x, y)) => false
And(x > 1, Not(x > 1)) => false
And(x <= y, y < x) => false
And(x < 1, LT(0, x)) => false
And(x <= 1, LE(2, x)) => false
And(x.equal(1), NE(x, 2)) => x.equal(1)
And(x.equal(1), x.equal(2)) => false
Or(EQ(x, y), NE(x, y)) => true
Or(x <= y, y < x) => true
Or(x < 1, LT(0, x)) => true
Or(NE(x, 1), x.equal(2)) => NE(x, 1)
Or(NE(x, 1), NE(x, 2)) => true
Or(x.equal(1), Or(y.equal(1), z.equal(1))) => Or(Or(x.equal(1), y.equal(1)), z.equal(1))
And(x.equal(1), And(y.equal(1), z.equal(1))) => And(And(x.equal(1), y.equal(1)), z.equal(1))
x * 8 + y < 16 => x < 2 if y >= 0, y < 8
x * 1024 + y < z * 7168 = x - z * 7 < 0 if y >= 0, y < 1024
x * 1024 + y + call("shift_left", c(1), c(0)) < 0 = x * 1024 + y + 1 < 0
flm(x, y) < y => true if y > 0
y <= flm(x, y) => false if y > 0
flm(64, y) <= y => true if y >= 0
flm(x, y) * 2 + 1 < y * 2 => true if y > 0
flm(x, y + z) + 1 <= y + z => true if x >= 0, y >= 0, z >= 0
tmod(x, y) < y => true if y > 0
tmod(x, y) > -y => true if y > 0
flm(x, nx) < nx => true if nx > 0
all_of(x < 20, flm(x, 5) < 2) => all_of(x < 17, flm(x, 5) < 2)
all_of(x < -20, flm(x, 5) < 2) => all_of(x < -23, flm(x, 5) < 2)
all_of(x.equal(y), NE(y, x)) => false
all_of(x.equal(4), x < 9) => x.equal(4)
all_of(x.equal(14), x < 9) => false
all_of(x <= 9, NE(x, 9)) => x < 9
all_of(x <= y, LE(y, x)) => x.equal(y)
all_of(all_of(x < 1, y < 1), LT(0, x)) => false
NE(x * y * x, 0) => all_of(NE(x, 0), NE(y, 0))
0 - tdiv(x, 3) >= 0 => x <= 2
LT(c(100), x + 1) => LT(c(99), x)
x * 8 + flm(y, 8) < 16 => x < 2
x * 3 + 1 == 0 => false
2 * x == 4 * y => x.equal(y * 2)
Not(x < y) => y <= x
Not(And(x < y, y < z)) => Or(y <= x, z <= y)
And(x < 3, x < 5) => x < 3
Or(x < 3, x < 5) => x < 5
Or(x < 5, LT(c(3), x)) => true
And(x < y, Not(x < y)) => false
And(flag, flag) => flag
Or(flag, flag) => flag
And(flag, Not(flag)) => false
Or(Not(flag), flag) => true
Not(Not(flag)) => flag
Not(x.equal(y)) => NE(x, y)
Sel(x < y, flag, flag) => flag
Sel(flm(x, 4) < 4, flag, x < y) => flag
likely(flm(x, 4) < 4) => true
GE(u, c(0, "uint8")) => true
GT(u, c(255, "uint8")) => false
LE(u, u) => true
NE(bits("bitwise_and", u, c(3, "uint8")), c(9, "uint8")) => true
# calls, casts and bindings
let + let => c(4)
let => c(2)
call("shift_left", c(1), c(10)) => c(1024)
ite(x < 5, ite(x > 1, 1, 0), 0) => ite(And(x < 5, LT(1, x)), 1, 0)
ite(x > 2, ite(x > 1, 1, 0), 0) => ite(LT(2, x), 1, 0)
call("if_then_else", true, x, y) => x
Add(h, c(-0.0, "float16")) => h
Sub(h, c(0.0, "float16")) => h
Mul(h, c(1.0, "float16")) => h
Mul(c(1.0, "float16"), h) => h
Cast("int64", i + j + 1) - Cast("int64", i) => Cast("int64", j) + 1
bits("shift_left", x, 3) => x * 8
bits("shift_right", x * 8 + 7, c(3)) => x
bits("bitwise_and", x * 16 + 3, c(7)) => c(3)
Let(y, c(3), x + y) => x + 3
call("likely", x + x) => x * 2
"""
