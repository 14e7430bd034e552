"""Rewrites by family: what goes in, what has the same simplest form, and under which conditions."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import product

import pytest

from relaxpy.arith import Analyzer, ConstIntBound
from relaxpy.ir.core.traverse import children, walk
from relaxpy.ir.tir import expr as tir, intrin, ops
from tests.fuzz.integers import Integers
from tests.fuzz.scalars import NoValueError, evaluate
from tests.ir.arith.boxes import holds, points, value

E = tir.PrimExpr
Row = tuple[E, E, list[E]]
NAMES = ("x", "y", "z", "nx", "ny", "i0", "i1")
x, y, z, nx, ny, i0, i1 = (tir.Var(name, "int32") for name in NAMES)
h, f = tir.Var("h", "float16"), tir.Var("f", "float32")
fld, flm, tdiv, tmod = ops.floordiv, ops.floormod, ops.truncdiv, ops.truncmod
both = ops.all_of
mi, ma, ite, c = ops.minimum, ops.maximum, intrin.if_then_else, ops.const
Sel, Div, Cast = tir.Select, tir.Div, tir.Cast
LE, LT, EQ, NE, And, Or, Not = tir.LE, tir.LT, tir.EQ, tir.NE, tir.And, tir.Or, tir.Not
tr, fa = c(True), c(False)
nn = [x >= 0, y >= 0, z >= 0]
ii = i0 * 3 + i1
let = tir.Let(x, 1, x + 1)


def wide(expr: E) -> E:
    return Cast("int64", expr)


TERMS: list[Row] = [
    (3 - y + x, x - y + 3, []),
    (x * y + x * 10, (y + 10) * x, []),
    (x + 2 + 3 + 4 + x * 3, x * 4 + 9, []),
    (x + (y - x), y, []),
    (x + y - (x + z), y - z, []),
    ((x + 2) * 3, x * 3 + 6, []),
    ((x - y) * -2, (y - x) * 2, []),
    (x * 2 * 3, x * 6, []),
    (y * x + x, x * (y + 1), []),
    (x * y - x, x * (y - 1), []),
    (y * x - x * z, x * (y - z), []),
    (x - (y + 1) + (y + 1), x, []),
    (x - 10 + (10 - z), x - z, []),
    (mi(x, y - z) + z, mi(x + z, y), []),
    (ma(x, y - 10) + 10, ma(x + 10, y), []),
    (ma(x, y * 2) + mi(x, y * 2), x + y * 2, []),
    (ma(x, y + 2) - 2, ma(x - 2, y), []),
    (mi(x + 2, y + 3) - 2, mi(x, y + 1), []),
    (ma(c(0), 1 - x * 4) + x * 4, ma(x * 4, 1), []),
    (mi(2 - x * 4, 0) + x * 4, mi(x * 4, 2), []),
    (2 * z + mi(x, y - 2 * z), mi(x + z * 2, y), []),
    (mi(x, y) - x, mi(c(0), y - x), []),
    (x - mi(x, y), ma(c(0), x - y), []),
    (x - ma(x, y), mi(c(0), x - y), []),
    (mi(x + y, z) - x, mi(y, z - x), []),
    (x - mi(x + y, z), ma(0 - y, x - z), []),
    (mi(x, y) - mi(x + 10, y + 10), c(-10), []),
    (mi(x + 10, y + 1) - mi(x, y - 9), c(10), []),
    (x - ma(x + y, 0), mi(0 - y, x), []),
    (mi(x, y) * ma(x, y), x * y, []),
]
DIVISIONS: list[Row] = [
    (fld(fld(x, 2), 3), fld(x, 6), []),
    (fld(fld(x, 2) + 1, 3), fld(x + 2, 6), []),
    (tdiv(tdiv(x, 2), 3), tdiv(x, 6), []),
    (tdiv(tdiv(x, 2) + 1, 3), tdiv(x + 2, 6), nn),
    (fld(4 * x + y, 2), 2 * x + fld(y, 2), []),
    (flm(10 * x + y, 2), flm(y, 2), []),
    (tdiv(x * 4 + y, 2), x * 2 + tdiv(y, 2), nn),
    (tmod(x * 10 + y, 2), tmod(y, 2), nn),
    (fld(2 * x, 4), fld(x, 2), []),
    (fld(8 * x + 39, 16), fld(x, 2) + 2, []),
    (flm(9600 * x, 6400), flm(3200 * x, 6400), []),
    (fld(x * 8 + 7, 16), fld(x, 2), []),
    (fld(x * 8 - 9, 16), fld(x, 2) - 1, []),
    (fld(x * 8 - 1, 16), fld(x + 1, 2) - 1, []),
    (fld(360 * x + y, 16), 22 * x, [x >= 0, x < 2, y >= 0, y < 7]),
    (fld(360 * x + y, 25), 14 * x, [x >= 0, x < 2, y >= 0, y < 7]),
    (fld(32 * x + y, 64), fld(x, 2), [y >= 0, y < 32]),
    (fld(x * 128 + y * 4 + z, 512), fld(x, 4), [y >= 0, y < 32, z >= 0, z < 4]),
    (fld(x, 8) * 8 + flm(x, 8), x, []),
    (x - fld(x, 3) * 3, flm(x, 3), []),
    (fld(x, 2) + flm(x, 2), fld(x + 1, 2), []),
    (tdiv(x, 8) * 8 + tmod(x, 8), x, []),
    (y * flm(x, 8) + 10 * flm(x, 8), flm(x, 8) * (y + 10), []),
    (fld(flm(x, 2) + 7, 2) + fld(x, 2), fld(x + 7, 2), []),
    (fld(x + 5, 3) - fld(x, 3), fld(flm(x, 3) + 5, 3), []),
    (fld(x + 5, 3) - fld(x + 2, 3), fld(flm(x + 2, 3), 3) + 1, []),
    (tdiv(x + 5, 3) - tdiv(x, 3), tdiv(tmod(x, 3) + 5, 3), [x >= 0]),
    (tdiv(x + 5, 3) - tdiv(x + 1, 3), tdiv(tmod(x + 1, 3) + 4, 3), [x >= -1]),
    (tdiv(x + y, x), tdiv(y, x) + 1, nn),
    (fld(x * z * 2 + y, 2 * z), x + fld(y, 2 * z), [2 * z >= 0]),
    (fld(x + y, x), fld(y, x) + 1, [x >= 0]),
    (tdiv(x * z + y, z), x + tdiv(y, z), nn),
    (tdiv(x * y, y), x, nn),
    (tdiv(x + y + z, x), tdiv(y + z, x) + 1, nn),
    (tdiv(x, x), c(1), []),
    (fld(mi(6 * x, y), 2), mi(3 * x, fld(y, 2)), []),
    (fld(ma(y, x * 6), 2), ma(fld(y, 2), x * 3), []),
    (tdiv(mi(x * 6, y), 2), mi(x * 3, tdiv(y, 2)), nn),
    (tdiv(ma(x * 6, y), 2), ma(x * 3, tdiv(y, 2)), nn),
    (tdiv(x * 6 - y + (y + 3), 2), x * 3 + 1, nn),
    (tdiv(x + 4, 2), tdiv(x, 2) + 2, nn),
    (flm(x - flm(x, 9), 9), c(0), []),
    (flm(x + flm(-x, 9), 9), c(0), []),
    (flm(x - flm(x, -9), 9), c(0), []),
    (flm(x + flm(8 * x, 9), 9), c(0), []),
    (flm(x - flm(x, y), y), c(0), []),
    (flm(x - flm(x, -y), y), c(0), []),
    (flm(x + flm(-x, y), y), c(0), []),
    (flm(x, 2) + flm(x + 1, 2), c(1), []),
    (fld(x + 1, 2) - fld(x, 2), flm(x, 2), []),
    (flm(x + 5, 2), flm(x + 1, 2), []),
    (fld(x, 2) - fld(x - 1, 2), flm(x, 2) * -1 + 1, []),
    (fld(x + 5, 2) - fld(x - 2, 2), flm(x, 2) + 3, []),
    (fld(x + 5, 2) - fld(x - 3, 2), c(4), []),
    (fld(flm(x, 2) + 1, 2), flm(x, 2), []),
    (fld(x + 1, 2) - flm(x, 2), fld(x, 2), []),
    (tmod(10 * x, -2), c(0), []),
    (y - tdiv(y, -5) * -5, tmod(y, 5), []),
    (tmod(x * 10, -2), c(0), [x <= 0]),
    (tmod(x * 10 + y, -2), tmod(y, 2), nn),
    (tmod(x * -10, 2), c(0), []),
    (tmod(nx * -10 + y, 2), tmod(y, 2), [nx <= 0, y >= 0]),
    (tmod(nx * -10 + 1 + ny * -2 + 2, 2), c(1), [nx <= 0, ny <= 0]),
    (tmod(x * 10 + 1 + y * 2 + 2, -2), c(1), nn),
    (y - fld(y - 6, 5) * 5, flm(y + 4, 5) + 6, []),
    (fld(y, 3) * 3 - y, 0 - flm(y, 3), []),
    (y - fld(y + z, 5) * 5, flm(y + z, 5) - z, []),
    (y * 5 - fld(y + z, 2) * 10, (flm(y + z, 2) - z) * 5, []),
    (fld(y + z, 3) * 6 - y * 2, (z - flm(y + z, 3)) * 2, []),
    (y - tdiv(y - 6, 5) * 5, tmod(y - 6, 5) + 6, []),
    (y * 3 - tdiv(y, 2) * 6, tmod(y, 2) * 3, []),
    (y * 5 - tdiv(y - z, 2) * 10, (tmod(y - z, 2) + z) * 5, []),
    (flm(x * 360 + y, 16), flm(x * 8 + y, 16), []),
    (flm(x * -10 + y, 2), flm(y, 2), []),
    (flm(x * 32 + y, 64), flm(x, 2) * 32 + y, [y >= 0, y < 32]),
    (flm(x * z * 2 + y, z * 2), flm(y, z * 2), [z * 2 >= 0]),
    (fld(x - flm(x, 21), 21), fld(x, 21), []),
]
EXTREMA: list[Row] = [
    (mi(x + 1, x + 10), x + 1, []),
    (mi(flm(x, 2), flm(y, 2) + 10), flm(x, 2), []),
    (mi(tmod(x, 2), tmod(y, 2) + 10), tmod(x, 2), []),
    (mi(ma(x, y), x), x, []),
    (ma(x, ma(x, y)), ma(x, y), []),
    (mi(y + x, z + x), mi(y, z) + x, []),
    (mi(x - y, x - z), x - ma(y, z), []),
    (mi(y - x, z - x), mi(y, z) - x, []),
    (mi(mi(mi(x, y), z), y), mi(mi(x, y), z), []),
    (mi(mi(mi(mi(x, y), z), x * 2), y), mi(mi(mi(x, y), z), x * 2), []),
    (mi(ma(x, y), ma(x, z)), ma(mi(y, z), x), []),
    (ma(mi(x, y), mi(z, x)), mi(ma(y, z), x), []),
    (mi(ma(x, y), mi(y, x)), mi(x, y), []),
    (mi(tdiv(x, 10), tdiv(y, 10)), tdiv(mi(x, y), 10), []),
    (mi(tdiv(x, -10), tdiv(y, -10)), tdiv(ma(x, y), -10), []),
    (ma(fld(x, 10), fld(y, 10)), fld(ma(x, y), 10), []),
    (mi(fld(x, -10), fld(y, -10)), fld(ma(x, y), -10), []),
    (mi(x * 3, 9), mi(x, 3) * 3, []),
    (mi(-2 * x, 4), ma(x, -2) * -2, []),
    (mi(0 - x * 2, 0), ma(x, 0) * -2, []),
    (mi(3 - x, 2), 3 - ma(x, 1), []),
    (ma(3 - x, 1), 3 - mi(x, 2), []),
    (mi(mi(x, 11), 10), mi(x, 10), []),
    (mi(tdiv(x + 3, 4) * 4, x), x, []),
    (mi(fld(x + 3, 4) * 4, x), x, []),
    (mi(x, fld(x, 4) * 4), fld(x, 4) * 4, []),
    (ma(fld(x + 3, 4) * 4, x), fld(x + 3, 4) * 4, []),
    (ma(tdiv(x + 3, 4) * 4, x), tdiv(x + 3, 4) * 4, []),
    (mi(fld(x + 3, 4) * 4, ma(x, 4)), ma(x, 4), [x > 0]),
    (mi(tdiv(x + 3, 4) * 4, ma(x, 4)), ma(x, 4), [x > 0]),
    (ma(x, y) + mi(x, y), x + y, []),
    (Sel(x < 0, y, 0) + Sel(x < 0, 1, z), Sel(x < 0, y + 1, z), []),
    (Sel(x < 0, y, 1) - Sel(x < 0, 1, z), Sel(x < 0, y - 1, 1 - z), []),
    (Sel(x < 0, y, z) - y, Sel(x < 0, 0, z - y), []),
    (Sel(x < 0, y, z) - z, Sel(x < 0, y - z, 0), []),
    (mi(Sel(x < 0, y, 0), Sel(x < 0, 1, z)), Sel(x < 0, mi(y, 1), mi(c(0), z)), []),
    (Sel(x * 3 + 1 == 0, y, z), z, []),
    (Sel(x * 3 + 1 != 0, y, z), y, []),
    (Sel(x > 0, y + 1, y + 1), y + 1, []),
]
COMPARISONS: list[Row] = [
    (x + 10 < y + 5, x + 5 < y, []),
    (x + 1 > 100, LT(99, x), []),
    (2 * x >= 3, LE(2, x), []),
    (-2 * x >= 1, x <= -1, []),
    (x + y < x + z, y < z, []),
    (x * 3 < y * 3, x < y, []),
    (x * -3 < y * -3, y < x, []),
    (x - 1 < y, x <= y, []),
    (x - 3 < y - 2, x <= y, []),
    (x < z + x, LT(0, z), []),
    (100 - x > 1, LT(x, 99), []),
    ((10 - x).equal(0), x.equal(10), []),
    (0 - x * 3 <= 0, LE(0, x), []),
    (x - 5 < y - 10, x + 5 < y, []),
    (fld(x, 2) <= 1, x <= 3, []),
    (LT(-3, fld(x, 2)), LT(-5, x), []),
    (tdiv(x, 2) >= 0, LE(-1, x), []),
    (fld(x, 4) * 4 < x, LT(0, flm(x, 4)), []),
    (tdiv(x, 2) < 3, x < 6, []),
    (LT(3, tdiv(x, 2)), LT(7, x), []),
    (tdiv(x, 3) >= 0, LE(-2, x), []),
    (tdiv(x, 2) >= 1, LE(2, x), []),
    (tdiv(x, 2) >= -1, LE(-3, x), []),
    (tdiv(x, 2) <= 1, x <= 3, []),
    (tdiv(x, 2) <= -1, x <= -2, []),
    (tdiv(x, 2) <= 0, x <= 1, []),
    (tdiv(x, 4) * 4 < x, LT(0, tmod(x, 4)), []),
    (tdiv(x, 4) * 4 >= x, LE(tmod(x, 4), 0), []),
    (tdiv(x, 4) * 4 < x - y, LT(y, tmod(x, 4)), []),
    (tdiv(x + 2, 4) * 4 >= x - y, LE(tmod(x + 2, 4), y + 2), []),
    (fld(x, 4) * 4 >= x, EQ(flm(x, 4), 0), []),
    (fld(x + 2, 4) * 4 >= x + y, LE(flm(x + 2, 4) + y, 2), []),
    (fld(x, 4) * 4 < x + y, LT(0, flm(x, 4) + y), []),
    (both(fld(x, 8).equal(3), flm(x, 8).equal(4)), x.equal(28), []),
    (both(flm(x, 8).equal(4), fld(x, 8).equal(-3)), x.equal(-20), []),
    (both(LE(0, x - y * 5), x - y * 5 < 5), EQ(y, fld(x, 5)), []),
    (both(x - y * 5 < 5, LE(0, x - y * 5)), EQ(y, fld(x, 5)), []),
    (both(x <= 19, flm(x, 5) < 2), both(x < 17, flm(x, 5) < 2), []),
    (both(fld(x, 10).equal(5), flm(x, 10) < 7), both(LE(50, x), x < 57), []),
    (both(fld(x, 10).equal(-5), flm(x, 10) <= 7), both(LE(-50, x), x <= -43), []),
    (both(fld(x, 10).equal(5), LT(7, flm(x, 10))), both(LT(57, x), x < 60), []),
    (both(fld(x, 10).equal(-5), LE(7, flm(x, 10))), both(LE(-43, x), x < -40), []),
    ((x * y).equal(0), Or(x.equal(0), y.equal(0)), []),
    (mi(x, 11) < 10, x < 10, []),
    (mi(x, 8) < 10, tr, []),
    (ma(c(8), x) > 10, LT(10, x), []),
    (x + 1 < ma(c(8), x), x < 7, []),
    (x < 11, tr, [x <= 10]),
    (x + y >= -10, tr, [x >= 0, y >= -10]),
    (z - 5 <= y + 10, tr, [z <= 5, y >= -10]),
    (both(x > -1, z <= x + 5), tr, [x >= 0, z <= 5]),
    (x * y <= 0, tr, [x >= 0, y <= 0]),
    ((x + 1) * (y - 1) < 0, tr, [x >= 0, y <= 0]),
    (y * y >= 0, tr, [y <= 0]),
    (x * 6 <= -3, fa, [x >= 0]),
    (x + y <= 10, tr, [x <= 10, y <= 0]),
    (x * y < (x + y) * 2048, tr, [x > 0, y > 0, x < 2048]),
    (x * y < (x + y) * 2048, tr, [x > 0, y > 0, x < 4096, y < 4096]),
    (x * y * 8192 < (y + x) * 16777216, tr, [x > 0, y > 0, x < 4096, y < 4096]),
    (x * y * 59 < (y + x) * 176128, tr, [x > 0, y > 0, x < 4096, y < 4096]),
    (And(EQ(x, y), NE(x, y)), fa, []),
    (And(x > 1, Not(x > 1)), fa, []),
    (And(x <= y, y < x), fa, []),
    (And(x < 1, LT(0, x)), fa, []),
    (And(x <= 1, LE(2, x)), fa, []),
    (And(x.equal(1), NE(x, 2)), x.equal(1), []),
    (And(x.equal(1), x.equal(2)), fa, []),
    (Or(EQ(x, y), NE(x, y)), tr, []),
    (Or(x <= y, y < x), tr, []),
    (Or(x < 1, LT(0, x)), tr, []),
    (Or(NE(x, 1), x.equal(2)), NE(x, 1), []),
    (Or(NE(x, 1), NE(x, 2)), tr, []),
    (Or(x.equal(1), Or(y.equal(1), z.equal(1))), Or(Or(x.equal(1), y.equal(1)), z.equal(1)), []),
    (
        And(x.equal(1), And(y.equal(1), z.equal(1))),
        And(And(x.equal(1), y.equal(1)), z.equal(1)),
        [],
    ),
]
CALLS: list[Row] = [
    (let + let, c(4), []),
    (let, c(2), []),
    (tir.Call("int32", "tir.shift_left", (c(1), c(10))), c(1024), []),
    (ite(x < 5, ite(x > 1, 1, 0), 0), ite(And(x < 5, LT(1, x)), 1, 0), []),
    (ite(x > 2, ite(x > 1, 1, 0), 0), ite(LT(2, x), 1, 0), []),
    (tir.Call("int32", "tir.if_then_else", (tr, x, y)), x, []),
    (tir.Add(h, c(-0.0, "float16")), h, []),
    (tir.Sub(h, c(0.0, "float16")), h, []),
    (tir.Mul(h, c(1.0, "float16")), h, []),
    (tir.Mul(c(1.0, "float16"), h), h, []),
]
CANONICAL: list[Row] = [
    (2 + (3 * x + z + y + 1) * 4 + x, x * 13 + z * 4 + y * 4 + 6, []),
    (x * 3 - 4 * x + 1, 1 - x, []),
    (fld(x, 6) * 6 + flm(fld(x, 3), 2) * 3 + flm(x, 3), x, []),
    (flm(8 * x, 16), flm(x, 2) * 8, []),
    (fld(fld(flm(x, 16), 2) * 2, 4), fld(flm(x, 16), 4), []),
    (fld(flm(x, 2), 8), c(0), []),
    (fld(17 + 48 * x, 16), 3 * x + 1, []),
    (tmod(0 - x, 2), tmod(x, -2) * -1, []),
    (flm(x * 32 * x, x), c(0), []),
    (fld(2 * x * x * z, 4 * x * x * x), fld(z, 2 * x), []),
    (flm(z * x * 6 + y * 0, z * x * 6), c(0), []),
    (
        fld(ii, 12) * 12 + fld(flm(ii, 12), 4) * 4 + flm(flm(ii, 12), 4),
        ii,
        [i0 >= 0, i0 < 8, i1 >= 0, i1 < 3],
    ),
    (x * 8 + y < 16, x < 2, [y >= 0, y < 8]),
    (x * 1024 + y < z * 7168, x - z * 7 < 0, [y >= 0, y < 1024]),
    (
        x * 1024 + y + tir.Call("int32", "tir.shift_left", (c(1), c(0))) < 0,
        x * 1024 + y + 1 < 0,
        [],
    ),
    (wide(x + y + 1) - wide(x), wide(y) + c(1, "int64"), []),
    (flm(flm(x * 4 + y - 466036, 24528) - 24512, 16), flm(4 * x + y + 12, 16), []),
    (Sel(x >= 10, ite(tdiv(x, 3) > 2, x, 0), 0), Sel(LE(10, x), x, 0), []),
    (Sel(x >= 10, ite(tdiv(x, 3) < 2, x, 0), 0), c(0), []),
    (flm(x * 10 + 1 + y * 2 + 2, 2), c(1), []),
]
SYMBOLIC_DIVISORS: list[Row] = [
    (flm(x, y) < y, tr, [y > 0]),
    (y <= flm(x, y), fa, [y > 0]),
    (flm(64, y) <= y, tr, [y >= 0]),
    (flm(x, y) * 2 + 1 < y * 2, tr, [y > 0]),
    (flm(x, y + z) + 1 <= y + z, tr, nn),
    (tmod(x, y) < y, tr, [y > 0]),
    (tmod(x, y) > -y, tr, [y > 0]),
    (fld(flm(x, y), y), c(0), [y > 0]),
    (flm(flm(x, y), y), flm(x, y), [y > 0]),
    (flm(x, nx) < nx, tr, [nx > 0]),
]


def casts() -> Iterator[Row]:
    dtypes = ("float32", "float16", "int32", "int8", "bool")
    for target in dtypes:
        yield Cast(target, x - x), c(0, target), []
        yield Cast(target, EQ(x, x)), c(1, target), []
        for source in dtypes:
            for number in range(2 if "bool" in (source, target) else 4):
                yield Cast(target, c(number, source)), c(number, target), []


def cancelled() -> Iterator[Row]:
    for dtype in ("int8", "int32", "int64", "uint8", "uint32", "uint64"):
        var = tir.Var("v", dtype)
        yield from ((var - var, c(0, dtype), []), (EQ(var, var), tr, []), (NE(var, var), fa, []))


def leading_zeros() -> Iterator[Row]:
    for dtype, number, zeros in (
        ("int32", 0, 32),
        ("int32", 1, 31),
        ("int32", 128, 24),
        ("int64", 0, 64),
        ("int64", 128, 56),
    ):
        yield tir.Call("int32", "tir.clz", (c(number, dtype),)), c(zeros), []


ROWS = [
    *TERMS,
    *DIVISIONS,
    *EXTREMA,
    *COMPARISONS,
    *CALLS,
    *CANONICAL,
    *SYMBOLIC_DIVISORS,
    *casts(),
    *cancelled(),
    *leading_zeros(),
]


def test_no_row_compares_an_expression_with_itself() -> None:
    assert [str(before) for before, after, _ in ROWS if before is after] == []


def variables(exprs: list[E]) -> list[tir.Var]:
    """The free variables; those that a Let binds are not free."""
    nodes = [node for expr in exprs for node in walk(expr)]
    bound = {node.var for node in nodes if isinstance(node, tir.Let)}
    return [v for v in dict.fromkeys(nodes) if isinstance(v, tir.Var) and v not in bound]


def is_integer(expr: E) -> bool:
    return not any(
        node.dtype.startswith("float") or (isinstance(node, tir.Call) and "clz" in str(node.op))
        for node in walk(expr)
        if isinstance(node, E)
    )


@pytest.mark.parametrize(
    ("before", "after", "conditions"), [row for row in ROWS if is_integer(tir.EQ(*row[:2]))]
)
def test_both_sides_and_the_simplified_form_have_equal_values(
    before: E, after: E, conditions: list[E]
) -> None:
    """Evaluated at random points that satisfy the conditions, without the simplifier's code."""
    made = Analyzer()
    with made.constraint_scope(ops.all_of(tr, *conditions)):
        simple = made.simplify(before)
    free = variables([before, after, simple, *conditions])
    chosen, compared = random.Random(f"{before}"), 0
    for reach in (4, 12, 40, 400) * 40:
        env = {v: chosen.randint(-reach, reach) if v.dtype != "bool" else 1 for v in free}
        if v_unsigned := [v for v in free if v.dtype.startswith("uint")]:
            env |= {v: abs(env[v]) for v in v_unsigned}
        expected = value(before, env)
        if expected is None or not all(holds(condition, env) for condition in conditions):
            continue
        assert value(after, env) == expected, f"{before} is not {after} at {env}"
        assert value(simple, env) == expected, f"{before} is not {simple} at {env}"
        compared += 1
    assert compared >= (5 if free else 1)


