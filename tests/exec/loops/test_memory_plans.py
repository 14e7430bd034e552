"""Which scratch buffers use the memory of a result, and which arguments must not overlap.

A scratch buffer may be the result where each of its elements is read for the last time just when
the result's element in its place is stored, and nobody needs the result's memory before. An
argument may be the very array that is written where each element is read once, by the first
operation of the one step that stores to it.
"""

from __future__ import annotations

import numpy as np
import pytest

from relaxpy.exec.loops.plan.memory import exclusions
from relaxpy.exec.loops.plan.planner import make_plan
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script import from_source
from tests.exec.loops.support import check


def kernel(body: str) -> PrimFunc:
    """A kernel over X, Z to Y of length n, with scratch T and U, and others of other kinds."""
    text = f"""
@T.prim_func
def f(x: T.handle, z: T.handle, y: T.handle, P: T.Buffer((5,), "int32"),
      M: T.Buffer((5, 5), "float32"), N: T.Buffer((5, 5), "float32"),
      W: T.Buffer((6,), "float32"), K: T.Buffer((5,), "float64"), V: T.Buffer((5,), "float32"),
      R: T.Buffer((5, 4), "float32"), O: T.Buffer((5, 1), "float32")):
    n = T.int64()
    X = T.match_buffer(x, (n,), "float32")
    Z = T.match_buffer(z, (n,), "float32")
    Y = T.match_buffer(y, (n,), "float32")
    T_ = T.alloc_buffer((n,), "float32")
    U = T.alloc_buffer((n,), "float32")
    S = T.alloc_buffer((5, 5), "float32")
    G = T.alloc_buffer((5, 1), "float32")
    Q = T.alloc_buffer((5,), "float32")
    H = T.alloc_buffer((6,), "float32")
{body}"""
    func = from_source(text)
    assert isinstance(func, PrimFunc)
    return func


def arguments() -> list[np.ndarray]:
    rng = np.random.default_rng(4)
    shapes = [(5,)] * 3 + [(5, 5)] * 2 + [(6,), (5,), (5,), (5, 4), (5, 1)]
    found = [rng.integers(1, 9, shape).astype(np.float32) for shape in shapes]
    found[6] = found[6].astype(np.float64)
    found.insert(3, rng.permutation(5).astype(np.int32))
    return found


FILL = "    for i in range(n):\n        T_[i] = X[i] + T.float32(1)\n"
SQUARE = "    for i, j in T.grid(5, 5):\n        S[i, j] = M[i, j] + T.float32(1)\n"
SHORT = "    for i in range(5):\n        Q[i] = W[i] + T.float32(1)\n"

