"""Buffers declared over memory that is too small or not contiguous, accessed under conditions."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RuntimeCheckError
from relaxpy.script import from_source
from tests.exec.loops.written import run_row

STATEMENTS = [
    "B[i] = T.if_then_else(C[i] > 3, X[i // 2, i % 2], T.float32(7))",
    "B[i] = T.if_then_else(C[i] > 3, X[i, i], T.float32(7))",
    "B[i] = T.Select(C[i] > 3 and X[i // 2, i % 2] > T.float32(1), T.float32(1), T.float32(2))",
    "B[0] = B[0] + T.if_then_else(C[i] > 3, X[0, 1], T.float32(1))",
    "B[i] = B[i] + T.if_then_else(C[i] > 3, X[1, C[i] % 2], T.float32(7))",
    "if C[i] > 3:\n            B[i] = X[0, i % 2]",
    "if C[i] > 3:\n            X[i // 2, i % 2] = B[i]",
    "if C[i] > 3:\n            X[0, C[i] % 2] = X[0, C[i] % 2] + B[i]",
]


@pytest.mark.parametrize("offset", [0, 2])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_an_error_only_if_an_element_is_accessed(statement: str, offset: int) -> None:
    text = f"""
@T.prim_func
def f(K: T.Buffer((4,), 'float32'), B: T.Buffer((4,), 'float32'), C: T.Buffer((4,), 'int32')):
    X = T.decl_buffer((2, 2), 'float32', data=K.data, elem_offset={offset})
    for i in range(4):
        {statement}
"""
    runs = [
        relaxpy.compile(from_source(text), target=target)["f"]
        for target in ("reference", "numpy", "native")
    ]
    for first, last, is_reversed in product((0, 5), (0, 6), (False, True)):
        results: list[object] = []
        for run in runs:
            memory, out = np.arange(8, dtype="float32")[:4], np.arange(4, dtype="float32")
            memory = memory[::-1] if is_reversed else memory.copy()
            try:
                run(memory, out, np.array([first, 0, 1, last], "int32"))
                results.append((memory.tolist(), out.tolist()))
            except RuntimeCheckError:
                results.append(RuntimeCheckError)
        assert results[0] == results[1] == results[2], (first, last, is_reversed)
        accessed = first or last
        fits = not is_reversed and not offset
        assert (results[0] is RuntimeCheckError) == bool(accessed and not fits) or "X[i, i]" in text


def test_a_view_has_a_dimension_that_nothing_else_has_used() -> None:
    run_row("""
def f(K: i32[2, n], B: i32[n]):
    X = T.decl_buffer((2, n), "int32", data=K.data)
    for i in range(n):
        B[i] = X[1, i] + X[0, i % 3]
# args: n=5
""")
