"""Patterns in expressions: linear maps, clips, and repeated parts."""

import itertools

import pytest

from relaxpy import tir as T
from relaxpy.arith import Analyzer, detect_clip_bound, detect_common_subexpr, detect_linear_equation
from relaxpy.errors import MisuseError
from relaxpy.ir.tir import ops
from tests.ir.arith.boxes import holds, value

E = T.PrimExpr
a, b, c, d = (T.Var(name, "int32") for name in "abcd")
u = T.Var("u", "uint32")
fld = ops.floordiv


def same(found: list[E] | list[E | None], expected: list[E | int]) -> bool:
    made = Analyzer()
    return len(found) == len(expected) and all(
        f is not None and made.can_prove_equal(f, e) for f, e in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize(
    ("expr", "variables", "expected"),
    [
        (a * 4 + b * 6 + 7, [a], [4, b * 6 + 7]),
        (a * 4 * (a + 1) + b * 6 + 7, [a], []),
        (a * 4 + (a + 1) + b * 6 + 7, [a], [5, b * 6 + 8]),
        (a * b + 7, [a], [b, 7]),
        (b * 7, [a], [0, b * 7]),
        (b * 7, [], [b * 7]),
        (a * (b + 4) + a + c * 8, [a, c], [b + 5, 8, 0]),
        (a * (b + 4) + c * 8 * d, [a, c, d], []),
        (((a * b + c) * 8 + d + 1) * 2, [a, c, d], [b * 16, 16, 2, 2]),
        (a - b, [c], [0, a - b]),
        (fld(a, 2) + b, [a], []),
        (fld(a, 2) + b, [b], [1, fld(a, 2)]),
    ],
)
def test_linear_maps(expr: E, variables: list[T.Var], expected: list[E | int]) -> None:
    assert same(detect_linear_equation(expr, variables), expected)


def test_negative_coefficients_of_unsigned_variables() -> None:
    found = detect_linear_equation(128 - u, [u])
    assert [(part.value, part.dtype) for part in found if isinstance(part, T.IntImm)] == [
        (-1, "int32"),
        (128, "uint32"),
    ]


def test_floats_are_not_linear_maps() -> None:
    f = T.Var("f", "float32")
    assert detect_linear_equation(f + 1.0, [f]) == []
    assert detect_linear_equation(f, [a])[1] is f
    with pytest.raises(MisuseError, match=r"tir\.Var"):
        detect_linear_equation(a, [3])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("condition", "variables", "expected"),
    [
        (T.all(a * 1 < b * 6, a - 1 > 0), [a], [2, b * 6 - 1]),
        (T.all(a * 1 < b * 6, a - 1 > 0), [a, b], []),
        (T.all(a + 10 * c <= 20, b - 1 > 0), [a, b], [None, 20 - 10 * c, 2, None]),
        (T.all(T.Not(a * 1 > b * 6), a - 1 > 0), [a], [2, b * 6]),
        (T.all(T.Min(a, b) > 3, a - 10 < 0), [a, b], [4, 9, 4, None]),
        (T.Max(a, b) < 3, [a, b], [None, 2, None, 2]),
        (b.equal(3), [a, b], [None, None, 3, 3]),
        (T.all(a.equal(4), b.equal(3)), [a, b], [4, 4, 3, 3]),
        (T.all(a > 1, a > 4, a <= 9, a < 7), [a], [5, 6]),
        (T.all(3 * a <= 10, -2 * a <= 5), [a], [-2, 3]),
        (T.all(a > 5, a < 3), [a], []),
        (T.Or(a > 5, a < 3), [a], []),
        (c < 3, [a], []),
        (a * a < 3, [a], []),
        (ops.const(True), [a], [None, None]),
    ],
)
def test_clips(condition: E, variables: list[T.Var], expected: list[E | int | None]) -> None:
    found = detect_clip_bound(condition, variables)
    assert len(found) == len(expected)
    for end, wanted in zip(found, expected, strict=True):
        assert (end is None) == (wanted is None)
        assert end is None or wanted is None or Analyzer().can_prove_equal(end, wanted)


def test_a_clip_has_any_number_of_conjuncts() -> None:
    limits = [T.LT(a, 100_000 - k) for k in range(3000)]
    assert detect_clip_bound(ops.all_of(*limits), [a]) == [None, ops.const(97_000)]


def test_a_clip_is_of_a_condition() -> None:
    with pytest.raises(MisuseError, match="Boolean"):
        detect_clip_bound(a + 1, [a])


def test_repeated_parts_are_counted_wherever_they_stand() -> None:
    rounded = T.floor(T.Cast("float32", a + b) + 0.5)
    found = detect_common_subexpr(rounded + T.Cast("float32", c) * rounded, 2)
    assert found[rounded] == 2
    assert found[a + b] == 2
    assert a not in found
    assert detect_common_subexpr(rounded + rounded, 3) == {}
    loaded = T.BufferLoad(T.decl_buffer([4], "int32"), [a + b])
    assert detect_common_subexpr(loaded + loaded, 2) == {a + b: 2}
    unknown = T.call_extern("int32", "f", a)
    assert detect_common_subexpr(unknown + unknown, 2) == {}


@pytest.mark.parametrize(("first", "second"), list(itertools.product((-5, 0, 4), repeat=2)))
def test_clips_are_exact(first: int, second: int) -> None:
    condition = T.all(a * 3 + first <= 7, a * -2 < second)
    found = detect_clip_bound(condition, [a])
    allowed = [n for n in range(-30, 31) if holds(condition, {a: n})]
    if allowed:
        assert [value(end, {}) for end in found if end is not None] == [allowed[0], allowed[-1]]
    else:
        assert found == []