SHARED = {
    "read where it is replaced": (FILL, "for i in range(n): Y[i] = T_[i] * Z[i]", {"T_": "Y"}),
    "replaced where a condition holds": (
        FILL,
        "for i in range(n):\n        if Z[i] > T.float32(3):\n            Y[i] = T_[i] * Z[i]",
        {},
    ),
    "beside what the result held": (FILL, "for i in range(n): Y[i] = T_[i] * Z[i] + Y[i]", {}),
    "summed": (FILL, "for i, j in T.grid(5, n): V[i] = V[i] + T_[j]", {}),
    "backwards": (FILL, "for i in range(n): Y[i] = T_[n - 1 - i] * Z[i]", {}),
    "twice, once elsewhere": (FILL, "for i in range(n): Y[i] = T_[i] + T_[n - 1 - i]", {}),
    "backwards on both sides": (
        FILL,
        "for i in range(n): Y[n - 1 - i] = T_[n - 1 - i] * Z[i]",
        {"T_": "Y"},
    ),
    "by a loop from one": (
        SHORT,
        "for i in range(1, 6): V[i - 1] = Q[i - 1] * T.float32(2)",
        {"Q": "V"},
    ),
    "columns of rows": (
        SQUARE,
        "for i, j in T.grid(5, 5): N[j, i] = S[j, i] * M[i, j]",
        {"S": "N"},
    ),
    "twice in its place": (FILL, "for i in range(n): Y[i] = T_[i] * Z[i] + T_[i]", {"T_": "Y"}),
    "another length": (FILL, "for i in range(n): V[i] = T_[i] * T.float32(2)", {}),
    "a longer one": (
        "    for i in range(6):\n        H[i] = W[i] + T.float32(1)\n",
        "for i in range(5): V[i] = H[i] * T.float32(2)",
        {},
    ),
    "another datatype": (SHORT, 'for i in range(5): K[i] = T.Cast("float64", Q[i])', {}),
    "another rank": (SHORT, "for i in range(5): M[i, 0] = Q[i] * T.float32(2)", {}),
    "all but the first": (SHORT, "for i in range(1, 5): V[i] = Q[i] * T.float32(2)", {}),
    "all but the last": (SHORT, "for i in range(4): V[i] = Q[i] * T.float32(2)", {}),
    "one element": (SHORT, "V[0] = Q[0] + T.float32(2)", {}),
    "rows": (SQUARE, "for i, j in T.grid(5, 5): N[i, j] = S[i, j] * M[j, i]", {"S": "N"}),
    "rows and columns": (SQUARE, "for i, j in T.grid(5, 5): N[i, j] = S[j, i] * M[i, j]", {}),
    "a diagonal": (SQUARE, "for i in range(5): N[i, i] = S[i, i] * T.float32(2)", {}),
    "one row": (SQUARE, "for j in range(5): N[0, j] = S[0, j] * T.float32(2)", {}),
    "one column": (
        "    for i in range(5):\n        G[i, 0] = W[i] + T.float32(1)\n",
        "for i in range(5): O[i, 0] = G[i, 0] * T.float32(2)",
        {"G": "O"},
    ),
    "fewer columns": (SQUARE, "for i, j in T.grid(5, 4): R[i, j] = S[i, j] * T.float32(2)", {}),
    "columns left over": (SQUARE, "for i, j in T.grid(5, 4): N[i, j] = S[i, j] * T.float32(2)", {}),
    "the result is read in between": (
        FILL + "    for i in range(n):\n        Z[i] = Y[i]\n",
        "for i in range(n): Y[i] = T_[i] * X[i]",
        {},
    ),
    "the result is read afterwards": (
        FILL,
        "for i in range(n): Y[i] = T_[i] * X[i]\n    for i in range(n): Z[i] = Y[i] + X[i]",
        {"T_": "Y"},
    ),
    "the result is written before": (
        "    for i in range(n):\n        Y[i] = X[i]\n" + FILL,
        "for i in range(n): Z[i] = Y[i]\n    for i in range(n): Y[i] = T_[i] * X[i]",
        {},
    ),
    "read again afterwards": (
        FILL,
        "for i in range(n): Y[i] = T_[i] * X[i]\n    for i in range(n): Z[i] = T_[i] + X[i]",
        {"T_": "Z"},
    ),
    "never read": (FILL, "for i in range(n): Y[i] = X[i]", {}),
    "stored to again at the end": (
        FILL,
        "for i in range(n): Y[i] = T_[i]\n    for i in range(n): T_[i] = X[i]",
        {},
    ),
    "one for two that live at once": (
        FILL + "    for i in range(n):\n        U[i] = X[i] * T.float32(3)\n",
        "for i in range(n): Y[i] = T_[i] * U[i]",
        {"U": "Y"},
    ),
    "one of two, the other is summed": (
        FILL + "    for i in range(n):\n        U[i] = X[i] * T.float32(3)\n",
        "for i in range(n): Y[i] = T_[i] * Z[i]\n    for i, j in T.grid(5, n): V[i] = V[i] + U[j]",
        {"T_": "Y"},
    ),
    "one of two, the other's is in use": (
        FILL + "    for i in range(n):\n        U[i] = X[i] * T.float32(3) + Z[i]\n",
        "for i in range(n): Y[i] = T_[i] * X[i]\n    for i in range(n): Z[i] = U[i] * X[i]",
        {"T_": "Y"},
    ),
    "two at once, each in another result": (
        FILL + "    for i in range(n):\n        U[i] = X[i] * T.float32(3)\n",
        "for i in range(n): Y[i] = T_[i] + X[i]\n    for i in range(n): Z[i] = U[i] + X[i]",
        {"T_": "Y", "U": "Z"},
    ),
    "one after the other": (
        FILL + "    for i in range(n):\n        U[i] = T_[i] * X[i]\n",
        "for i in range(n): Y[i] = U[i] * X[i]",
        {"T_": "Y", "U": "Y"},
    ),
    "a view of the result": (
        '    A = T.decl_buffer((5,), "float32", data=V.data)\n' + SHORT,
        "for i in range(5): V[i] = Q[i]\n    for i in range(5): W[i] = A[i]",
        {},
    ),
    "a view of the scratch buffer": (
        '    A = T.decl_buffer((5,), "float32", data=Q.data)\n' + SHORT,
        "for i in range(5): A[i] = A[i] * T.float32(2)\n    for i in range(5): V[i] = Q[i]",
        {},
    ),
}


