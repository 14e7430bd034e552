"""Index maps divided into what outer and what inner iterators do."""

import pytest

from relaxpy import tir as T
from relaxpy.arith import IterMark, normalize_iter_map_to_expr, subspace_divide
from relaxpy.errors import MisuseError
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.substitution import mentions
from tests.ir.arith.boxes import holds, points, value

E = T.PrimExpr
x, y, z, i, j, k = (T.Var(name, "int32") for name in "xyzijk")
a, b, c, d = (T.Var(name, "int32") for name in "abcd")
fld, flm = ops.floordiv, ops.floormod
CUBE = {x: 3, y: 4, z: 5}
SPLIT = {i: 4, j: 8, k: 2}
high, low = i * 2 + fld(j, 4), flm(j, 4) * 2 + k
DEEP = {a: 4, b: 2, c: 6, d: 3}
fused = b * 6 + c
digits = [a * 2 + fld(fld(fused, 3), 2), flm(fld(fused, 3), 2), flm(fused, 3) * 3 + d]
yes = ops.const(True)

DIVIDED: list[tuple[list[E], dict[T.Var, int], list[T.Var], E]] = [
    ([z * 12 + y * 3 + x], CUBE, [x], yes),
    ([z * 12 + y * 3 + x + 7], CUBE, [x], yes),
    ([z * 12 + y * 3 + x], CUBE, [x], z * 4 + y < 18),
    ([z * 12 + y * 3 + x], CUBE, [x, y], yes),
    ([(z * 12 + y * 3 + x) * 2], CUBE, [x], yes),
    ([z * 12 + y * 3 + x], CUBE, [], yes),
    ([z * 12 + y * 3 + x], CUBE, [x, y, z], yes),
    ([high, low], SPLIT, [k], yes),
    ([high, low], SPLIT, [j, k], yes),
    ([high, low], SPLIT, [k], high < 7),
    ([high, low], SPLIT, [j, k], low < 7),
    (digits, DEEP, [c, d], yes),
    (digits, DEEP, [b, c, d], yes),
    (digits, DEEP, [c, d], T.all(digits[0] < 7, digits[2] < 8)),
    ([fld(y * 3 + x, 6), flm(y * 3 + x, 6)], CUBE, [x], yes),
    ([fld(i * 16 + j * 2 + k, 4), flm(i * 16 + j * 2 + k, 4)], SPLIT, [k], yes),
    ([fld(i * 16 + j * 2 + k, 4), flm(i * 16 + j * 2 + k, 4)], SPLIT, [j, k], yes),
]


def source(mark: IterMark) -> E:
    return normalize_iter_map_to_expr(mark.source)


@pytest.mark.parametrize(("bindings", "extents", "inner", "predicate"), DIVIDED)
def test_bindings_are_outer_times_extent_plus_inner(bindings, extents, inner, predicate) -> None:
    domains = {var: Range(0, extent) for var, extent in extents.items()}
    *pairs, limits = subspace_divide(bindings, domains, inner, predicate)
    assert len(pairs) == len(bindings)
    outer = [var for var in extents if var not in inner]
    for one, other in pairs:
        assert not mentions(source(one), inner)
        assert not mentions(source(other), outer)
    assert not mentions(limits[0].extent, inner)
    assert not mentions(limits[1].extent, outer)
    for env in points({var: range(extent) for var, extent in extents.items()}):
        assert holds(predicate, env) == all(holds(limit.extent, env) for limit in limits)
        for binding, (one, other) in zip(bindings, pairs, strict=True):
            parts = [value(e, env) for e in (source(one), other.extent, source(other))]
            assert None not in parts
            first, extent, last = (part or 0 for part in parts)
            assert value(binding, env) == first * extent + last


@pytest.mark.parametrize(
    ("bindings", "extents", "inner", "predicate"),
    [
        ([high, low], SPLIT, [i, k], yes),
        ([high, low], SPLIT, [k], T.all(high < 7, low < 7)),
        (digits, DEEP, [d], digits[2] < 8),
        ([x + y], CUBE, [x], yes),
    ],
)
def test_what_cannot_be_divided(bindings, extents, inner, predicate) -> None:
    domains = {var: Range(0, extent) for var, extent in extents.items()}
    assert subspace_divide(bindings, domains, inner, predicate) == []


def test_parts_have_the_expressions_that_one_expects() -> None:
    domains = {var: Range(0, extent) for var, extent in SPLIT.items()}
    found = subspace_divide([high, low], domains, [j, k], low < 7)
    assert [[source(mark) for mark in pair] for pair in found[:-1]] == [
        [i, fld(j, 4)],
        [ops.const(0), low],
    ]
    assert [limit.extent for limit in found[-1]] == [yes, low < 7]


def test_iterators_of_one_value_keep_their_side() -> None:
    domains = {i: Range(0, 1), j: Range(0, 1)}
    found = subspace_divide([i, j], domains, [j], simplify_trivial_iterators=False)
    assert [[source(mark) for mark in pair] for pair in found[:-1]] == [
        [i, ops.const(0)],
        [ops.const(0), j],
    ]


def test_inner_iterators_are_variables() -> None:
    with pytest.raises(MisuseError, match=r"tir\.Var"):
        subspace_divide([x], {x: Range(0, 3)}, [3])  # type: ignore[list-item]