def size(expr: E) -> int:
    return 1 + sum(size(part) for part in children(expr) if isinstance(part, E))


@pytest.mark.parametrize(("before", "after", "conditions"), ROWS)
def test_both_sides_have_one_form(before: E, after: E, conditions: list[E]) -> None:
    made = Analyzer()
    with made.constraint_scope(ops.all_of(tr, *conditions)):
        found = made.simplify(before)
        assert found is made.simplify(after), f"{before} gives {found}"


STAY = [
    tir.Div(f, c(27.0, "float32")),
    tmod(x - 10, 2),
    flm(x + 1, 2),
    flm(x + 1, 2) * 8192,
    both(x < 16, flm(x, 5) < 2),
    x - y,
    mi(x, y),
    tmod(y - 1, 3).equal(0),
]


@pytest.mark.parametrize("expr", STAY)
def test_what_is_simple_already_is_left_alone(expr: E) -> None:
    assert Analyzer().simplify(expr) is expr


@pytest.mark.parametrize("seed", range(150))
def test_random_expressions_keep_their_values(seed: int) -> None:
    chosen = random.Random(seed)
    sides = {x: range(-5, 6), y: range(-4, 5), z: range(-3, 4)}
    made = Analyzer()
    for var in chosen.sample([x, y], chosen.randint(0, 2)):
        low = chosen.randint(-3, 2)
        sides[var] = range(low, low + chosen.randint(1, 6))
        made.update(var, ConstIntBound(low, sides[var].stop - 1))
    given = Integers(chosen, [x, y, z]).number(chosen.randint(2, 9))
    simple, bound, known = (
        made.simplify(given),
        made.const_int_bound(given),
        made.modular_set(given),
    )
    for env in points(sides):
        number = value(given, env)
        if number is not None:
            assert value(simple, env) == number, f"{given} gives {simple} at {env}"
            assert bound.min_value <= number <= bound.max_value
            apart = number - known.base
            assert apart % known.coeff == 0 if known.coeff else apart == 0


