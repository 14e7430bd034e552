"""Operators that order elements: long rows, NaN, short integers, and known boundaries."""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.api.compile import compile
from relaxpy.ir import ops as op
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import Var
from tests.ir.ops.cases.case import Case
from tests.ir.ops.variants import program
from tests.ir.relax.graphs import returning
from tests.ir.relax.sinfos import rank, tensor

HOLES = [3.0, np.nan, 1.0, 3.0, np.nan, -2.0, 0.0, 0.5, 0.25]
ASCENDING = [-2.0, 0.0, 0.25, 0.5, 1.0, 3.0, 3.0, np.nan, np.nan]
ORDERED: dict[str, tuple[Callable[..., rx.Expr], list[float]]] = {
    "sort": (op.sort, ASCENDING),
    "descending": (lambda x: op.sort(x, descending=True), ASCENDING[::-1]),
    "argsort": (op.argsort, [5, 6, 8, 7, 2, 0, 3, 1, 4]),
    "last": (lambda x: op.topk(x, 2, 0, "values", largest=False), ASCENDING[:2]),
    "unique": (op.unique, [-2.0, 0.0, 0.25, 0.5, 1.0, 3.0, np.nan]),
}


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "uint8"])
def test_one_rank_of_large_data_is_selected_as_a_stable_sort_has_it(dtype: str, axis: int) -> None:
    rng = np.random.default_rng(7)
    kind = DataType(dtype).numpy()
    for share, place in product((0.0, 0.3, 0.9), (0, 1, 700, 1499, 5000)):
        x = rng.integers(0, 6, (4, 1500)).astype(kind)
        if DataType(dtype).is_float:
            x[rng.random(x.shape) < 0.1] = -0.0
            x[rng.random(x.shape) < share] = np.nan
        rows = x if axis else np.ascontiguousarray(x.T)
        run = compile(
            returning(
                partial(op.nth_index, axis=axis),
                tensor(*rows.shape, dtype=dtype),
                tensor(dtype="int64"),
            ),
            "numpy",
        )["main"]
        wide = rows.astype("float64")
        expected = np.take(np.argsort(wide, axis, kind="stable"), [min(place, 1499)], axis)
        np.testing.assert_array_equal(run(rows, np.array(place)), expected)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("label", ORDERED)
def test_nan_is_the_greatest_of_narrow_floats(label: str, dtype: str) -> None:
    make, expected = ORDERED[label]
    x = np.array(HOLES, getattr(ml_dtypes, dtype))
    module = program(Case("relax.sort", label, (x,), make, np.sort))
    for target in ("reference", "numpy"):
        found: Any = compile(module, target)["main"](x)
        assert label == "argsort" or DataType(found.dtype) == dtype
        np.testing.assert_array_equal(found.astype("float64"), expected)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_nan_is_above_the_boundaries_of_narrow_floats(dtype: str) -> None:
    kind = getattr(ml_dtypes, dtype)
    x, boundaries = np.array(HOLES, kind), np.array([0, 1, np.nan], kind)
    case = Case("relax.bucketize", "NaN", (x, boundaries), op.bucketize, np.searchsorted)
    found: Any = compile(program(case))["main"](x, boundaries)
    np.testing.assert_array_equal(found, [2, 2, 1, 2, 2, 0, 0, 1, 1])


@pytest.mark.each_choice
@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "uint16"])
def test_buckets_of_known_boundaries(dtype: str, target: str) -> None:
    kind = DataType(dtype).numpy()
    rng = np.random.default_rng(0)
    shapes = ((1, (3, 5)), (2, (0, 3)), (7, (67,)), (100, (129,)), (100, (129,)), (33, ()))
    for number, (count, shape) in enumerate(shapes):
        boundaries = (rng.standard_normal(count) * 20 + 40).astype(kind)
        x = np.array(rng.standard_normal(shape) * 20 + 40, kind)
        if kind.kind != "i" and x.size > 20:
            x.flat[:3] = boundaries[:3]
        boundaries = np.sort(boundaries.astype("float64")).astype(kind)
        if DataType(dtype).is_float and count > 2:
            boundaries[-1] = np.nan
            x.flat[-1] = np.nan
        wide, bounds = x.astype("float64"), boundaries.astype("float64")
        right = bool(number % 2)
        make = partial(op.bucketize, out_int32=right, right=right)
        case = Case("relax.bucketize", "known", (x, boundaries), make, np.searchsorted)
        found: Any = compile(program(case), target)["main"](x, boundaries)
        assert found.dtype == ("int32" if right else "int64")
        expected = np.searchsorted(bounds, wide, "right" if right else "left")
        np.testing.assert_array_equal(found, expected)


