"""Products of integer matrices are exact modulo the datatype, whichever way they are computed."""

from unittest.mock import patch

import numpy as np
import pytest

from relaxpy.exec.api.compile import compile
from relaxpy.exec.numpy import runtime
from relaxpy.ir.module import IRModule
from relaxpy.script import from_source

LARGEST = {"int8": 127, "uint8": 255, "int16": 2**15 - 1, "int32": 2**31 - 1, "int64": 2**63 - 1}
SHAPES = [((40, 50), (50, 30)), ((3, 40, 50), (50, 30)), ((50,), (50, 400)), ((400, 50), (50,))]


@pytest.mark.each_choice
@pytest.mark.parametrize("dtype", LARGEST)
@pytest.mark.parametrize("reach", [3, 100, 10**6, 10**18])
@pytest.mark.parametrize("shapes", SHAPES)
def test_sums_are_exact_modulo_the_range(dtype, reach, shapes) -> None:
    rng = np.random.default_rng(6)
    high = min(reach, LARGEST[dtype])
    low = 0 if dtype[0] == "u" else -high
    a, b = (rng.integers(low, high, s, endpoint=True).astype(dtype) for s in shapes)
    for out in (dtype, "int32", "int64"):
        func = from_source(
            f'@R.function\ndef main(x: R.Tensor({a.shape}, "{dtype}"), '
            f'y: R.Tensor({b.shape}, "{dtype}")):\n'
            f'    z = R.matmul(x, y, out_dtype="{out}")\n    return z\n'
        )
        found = compile(IRModule({"main": func}), "numpy")["main"](a, b)
        wide = [x.astype(out).astype(object) for x in (a, b)]
        exact = np.asarray(np.dot(*wide), object)  # type: ignore[call-overload]
        bits = np.dtype(out).itemsize * 8
        wrapped = (exact + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
        if out[0] == "u":
            wrapped = exact % 2**bits
        np.testing.assert_array_equal(found, wrapped.astype(out))


def test_large_products_of_small_integers_are_products_of_floats() -> None:
    a = np.ones((64, 64), "int8")
    kinds = []
    matmul = np.matmul

    def watched(x: np.ndarray, y: np.ndarray, **options: object) -> np.ndarray:
        kinds.append(x.dtype.name)
        return matmul(x, y, **options)  # type: ignore[call-overload, no-any-return]

    with patch.object(runtime.np, "matmul", watched):
        assert runtime.matmul(a, a)[0, 0] == 64
        assert runtime.matmul(a[:2, :2], a[:2, :2])[0, 0] == 2
        runtime.matmul(np.full((64, 64), 2**40), np.full((64, 64), 2**40))
    assert kinds == ["float32", "int8", "int64"]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", ["int8", "uint8", "int64", "uint64"])
def test_scatters_reach_the_elements_of_all_their_indices(order, masked, kind) -> None:
    rng = np.random.default_rng(7)
    i, j = rng.integers(0, 4, 50).astype("uint8"), rng.integers(0, 90, (50, 2)).astype(kind)
    found = np.zeros((4, 90), "int32", order=order)  # type: ignore[call-overload]
    values = rng.integers(0, 9, (50, 2)).astype("int32")
    mask = values > 4 if masked else None
    runtime.scatter(found, (i[:, None], j), values, (50, 2), np.add, mask, "f: H")
    expected = np.zeros((4, 90), "int32")
    for k in range(50):
        for m in range(2):
            if not masked or values[k, m] > 4:
                expected[i[k], j[k, m]] += values[k, m]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("ufunc", [None, np.add])
def test_a_scatter_of_whole_slices_stores_them_at_once(order: str, ufunc: np.ufunc | None) -> None:
    rng = np.random.default_rng(3)
    i = rng.integers(0, 4, 6)
    start = rng.integers(0, 9, (4, 2, 3))
    values = rng.integers(0, 9, (6, 2, 3))
    expected = start.copy()
    for k in range(6):
        expected[i[k]] = values[k] if ufunc is None else expected[i[k]] + values[k]
    found = np.array(start, order=order)  # type: ignore[call-overload]
    runtime.scatter(found, (i,), values, (6,), ufunc, None, "f: H")
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_comparisons_of_products_that_wrap_are_of_their_values_or_of_their_signs(target) -> None:
    func = from_source(
        "@T.prim_func\ndef f(c: T.int64, Y: T.Buffer((T.int64(6),), 'bool')):\n"
        "    for i, j in T.grid(6, 1):\n        Y[i] = 0 <= i * c\n"
    )
    found = np.zeros(6, "bool")
    compile(func, target)["f"](-(2**63), found)
    wrapped = np.arange(6) * np.int64(-(2**63)) >= 0
    by_signs = np.arange(6) == 0
    allowed = [wrapped] if target == "reference" else [wrapped, by_signs]
    assert any((found == values).all() for values in allowed)
    compile(func, target)["f"](-3, found)
    assert (found == by_signs).all()
