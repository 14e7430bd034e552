"""Kernels whose local buffers may use the memory of arguments that are not contiguous.

Each argument is a part of a larger array, whose other elements are compared after the call. It
lies at one end of that array, beside a page that must not be accessed.
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.exec.native.machine_code.machine import obstacle
from relaxpy.script import from_source
from tests.guard_pages import guarded
from tests.rows import sections

Array = np.ndarray[Any, Any]
TARGETS = ("numpy", "native") if obstacle() is None else ("numpy",)
LOCAL = {
    "Z": '(8, 6), "float32"',
    "Y": '(8, 6), "float32"',
    "F": '(48,), "float32"',
    "G": '(48,), "float32"',
    "S": '(8, 6), "float32", strides=[9, 1]',
}
DECLARED = {
    "strides": (", strides=[a, b]", ""),
    "strides and offset": (", strides=[a, b], elem_offset=c", ""),
    "strides of both": (", strides=[a, b]", ", strides=[d, e], elem_offset=0"),
}
Meaning = Callable[[Array, Array], Array]
MEANINGS: dict[str, Meaning] = {
    "a local buffer is copied": lambda p, q: q[::-1] + p,
    "a local buffer is copied in one of its own loops": lambda _, q: q,
    "a local buffer is used once more": lambda _, q: 2 * q + 2 * q[::-1, ::-1] - 1,
    "sums are stored, then changed": lambda p, q: np.maximum(q @ q[:6].T, p),
    "prefix sums": lambda _, q: np.cumsum(q, axis=1),
    "another shape is read": lambda _, q: q[::-1, ::-1] + q.reshape(-1)[:8, None],
    "another shape is stored": lambda _, q: np.cumsum(q.T).reshape(8, 6),
    "another shape is stored of what is computed from it": lambda _, q: (
        q.reshape(-1)[np.arange(48) * 7 % 48].reshape(8, 6) + q[0, 0]
    ),
    "a local buffer has gaps": lambda p, q: q[::-1] + 1 + p,
    "a local buffer with gaps is a copy": lambda _, q: q[::-1] + q[:, ::-1],
    "a product of rows": lambda _, q: np.repeat(q.prod(axis=1, keepdims=True), 6, axis=1),
}
BODIES = sections(
    """
--- a local buffer is copied
    for i, j in T.grid(8, 6):
        Z[i, j] = Q[7 - i, j] + P[i, j]
    for i, j in T.grid(8, 6):
        P[i, j] = Z[i, j]
--- a local buffer is copied in one of its own loops
    for i in range(6):
        for j in range(8):
            for l in range(2):
                Z[j, i] = Q[j, i]
            P[j, i] = Z[j, i]
--- a local buffer is used once more
    for i, j in T.grid(8, 6):
        Z[i, j] = Q[i, j] * T.float32(2)
    for i, j in T.grid(8, 6):
        Y[i, j] = Z[i, j] + Z[7 - i, 5 - j]
    for i, j in T.grid(8, 6):
        P[i, j] = Y[i, j] - T.float32(1)
--- sums are stored, then changed
    for i, j in T.grid(8, 6):
        Z[i, j] = T.float32(0)
        for k in range(6):
            Z[i, j] = Z[i, j] + Q[i, k] * Q[j, k]
    for i, j in T.grid(8, 6):
        P[i, j] = T.max(Z[i, j], P[i, j])
--- prefix sums
    for i in range(8):
        Z[i, 0] = Q[i, 0]
        for j in range(5):
            Z[i, j + 1] = Z[i, j] + Q[i, j + 1]
    for i, j in T.grid(8, 6):
        P[i, j] = Z[i, j]