def _best(data: np.ndarray[Any, Any], k: int, *, largest: bool) -> list[list[int]]:
    """The first k indices of each row by Python's sort, which is stable; NaN is greatest."""
    sign = -1 if largest else 1

    def key(x: float) -> tuple[int, float]:
        return (sign, 0.0) if x != x else (0, sign * x)

    rows = data.astype("float64").tolist()
    return [sorted(range(len(row)), key=lambda n: key(row[n]))[:k] for row in rows]


def _called(
    make: Callable[..., rx.Expr], x: np.ndarray[Any, Any], target: str | None = None
) -> list[Any]:
    module = program(Case("relax.sort", "rows", (x,), make, np.sort))
    found: list[Any] = compile(module, target)["main"](x).tolist()
    return found


@pytest.mark.each_choice
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "int8", "float16"])
def test_few_elements_of_long_rows(dtype: str, largest: bool) -> None:
    random = np.random.default_rng(1)
    for shape, k in (
        ((3, 2001), 5),
        ((2, 5000), 1),
        ((40, 300), 7),
        ((700, 8), 2),
        ((1, 999), 30),
        ((1, 1000), 100),
        ((3, 200), 90),
    ):
        x = (random.standard_normal(shape) * 30).astype(dtype)
        for target in ("native", "numpy"):
            make = partial(op.topk, k=k, ret_type="indices", largest=largest)
            assert _called(make, x, target) == _best(x, k, largest=largest)


@pytest.mark.parametrize("largest", [True, False])
def test_few_elements_of_long_rows_with_nan_and_equal_elements(largest: bool) -> None:
    x = np.zeros((4, 2000), "float32")
    x[0, [7, 1999]] = np.nan
    x[1, ::7] = 1
    x[2] = np.inf
    x[3, 3] = -np.inf
    for rows in (x, x[1:]):
        for target in ("native", "numpy"):
            make = partial(op.topk, k=4, ret_type="indices", largest=largest)
            assert _called(make, rows, target) == _best(rows, 4, largest=largest)


