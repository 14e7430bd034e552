"""Loops that are cut at the iteration that writes what the others read."""

from __future__ import annotations

import numpy as np
import pytest

import relaxpy
from relaxpy.script import from_source
from tests.exec.native.claims import claim
from tests.guard_pages import guarded

UPDATES = {
    "T.min(D[i, j], D[i, k] + D[k, j])": lambda d, i, j, k: np.minimum(d[i, j], d[i, k] + d[k, j]),
    "D[i, k] - D[k, j]": lambda d, i, j, k: d[i, k] - d[k, j],
    "D[k, j] + D[k, k]": lambda d, i, j, k: d[k, j] + d[k, k],
}


@pytest.mark.each_choice
@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("dtype", ["float32", "int16"])
@pytest.mark.parametrize("size", [0, 1, 2, 17, 40, "n"])
def test_iterations_before_and_after_one(
    update: str, dtype: str, size: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"""
@T.prim_func
def main(d: T.handle):
    T.func_attr({{"global_symbol": "main"}})
    {"n = T.int64()" if size == "n" else ""}
    D = T.match_buffer(d, ({size}, {size}), "{dtype}")
    for k, i, j in T.grid({size}, {size}, {size}):
        D[i, j] = {update}
"""
    kernel = claim(monkeypatch, [], "", text)
    if size not in (0, 1):
        assert "each" in kernel.native.kernel_source("main", "tree")
    for count in (0, 1, 5, 33) if isinstance(size, str) else (size,):
        rng = np.random.default_rng(count)
        d = (rng.standard_normal((count, count)) * 9).astype(dtype)
        if dtype == "float32" and count > 10:
            d[3, 4], d[5, 5], d[6, 2], d[7, 7] = np.nan, np.inf, -np.inf, -0.0
        wanted = d.copy()
        with np.errstate(all="ignore"):
            for k, i, j in np.ndindex(count, count, count):
                wanted[i, j] = UPDATES[update](wanted, i, j, k)
        for at_end in (False, True):
            found = guarded(d, at_end=at_end)
            kernel.native["main"](found)
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    "read",
    [
        "D[i, k] + D[i, 3]",  # two iterations write what others read
        "D[i, k + 1]",  # one that may be outside of the loop
        "D[i, k] + D[i, j - 1]",  # each needs the one before it
    ],
)
def test_other_loops_stay_in_order(read: str) -> None:
    text = f"""
@T.prim_func
def main(D: T.Buffer((20, 20), "int64")):
    for k, i, j in T.grid(19, 20, 18):
        D[i, j + 1] = D[i, j + 1] + ({read.replace("j - 1", "j")})
"""
    text = text.replace("D[i, j + 1] = D[i, j + 1] +", "D[i, j + 1] = D[i, j + 1] ^")
    native, other = (relaxpy.compile(from_source(text), target=t) for t in ("native", "reference"))
    d = np.random.default_rng(0).integers(0, 99, (20, 20))
    found, wanted = d.copy(), d.copy()
    native["main"](found)
    other["main"](wanted)
    np.testing.assert_array_equal(found, wanted)


def test_the_iterations_of_inner_loops_are_compared_in_the_same_outer_iteration() -> None:
    text = """
@T.prim_func
def main(D: T.Buffer((40, 40), "float64")):
    for k in range(40):
        for i in range(39 - k):
            D[k + 1 + i, k] = D[k + 1 + i, k] / D[k, k]
        for i, j in T.grid(39 - k, 39 - k):
            D[k + 1 + i, k + 1 + j] = D[k + 1 + i, k + 1 + j] - D[k + 1 + i, k] * D[k, k + 1 + j]
"""
    ex = relaxpy.compile(from_source(text), target="native")
    assert "each j" in ex.kernel_source("main", "tree")
    rng = np.random.default_rng(0)
    d = rng.standard_normal((40, 40)) + 40 * np.eye(40)
    wanted, found = d.copy(), guarded(d, at_end=True)
    for k in range(39):
        wanted[k + 1 :, k] /= wanted[k, k]
        wanted[k + 1 :, k + 1 :] -= wanted[k + 1 :, k, None] * wanted[k, k + 1 :]
    ex["main"](found)
    np.testing.assert_array_equal(found, wanted)