@pytest.mark.parametrize("case", SHARED)
def test_scratch_memory_is_the_results_memory(case: str) -> None:
    fill, last, expected = SHARED[case]
    lines = "\n".join(
        f"{line.split(': ')[0]}:\n        {line.split(': ', 1)[1]}" if "): " in line else line
        for line in ("    " + last).split("\n")
    )
    func = kernel(f"{fill}{lines}\n")
    shared = make_plan(func, "kernel").shared
    assert {buffer.name: owner.name for buffer, owner in shared.items()} == expected
    check(func, *arguments())


APART = {
    "X[i] * T.float32(2)": ([], ["X"]),
    "X[i] * Z[i]": ([], ["X", "Z"]),
    "T.exp(X[i]) * Z[i]": (["Z"], ["X"]),
    "X[i] * T.float32(2) * Z[i] + V[0]": (["Z", "V"], ["X"]),
    # An operand of a later operation as well, or of both sides of one.
    "X[i] * T.float32(2) + X[i]": (["X"], []),
    "(X[i] * T.float32(2) + Z[i]) * X[i]": (["X", "Z"], []),
    "T.exp(X[i]) * T.exp(Z[i])": (["Z"], ["X"]),
    "T.exp(X[i]) * T.exp(Z[i] + X[i])": (["X", "Z"], []),
    'X[i] * T.sqrt(T.Cast("float32", n))': ([], ["X"]),
    # Read in another place than it is stored, in another datatype, or after the result.
    "X[n - 1 - i]": (["X"], []),
    "X[i] + X[n - 1 - i]": (["X"], []),
    'T.Cast("float32", K[0])': (["K"], []),
    "X[i] + Y[i]": (["X"], []),
    # What is looked up may be kept in the result until the operation that needs it.
    "X[i] + Z[P[i]]": (["X", "Z", "P"], []),
}


def exclusions_of(func: PrimFunc) -> dict[str, tuple[set[str], set[str]]]:
    """For each argument that is written: those that must not overlap it, and may only be it."""
    found = {}
    for target, others, same in exclusions(make_plan(func, "kernel")):
        names = [buffer.name for buffer in others]
        found[target.name] = set(names[: len(names) - same]), set(names[len(names) - same :])
    return found


@pytest.mark.parametrize("value", APART)
def test_an_argument_may_be_the_result(value: str) -> None:
    func = kernel(f"    for i in range(n):\n        Y[i] = {value}\n")
    differ, same = APART[value]
    assert exclusions_of(func) == {"Y": (set(differ), set(same))}
    check(func, *arguments())


STEPS = {
    "where a condition holds": (
        "    for i in range(n):\n        if Z[i] > T.float32(3):\n            Y[i] = X[i]\n",
        {"Y": ({"X", "Z"}, set())},
    ),
    "read in two steps": (
        "    for i in range(n):\n        Y[i] = X[i] * T.float32(2)\n"
        "    for i in range(n):\n        Z[i] = X[i] * T.float32(3)\n",
        {"Z": ({"X", "Y"}, set()), "Y": ({"X"}, set())},
    ),
    "stored to in two steps": (
        "    for i in range(n):\n        Y[i] = X[i] * T.float32(2)\n"
        "    for i in range(n):\n        Y[i] = Z[i] * T.float32(3) + Y[i]\n",
        {"Y": ({"X", "Z"}, set())},
    ),
    "stored to through a view": (
        '    A = T.decl_buffer((n,), "float32", data=Y.data)\n'
        "    for i in range(n):\n        A[i] = X[i] * T.float32(2)\n",
        {"Y": ({"X"}, set())},
    ),
    "a sum": (
        "    for i, j in T.grid(5, 5):\n        V[i] = V[i] + M[i, j]\n",
        {"V": ({"M"}, set())},
    ),
    "scratch in the result": (
        FILL + "    for i in range(n):\n        Y[i] = T_[i] * Z[i]\n",
        {"Y": ({"X", "Z"}, set())},
    ),
    "rows read backwards": (
        "    for i, j in T.grid(5, 5):\n        N[i, j] = M[i, 4 - j]\n",
        {"N": ({"M"}, set())},
    ),
    "of other shapes": (
        "    for i in range(5):\n        V[i] = W[i] + M[i, i]\n",
        {"V": ({"W", "M"}, set())},
    ),
    "not touched": ("    for i in range(5):\n        V[i] = T.float32(2)\n", {"V": (set(), set())}),
}


@pytest.mark.parametrize("case", STEPS)
def test_other_arguments_must_not_overlap(case: str) -> None:
    body, expected = STEPS[case]
    func = kernel(body)
    assert exclusions_of(func) == expected
    check(func, *arguments())
