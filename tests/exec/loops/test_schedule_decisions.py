"""What the scheduler decides of small kernels, each for a reason that its text gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from relaxpy.exec.numpy.compiler import compile_kernel
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script import from_source
from tests.exec.loops.support import check

SIZE = 40


def kernel(body: str) -> PrimFunc:
    """A kernel over vectors A to D, matrices X and Y, places P, a number s, and Z[n, m]."""
    text = f"""
@T.prim_func
def f(a: T.handle, b: T.handle, c: T.handle, d: T.handle, x: T.handle, y: T.handle,
      p: T.handle, z: T.handle, s: T.int64):
    n = T.int64()
    m = T.int64()
    A = T.match_buffer(a, ({SIZE},), "int32")
    B = T.match_buffer(b, ({SIZE},), "int32")
    C = T.match_buffer(c, ({SIZE},), "int32")
    D = T.match_buffer(d, ({SIZE},), "int32")
    X = T.match_buffer(x, ({SIZE}, {SIZE}), "int32")
    Y = T.match_buffer(y, ({SIZE}, {SIZE}), "int32")
    P = T.match_buffer(p, (8,), "int32")
    Z = T.match_buffer(z, (n, m), "int32")
{body}"""
    func = from_source(text)
    assert isinstance(func, PrimFunc)
    return func


def arguments(n: int, m: int, s: int, seed: int = 3) -> list[Any]:
    rng = np.random.default_rng(seed)
    shapes = [(SIZE,)] * 4 + [(SIZE, SIZE)] * 2
    arrays = [rng.integers(-9, 9, shape).astype(np.int32) for shape in shapes]
    places, sized = rng.integers(0, 8, 8), rng.integers(-9, 9, (n, m))
    return [*arrays, places.astype(np.int32), sized.astype(np.int32), s]


def decided(body: str, *expected: str, reasons: Sequence[str] | None = None) -> None:
    """Its statements run in these ways, in this order, and do what the text says."""
    func = kernel(body)
    report = compile_kernel(func, "kernel").report
    assert [f"{e.block}: {e.method.replace('in row blocks, ', '')}" for e in report] == [*expected]
    assert reasons is None or [e.reason for e in report] == [*reasons]
    for n, m, s in ((2, 3, 1), (0, 1, -1), (1, 0, 0)):
        check(func, *arguments(n, m, s))


NESTS = {
    # Each row needs the one before it; within a row nothing is needed.
    "X[i + 1, j] = X[i, j] * 2 + 1": "loop over i, elementwise",
    # Each element needs the one to the left: all rows go along at once.
    "X[i, j + 1] = X[i, j] * 2 + 1": "loop over j, elementwise",
    "X[i + 1, j + 1] = X[i, j] * 2 + 1": "loop over i, elementwise",
    "X[i + 1, j] = X[i, j + 1] * 2 + 1": "loop over i, elementwise",
    # What is read is overwritten only later, or never.
    "X[i, j] = X[i + 1, j] * 2 + 1": "elementwise",
    "X[i, j] = X[i, j + 1] * 2 + 1": "elementwise",
    "X[i, j + 1] = X[i + 1, j] * 2 + 1": "elementwise",
    "X[i + 3, j] = X[i, j] * 2 + 1": "elementwise",
    "X[i, j + 4] = X[i, j] * 2 + 1": "elementwise",
    "X[i + 2, j + 4] = X[i, j] * 2 + 1": "elementwise",
    # Both neighbours are needed.
    "X[i + 1, j + 1] = X[i, j + 1] * 2 + X[i + 1, j]": "scalar loop",
    # Different elements in each iteration: twelve digits of a number, or with gaps between.
    "A[i * 4 + j] = B[i] * 2 + C[j] + A[i * 4 + j] * 3": "elementwise",
    "A[i * 7 + j] = B[i] * 2 + C[j] + A[i * 7 + j] * 3": "elementwise",
    "A[i + j * 3] = B[i] * 2 + C[j] + A[i + j * 3] * 3": "elementwise",
    # The elements of an accumulation, and what it reads elsewhere in its target.
    "A[i] = A[i] + B[j]": "add reduction over j",
    "A[i] = A[i] + A[j + 4]": "add reduction over j",
    "A[j] = A[j] + B[i]": "add reduction over i",
    # Places that are read: of several stores to one the last counts.
    "A[P[j]] = B[i] + C[j]": "scatter",
    "A[P[j]] = A[P[j]] + B[i]": "scatter (add)",
    # Whatever the row, what is read lies in other columns.
    "X[P[j], i] = X[P[j], i + 4] * 2 + 1": "scatter",
}


@pytest.mark.parametrize("line", NESTS)
def test_one_statement_in_two_loops(line: str) -> None:
    name = line[0]
    decided(f"    for i, j in T.grid(3, 4):\n        {line}\n", f"{name}: {NESTS[line]}")


@pytest.mark.parametrize(
    "line",
    [
        # Elements that several iterations meet: rows of four that overlap by one, diagonals.
        "A[i * 3 + j] = B[i] * 2 + C[j] + A[i * 3 + j] * 3",
        "A[i + j] = B[i] * 2 + C[j] + A[i + j] * 3",
        # An accumulation that reads what it has accumulated elsewhere, or stored anywhere.
        "A[i] = A[i] + A[j]",
        "X[i, 0] = X[i, 0] + X[i, j]",
        # Twelve digits, each of which the one before it needs.
        "A[i * 4 + j + 1] = A[i * 4 + j] * 2 + B[i]",
        "A[P[j]] = A[j + 8] + B[i]",
        "A[P[j]] = A[P[j]] + A[i]",
        "A[B[j] * 0 + P[j]] = A[j] * 2 + B[i]",
    ],
)
def test_a_loop_is_kept(line: str) -> None:
    """An iteration may need what an earlier one stores."""
    func = kernel(f"    for i, j in T.grid(3, 4):\n        {line}\n")
    assert all("loop" in entry.method for entry in compile_kernel(func, "kernel").report)
    for seed in range(3):
        check(func, *arguments(2, 3, 1, seed))


LOOPS = {
    # Apart by more than n and at least one, whatever n is, and in one direction.
    "A[i] = A[i + n + 1] * 2 + 1": "elementwise",
    "A[i + n + 1] = A[i] * 2 + 1": "scalar loop",
    "A[20 - i] = A[20 - i - n - 1] * 2 + 1": "elementwise",
    "A[20 - i - n - 1] = A[20 - i] * 2 + 1": "scalar loop",
    # The stride may be negative, or zero.
    "A[i * s + 8] = A[i * s + 9] * 2 + 1": "scalar loop",
    "A[i * s + 9] = A[i * s + 8] * 2 + 1": "scalar loop",
    "A[i * s + 8] = A[2 * i + 6] * 2 + 1": "scalar loop",
    "A[2 * i + 6] = A[i * s + 8] * 2 + 1": "scalar loop",
    # Never zero.
    "A[i * (n + 1)] = A[i * (n + 1)] * B[i] + 1": "elementwise",
    "A[20 - i * (n + 1)] = A[20 - i * (n + 1)] * B[i] + 1": "elementwise",
    # Zero for n = 0, when every iteration reads what the one before it stores.
    "A[i * n] = A[i * n] * B[i] + 1": "scalar loop",
    # The last element stored to and the first one read, in either order.
    "A[20 + i] = A[19 - i] * 2 + 1": "elementwise",
    "A[19 - i] = A[20 + i] * 2 + 1": "elementwise",
}


@pytest.mark.parametrize("line", LOOPS)
def test_one_statement_in_one_loop(line: str) -> None:
    decided(f"    for i in range(5):\n        {line}\n", f"A: {LOOPS[line]}")


PAIRS = {
    # One element is stored to in each iteration; the other statement reads another one.
    ("C[i] = A[0] * 2 + 1", "A[n + 1] = C[i]"): ("C: elementwise", "A: scalar loop"),
    ("C[i] = A[n + 1] * 2 + 1", "A[0] = C[i]"): ("C: elementwise", "A: scalar loop"),
    # For n = 0 it is the same one.
    ("C[i] = A[n] * 2 + 1", "A[0] = C[i]"): ("C: scalar loop", "A: scalar loop"),
    # The second is needed by the first in a later iteration only.
    ("A[i] = B[i + 1]", "B[i] = C[i]"): ("A: elementwise", "B: elementwise"),
    ("A[i] = B[i]", "B[i + 1] = C[i]"): ("B: elementwise", "A: elementwise"),
    ("A[i] = B[i]", "B[i + 1] = A[i]"): ("A: scalar loop", "B: scalar loop"),
    # A place that is read may be any: both orders hold, within an iteration and across.
    ("A[P[i]] = B[i]", "C[i] = A[i]"): ("A: scalar loop", "C: scalar loop"),
    ("A[i] = B[i]", "C[i] = A[P[i]]"): ("A: scalar loop", "C: scalar loop"),
    ("A[P[i]] = B[i]", "C[i] = D[P[i]]"): ("A: scatter", "C: elementwise"),
}


@pytest.mark.parametrize("lines", PAIRS)
def test_two_statements_in_one_loop(lines: tuple[str, str]) -> None:
    body = "".join(f"        {line}\n" for line in lines)
    decided(f"    for i in range(5):\n{body}", *PAIRS[lines])


NESTED_PAIRS = {
    # The next element to the right needs this one: all rows go along at once.
    ("A[i * 8 + j] = Y[i, j] * 2 + B[i]", "Y[i, j + 1] = A[i * 8 + j] * 2"): (
        "A: loop over j, elementwise",
        "Y: loop over j, elementwise",
    ),
    # Other digits: both orders hold along a row, which has nothing of other rows.
    ("A[i * 8 + j] = B[i] + C[j]", "Y[i, j] = A[i * 8 + j * 2] * 2"): (
        "A: scalar loop",
        "Y: scalar loop",
    ),
    # Digits that are the same in another row only.
    ("X[i + 1, i * 4 + j] = Y[i, j] * 2 + B[j]", "Y[i, j + 1] = X[i, i * 4 + j] * 2"): (
        "Y: elementwise",
        "X: elementwise",
    ),
}


@pytest.mark.parametrize("lines", NESTED_PAIRS)
def test_two_statements_in_two_loops(lines: tuple[str, str]) -> None:
    body = "".join(f"        {line}\n" for line in lines)
    decided(f"    for i, j in T.grid(3, 4):\n{body}", *NESTED_PAIRS[lines])


FIRST = "        if i < 4:\n            C[i] = A[P[i]] * 2 + 1\n"
SECOND = "        if i >= {}:\n            A[i + 1] = C[i - {}] * 2 + 1\n"
ROWS = [
    "        if i < 2:\n            Y[i, j] = X[P[j], j] * 2 + 1\n",
    "        if i >= 2:\n            X[i, j] = Y[i - 2, j] * 2 + 1\n",
]


@pytest.mark.parametrize(
    ("begin", "swapped"), [(3, False), (4, False), (5, False), (4, True), (5, True)]
)
def test_what_happens_in_later_iterations_only_comes_after(begin: int, swapped: bool) -> None:
    """Places that are read may be any, but what stores there begins when the others end.

    In an iteration that they share, which 3 is, the text decides.
    """
    statements = [FIRST, SECOND.format(begin, begin)]
    loop = "".join(reversed(statements) if swapped else statements)
    decided(f"    for i in range(8):\n{loop}", "C: elementwise", "A: elementwise")


@pytest.mark.parametrize("swapped", [False, True])
def test_an_inner_loop_has_no_say_where_the_outer_iterations_differ(swapped: bool) -> None:
    loop = "".join(reversed(ROWS) if swapped else ROWS)
    text = f"    for i, j in T.grid(4, 5):\n{loop}"
    decided(text, "Y: elementwise", "X: elementwise")


@pytest.mark.parametrize(
    ("dtype", "method"),
    [
        ("float4_e2m1fn", "contraction over k"),
        ("float32", "contraction over k"),
        ("int8", "contraction over k"),
        ("int4", "add reduction over k"),
        ("bool", "add reduction over k"),
    ],
)
def test_sums_of_products_are_contractions_where_they_wrap_like_bytes(dtype, method) -> None:
    """Numbers of fewer bits than a byte are kept in one, which does not wrap as they do."""
    func = from_source(f"""