--- another shape is read
    for i in range(48):
        F[i] = Q[i // 6, i % 6]
    for i, j in T.grid(8, 6):
        P[i, j] = F[47 - i * 6 - j] + F[i]
--- another shape is stored
    for i in range(48):
        F[i] = Q[i % 8, i // 8]
    for i in range(47):
        F[i + 1] = F[i] + F[i + 1]
    for i, j in T.grid(8, 6):
        P[i, j] = F[i * 6 + j]
--- another shape is stored of what is computed from it
    for i in range(48):
        F[i] = Q[i // 6, i % 6]
    for i in range(48):
        G[i] = F[(i * 7) % 48]
    for i, j in T.grid(8, 6):
        Z[i, j] = G[i * 6 + j]
    for i, j in T.grid(8, 6):
        P[i, j] = Z[i, j] + Z[0, 0]
--- a local buffer has gaps
    for i, j in T.grid(8, 6):
        S[i, j] = Q[7 - i, j] + T.float32(1)
    for i, j in T.grid(8, 6):
        P[i, j] = S[i, j] + P[i, j]
--- a local buffer with gaps is a copy
    for i, j in T.grid(8, 6):
        S[i, j] = Q[i, j]
    for i, j in T.grid(8, 6):
        Z[i, j] = S[7 - i, j] + S[i, 5 - j]
    for i, j in T.grid(8, 6):
        P[i, j] = Z[i, j]
--- a product of rows
    for i, j in T.grid(8, 6):
        P[i, j] = T.float32(1)
        for k in range(6):
            P[i, j] = P[i, j] * Q[i, k]
"""
)
Layout = Callable[[], tuple[Array, Array]]
LAYOUTS: dict[str, Layout] = {
    "compact": lambda: _last(lambda m: m[-48:].reshape(8, 6)),
    "every other column": lambda: _last(lambda m: m[-120:].reshape(10, 12)[2:, 1::2]),
    "columns beside others": lambda: _last(lambda m: m[-100:].reshape(10, 10)[2:, 4:]),
    "reversed": lambda: _last(lambda m: m[-48:].reshape(8, 6)[::-1, ::-1]),
    "reversed, first": lambda: _first(lambda m: m[:48].reshape(8, 6)[::-1, ::-1]),
    "reversed rows with gaps": lambda: _first(lambda m: m[:320].reshape(16, 20)[-2::-2, :12:2]),
    "transposed": lambda: _last(lambda m: m[-48:].reshape(6, 8).T),
    "transposed with gaps": lambda: _last(lambda m: m[-100:].reshape(10, 10)[4:, 2:].T),
}


def _last(part: Callable[[Array], Array]) -> tuple[Array, Array]:
    """Memory of numbers before a page that must not be accessed, and a part at its end."""
    memory = guarded(np.arange(1000, dtype=np.float32) % 7 + 1, at_end=True)
    return memory, part(memory)


def _first(part: Callable[[Array], Array]) -> tuple[Array, Array]:
    """Memory of numbers after a page that must not be accessed, and a part at its beginning."""
    memory = guarded(np.arange(1000, dtype=np.float32) % 7 + 1, at_end=False)
    return memory, part(memory)


def kernel(body: str, first: str, second: str) -> str:
    """The text of a kernel with the local buffers that its body has."""
    lines = "@T.prim_func\ndef f(p: T.handle, q: T.handle):\n"
    declared = [v for v in "abcde" if re.search(rf"[\[ =]{v}\b", first + second)]
    lines += "".join(f"    {v} = T.int64()\n" for v in declared)
    lines += f'    P = T.match_buffer(p, (8, 6), "float32"{first})\n'
    lines += f'    Q = T.match_buffer(q, (8, 6), "float32"{second})\n'
    used = (name for name in LOCAL if f"{name}[" in body)
    return lines + "".join(f"    {name} = T.alloc_buffer({LOCAL[name]})\n" for name in used) + body


@pytest.mark.rule("PX-1", "PX-2")
@pytest.mark.parametrize("declared", DECLARED)
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("target", TARGETS)
def test_only_the_elements_of_an_argument_are_written(target, name, declared) -> None:
    body, meaning = BODIES[name], MEANINGS[name]
    first, second = DECLARED[declared]
    f = relaxpy.compile(from_source(kernel(body, first, second)), target=target)["f"]
    for where, layout in LAYOUTS.items():
        for other in LAYOUTS if second else ("compact",):
            (memory, p), (operand, q) = layout(), LAYOUTS[other]()
            wanted, before = memory.copy(), operand.copy()
            place = p.ctypes.data - memory.ctypes.data
            part = np.ndarray(p.shape, p.dtype, wanted, place, p.strides)
            part[...] = meaning(p.copy(), q.copy())
            f(p, q)
            np.testing.assert_array_equal(memory, wanted, err_msg=f"{where}, {other}")
            np.testing.assert_array_equal(operand, before, err_msg=f"{where}, {other}")
