"""Conditions that hold whatever some variables are, and what statements touch of a buffer."""

import pytest

from relaxpy import tir as T
from relaxpy.arith import Analyzer, domain_touched, narrow_predicate_expression
from relaxpy.errors import MisuseError
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.iteration import Range
from relaxpy.script import tir as S
from tests.ir.arith.boxes import holds, value

E = T.PrimExpr
i, k, n = (T.Var(name, "int32") for name in "ikn")
flag = T.Var("b", "bool")
buffer = T.decl_buffer([16], "int32", "buf")
loaded = T.BufferLoad(buffer, [i])
yes, no = ops.const(True), ops.const(False)
fld = ops.floordiv


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (yes, yes),
        (no, no),
        (flag, flag),
        (i > 5, i > 5),
        (i > n, i > 7),
        (i < n, i < 0),
        (i <= n, i <= 0),
        (i >= n, i >= 7),
        (n > i, T.GT(0, i)),
        (n < i, T.LT(7, i)),
        (i.equal(n), T.all(i <= 0, T.LE(7, i))),
        (n.equal(i), T.all(T.LE(7, i), i <= 0)),
        (T.NE(i, n), T.any(i < 0, T.LT(7, i))),
        (fld(i, 4) > n, fld(i, 4) > 7),
        (fld(i + n, 4) > 0, fld(T.Add(i, 0), 4) > 0),
        (fld(i + n, 4).equal(0), T.all(fld(T.Add(i, 7), 4) <= 0, T.LE(0, fld(T.Add(i, 0), 4)))),
        (i + n < 10, i + 7 < 10),
        (i - n < 10, T.Sub(i, 0) < 10),
        (T.Not(i < n), T.Not(i < 7)),
        (ops.floormod(i, 8).equal(n), no),
        (fld(i, n).equal(0), no),
        (loaded > 0, no),
        (loaded > i, no),
        (T.And(loaded > 0, i <= 0), T.And(no, i <= 0)),
        (T.Or(loaded > 0, i <= n), T.Or(no, i <= 0)),
        (T.Or(T.Not(loaded > 0), i <= n), T.Or(no, i <= 0)),
    ],
)
def test_the_hardest_values_take_the_place_of_variables(before: E, after: E) -> None:
    assert narrow_predicate_expression(before, {n: Range(0, 8)}) is after


KINDS = (T.LT, T.LE, T.GT, T.GE, T.EQ, T.NE)
SIDES = [n, i - n * 2, n * -3, fld(n + i, -2), ops.minimum(n, 4), T.Div(i * 2 - n, 3)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", SIDES, ids=str)
def test_what_is_narrowed_implies_what_was_given(kind: type[T.CmpExpr], side: E) -> None:
    ranges = {n: Range(-2, 4)}
    for condition in (kind(side, i), kind(i + 1, side), T.Not(kind(side, i))):
        narrowed = narrow_predicate_expression(condition, ranges)
        for number in range(-9, 10):
            if holds(narrowed, {i: number}):
                assert all(holds(condition, {i: number, n: k}) for k in range(-2, 4))


def test_a_predicate_is_narrowed_by_ranges() -> None:
    with pytest.raises(MisuseError, match="Boolean"):
        narrow_predicate_expression(i, {n: Range(0, 8)})
    with pytest.raises(MisuseError, match="a Range for each"):
        narrow_predicate_expression(i < n, {n: 8})  # type: ignore[dict-item]


@S.prim_func
def moved(a: S.handle, b: S.handle) -> None:
    m = S.int32()
    A = S.match_buffer(a, (100, m))
    B = S.match_buffer(b, (100, m))
    for i, j in S.grid(100, m):
        A[i, j] = B[i - 1, j + 1] + A[i - 1, j - 1]


@S.prim_func
def blocked(a: S.handle, b: S.handle) -> None:
    A = S.match_buffer(a, (32,))
    B = S.match_buffer(b, (32,))
    for i, j in S.grid(2, 8):
        with S.block("copy"):
            k = S.axis.spatial(16, i * 8 + j)
            B[k + 3] = A[k]


@pytest.mark.parametrize(
    ("name", "loads", "stores", "expected"),
    [
        ("a", True, False, [(-1, 100), (-1, 7)]),
        ("a", False, True, [(0, 100), (0, 7)]),
        ("a", True, True, [(-1, 101), (-1, 8)]),
        ("b", True, False, [(-1, 100), (1, 7)]),
        ("b", False, True, []),
    ],
)
def test_stretches_of_a_buffer(
    name: str, loads: bool, stores: bool, expected: list[tuple[int, int]]
) -> None:
    handle = next(p for p in moved.params if p.name == name)
    part = moved.buffer_map[handle]
    size = part.shape[1]
    assert isinstance(size, T.Var)
    found = domain_touched(moved.body, part, loads, stores)
    assert [(value(r.min, {size: 7}), value(r.extent, {size: 7})) for r in found] == expected


def test_blocks_are_entered() -> None:
    first, second = (blocked.buffer_map[p] for p in blocked.params)
    assert domain_touched(blocked.body, first, True, True) == [Range(0, 16)]
    assert domain_touched(blocked.body, second, True, True) == [Range(3, 19)]
    with pytest.raises(MisuseError, match="a statement and a Buffer"):
        domain_touched(blocked, first, True, True)  # type: ignore[arg-type]


def test_ranges_over_other_variables_are_opened() -> None:
    found = narrow_predicate_expression(i < n, {i: Range(0, k), k: Range(0, 5)})
    assert Analyzer().can_prove(found.equal(T.LT(3, n)))
    circle = {i: Range(0, k), k: Range(0, i)}
    assert narrow_predicate_expression(i < n, circle) is T.const(False)


def test_unsigned_arithmetic_goes_round_and_is_not_narrowed() -> None:
    a, b = T.Var("a", "uint8"), T.Var("b", "uint8")
    ranges = {a: Range(T.const(0, "uint8"), T.const(3, "uint8"))}
    assert narrow_predicate_expression(b - a < T.const(5, "uint8"), ranges) is T.const(False)
    alone = narrow_predicate_expression(a < b + T.const(1, "uint8"), ranges)
    assert alone is T.LT(T.const(2, "uint8"), b + T.const(1, "uint8"))
