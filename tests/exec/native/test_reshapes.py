"""Arrays whose shape changes in a native kernel share memory with its arguments."""

from __future__ import annotations

import numpy as np
import pytest

import relaxpy
from relaxpy.script import from_source
from tests.exec.native.test_contract import numbers

_KERNEL = """
@T.prim_func
def main(A: T.Buffer((6, 20), "float32"), C: T.Buffer((12, 10), "float32"){more}):
    flat = T.alloc_buffer((120,), "float32")
    twice = T.alloc_buffer((120,), "float32")
    for i in range(120):
        flat[i] = A[i // 20, i % 20]
{body}
    for i, j in T.grid(12, 10):
        C[i, j] = twice[i * 10 + j]
{after}
"""


def _compiled(body: str, after: str = "", more: str = "") -> object:
    text = _KERNEL.format(body=body, after=after, more=more)
    return relaxpy.compile(from_source(text), target="native")["main"]


def test_a_result_that_is_stored_again() -> None:
    body = """
    for i in range(120):
        twice[i] = flat[(i * 7) % 120]
"""
    after = """
    for i, j in T.grid(12, 10):
        C[i, j] = C[i, j] + twice[119 - i * 10 - j]
"""
    x, found = numbers((6, 20)), numbers((12, 10))
    _compiled(body, after)(x, found)  # type: ignore[operator]
    moved = x.ravel()[np.arange(120) * 7 % 120]
    np.testing.assert_array_equal(found.ravel(), moved + moved[::-1])


def test_two_results_of_one_buffer() -> None:
    body = """
    for i in range(120):
        twice[i] = flat[(i + 50) % 120] * T.float32(2)
"""
    after = """
    for i, j in T.grid(5, 24):
        D[i, j] = twice[i * 24 + j]
    for i in range(120):
        E[i] = twice[119 - i]
"""
    more = ', D: T.Buffer((5, 24), "float32"), E: T.Buffer((120,), "float32")'
    x, c, d, e = numbers((6, 20)), numbers((12, 10)), numbers((5, 24)), numbers((120,))
    _compiled(body, after, more)(x, c, d, e)  # type: ignore[operator]
    wanted = np.roll(x.ravel(), -50) * 2
    for found, expected in ((c, wanted), (d, wanted), (e, wanted[::-1])):
        np.testing.assert_array_equal(found.ravel(), expected)


def test_a_buffer_that_is_written_after_it_is_stored() -> None:
    body = """
    for i in range(120):
        twice[i] = flat[(i + 50) % 120]
"""
    after = """
    for i in range(120):
        twice[i] = twice[i] * T.float32(3)
    for i in range(120):
        D[i] = twice[119 - i]
"""
    more = ', D: T.Buffer((120,), "float32")'
    x, c, d = numbers((6, 20)), numbers((12, 10)), numbers((120,))
    _compiled(body, after, more)(x, c, d)  # type: ignore[operator]
    moved = np.roll(x.ravel(), -50)
    np.testing.assert_array_equal(c.ravel(), moved)
    np.testing.assert_array_equal(d, moved[::-1] * np.float32(3))


def test_strided_arguments() -> None:
    body = """
    for i in range(120):
        twice[i] = flat[(i + 50) % 120]
"""
    x, found = numbers((6, 40)), numbers((24, 10))
    _compiled(body)(x[:, ::2], found[::2])  # type: ignore[operator]
    np.testing.assert_array_equal(found[::2].ravel(), np.roll(x[:, ::2].ravel(), -50))


def test_overlapping_arguments() -> None:
    body = """
    for i in range(120):
        twice[i] = flat[119 - i]
"""
    memory = numbers((180,))
    x, found = memory[:120].reshape(6, 20), memory[60:].reshape(12, 10)
    wanted = x.ravel()[::-1].copy()
    _compiled(body)(x, found)  # type: ignore[operator]
    np.testing.assert_array_equal(found.ravel(), wanted)


_LOCAL_COPIES = """
@T.prim_func
def main(a: T.handle, C: T.Buffer((12, 10), "int8"), D: T.Buffer((120,), "int8")):
    A = T.match_buffer(a, (6, 20), "int8")
    pairs = T.alloc_buffer((6, 10, 2), "int8")
    rows = T.alloc_buffer((12, 10), "int8")
    flat = T.alloc_buffer((120,), "int8")
    for i, j in T.grid(6, 10):
        pairs[i, j, 1] = A[i, j] + T.int8(1)
    for i, j in T.grid(6, 10):
        pairs[i, j, 0] = A[i, 10 + j]
    for i, j in T.grid(12, 10):
        rows[i, j] = pairs[i // 2, (i % 2) * 5 + j // 2, j % 2]
{before}
    for i, j in T.grid(12, 10):
        flat[i * 10 + j] = rows[i, j]
{after}
    for i, j in T.grid(12, 10):
        C[i, j] = rows[11 - i, j]
    for i in range(120):
        D[i] = flat[119 - i]
"""


@pytest.mark.parametrize("before", ["", "rows[i, j] = rows[i, j] * T.int8(3)"])
@pytest.mark.parametrize(
    "after", ["", "rows[i, j] = T.int8(7)", "pairs[i // 2, j, i % 2] = T.int8(5)"]
)
def test_local_buffers_of_several_shapes(before: str, after: str) -> None:
    loop = "    for i, j in T.grid(12, 10):\n        "
    before, after = (text and loop + text for text in (before, after))
    program = from_source(_LOCAL_COPIES.format(before=before, after=after))
    x = numbers((6, 20), "int8")
    results = []
    for target in ("native", "reference"):
        found = numbers((12, 10), "int8"), numbers((120,), "int8")
        relaxpy.compile(program, target=target)["main"](x, *found)
        results.append(found)
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)