@T.prim_func
def f(A: T.Buffer((3, 5), "{dtype}"), B: T.Buffer((5, 2), "{dtype}"),
      C: T.Buffer((3, 2), "{dtype}")):
    for i, j, k in T.grid(3, 2, 5):
        C[i, j] = C[i, j] + A[i, k] * B[k, j]
""")
    assert [entry.method for entry in compile_kernel(func, "kernel").report] == [method]


def test_digits_of_which_one_statement_has_more() -> None:
    """What the upper half of a row stores is read in the lower half of the next one."""
    func = kernel("""
    for i, j in T.grid(3, 8):
        Y[i, j] = A[i * 4 + j] * 3 + C[i]
        if j >= 4:
            A[i * 4 + j] = Y[i, j] * 2 + B[i]
""")
    assert all("loop" in entry.method for entry in compile_kernel(func, "kernel").report)
    check(func, *arguments(2, 3, 1))


#: The name, why, a program, how its statements run and, after a bar, for which reason.
DECISIONS = """
# elements that are never the same in one of two dimensions
# X is stored to beside its diagonal, in each row anew, and read on the diagonal.
    for i, j in T.grid(3, 4):
        X[j + 1, j] = A[i] * 2
        Y[i, j] = X[j, j] * 2
=> X: loop over i, elementwise
=> Y: elementwise

