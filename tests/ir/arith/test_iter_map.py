"""Maps of iterators, beside the values they take when every iterator is run through."""

import itertools
import math

import numpy as np
import pytest

from relaxpy import arith
from relaxpy.arith import (
    IterMapLevel,
    IterMark,
    IterSplitExpr,
    IterSumExpr,
    detect_iter_map,
    inverse_affine_iter_map,
    iter_map_simplify,
    normalize_iter_map_to_expr,
    normalize_to_iter_sum,
)
from relaxpy.errors import MisuseError
from relaxpy.ir.arith.tvm.iter_map import detected_map, values_of_marks
from relaxpy.ir.equality.structural import structural_equal
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.iteration import Range
from tests.fuzz.seed import COUNT
from tests.ir.arith.boxes import evaluate

X, Y, Z = (tir.Var(name, "int64") for name in "xyz")
FUSED = X * 8 + Y
N = tir.SizeVar("n", "int64")
BIJECTIVE = IterMapLevel.Bijective
Iters = dict[tir.Var, Range]


def over(*extents: int) -> Iters:
    """x, y, z from 0 to these extents."""
    return {var: Range(ops.const(e, "int64")) for var, e in zip((X, Y, Z), extents, strict=False)}


def extents(*indices: tir.PrimExpr, iters: Iters, **options: object) -> list[object]:
    """The extents of the indices, 1 where one is constant; the errors where there are any."""
    found = detect_iter_map(indices, iters, **options)
    if found.errors:
        return list(found.errors)
    sizes = [i.args[0].extent if i.args else ops.const(1, "int64") for i in found.indices]
    return [s.value if isinstance(s, tir.IntImm) else s for s in sizes]


def points(iters: Iters) -> list[dict[tir.Var, int]]:
    domains = [
        range(evaluate(d.min, {}), evaluate(d.min, {}) + evaluate(d.extent, {}))
        for d in iters.values()
    ]
    return [dict(zip(iters, p, strict=True)) for p in itertools.product(*domains)]


# --- what is such a map


