"""Errors of kernels show the declaration or the bounds of a loop that they are about."""

from __future__ import annotations

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import CompileError, RuntimeCheckError
from relaxpy.script import from_source

TARGETS = ("native", "numpy")
DECLARED = {
    'A: T.Buffer((4,), "float23")': ('A: T.Buffer((4,), "float23"), C', "pass"),
    'T.alloc_buffer((4,), "float23")': ("C", 'B = T.alloc_buffer((4,), "float23")'),
    'T.match_buffer(a, (4,), "float23")': (
        "a: T.handle, C",
        'B = T.match_buffer(a, (4,), "float23")',
    ),
}


@pytest.mark.rule("DT-8")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shown", DECLARED)
def test_a_buffer_whose_datatype_cannot_run_is_an_error_at_its_declaration(shown, target) -> None:
    params, line = DECLARED[shown]
    text = f"""
@T.prim_func
def main({params}: T.Buffer((4,), "float32")):
    {line}
    for i in range(4):
        C[i] = T.float32(1)
"""
    with pytest.raises(CompileError, match="dtype 'float23' has no NumPy form") as caught:
        relaxpy.compile(from_source(text), target)
    _, source, carets, hint = str(caught.value).splitlines()
    start = carets.index("^")
    assert source[start : len(carets)] == shown
    assert hint.strip() == "hint: float comes in 16, 32, 64 bits"
    relaxpy.compile(from_source(text.replace("float23", "float16")), target)


BOUNDS = {
    "elements": """
    for i in range(4 // N[1]):
        C[i] = A[i]
""",
    "a sum": """
    for i in range(4):
        for j in range(4 // N[1]):
            C[i] = C[i] + A[j]
""",
    "the inner of two loops that run in order": """
    for i in range(4):
        for j in range(4 // N[1]):
            C[0] = C[0] * A[i] + A[j]
            C[1] = C[0] + A[i]
""",
    "a loop in a while loop": """
    L = T.alloc_buffer((1,), "int64")
    L[0] = T.int64(0)
    while L[0] < 3:
        for j in range(4 // N[1]):
            C[j] = C[j] + A[j]
        L[0] = L[0] + 1
""",
    "an element of another array": """
    for i in range(4):
        for j in range(T.min(N[N[1] - 1], 4)):
            C[i] = C[i] + A[j]
""",
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", BOUNDS)
def test_an_error_of_a_bound_is_at_the_bounds(name: str, target: str) -> None:
    text = f"""
@T.prim_func
def main(A: T.Buffer((4,), "float32"), N: T.Buffer((2,), "int64"),
         C: T.Buffer((4,), "float32")):{BOUNDS[name]}"""
    run = relaxpy.compile(from_source(text), target)["main"]
    a, c = np.ones(4, "float32"), np.zeros(4, "float32")
    run(a, np.array([1, 1]), c)
    with pytest.raises(RuntimeCheckError) as caught:
        run(a, np.array([1, 0]), c)
    _, source, carets, *_ = str(caught.value).splitlines()
    shown = source[carets.index("^") : len(carets)]
    assert shown.startswith("range(")
    assert "N[1]" in shown


@pytest.mark.parametrize("target", TARGETS)
def test_an_error_of_a_statement_is_at_the_statement(target: str) -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((4,), "int64"), N: T.Buffer((2,), "int64"), C: T.Buffer((4,), "int64")):
    for i in range(N[0]):
        C[i] = A[i] // N[1]
"""
    run = relaxpy.compile(from_source(text), target)["main"]
    with pytest.raises(RuntimeCheckError) as caught:
        run(np.ones(4, "int64"), np.array([4, 0]), np.zeros(4, "int64"))
    assert "C[i] = A[i] // N[1]" in str(caught.value).splitlines()[1]


@pytest.mark.parametrize("target", TARGETS)
def test_an_error_of_a_condition_is_at_the_condition(target: str) -> None:
    text = """
@T.prim_func
def main(N: T.Buffer((2,), "int64"), C: T.Buffer((4,), "int64")):
    for i in range(4):
        while C[i] < 4 // N[1]:
            C[i] = C[i] + 1
"""
    run = relaxpy.compile(from_source(text), target)["main"]
    found = np.zeros(4, "int64")
    run(np.array([0, 2]), found)
    assert found.tolist() == [2] * 4
    with pytest.raises(RuntimeCheckError) as caught:
        run(np.array([0, 0]), found)
    _, source, carets, *_ = str(caught.value).splitlines()
    assert source[carets.index("^") : len(carets)] == "C[i] < 4 // N[1]"