# a loop that reads its results after one that does not
    A[7] = B[7] * 2
    for i in range(5):
        A[i] = B[i] * 2
    for i in range(5):
        C[i + 1] = C[i] * 2 + 1
    for i in range(5):
        D[i] = C[i] * 2
=> A: single element |
=> A: elementwise |
=> C: scalar loop | loop i carries a dependence on C
=> D: elementwise |

# a loop is not moved outward past a diagonal
# X needs its right neighbour in the row before, which running j first would not have yet.
#
# Both need each other along a row, which would run as a whole for each j if it might.
    for i, j in T.grid(3, 4):
        X[i + 1, j + 1] = X[i, j + 2] + Y[i + 1, j]
        Y[i + 1, j + 1] = X[i + 1, j + 1] * 2 + C[j]
=> X: scalar loop | loop j carries a dependence on X, Y
=> Y: scalar loop | loop j carries a dependence on X, Y

# the loop that leaves fewest in cycles runs outermost
# Columns from left to right: within one, nothing is needed. By rows, each would be a cycle.
    for i, j in T.grid(3, 4):
        X[i, j + 1] = Y[i, j] * 2 + X[i, j]
        Y[i, j + 1] = X[i, j] * 2 + C[j]
=> X: loop over j, elementwise | loop j carries a dependence on X, Y
=> Y: loop over j, elementwise | loop j carries a dependence on X, Y