@pytest.mark.parametrize(
    ("indices", "sizes", "found"),
    [
        ([X, Y, 3], (3, 4), [3, 4, 1]),
        ([Y * 3 + X], (3, 4), [12]),
        ([X // 3, X % 3], (24,), [8, 3]),
        ([X // 8, X // 2 % 4, X % 2], (24,), [3, 4, 2]),
        ([(X * 4 + Y) // 8, (X * 4 + Y) % 8], (6, 4), [3, 8]),
        ([(X // 4) * 4 + X % 4], (24,), [24]),
        ([X % 4 * 6 + X // 4], (24,), [24]),
        ([X * 8 + Y * 2 + 1], (3, 4), [12]),
        ([9 - X], (10,), [10]),
        ([Y * 3 + 2 - X], (3, 5), [15]),
        ([(Y * 3 + 2 - X) // 5, (Y * 3 + 2 - X) % 5], (3, 5), [3, 5]),
        ([(X + 5) % 4, X // 4], (8,), None),
        ([(X + 4) % 4, (X + 4) // 4], (8,), [4, 2]),
        ([tir.Div(X, 3), tir.Mod(X, 3)], (24,), [8, 3]),
        ([X, Z], (3, 1, 4), [3, 4]),
        ([X, X], (3,), None),
        ([X * 4 + Y], (4, 3), None),
        ([X * 3 + Y], (4, 4), None),
        ([X * Y], (4, 4), None),
        ([X + Y], (4, 4), None),
        ([X // 5], (24,), None),
        ([X], (4, 4), None),
        ([X % 4], (24,), None),
        ([ops.minimum(X, 3)], (4,), None),
        ([FUSED // 16, FUSED % 16 // 4, FUSED % 4], (6, 8), [3, 4, 4]),
        ([(FUSED // 16 * 4 + FUSED % 16 // 4) * 4 + Y % 4], (6, 8), [48]),
        ([FUSED // 16, FUSED % 16 // 4, Y % 2], (6, 8), None),
        ([FUSED // 16, FUSED % 16 // 4, Y], (6, 8), None),
    ],
)
def test_one_to_one_maps(indices: list[tir.PrimExpr], sizes: tuple[int, ...], found) -> None:
    if found is None:
        [error] = extents(*indices, iters=over(*sizes), check_level=BIJECTIVE)
        assert isinstance(error, str)
    else:
        assert extents(*indices, iters=over(*sizes), check_level="bijective") == found


def test_maps_onto_need_not_use_everything() -> None:
    assert extents(X % 4, iters=over(24)) == [4]
    assert extents(X // 8, X % 2, iters=over(24)) == [3, 2]
    assert extents(X, iters=over(4, 4)) == [4]


def test_without_a_check_steps_may_leave_gaps() -> None:
    assert extents(X * 4 + Y, iters=over(4, 3), check_level=IterMapLevel.NoCheck) == [16]
    assert extents(X, X, iters=over(4), check_level=3) == [4, 4]


@pytest.mark.parametrize(
    ("indices", "size", "found", "padding"),
    [
        ([X // 5, X % 5], 24, [5, 5], "x >= T.int64(24)"),
        ([X // 4, X % 4 // 2, X % 2], 10, [3, 2, 2], "x >= T.int64(10)"),
        ([(X + 1) // 5, (X + 1) % 5], 24, [5, 5], None),
        ([X // 5, X % 5], 3, [1, 3], "T.bool(False)"),
    ],
)
def test_what_does_not_divide_is_padded(indices, size: int, found, padding: str | None) -> None:
    result = detect_iter_map(indices, over(size), check_level=IterMapLevel.NoCheck)
    assert extents(*indices, iters=over(size), check_level=IterMapLevel.NoCheck) == found
    assert padding is None or str(result.padding_predicate) == padding


@pytest.mark.parametrize(
    ("indices", "size", "found"),
    [
        ([X // 5], 24, [5]),
        ([X % 5], 24, [5]),
        ([(X + 80) // 2 % 16, (X + 80) % 2], 176, [16, 2]),
        ([X // 3 % 5, X % 3], 26, [5, 3]),
        ([(X + 10) % 3, (X + 10) // 3 % 4, (X + 10) // 3 // 4 % 5], 240, [3, 4, 5]),
        ([X // 5, X % 5], 24, None),
        ([(X + 80) // 32, (X + 80) % 32], 176, None),
        ([X // 3 % 5, X % 3], 14, None),
        ([X // 4, X // 6 % 2], 12, None),
    ],
)
def test_maps_onto_take_no_value_from_padding_alone(indices, size: int, found) -> None:
    result = extents(*indices, iters=over(size))
    assert isinstance(result[0], str) if found is None else result == found


@pytest.mark.parametrize(
    ("index", "predicate", "sizes", "found"),
    [
        (X * 4 + Y, X * 4 + Y < 47, (12, 4), 47),
        (X * 4 + Y, tir.And(X * 4 + Y < 47, X * 4 + Y >= 7), (12, 4), 40),
        (X, X <= 9, (12,), 10),
        (X, tir.And(X > 2, X < 100), (12,), 9),
        (X, X.equal(5), (12,), 1),
        (X * 4 + Y, X < 6, (12, 4), 24),
        (X * 4 + Y, X < 0, (12, 4), None),
        (X, X * 4 + Y < 47, (12, 4), None),
        (X, (X % 3).equal(X // 3), (12,), None),
        (X, X * X < 9, (12,), None),
    ],
)
def test_predicates_bound_what_they_are_about(index, predicate, sizes, found) -> None:
    result = extents(index, iters=over(*sizes), predicate=predicate, check_level=BIJECTIVE)
    assert isinstance(result[0], str) if found is None else result == [found]


def test_a_bound_on_two_iterators_leaves_neither_free() -> None:
    iters = over(12, 4)
    assert isinstance(extents(X, Y, iters=iters, predicate=X * 4 + Y < 47)[0], str)
    assert extents(X * 4 + Y, iters=iters, predicate=X * 4 + Y < 47) == [47]


def test_sizes_can_be_symbols() -> None:
    rows = {X: Range(ops.const(4, "int64")), Y: Range(N)}
    assert extents(X * N + Y, iters=rows, check_level=BIJECTIVE) == [N * 4]
    assert extents(X // N, X % N, iters={X: Range(N * 4)}, check_level=BIJECTIVE) == [4, N]
    assert isinstance(extents(X // 4, X % 4, iters={X: Range(N)})[0], str)
    tiles = detect_iter_map([X // 4, X % 4], {X: Range(N)}, check_level="nocheck")
    assert str(tiles.padding_predicate) == "n <= x" or str(tiles.padding_predicate) == "x >= n"
    assert [str(normalize_iter_map_to_expr(i)) for i in tiles.indices] == [
        "x // T.int64(4)",
        "x % T.int64(4)",
    ]


def test_domains_may_begin_anywhere() -> None:
    iters = {X: Range(ops.const(2, "int64"), ops.const(10, "int64"))}
    [index] = detect_iter_map([X - 2], iters, check_level=BIJECTIVE).indices
    assert index.args[0].extent.value == 8
    assert evaluate(inverse_affine_iter_map([index], [ops.const(3, "int64")])[X], {}) == 5


def test_iterators_of_extent_1_can_be_kept() -> None:
    [index] = detect_iter_map([X], over(1), simplify_trivial_iterators=False).indices
    assert index.args[0].extent.value == 1
    assert detect_iter_map([X], over(1)).indices[0].args == ()


def test_what_a_map_is_made_of() -> None:
    mark = IterMark(X, 12)
    split = IterSplitExpr(mark, lower_factor=2, extent=3, scale=5)
    total = IterSumExpr([split], 7)
    assert str(normalize_iter_map_to_expr(total)) == (
        "x // T.int64(2) % T.int64(3) * T.int64(5) + T.int64(7)"
    )
    assert str(total) == (
        "IterSumExpr([IterSplitExpr(IterMark(x, extent=T.int64(12)), lower_factor=T.int64(2), "
        "extent=T.int64(3), scale=T.int64(5))], T.int64(7))"
    )
    assert IterSplitExpr(mark).extent is mark.extent
    assert structural_equal(
        total, IterSumExpr([IterSplitExpr(IterMark(Y, 12), 2, 3, 5)], 7), map_free_vars=True
    )
    assert all(isinstance(part, arith.IterMapExpr) for part in (mark, split, total))
    with pytest.raises(MisuseError, match="expected an IterMark to split, found x"):
        IterSplitExpr(X)  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match="expected an IterSplitExpr to add, found x"):
        IterSumExpr([X], 0)  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("index", "scales", "base"),
    [
        (Y + X * 3 + 1, [3, 1], "T.int64(1)"),
        (Z + (Y + X * 4 + 2) * N, ["n * T.int64(4)", "n", 1], "n * T.int64(2)"),
        (X * Y + Z * 4 + X, [4, 1], "x * y"),
        (ops.maximum(Y, N) + X // 2 * 3, [3], "T.max(n, y)"),
        ((X + ops.maximum(Y, N)) // 4 + Z, [1], "(x + T.max(n, y)) // T.int64(4)"),
        (X // ops.maximum(Y, 1), [], "x // T.max(y, T.int64(1))"),
        ((X * 4 + ops.maximum(Y, N)) // 4, [1], "T.max(n, y) // T.int64(4)"),
    ],
)
def test_one_index_as_a_sum(index: tir.PrimExpr, scales: list[object], base: str) -> None:
    total = normalize_to_iter_sum(index, over(9, 4, 3))
    found = [arg.scale for arg in total.args]
    assert [s.value if isinstance(s, tir.IntImm) else str(s) for s in found] == scales
    assert str(total.base) == base
    for point in points(over(9, 4, 3)):
        env = {**point, N: 5}
        assert evaluate(normalize_iter_map_to_expr(total), env) == evaluate(index, env)


def test_maps_become_simple() -> None:
    index = [(X * 4 + Y) // 4, (X * 4 + Y) % 4]
    assert [str(e) for e in iter_map_simplify(index, over(6, 4))] == ["x", "y"]
    assert [str(e) for e in iter_map_simplify([X * Y + 0], over(6, 4))] == ["x * y"]
    assert [str(e) for e in iter_map_simplify([Y * 6 + X], over(6, 4))] == ["y * T.int64(6) + x"]
    assert [str(e) for e in iter_map_simplify([Y * Y + X - Y * Y], over(6, 4))] == ["x"]


def test_other_things_are_refused() -> None:
    with pytest.raises(MisuseError, match="expected a level, found 'all'"):
        detect_iter_map([X], over(4), check_level="all")
    with pytest.raises(MisuseError, match="expected an IterMapLevel, found 7"):
        detect_iter_map([X], over(4), check_level=7)
    with pytest.raises(MisuseError, match=r"a Range for each tir\.Var"):
        detect_iter_map([X], {X: 4})  # type: ignore[dict-item]
    with pytest.raises(MisuseError, match="expected a table of Ranges"):
        detect_iter_map([X], [X])  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match="expected a Boolean"):
        detect_iter_map([X], over(4), predicate=X)
    [index] = detect_iter_map([X], over(4)).indices
    with pytest.raises(MisuseError, match="1 indices and 2 outputs"):
        inverse_affine_iter_map([index], [X, Y])
    with pytest.raises(MisuseError, match="of several splits has no inverse"):
        inverse_affine_iter_map([normalize_to_iter_sum(X * 9 + Y, over(4, 4))], [X])


# --- conditions


def test_a_disjunction_bounds_no_iterator() -> None:
    condition = tir.Or(X < 2, Y < 3)
    found = detect_iter_map([X, Y], over(8, 8), condition)
    assert found.errors == (f"the predicate `{condition}` is not a comparison of iterators",)
    assert iter_map_simplify([X // 4], over(8, 8), condition) == [X // 4]


# --- padding


@pytest.mark.timeout(20)
def test_an_iterator_is_padded_for_two_large_divisors_at_once() -> None:
    p, q, size = 3_000_000_019, 3_000_000_037, 1 << 40
    indices = [X // p, (X + 3) // q]
    found = detect_iter_map(indices, over(size), check_level=IterMapLevel.NoCheck)
    written = [normalize_iter_map_to_expr(index) for index in found.indices]
    for value in (0, p - 1, p, q - 4, q - 3, size - 1):
        assert [evaluate(w, {X: value}) for w in written] == [value // p, (value + 3) // q]


def test_an_iterator_is_not_padded_beyond_its_datatype() -> None:
    p, q = (1 << 40) + 15, (1 << 41) + 27
    found = detect_iter_map([X // p, (X + 3) // q], over(1 << 62), check_level="nocheck")
    [error] = found.errors
    assert "in different ways" in error


# --- any map at all


def drawn(rng: np.random.Generator, sizes: list[int]) -> list[tir.PrimExpr]:
    """Indices by chance: iterators split, fused, shifted, turned round, and now and then mixed."""
    parts: list[tuple[tir.PrimExpr, int]] = list(zip((X, Y, Z), sizes, strict=False))
    for _ in range(int(rng.integers(0, 6))):
        place = int(rng.integers(len(parts)))
        value, extent = parts.pop(place)
        by = int(rng.integers(1, 7))
        match int(rng.integers(6)):
            case 0 | 1:
                parts += [(value // by, math.ceil(extent / by)), (value % by, min(by, extent))]
            case 2:
                shift = int(rng.integers(0, 5))
                moved = value + shift
                parts += [(moved // by, (extent + shift) // by + 1), (moved % by, by)]
            case 3:
                parts.append((extent - 1 - value, extent))
            case 4 if parts:
                other, size = parts.pop(int(rng.integers(len(parts))))
                parts.append((value * size + other, extent * size))
            case _:
                parts.append((value * int(rng.integers(1, 3)) + 1, extent * 2))
    rng.shuffle(parts)  # type: ignore[arg-type]
    return [value for value, _ in parts]


def box_of(index: IterSumExpr) -> list[int]:
    """The values that an index is said to take."""
    base = evaluate(index.base, {})
    if not index.args:
        return [base]
    [arg] = index.args
    scale, extent = evaluate(arg.scale, {}), evaluate(arg.extent, {})
    return [base + scale * k for k in range(extent)]


@pytest.mark.parametrize("seed", range(4 * COUNT))
def test_detected_maps_are_what_they_are_said_to_be(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = [int(rng.choice([1, 2, 3, 4, 6, 8, 10])) for _ in range(int(rng.integers(1, 4)))]
    iters, indices = over(*sizes), drawn(rng, sizes)
    predicate = ops.const(True)
    if rng.integers(3) == 0:
        predicate = indices[0] < int(rng.integers(1, 12))
    inside = [p for p in points(iters) if evaluate(predicate, p)]
    image = [tuple(evaluate(i, p) for i in indices) for p in inside]
    onto = detect_iter_map(indices, iters, predicate)
    if not onto.errors:
        assert set(image) == set(itertools.product(*map(box_of, onto.indices)))
    for level in IterMapLevel:
        found = detected_map(indices, iters, predicate, level)
        if found.errors:
            continue
        said = [normalize_iter_map_to_expr(i) for i in found.indices]
        for point, values in zip(inside, image, strict=True):
            assert tuple(evaluate(e, point) for e in said) == values
            assert not evaluate(found.padding_predicate, point)
        if level is IterMapLevel.NoCheck:
            continue
        box = set(itertools.product(*map(box_of, found.indices)))
        outputs = [tir.Var(f"o{k}", "int64") for k in range(len(indices))]
        marks = values_of_marks(found.indices, outputs)
        inverse = inverse_affine_iter_map(found.indices, outputs)
        assert set(image) <= box
        assert not found.one_to_one or len(set(image)) == len(image)
        if level is IterMapLevel.Bijective:
            assert found.one_to_one
            assert found.padded == ()
            assert len(set(image)) == len(image) == len(box)
        for values in box:
            env = dict(zip(outputs, values, strict=True))
            if any(evaluate(p.is_padding(marks[p.mark]), env) for p in found.padded):
                assert values not in image
                continue
            back = {var: evaluate(inverse.get(var, iters[var].min), env) for var in iters}
            assert tuple(evaluate(i, back) for i in indices) == values
            assert back in inside


def test_many_drawn_maps_are_detected() -> None:
    """The test above is about something."""
    count = 0
    for seed in range(4 * COUNT):
        rng = np.random.default_rng(seed)
        sizes = [int(rng.choice([1, 2, 3, 4, 6, 8, 10])) for _ in range(int(rng.integers(1, 4)))]
        count += not detect_iter_map(drawn(rng, sizes), over(*sizes)).errors
    assert count > 2 * COUNT


@pytest.mark.parametrize(
    ("index", "conditions", "sizes"),
    [
        (
            X * 8 + Y * 2 + Z,
            [Y * 2 + Z >= 1, Y * 2 + Z < 9, X * 8 + Y * 2 + Z >= 3, X * 8 + Y * 2 + Z < 25],
            (11, 5, 2),
        ),
        (
            X * 6 + Y * 2 + Z,
            [
                X * 6 + Y * 2 + Z < 18,
                X * 6 + Y * 2 + Z >= 3,
                Y * 2 + Z >= 1,
                Y * 2 + Z >= 2,
                Y * 2 + Z < 8,
            ],
            (11, 5, 2),
        ),
        (X * 8 + Y * 2 + Z, [Y * 2 + Z >= 2, X * 4 + Y >= 0], (11, 5, 2)),
    ],
)
def test_bounds_of_parts_come_before_bounds_of_wholes(index, conditions, sizes) -> None:
    iters, condition = over(*sizes), ops.all_of(*conditions)
    found = detect_iter_map([index], iters, condition)
    assert not found.errors
    [[split], base] = found.indices[0].args, found.indices[0].base
    reached = [evaluate(index, p) for p in points(iters) if evaluate(condition, p)]
    start, extent = evaluate(base, {}), evaluate(split.extent, {})
    assert sorted(reached) == list(range(start, start + extent))


def test_a_condition_without_iterators_changes_nothing() -> None:
    i, j = tir.Var("i", "int32"), tir.Var("j", "int32")
    found = detect_iter_map([i + j], {i: Range(0, 3)}, predicate=j <= 24)
    assert found.errors == ()
    [index] = found.indices
    assert index.base is j


def test_an_analyzer_knows_divisors() -> None:
    tile, iters = tir.Var("tile", "int64"), over(32)
    known = arith.Analyzer()
    known.bind(tile, 8)
    [found] = detect_iter_map([X % tile], iters, analyzer=known).indices
    assert structural_equal(found, detect_iter_map([X % 8], iters).indices[0], map_free_vars=True)
    [simple] = iter_map_simplify([X // tile * tile + X % tile], iters, analyzer=known)
    assert simple is X
    assert not known.const_int_bound_is_bound(X)
    with pytest.raises(MisuseError, match="expected an Analyzer of facts"):
        detect_iter_map([X], iters, analyzer=iters)  # type: ignore[arg-type]
