"""IndexMap, beside what it does to arrays."""

import itertools
import pickle

import numpy as np
import pytest

from relaxpy import tir
from relaxpy.arith import Analyzer
from relaxpy.errors import MisuseError
from relaxpy.ir.equality.structural import assert_structural_equal, structural_equal
from relaxpy.ir.serialize import load_json, save_json
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.iteration import Range
from relaxpy.tir import IndexMap, Var
from tests.ir.arith.boxes import evaluate

TILES = IndexMap.from_func(lambda i, j: [i // 4, j, i % 4])
N = tir.SizeVar("n", "int64")


def numbers(values: object) -> list[object]:
    return [v.value if isinstance(v, tir.IntImm) else str(v) for v in values]


def test_a_map_is_a_function_of_indices() -> None:
    assert [v.name for v in TILES.initial_indices] == ["i", "j"]
    assert str(TILES) == "IndexMap(lambda i, j: (i // T.int64(4), j, i % T.int64(4)))"
    assert IndexMap.from_func(lambda i: i).final_indices[0].name == "i"
    assert numbers(IndexMap.from_func(lambda i: (0, i)).final_indices) == [0, "i"]
    named = IndexMap.from_func(lambda first, *rest: [*rest, first], ndim=3, index_dtype="int32")
    assert [v.name for v in named.initial_indices] == ["first", "rest_0", "rest_1"]
    assert named.final_indices[0] is named.initial_indices[1]
    assert named.final_indices[0].dtype == "int32"
    last = IndexMap.from_func(lambda *rest, last: [last // 4, *rest, last % 4], ndim=3)
    assert str(last) == (
        "IndexMap(lambda rest_0, rest_1, last: "
        "(last // T.int64(4), rest_0, rest_1, last % T.int64(4)))"
    )
    assert_structural_equal(TILES, IndexMap.from_func(lambda a, b: [a // 4, b, a % 4]))
    assert not structural_equal(TILES, IndexMap.from_func(lambda a, b: [b // 4, a, b % 4]))


def test_separators_stand_between_axes() -> None:
    found, places = IndexMap.from_func_with_separators(
        lambda i, j: [i // 4, IndexMap.AXIS_SEPARATOR, j, i % 4]
    )
    assert_structural_equal(found, TILES)
    assert places == [1]
    with pytest.raises(MisuseError, match="from_func_with_separators"):
        IndexMap.from_func(lambda i: [i, IndexMap.AXIS_SEPARATOR])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: IndexMap.from_func(3), "is a function, found 3"),
        (lambda: IndexMap.from_func(lambda *i: i), r"the number of indices, since there is \*i"),
        (lambda: IndexMap.from_func(lambda i: i, ndim=2), "takes 1 indices, ndim is 2"),
        (lambda: IndexMap.from_func(lambda *, i: i, ndim=2), "takes 1 indices, ndim is 2"),
        (lambda: IndexMap.from_func(lambda **i: i), r"no arguments of any name, as \*\*i"),
        (lambda: IndexMap.from_func(lambda i: [None]), "expected a scalar expression"),
        (lambda: IndexMap([3], []), r"defines a tir\.Var, found 3"),
        (lambda: IndexMap([], [], 3), "the inverse is an IndexMap, found 3"),
        (lambda: TILES.map_indices([1]), "the map takes 2 indices, found 1"),
        (lambda: TILES.map_shape([1, 2, 3]), "the map takes 2 sizes, found 3"),
        (lambda: TILES.map_ndarray(np.zeros(3)), "the map takes 2 sizes, found 1"),
        (lambda: TILES.inverse([14, 3]), "cannot be inverted: .*leaves a remainder"),
        (lambda: TILES.inverse([3, 3]), "cannot be inverted: .*leaves a remainder"),
        (lambda: IndexMap.from_func(lambda i: [i % 3]).inverse([6]), "cannot be inverted"),
        (lambda: IndexMap.from_func(lambda i, j: [i + j]).inverse([6, 6]), "cannot be inverted"),
        (
            lambda: IndexMap.from_func(lambda i, j: [i]).non_surjective_inverse([6, 6]),
            "it loses indices",
        ),
        (lambda: IndexMap.from_func(max), "parameters of <built-in function max> are not known"),
        (lambda: TILES.map_indices(None), "expected a list of indices, found None"),
        (lambda: TILES.map_shape("ab"), "expected a list of sizes, found 'ab'"),
        (lambda: IndexMap.from_func(lambda i: [i + N]).map_ndarray([1, 2]), "`n` cannot be comp"),
        (
            lambda: IndexMap.from_func(lambda i: [1 - i]).map_ndarray([1, 2, 3]),
            r"the index `T\.int64\(1\) - i` is negative for some elements",
        ),
        (lambda: TILES.is_equivalent_to(3), "expected an IndexMap, found 3"),
    ],
)
def test_other_things_are_refused(make, says: str) -> None:
    with pytest.raises(MisuseError, match=says):
        make()


def test_indices_are_mapped_and_simplified() -> None:
    assert numbers(TILES.map_indices([14, 2])) == [3, 2, 2]
    i = tir.Var("x", "int32")
    found = TILES.map_indices([i * 4 + 1, i])
    assert numbers(found) == ["x", "x", 1]
    assert [e.dtype for e in found] == ["int32"] * 3
    j = tir.Var("a", "int32")
    assert [str(e) for e in TILES.map_indices([0, i * 2 + j])][1] == "x * 2 + a"  # in this order
    assert [str(e) for e in TILES.map_indices([0, i + j - i])][1] == "a"


def test_shapes_are_mapped_so_that_they_hold_everything() -> None:
    assert numbers(TILES.map_shape([16, 3])) == [4, 3, 4]
    assert numbers(TILES.map_shape([14, 3])) == [4, 3, 4]
    assert numbers(TILES.map_shape([3, 3])) == [1, 3, 4]
    assert numbers(TILES.map_shape([1, 3])) == [1, 3, 4]
    assert numbers(TILES.map_shape([N * 4, 3])) == ["n", 3, 4]
    assert numbers(TILES.map_shape([N, Range(3)])) == ["(n + T.int64(3)) // T.int64(4)", 3, 4]
    assert numbers(TILES.map_shape([0, 3])) == [0, 3, 4]
    assert numbers(TILES.map_shape([16, Range(2, 2)])) == [4, 2, 4]
    assert numbers(IndexMap.from_func(lambda i: [i + 2, i * i]).map_shape([5])) == [7, 17]


def test_shapes_of_int64_stay_so_under_narrower_indices() -> None:
    narrow = IndexMap.from_func(lambda i: [i // 4, i % 4], index_dtype="int32")
    n = tir.Var("n", "int64")
    for size in (tir.IntImm("int64", 14), n):
        assert [part.dtype for part in narrow.map_shape([size])] == ["int64", "int64"]
    assert numbers(narrow.map_shape([n])) == ["(n + T.int64(3)) // T.int64(4)", 4]
    assert [part.dtype for part in narrow.map_shape([14])] == ["int32", "int32"]


def test_arrays_are_mapped_with_nothing_between() -> None:
    data = np.arange(24, dtype="int8").reshape(8, 3)
    tiles = data.reshape(2, 4, 3).transpose(0, 2, 1)
    assert np.array_equal(TILES.map_ndarray(data), tiles)
    assert np.array_equal(TILES.map_tensor(data).numpy(), tiles)
    assert TILES.map_tensor(data).dtype == "int8"
    padded = TILES.map_ndarray(data[:7])
    assert padded.shape == (2, 3, 4)
    assert (padded[1, :, 3] == 0).all()
    assert np.array_equal(IndexMap.from_func(lambda i, j: [j, i]).map_ndarray(data), data.T)
    clamped = IndexMap.from_func(lambda i: [tir.floordiv(i, 2) * 2])
    with pytest.raises(MisuseError, match="cannot be computed for arrays"):
        IndexMap.from_func(lambda i: [i & 3]).map_ndarray(np.zeros(4))
    assert clamped.map_ndarray(np.arange(4)).tolist() == [1, 0, 3]


def test_a_given_inverse_is_the_inverse() -> None:
    found = IndexMap.from_func(lambda i: [i // 4, i % 4], inverse_index_map=lambda a, b: a * 4 + b)
    assert found.inverse([14]) is found.inverse_index_map
    assert numbers(found.inverse([14]).map_indices([3, 1])) == [13]


def test_an_inverse_with_padding_says_where_that_is() -> None:
    inverse, padding = TILES.non_surjective_inverse([14, 3])
    assert str(inverse) == "IndexMap(lambda axis0, j, axis2: (axis0 * T.int64(4) + axis2, j))"
    assert str(padding) == "axis0 == T.int64(3) and axis2 >= T.int64(2)"
    _, last = TILES.non_surjective_inverse([15, 3])
    assert str(last) == "axis0 == T.int64(3) and axis2 == T.int64(3)"
    _, nowhere = TILES.non_surjective_inverse([16, 3])
    assert nowhere is ops.const(False)


def test_what_is_known_of_variables_is_used() -> None:
    tile = Var("tile", "int64")
    tiles = IndexMap.from_func(lambda i: [i // tile, i % tile])
    analyzer = Analyzer()
    analyzer.bind(tile, 16)
    assert numbers(tiles.map_indices([35], analyzer)) == [2, 3]
    assert numbers(tiles.map_shape([32], analyzer)) == [2, 16]
    assert numbers(tiles.inverse([32], analyzer).map_indices([1, 3], analyzer)) == [19]
    inverse, padding = tiles.non_surjective_inverse([31], analyzer)
    where = dict(zip(inverse.initial_indices, (1, 15), strict=True))
    assert evaluate(padding, where)
    analyzer.bind(inverse.initial_indices[0], 0)  # they are not bound to anything yet
    plain = IndexMap.from_func(lambda i: [i // 16, i % 16])
    assert plain.is_equivalent_to(tiles, analyzer)
    assert not plain.is_equivalent_to(tiles)
    with pytest.raises(MisuseError, match="cannot be inverted"):
        tiles.inverse([31], analyzer)


def test_indices_of_padding_may_be_negative() -> None:
    shifted = IndexMap.from_func(lambda i: [(i - 1) // 4, (i - 1) % 4])
    inverse, padding = shifted.non_surjective_inverse([14])
    elements = set()
    for where in itertools.product(range(-1, 4), range(4)):
        value = dict(zip(inverse.initial_indices, where, strict=True))
        if not evaluate(padding, value):
            elements.add(evaluate(inverse.final_indices[0], value))
    assert elements == set(range(14))


def test_padding_that_is_left_out_afterwards_does_not_matter() -> None:
    cancelled = IndexMap.from_func(lambda i: [(i + 1) // 3 - (i + 1) // 3 + i])
    inverse, padding = cancelled.non_surjective_inverse([4])
    assert numbers(inverse.map_indices([3])) == [3]
    assert padding is ops.const(False)


def test_an_index_of_extent_1_is_where_its_range_begins() -> None:
    swapped = IndexMap.from_func(lambda i, j: [j, i])
    inverse = swapped.inverse([3, Range(5, 6)])
    assert numbers(inverse.map_indices([5, 2])) == [2, 5]


def test_maps_are_equivalent_if_they_give_the_same() -> None:
    assert TILES.is_equivalent_to(IndexMap.from_func(lambda a, b: [a * 4 // 16, b, a - a // 4 * 4]))
    assert TILES.is_equivalent_to(
        IndexMap.from_func(lambda a, b: [a // 4, b, a % 4], index_dtype="int32")
    )
    assert not TILES.is_equivalent_to(IndexMap.from_func(lambda a, b: [a // 4, b, a % 8]))
    assert not TILES.is_equivalent_to(IndexMap.from_func(lambda a: [a // 4, a, a % 4]))
    assert not TILES.is_equivalent_to(IndexMap.from_func(lambda a, b: [a, b]))


def test_maps_are_saved() -> None:
    for again in (load_json(save_json(TILES)), pickle.loads(pickle.dumps(TILES))):
        assert_structural_equal(again, TILES)


@pytest.mark.parametrize("seed", range(60))
def test_inverses_lead_back(seed: int) -> None:
    """Axes split, moved and fused by chance; every element is tried."""
    rng = np.random.default_rng(seed)
    shape = [int(rng.choice([2, 3, 4, 6, 8])) for _ in range(int(rng.integers(1, 4)))]
    tile = int(rng.choice([2, 3, 4]))
    order = rng.permutation(len(shape) + 1)
    fuse = bool(rng.integers(2)) and shape[0] % tile == 0

    def layout(*index: tir.PrimExpr) -> list[tir.PrimExpr]:
        parts = [index[0] // tile, *index[1:], index[0] % tile]
        sizes = [-(-shape[0] // tile), *shape[1:], tile]
        moved = [parts[k] for k in order]
        if fuse:
            moved[-2:] = [moved[-2] * sizes[order[-1]] + moved[-1]]
        return moved

    forward = IndexMap.from_func(layout, ndim=len(shape))
    back, padding = forward.non_surjective_inverse(shape)
    found = set()
    for point in itertools.product(*map(range, shape)):
        place = [evaluate(e, {}) for e in forward.map_indices(point)]
        found.add(tuple(place))
        assert [evaluate(e, {}) for e in back.map_indices(place)] == list(point)
    whole = [evaluate(size, {}) for size in forward.map_shape(shape)]
    for place in itertools.product(*map(range, whole)):
        env = dict(zip(back.initial_indices, place, strict=True))
        assert bool(evaluate(padding, env)) == (place not in found)
    if shape[0] % tile == 0:
        assert forward.inverse(shape).is_equivalent_to(back)
    data = rng.integers(0, 100, shape)
    moved = forward.map_ndarray(data)
    assert all(
        moved[tuple(evaluate(e, {}) for e in forward.map_indices(p))] == data[p]
        for p in itertools.product(*map(range, shape))
    )


def in_factors(number: int, count: int) -> list[tuple[int, ...]]:
    """The ways to write a number as a product of `count` factors of at least 2, in order."""
    if count == 1:
        return [(number,)]
    firsts = (k for k in range(2, number // 2 + 1) if number % k == 0)
    return [(k, *rest) for k in firsts for rest in in_factors(number // k, count - 1)]


@pytest.mark.parametrize("shape", [(4, 6), (4, 9), (6, 10), (3, 8), (2, 3, 6), (2, 10, 6)])
def test_the_digits_of_a_fused_index_are_inverted(shape: tuple[int, ...]) -> None:
    whole = int(np.prod(shape))
    for sizes in (f for count in (2, 3, 4) for f in in_factors(whole, count)):
        steps = [int(np.prod(sizes[k + 1 :])) for k in range(len(sizes))]

        def digits(*index: tir.PrimExpr, steps=steps, sizes=sizes) -> list[object]:
            fused = index[0]
            for i, extent in zip(index[1:], shape[1:], strict=True):
                fused = fused * extent + i
            first, *others = zip(steps, sizes, strict=True)
            return [fused // first[0], *((fused // step) % size for step, size in others)]

        source = [Var(f"i{k}", "int64") for k in range(len(shape))]
        inverse = IndexMap(source, digits(*source)).inverse(shape)
        axes = inverse.initial_indices
        for number, index in enumerate(np.ndindex(*sizes)):
            at = dict(zip(axes, map(int, index), strict=True))
            found = tuple(evaluate(value, at) for value in inverse.final_indices)
            assert found == np.unravel_index(number, shape), (sizes, index)