@pytest.mark.each_choice
@pytest.mark.parametrize("kind", ["both", "values", "indices"])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(
    "dtype",
    [
        *("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "bool"),
        *("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    ],
)
def test_loops_select_the_same_bits_as_a_sort(dtype: str, largest: bool, kind: Any) -> None:
    rng, info = np.random.default_rng(6), DataType(dtype)
    if info.is_float:
        special = [0.0, -0.0, np.nan, -np.nan, *([] if info.bits == 8 else [np.inf, -np.inf])]
        values = np.array([*special, *rng.standard_normal(20)]).astype(info.numpy())
    else:
        ends = ops.int_range(info)
        drawn = rng.integers(*ends, 20, info.numpy(), endpoint=True)
        values = np.concatenate([np.array(ends, info.numpy()), drawn])
    shapes = (((3, 70), 1), ((2, 1001, 3), -2), ((28,), 0), ((4096,), 0), ((7, 30), 0))
    for shape, axis in {"both": shapes, "values": shapes[:1], "indices": shapes[1:2]}[kind]:
        x = rng.choice(values, shape)
        make = partial(op.topk, k=7, axis=axis, ret_type=kind, largest=largest)
        module = program(Case("relax.topk", "bits", (x,), make, np.sort))
        executable = compile(module, "native")
        assert bool(executable.report().rows) == (dtype != "float8_e4m3fn")
        assert all(row.backend == "native" for row in executable.report())
        found, expected = executable["main"](x), compile(module, "reference")["main"](x)
        pairs: Any = zip(found, expected, strict=True) if kind == "both" else [(found, expected)]
        assert all(a.tobytes() == b.tobytes() for a, b in pairs)


@pytest.mark.each_choice
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8"])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_few_elements_and_their_positions(axis: int, dtype: str, largest: bool) -> None:
    for shape in ((4, 9, 70), (70, 9, 4), (5, 3, 6), (0, 9, 9)):
        x = (np.random.default_rng(2).standard_normal(shape) * 30).astype(dtype)
        x.reshape(-1)[::13] = -np.inf if dtype == "float32" else np.iinfo(dtype).min
        rows = np.moveaxis(x, axis, -1)
        k = min(3, rows.shape[-1])
        lines = rows.reshape(rows.size // max(rows.shape[-1], 1), rows.shape[-1])
        best = _best(lines, k, largest=largest)
        places = np.array(best, "int64").reshape(*rows.shape[:-1], k)
        values = np.take_along_axis(rows, places, -1)
        one_of_both = [("values", values), ("indices", places)] if x.shape[0] == 5 else []
        for k_text, found in (("both", None), *one_of_both):
            make = partial(op.topk, k=3, axis=axis, ret_type=k_text, largest=largest, dtype="int64")
            module = program(Case("relax.topk", "axis", (x,), make, np.sort))
            for target in ("native", "numpy"):
                result: Any = compile(module, target)["main"](x)
                pairs = (
                    [(result, found)]
                    if found is not None
                    else list(zip(result, (values, places), strict=True))
                )
                for one, expected in pairs:
                    np.testing.assert_array_equal(np.moveaxis(one, axis, -1), expected)


def test_loops_select_in_rows_whose_number_is_symbolic() -> None:
    make = partial(op.topk, k=3, axis=1, ret_type="indices")
    executable = compile(returning(make, tensor(Var("n", INT64), 500, 2)), "native")
    assert executable.report().rows
    for n in (0, 1, 9):
        x = np.random.default_rng(n).standard_normal((n, 500, 2)).astype("float32").round(1)
        expected = np.argsort(-x, 1, kind="stable")[:, :3]
        np.testing.assert_array_equal(executable["main"](x), expected)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_sorts_of_short_integers(dtype: str) -> None:
    numbers = np.random.default_rng(0).integers(-200, 200, 1500).astype(dtype)
    for x, descending in product((numbers.reshape(5, 300), numbers.reshape(300, 5)), (False, True)):
        rows = [sorted(row, reverse=descending) for row in x.tolist()]
        assert _called(partial(op.sort, descending=descending), x) == rows


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("int32", -(1 << 31), (1 << 31) - 1),
        ("uint32", 0, (1 << 32) - 1),
        ("int64", -(1 << 31), (1 << 31) - 1),
        ("int64", -(1 << 31) - 1, 5),
        ("int64", -(1 << 63), (1 << 63) - 1),
        ("uint64", 0, 1 << 31),
        ("int64", (1 << 62) - 7, (1 << 62) + (1 << 16) - 8),
        ("uint64", (1 << 64) - 9, (1 << 64) - 1),
    ],
)
def test_positions_of_many_integers_are_stable(dtype, low, high, descending) -> None:
    rng = np.random.default_rng(3)
    x = rng.choice(rng.integers(low, high, 400, dtype, endpoint=True), (3, 1800))
    x[0, 5:9] = x[2, 0:4] = [low, high, low, high]
    for axis, values in ((1, x), (0, np.ascontiguousarray(x.T))):
        function = partial(op.argsort, axis=axis, descending=descending)
        found = np.moveaxis(np.array(_called(function, values)), axis, 1)
        for row, places in zip(x.tolist(), found.tolist(), strict=True):
            assert places == sorted(range(1800), key=row.__getitem__, reverse=descending)
        rows = _called(partial(op.sort, axis=axis, descending=descending), values)
        expected = [sorted(row, reverse=descending) for row in x.tolist()]
        assert rows == (expected if axis else [list(row) for row in zip(*expected, strict=True)])


LONG = 200_000
RUNS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "ascending": lambda x: np.sort(x),
    "descending": lambda x: np.sort(x)[::-1],
    "two ascending": lambda x: np.sort(x.reshape(2, -1)).reshape(-1),
    "ascending with equal ones": lambda x: np.sort(np.where(x > 0, x, 0)),
    "descending with equal ones": lambda x: np.sort(np.where(x > 0, x, 0))[::-1],
}


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("runs", RUNS.values(), ids=RUNS)
def test_positions_in_runs_are_stable(runs: Any, dtype: str) -> None:
    x = runs((np.random.default_rng(1).standard_normal(LONG) * 1e6).astype(dtype))
    find = compile(returning(op.argsort, tensor(LONG, dtype=dtype)))["main"]
    np.testing.assert_array_equal(find(x), np.argsort(x, kind="stable"))


FLOATS = ["float16", "bfloat16", "float32", "float64"]
BITS = [8, 16, 32, 64]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(("lines", "length"), [(80, 8), (300, 20), (9, 700), (1, 5000)])
@pytest.mark.parametrize("dtype", [*FLOATS, *(f"{u}int{bits}" for u in ("", "u") for bits in BITS)])
def test_positions_of_many_numbers_are_stable(dtype, lines, length, descending) -> None:
    rng, kind = np.random.default_rng(4), DataType(dtype).numpy()
    if dtype in FLOATS:
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1.5, -1.5, 1e-45, -1e-45, 6e4]
        values = np.array([*special, *rng.standard_normal(400)], kind)
        values = np.concatenate([values, -values])
    else:
        ends = np.iinfo(dtype)
        values = rng.integers(ends.min, ends.max, 400, dtype, endpoint=True)
        values[:4] = ends.min, ends.max, ends.min // 2, ends.max // 2 + 1
    x = rng.choice(values, (lines, length))
    for axis, data in ((1, x), (0, np.ascontiguousarray(x.T))):
        function = partial(op.argsort, axis=axis, descending=descending)
        found = np.moveaxis(np.array(_called(function, data)), axis, 1)
        for row, places in zip(x.tolist(), found.tolist(), strict=True):
            keys = [(v != v, 0 if v != v else v) for v in row]
            assert places == sorted(range(length), key=keys.__getitem__, reverse=descending)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_sorts_of_long_rows_with_nan(dtype: str) -> None:
    x = (np.random.default_rng(0).integers(-9, 10, (2, 9000)) / 4).astype(dtype)
    x[:, ::1000] = np.nan
    for descending in (False, True):
        found = _called(partial(op.sort, descending=descending), x)
        whole = _best(x, 9000, largest=descending)
        np.testing.assert_array_equal(found, np.take_along_axis(x, np.array(whole), 1))
    np.testing.assert_array_equal(_called(op.unique, x), [*(np.arange(-9, 10) / 4), np.nan])


