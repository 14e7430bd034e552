"""Scalars of every datatype, and arrays with declared strides and offsets, as NumPy takes them."""

import math
import random

import numpy as np
import pytest

from relaxpy.exec.native.calls.interpreter import DTYPES
from tests.exec.native.claims import Claim, claim

SCALARS: dict[str, tuple[list[object], list[object]]] = {
    "bool": ([True, False], [2, -1, 0.5]),
    "int8": ([-128, 0, 127], [128, -129]),
    "int16": ([-(2**15), 2**15 - 1], [2**15]),
    "int32": ([-(2**31), 2**31 - 1], [2**31, -(2**31) - 1]),
    "int64": ([-(2**63), 2**63 - 1], [2**63]),
    "uint8": ([0, 255], [256, -1]),
    "uint16": ([0, 2**16 - 1], [2**16, -1]),
    "uint32": ([0, 2**32 - 1], [2**32, -1]),
    "uint64": ([0, 2**63 - 1], [2**64, -1]),
    "float16": ([0.1, -65504.0, 65519.0, math.inf, math.nan, -0.0], [65520.0, 1e300]),
    "bfloat16": ([0.1, 1.00390625, math.inf, math.nan], [3.4e38, 1e39]),
    "float32": ([0.1, 1e-45, 3.4028234e38, math.inf, math.nan, -0.0], [3.5e38]),
    "float64": ([0.1, 5e-324, math.inf, math.nan], []),
}


@pytest.mark.parametrize("dtype", SCALARS)
def test_scalars_of_every_datatype(dtype: str) -> None:
    kernel = claim(
        ["for i in range(3):", "    B[i] = s"], f's: T.{dtype}, B: T.Buffer((3,), "{dtype}")'
    )
    memory = np.zeros(3, DTYPES[dtype])
    accepted, refused = SCALARS[dtype]
    for value in accepted:
        kernel.runs(value, memory)
    for value in refused:
        kernel.fails("s", value, memory)
    # Other numbers go to NumPy, which converts them.
    for other in (np.int64(1), np.float32(1), 1, True, 1.0, np.array(1)):
        kernel.same(other, memory)
    kernel.fails("s", "1", memory)


def test_a_scalar_is_a_dimension_an_index_and_a_bound() -> None:
    kernel = claim(
        ['A = T.match_buffer(a, (n,), "float32")', "for i in range(n):", "    A[i] = A[k] + x"],
        "a: T.handle, n: T.int32, k: T.int8, x: T.float32",
    )
    array = np.arange(5, dtype="float32")
    for k in (0, 4):
        kernel.runs(array, 5, k, 0.5)
    assert kernel.same(array[:0], 0, 0, 0.5) is None
    kernel.fails("should be n = 4", array, 4, 0, 0.5)
    for k in (5, -1, 127):
        kernel.fails("outside dimension 0 of buffer A", array, 5, k, 0.5)


STRIDED = (
    [
        "st = T.int64()",
        'A = T.match_buffer(a, (n, m), "float32", strides=[st, 1])',
        'B = T.match_buffer(b, (m, n), "float32", strides=[{strides}], elem_offset={offset})',
        "for i, j in T.grid(n, m):",
        "    B[j, i] = A[i, j] * T.float32(2)",
    ],
    "a: T.handle, b: T.handle, n: T.int64, m: T.int64",
)


def strided(monkeypatch: pytest.MonkeyPatch, strides: str, offset: str = "0") -> Claim:
    body, params = STRIDED
    return claim([line.format(strides=strides, offset=offset) for line in body], params)


WHOLE = np.arange(200, dtype="float32").reshape(10, 20)


def test_strides_that_are_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = strided(monkeypatch, "1, m")
    for n, m in ((3, 5), (10, 20), (1, 1), (0, 4), (4, 0), (1, 7), (7, 1)):
        target = np.full((n, m), -1, "float32").T
        kernel.runs(WHOLE[:n, :m], target, n, m)
        kernel.runs(np.ascontiguousarray(WHOLE[:n, :m]), target, n, m)
    kernel.runs(WHOLE[::2, 3:8], np.zeros((5, 5), "float32").T, 5, 5)
    kernel.runs(WHOLE[::-1, 3:8], np.zeros((10, 5), "float32").T, 10, 5)
    kernel.fails("has stride 2 in", WHOLE[:, :10:2], np.zeros((10, 5), "float32").T, 10, 5)
    kernel.fails("has stride 10 in", WHOLE[:, :5], np.zeros((5, 10), "float32"), 10, 5)
    # A stride of the dimension 1 does not matter.
    kernel.runs(WHOLE[:1, :5], np.zeros((3, 9), "float32")[:1, :5].T, 1, 5)