# the loops inside one that is kept
# Of the three loops the first is needed for X, and the last as each of its stores replaces.
    for i, j, k in T.grid(2, 3, 4):
        X[i + 1, j] = X[i, j] * 2 + Y[j, k]
=> X: loop over i, loop over k, elementwise

# extremes of rows
# Each row has its own best value and place; nothing else is needed of another iteration.
    for i, k in T.grid(4, 5):
        if X[i, k] > A[i]:
            A[i] = X[i, k]
            B[i] = k
=> A: argmax over k

# places of extremes in the memory of their values
# The place of a row's extreme is where the next row's best value is.
    V = T.decl_buffer((40,), "int32", data=A.data)
    for i, k in T.grid(4, 5):
        if X[i, k] > A[i]:
            A[i] = X[i, k]
            V[i + 1] = k * 3
=> A: scalar loop

# a group that needs a diagonal keeps its loops in order
# As with stores: row i + 1 begins with what row i has one place to the right.
    for i, j in T.grid(3, 4):
        X[i + 1, j + 1] = X[i, j + 2] + Y[i + 1, j]
        while X[i + 1, j + 1] > 2:
            X[i + 1, j + 1] = X[i + 1, j + 1] - 3
        Y[i + 1, j + 1] = X[i + 1, j + 1] * 2 + C[j]
