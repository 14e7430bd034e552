"""The forms that `rewrite_simplify` gives, as programs of TVM expect them."""

import random

import pytest

from relaxpy import te, tir
from relaxpy.arith import Analyzer
from relaxpy.ir import structural_equal
from relaxpy.ir.tir import ops
from tests.fuzz.scalars import Expressions, NoValueError, evaluate

x, y, z = (tir.Var(name, "int32") for name in "xyz")
lo, hi, fld, flm = te.min, te.max, tir.floordiv, tir.floormod
tdiv, tmod = tir.truncdiv, tir.truncmod

FORMS = [
    (x + (y - x), y),
    (lo(x, y - z) + z, lo(x + z, y)),
    (hi(x, y + 2) + (-2), hi(x + (-2), y)),
    (lo(x + 2, y + 3) + (-2), lo(x, y + 1)),
    (2 * z + lo(x, y - 2 * z), lo(x + z * 2, y)),
    (y * x + 10 * x, (y + 10) * x),
    (x * y + x, (y + 1) * x),
    ((3 - y) + x, x - y + 3),
    (x + 2 + 3 + 4 + x * 3, x * 4 + 9),
    (fld(x, 8) * 8 + flm(x, 8), x),
    (x - (x + y), 0 - y),
    (lo(x, y) - x, lo(0, y - x)),
    (x * y - 10 * x, (y + (-10)) * x),
    (lo(x + y, z + x), lo(y, z) + x),
    (x + 10 - 20, x + (-10)),
    (hi(z, y + x) - x, hi(z - x, y)),
    (x - hi(0, x + y), lo(x, 0 - y)),
    (lo(x + 10, y + 1) - lo(x, y - 9), 10),
    (y - tdiv(y, -5) * -5, tmod(y, 5)),
    (tdiv(y - z, 5) * 5 - y, 0 - tmod(y - z, 5) - z),
    (fld(x + 5, 3) - fld(x + 2, 3), fld(flm(x + 2, 3), 3) + 1),
    (y * 5 - fld(y + z, 2) * 10, (flm(y + z, 2) - z) * 5),
    ((x - y) * (-2), (y - x) * 2),
    (fld(fld(x, 2) + 1, 3), fld(x + 2, 6)),
    (fld(x * 8 - 1, 16), fld(x * 8 + (-1), 16)),
    (fld(x * 6 + y + z, 2), x * 3 + fld(y + z, 2)),
    (flm(x * 9600, 6400), flm(x * 3200, 6400)),
    (flm(x + y * 360, 16), flm(x + y * 8, 16)),
    (fld(x + 5, 2) - fld(x - 2, 2), flm(x, 2) + 3),
    (lo(hi(x, y), hi(z, x)), hi(lo(y, z), x)),
    (lo(x - y, x - z), x - hi(y, z)),
    (lo(x * -2, 4), hi(x, -2) * -2),
    (lo(tdiv(x, -10), tdiv(y, -10)), tdiv(hi(x, y), -10)),
    (lo(x + 111, x + 10), x + 10),
    (lo(fld(x + 3, 4) * 4, x), x),
]
ASSUMED = [
    (tdiv(y + x * 4, 2), tdiv(y, 2) + x * 2, [x >= 0, y >= 0]),
    (tdiv(tdiv(x, 2) + 1, 3), tdiv(x + 2, 6), [x >= 0]),
    (tdiv(x + 5, 3) - tdiv(x, 3), tdiv(tmod(x, 3) + 5, 3), [x >= 0]),
    (tmod(x * 10 + y, -2), tmod(y, 2), [x >= 0, y >= 0]),
    (fld(y + (z + x), x), fld(y + z, x) + 1, [x >= 0]),
    (fld(x * 32 + y, 64), fld(x, 2), [y >= 0, y < 32]),
    (flm(x * 32 + y, 64), flm(x, 2) * 32 + y, [y >= 0, y < 32]),
]


@pytest.mark.parametrize(("before", "after", "facts"), [*((*f, []) for f in FORMS), *ASSUMED])
def test_forms(before: tir.PrimExpr, after: tir.PrimExpr, facts: list[tir.PrimExpr]) -> None:
    analyzer = Analyzer()
    with analyzer.constraint_scope(ops.all_of(*facts) if len(facts) > 1 else (facts or [True])[0]):
        assert structural_equal(analyzer.rewrite_simplify(before), ops.convert(after))


def test_results_of_equality_have_the_names_of_tvm() -> None:
    for result, kind in ((x == y, tir.expr.EqualOp), (x != y, tir.expr.NotEqualOp)):
        assert isinstance(result, kind)
        assert result.asobject() is result


def test_forms_have_the_values_of_the_expressions() -> None:
    chosen = random.Random(0)
    source = Expressions(chosen, ("int32", "int64"))
    compared = 0
    for _ in range(300):
        before = source.number(chosen.choice(("int32", "int64")), chosen.randint(2, 7))
        after = Analyzer().rewrite_simplify(before)
        for _ in range(4):
            point = source.point()
            try:
                value = evaluate(before, point)
            except NoValueError:
                continue
            assert evaluate(after, point, exact=False) == value, (before, after, point)
            compared += 1
    assert compared > 500