@pytest.mark.parametrize("stride", [-1, -2, -128, -129, -(2**63) + 1])
def test_strides_that_are_negative_numbers(stride: int) -> None:
    kernel = claim(
        [
            f'A = T.match_buffer(a, (n,), "float32", strides=[{stride}])',
            'B = T.match_buffer(b, (n,), "float32")',
            "for i in range(n):",
            "    B[i] = A[i] + T.float32(1)",
        ],
        "a: T.handle, b: T.handle, n: T.int64",
    )
    memory = np.arange(1000, dtype="float32")
    for other in {-1, -2, -128, -129, 0, 1}:
        source = np.ndarray((3,), "float32", memory, 2000, (4 * other,))
        if other == stride:
            kernel.runs(source, np.zeros(3, "float32"), 3)
        else:
            kernel.fails(f"has stride {other} in", source, np.zeros(3, "float32"), 3)
    kernel.runs(memory[:1], np.zeros(1, "float32"), 1)


def test_strides_of_a_written_array_that_overlaps_itself_or_another(monkeypatch) -> None:
    kernel = strided(monkeypatch, "3, 1")
    a = np.arange(12, dtype="float32").reshape(3, 4)
    overlapping = np.ndarray((4, 3), "float32", np.zeros(30, "float32"), 0, (12, 4))
    kernel.runs(a, overlapping, 3, 4)
    memory = np.arange(60, dtype="float32")
    inside = np.ndarray((4, 3), "float32", memory, 0, (12, 4))
    kernel.native["main"](memory[6:18].reshape(3, 4), inside, 3, 4)
    other = np.arange(60, dtype="float32")
    second = np.ndarray((4, 3), "float32", other, 0, (12, 4))
    kernel.numpy["main"](other[6:18].reshape(3, 4), second, 3, 4)
    np.testing.assert_array_equal(memory, other)
    assert len(kernel.refused) == 1
    twice = strided(monkeypatch, "1, 2")
    target = np.ndarray((4, 3), "float32", np.zeros(30, "float32"), 0, (4, 8))
    assert twice.same(a, target, 3, 4) is None
    assert len(twice.refused) == 1


def test_written_arrays_whose_axes_nest_in_any_order() -> None:
    """Machine code takes them, and no array of which two elements share an address."""
    kernel = claim(
        [
            "s, t, u = T.int64(), T.int64(), T.int64()",
            'B = T.match_buffer(b, (n, m, k), "float32", strides=[s, t, u])',
            "for i, j, l in T.grid(n, m, k):",
            "    B[i, j, l] = T.Cast('float32', i * 100 + j * 10 + l)",
        ],
        "b: T.handle, n: T.int64, m: T.int64, k: T.int64",
    )
    rng = random.Random(1)
    nested = shared = 0
    for _ in range(400):
        shape = [rng.choice([0, 1, 2, 2, 3, 4]) for _ in range(3)]
        strides = [rng.choice([1, 2, 3, 4, 6, 8, 12, 24]) for _ in range(3)]
        axes = sorted(zip(strides, shape, strict=True))
        reach, nests = 1, True
        for stride, size in axes:
            nests &= stride >= reach or size == 1
            reach += stride * (size - 1)
        nests |= 0 in shape
        offsets = [np.dot(at, strides) for at in np.ndindex(*shape)]
        target = np.ndarray(shape, "float32", np.zeros(200, "float32"), 0, [4 * s for s in strides])
        kernel.refused.clear()
        kernel.same(target, *shape)
        assert bool(kernel.refused) == (not nests)
        assert not nests or len({*offsets}) == len(offsets)
        nested, shared = nested + nests, shared + (not nests)
    assert min(nested, shared) > 50


def test_an_offset_that_is_declared_is_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = strided(monkeypatch, "n, 1", "n - 3")
    a, b = WHOLE[:3, :4], np.zeros((4, 3), "float32")
    kernel.runs(a, b, 3, 4)
    kernel.fails("has offset 0, expected 1", WHOLE[:4, :4], np.zeros((4, 4), "float32"), 4, 4)


def test_integers_of_numpy_strides_that_divide_no_element(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = strided(monkeypatch, "n, 1")
    raw = np.zeros(200, "uint8")
    uneven = np.ndarray((3, 4), "float32", raw, 0, (18, 4))
    kernel.fails("has stride 4.5 in dimension 0", uneven, np.zeros((4, 3), "float32"), 3, 4)