@pytest.mark.parametrize(
    ("dtype", "special"),
    [
        *product(FLOATS, [(), (0.0, -0.0), (0.0, -0.0, np.nan), (np.inf, -np.inf)]),
        *(("int32", (-9, -1)), ("uint8", (200,)), ("bool", ())),
    ],
)
def test_medians_of_many_elements(dtype: str, special: tuple[float, ...]) -> None:
    values = np.array([*special, 1, 0, 2]).astype(DataType(dtype).numpy())
    x = np.random.default_rng(5).choice(values, (70, 101))
    x[5] = 1

    def medians(data: np.ndarray[Any, Any], axis: int | None) -> Any:
        make = partial(op.median, axis=axis)
        module = program(Case("relax.median", "", (data,), make, np.sort))
        return compile(module)["main"](data)

    places = []
    for row in x.tolist():
        nan = [k for k, v in enumerate(row) if v != v]
        places.append(nan[0] if nan else sorted(range(101), key=row.__getitem__)[50])
    for axis, data in ((1, x), (0, np.ascontiguousarray(x.T))):
        value, index = medians(data, axis)
        assert index.tolist() == places
        assert value.dtype == x.dtype
        one, other = (v.astype("float64") for v in (value, x[range(70), places]))
        np.testing.assert_array_equal(one, other)
        if dtype in FLOATS:
            assert (np.signbit(one) == np.signbit(other)).all()
    whole = [v for v in x.reshape(-1).tolist() if v == v]
    expected = np.nan if len(whole) < x.size else sorted(whole)[(x.size - 1) // 2]
    assert str(float(medians(x, None))) == str(float(expected))


RETURNED = ("return_index", "return_inverse", "return_counts")


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_distinct_elements_in_the_order_of_their_first_occurrence(axis: int | None) -> None:
    data = np.array([[3, 1, 3, 1], [2, 2, 2, 2], [3, 1, 3, 1]], "int64")
    make = partial(op.unique, sorted=False, axis=axis, **dict.fromkeys(RETURNED, True))
    mod = returning(make, tensor(*data.shape, dtype="int64"))
    values, index, inverse, counts = compile(mod)["main"](data)
    ordered = np.unique(data, axis=axis, return_index=True, return_counts=True)
    by_index = np.argsort(ordered[1])
    along = 0 if axis is None else axis
    np.testing.assert_array_equal(values, np.take(ordered[0], by_index, along))
    np.testing.assert_array_equal(index, ordered[1][by_index])
    np.testing.assert_array_equal(counts, ordered[2][by_index])
    whole = np.take(values, inverse, along)
    np.testing.assert_array_equal(whole, data.reshape(-1) if axis is None else data)


@pytest.mark.parametrize("is_sorted", [True, False])
@pytest.mark.parametrize("returned", [(), *((r,) for r in RETURNED), RETURNED])
@pytest.mark.parametrize(
    ("dtype", "least", "count"),
    [
        ("int64", -(2**63), 40),
        ("uint64", 2**64 - 50, 50),
        ("int32", -9, 65536),
        ("int32", -9, 65537),
        ("int64", -(2**62), 2**63 - 1),
        ("uint8", 0, 256),
        ("float32", -9, 30),
        ("bool", 0, 2),
    ],
)
def test_distinct_elements_of_many_numbers(
    dtype: str, least: int, count: int, returned: tuple[str, ...], is_sorted: bool
) -> None:
    size = 4200 if 2**16 <= count < 2**32 else 700
    numbers = [0, count - 1, *np.random.default_rng(count).integers(0, count, size).tolist()]
    data = np.array([least + k for k in numbers], dtype)
    make = partial(op.unique, sorted=is_sorted, **dict.fromkeys(returned, True))
    found = compile(returning(make, tensor(*data.shape, dtype=dtype)))["main"](data)
    distinct = list(dict.fromkeys(data.tolist()))
    distinct = sorted(distinct) if is_sorted else distinct
    place = {value: k for k, value in enumerate(distinct)}
    expected = {
        "values": distinct,
        "return_index": [data.tolist().index(value) for value in distinct],
        "return_inverse": [place[value] for value in data.tolist()],
        "return_counts": [data.tolist().count(value) for value in distinct],
    }
    for array, name in zip(found if returned else (found,), ("values", *returned), strict=True):
        assert array.dtype == (dtype if name == "values" else "int64")
        assert array.tolist() == expected[name]


@pytest.mark.parametrize("dtype", FLOATS)
def test_distinct_numbers_count_nan_as_equal_and_zeros_too(dtype: str) -> None:
    data = np.array([np.nan, 1, np.nan, -0.0, 0.0], DataType(dtype).numpy())
    make = partial(op.unique, **dict.fromkeys(RETURNED, True))
    values, *extras = compile(returning(make, tensor(5, dtype=dtype)))["main"](data)
    assert str(values.tolist()) == "[-0.0, 1.0, nan]"
    assert [extra.tolist() for extra in extras] == [[3, 1, 0], [2, 1, 2, 0, 0], [2, 1, 2]]


@pytest.mark.parametrize("target", ["reference", "numpy", "native"])
def test_no_elements_have_no_median(target: str) -> None:
    empty = Case("relax.median", "", (np.zeros((2, 0), "float32"),), op.median, np.median)
    with pytest.raises(RuntimeCheckError, match="x has an element along the axes, found none"):
        compile(program(empty), target)["main"](*empty.inputs)
    [x] = empty.inputs
    columns = Case("relax.median", "", (x,), lambda v: op.median(v, 0), np.median)
    value, index = compile(program(columns), target)["main"](x)
    assert np.asarray(value).shape == np.asarray(index).shape == (0,)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint64", "float16"])
def test_orders_and_medians_of_views_leave_them_as_they_are(dtype: str) -> None:
    data = (np.random.default_rng(6).standard_normal((140, 900)) ** 2 * 50).astype(dtype)
    for x in (data[::2, ::-3], data.T[100:160], np.asfortranarray(data[:90]), data[:0]):
        before = x.copy()
        for make in (partial(op.argsort, axis=1), partial(op.median, axis=1)):
            module = program(Case("relax.sort", "views", (x,), make, np.sort))
            found = compile(module)["main"](x)
            places = np.argsort(before, 1, kind="stable")
            if isinstance(found, np.ndarray):
                np.testing.assert_array_equal(found, places)
            else:
                middle = places[:, (x.shape[1] - 1) // 2]
                np.testing.assert_array_equal(found[1], middle)
                np.testing.assert_array_equal(found[0], before[range(len(x)), middle])
        np.testing.assert_array_equal(x, before)


@pytest.mark.each_choice
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, (1,), (0,), (-1,), (2, 0), (0, 1)])
@pytest.mark.parametrize(
    "dtype",
    [
        *("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "bool"),
        *("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    ],
)
def test_loops_count_to_the_same_median_as_a_sort(dtype: str, axis: Any, keepdims: bool) -> None:
    rng, info, special = np.random.default_rng(7), DataType(dtype), [0]
    if info.is_float:
        values = np.array([0.0, -0.0, *rng.standard_normal(9)]).astype(info.numpy())
        special = [np.nan, -np.nan, *([] if info.bits == 8 else [np.inf, -np.inf])]
        values = np.concatenate([values, -values, np.array(special).astype(info.numpy())])
    else:
        ends = ops.int_range(info)
        drawn = rng.integers(*ends, 9, info.numpy(), endpoint=True)
        values = np.concatenate([np.array(ends, info.numpy()), drawn])
    for shape in ((3, 70, 2), (5, 1, 4), (2, 33, 17), (1, 1, 1)):
        make = partial(op.median, axis=axis, keepdims=keepdims)
        module = returning(make, tensor(*shape, dtype=dtype))
        native, reference = compile(module, "native"), compile(module, "reference")
        backends = {row.backend for row in native.report()}
        assert backends == ({"native"} if dtype != "float8_e4m3fn" else set())
        for choice in (values, values[:3], values[: -len(special)]):
            x = rng.choice(choice, shape)
            found, expected = native["main"](x), reference["main"](x)
            pairs: Any = zip(found, expected, strict=True) if axis and len(axis) == 1 else ()
            for one, other in pairs or [(found, expected)]:
                assert one.tobytes() == other.tobytes()
                assert one.shape == other.shape


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (4, 3), (2, 1, 5)])
def test_the_median_of_all_elements_has_no_index(shape: tuple[int, ...], keepdims: bool) -> None:
    x = np.arange(np.prod(shape, dtype=int), dtype="float32").reshape(shape)
    module = returning(partial(op.median, keepdims=keepdims), tensor(*shape))
    for target in ("reference", "numpy", "native"):
        found: Any = compile(module, target)["main"](x)
        assert found.shape == ((1,) * x.ndim if keepdims else ())
        assert found.reshape(()) == (x.size - 1) // 2


def test_loops_find_medians_of_rows_whose_number_is_symbolic() -> None:
    make = partial(op.median, axis=(1,))
    executable = compile(returning(make, tensor(Var("n", INT64), 50, 2)), "native")
    assert {row.backend for row in executable.report()} == {"native"}
    for n in (0, 1, 9):
        x = np.random.default_rng(n).standard_normal((n, 50, 2)).astype("float32").round(1)
        places = np.argsort(x, 1, kind="stable")[:, 24]
        values, index = executable["main"](x)
        np.testing.assert_array_equal(index, places)
        np.testing.assert_array_equal(values, np.take_along_axis(x, places[:, None], 1)[:, 0])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint64", "bool"])
def test_loops_count_to_the_same_index_as_a_sort(dtype: str) -> None:
    rng, info = np.random.default_rng(8), DataType(dtype)
    values: Any = np.array([0, 1, 3, 100]).astype(dtype)
    if info.is_float:
        values = np.array([*values, -0.0, -1.5, np.nan, np.inf, -np.inf]).astype(dtype)
    for shape, axis in (((37,), 0), ((3, 70, 2), 1)):
        data = rng.choice(values, shape)
        kept = [1 if k == axis else size for k, size in enumerate(shape)]
        numbers: Any = rng.integers(-3, shape[axis] + 3, kept)
        for n in (numbers, numbers.flat[0]):
            sinfos = tensor(*shape, dtype=dtype), tensor(*np.shape(n), dtype="int64")
            module = returning(partial(op.nth_index, axis=axis), *sinfos)
            executable = compile(module, "native")
            assert {row.backend for row in executable.report()} == {"native"}
            places = np.argsort(data, axis, kind="stable")
            clipped = np.broadcast_to(np.clip(n, 0, shape[axis] - 1), kept)
            found = executable["main"](data, np.asarray(n))
            np.testing.assert_array_equal(found, np.take_along_axis(places, clipped, axis))


@pytest.mark.parametrize("target", ["reference", "numpy", "native"])
def test_rows_without_elements_and_ranks_of_other_shapes_are_refused(target: str) -> None:
    call: Any = returning(op.nth_index, rank(2), rank(-1, "int64"))
    main = compile(call, target)["main"]
    with pytest.raises(RuntimeCheckError, match="data has an element along the axis, found none"):
        main(np.zeros((2, 0), "float32"), np.array(0))
    with pytest.raises(
        RuntimeCheckError, match=r"n is a scalar or has shape \(2, 1\), found \(3,\)"
    ):
        main(np.zeros((2, 4), "float32"), np.zeros(3, "int64"))