=> X: scalar loop
=> X: scalar loop
=> Y: scalar loop

# a group that needs a diagonal keeps its loops in order, again
    for i, j in T.grid(3, 4):
        while Y[i + 1, j] + X[i, j + 2] > X[i + 1, j + 1]:
            X[i + 1, j + 1] = X[i + 1, j + 1] + 2
        Y[i + 1, j + 1] = X[i + 1, j + 1] * 2 + C[j]
=> X: scalar loop
=> Y: scalar loop

# a loop whose ends follow another stays inside it
    for i in range(4):
        for j in range(i, 5):
            X[i, j + 1] = X[i, j] * 2 + 1
    for i in range(4):
        for j in range(5):
            A[i] = B[j]
=> X: scalar loop | loop j carries a dependence on X
=> A: loop over j, elementwise | loop j carries a dependence on A

# a sum over a loop that ends where another says
# Each row has its own number of terms: rows run one by one, terms at once.
    for i in range(4):
        for j in range(i + 1):
            A[i] = A[i] + X[i, j]
=> A: loop over i, add reduction over j | the bounds of inner loops depend on i

# statements that share a loop have the iterations that any needs
# The loop that is kept runs over what either takes part in.
    for i in range(9):
        if i >= 1 and i < 5:
            A[i + 1] = B[i] * 2 + 1
        if i >= 3 and i < 8:
            B[i + 1] = A[i] * 2 + 1
=> A: scalar loop
=> B: scalar loop

# a loop that ends where memory says
    for i in range(8):
        for k in range(P[i]):
            X[i, k + 1] = X[i, k] * 2 + 1
=> X: scalar loop | loop k carries a dependence on X

# a table of literals is filled before the loops
    W = T.alloc_buffer((2,), "int32")
    for i, j in T.grid(3, 4):
        W[0] = 5
        if j > 1:
            W[1] = -2
        X[i, j] = Y[i, j] * W[j // 2]
=> root: single element
=> root: single element
=> root: elementwise

# an element with two values is no table
    W = T.alloc_buffer((1,), "int32")
    for i in range(4):
        W[0] = 5
        if i > 1:
            W[0] = 6
        A[i] = B[i] * W[0]
=> root: scalar loop
=> root: scalar loop
=> root: scalar loop

# a table that is filled where memory says
    W = T.alloc_buffer((1,), "int32")
    for i in range(4):
        W[0] = 5
        if P[i] > 1:
            W[0] = 5
        A[i] = B[i] * W[0]
=> root: scalar loop
=> root: scalar loop
=> root: scalar loop

# a group runs in its loops
    for i in range(4):
        while A[i] < 3:
            A[i] = A[i] + 1
    while B[0] < 3:
        B[0] = B[0] + 1
=> A: scalar loop | a while loop
=> B: single element | a while loop
"""


@pytest.mark.parametrize(
    "row", DECISIONS.strip().split("\n\n"), ids=lambda row: row.split("\n")[0].strip("# ")
)
def test_each_statement_runs_as_its_row_says(row: str) -> None:
    lines = [line for line in row.split("\n") if not line.startswith("#")]
    ways = [line[3:].partition("|") for line in lines if line.startswith("=> ")]
    body = "\n".join(line for line in lines if not line.startswith("=> "))
    reasons = [reason.strip() for _, _, reason in ways] if ways[0][1] else None
    decided(body, *(way.strip() for way, _, _ in ways), reasons=reasons)
