"""Vectorised loops inside of others whose number of iterations is known only while they run."""

from __future__ import annotations

import numpy as np
import pytest

import relaxpy
from relaxpy.script import from_source

BODIES = {
    # What is stored, and whether its iterations may be the lanes of vectors.
    "own": ("L[l] = L[l] * T.float32(0.5) + A[l]", True),
    "of one side": ("L[l] = T.if_then_else(L[l] > A[l], L[l], A[l] - L[l])", True),
    "two buffers": ("L[l] = A[l] - L[l]\n            K[l] = L[l] + T.float32(1)", True),
    "the one before": ("L[l] = L[T.max(l - 1, 0)] + A[l]", False),
    "the one behind": ("L[l] = L[T.min(l + 1, 18)] + A[l]", False),
    "reversed": ("L[18 - l] = L[l] + A[l]", False),
    "one for all": ("L[0] = L[0] + A[l]", False),
    "at a place that is loaded": ("L[P[l]] = L[P[l]] + A[l]", False),
    "from a place that is loaded": ("L[l] = L[l] + A[P[l]]", False),
    "an argument": ("L[l] = A[l] + L[l]\n            C[l] = L[l]", False),
}


@pytest.mark.parametrize("name", BODIES)
def test_lanes_are_iterations(name: str) -> None:
    body, has_lanes = BODIES[name]
    text = f"""
@T.prim_func
def kernel(A: T.Buffer((19,), "float32"), P: T.Buffer((19,), "int64"),
           times: T.Buffer((1,), "int64"), C: T.Buffer((19,), "float32")):
    L = T.alloc_buffer((19,), "float32")
    K = T.alloc_buffer((19,), "float32")
    left = T.alloc_buffer((1,), "int64")
    for i in range(19):
        L[i] = A[i]
        K[i] = T.float32(0)
        C[i] = T.float32(0)
    left[0] = times[0]
    while left[0] > 0:
        for l in T.vectorized(19):
            {body}
        left[0] = left[0] - 1
    for i in range(19):
        C[i] = C[i] + L[i] + K[i]
"""
    module = relaxpy.IRModule({"kernel": from_source(text)})
    executable = relaxpy.compile(module, "native")
    rng = np.random.default_rng(3)
    values, places = rng.standard_normal(19).astype("float32"), rng.permutation(19)
    for times in (0, 1, 5):
        found, expected = np.zeros((2, 19), "float32")
        executable["kernel"](values, places, np.array([times]), found)
        relaxpy.compile(module, "reference")["kernel"](values, places, np.array([times]), expected)
        np.testing.assert_array_equal(found, expected)
    assert "native" in str(executable.report())
    has_vectors = "x float>" in executable.kernel_source("kernel", "llvm").split("while", 1)[-1]
    assert not has_lanes or has_vectors