@pytest.mark.parametrize(
    ("dtype", "bounds", "build"),
    [
        ("int32", [(2**31 - 8, 2**31 - 4), (-4, 5)], lambda a, b: (a + b) // -8),
        ("int32", [(-(2**31), -(2**31) + 3), (-3, 3)], lambda a, b: (a + b) // -4),
        ("int8", [(6, 15), (6, 15)], lambda a, b: (a - a) * a > a - 54 + a * a),
        ("int8", [(120, 127), (-5, 7)], lambda a, b: a - 100 > b - 90),
        ("int8", [(100, 127), (-27, 0)], lambda a, b: (a + b) // 16 * 16 + (a + b) % 16),
        ("int8", [(0, 127), (0, 127)], lambda a, b: a * 3 // 3 <= b),
    ],
)
def test_no_rewriting_overflows_where_the_original_does_not(
    dtype: str, bounds: list[tuple[int, int]], build: Callable[..., tir.PrimExpr]
) -> None:
    variables = [tir.Var(name, dtype) for name in "ab"]
    analyzer = Analyzer()
    for var, (low, high) in zip(variables, bounds, strict=True):
        analyzer.update(var, ConstIntBound(low, high))
    expr = build(*variables)
    found = analyzer.simplify(expr)
    for values in product(*(range(low, high + 1) for low, high in bounds)):
        env = dict(zip(variables, values, strict=True))
        try:
            expected = evaluate(expr, env)
        except NoValueError:  # the original overflows
            continue
        assert evaluate(found, env) == expected, (found, values)
