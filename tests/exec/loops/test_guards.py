"""What a condition protects stops the program only where the condition holds."""

from types import SimpleNamespace

import numpy as np
import pytest

import relaxpy
from tests.exec.loops.support import methods
from tests.exec.loops.written import kernel, run_row
from tests.rows import sections

GUARDS = sections("""
--- a place may be outside where it is not looked up
def f(A: i32[n], at: i32[m], C: i32[m, 2]):
    for i, j in T.grid(m, 2):
        C[i, j] = T.if_then_else(at[i] >= 0, A[at[i]], 7) + T.Select(at[i] < 0, -1, A[at[i]])
# args: n=2, m=4, at=ints(-1, 1, -5, 0)
# args: n=0, m=2, at=ints(-1, -1)
# args: n=2, m=2, at=ints(-1, 2) -> index 2 is out
# args: n=0, m=2, at=ints(-1, 0) -> index 0 is out
--- the digits of a number may be above
def f(A: f32[2, 3], B: f32[n]):
    for i in range(n):
        B[i] = A[i // 3, i % 3]
# args: n=6
# args: n=8 -> index 2 is outside dimension 0
--- the digits of a number may be below
def f(A: f32[2, 3], B: f32[n]):
    for i in range(n):
        B[i] = A[i // 3 - 1, i % 3]
# args: n=6 -> index -1 is outside dimension 0
--- the digits of a known number may be above
def f(A: f32[2, 3], B: f32[8]):
    for i in range(8):
        B[i] = A[i // 3, i % 3]
# args: A=numbers(6).reshape(2, 3) -> index 2 is outside dimension 0
--- each condition is evaluated only where those before it let it
def f(A: i32[4], at: i32[4], C: bool[4], D: i32[4]):
    for i in range(4):
        C[i] = at[i] < 0 or at[i] > 3 or A[at[i]] > 1
    for i in range(4):
        if at[i] >= 0 and at[i] < 9 and A[at[i]] > 1:
            D[i] = A[at[i]]
# args: A=ints(1, 2, 3, 0), at=ints(3, -1, 1, 10)
# args: A=ints(1, 2, 3, 0), at=ints(3, -1, 1, 4) -> index 4 is outside
--- a quotient that is used twice stops the program where either use would
def f(A: i32[3], B: i32[3], C: i32[3]):
    for i in range(3):
        C[i] = T.Select(B[i] > 0, A[i] // B[i], 0) + A[i] // B[i]
# args: A=ints(7, 8, -9), B=ints(2, -3, 4)
# args: A=ints(7, 8, -9), B=ints(2, 0, 4) -> division by zero
--- a divisor that is the same in all iterations counts where it divides
def f(A: i32[3], B: i32[1], C: i32[3]):
    for i in range(3):
        C[i] = T.Select(A[i] > 5, T.truncmod(A[i], B[0]) + 8 // B[0], A[i])
# args: A=ints(1, 2, 5), B=ints(0)
# args: A=ints(1, 2, 9), B=ints(-4)
# args: A=ints(1, 2, 9), B=ints(0) -> division by zero
--- what is left out of a sum may be outside
def f(A: i32[3], at: i32[2, 3], C: i32[2], D: i32[3]):
    for i, k in T.grid(2, 3):
        if at[i, k] < 3:
            C[i] = C[i] + A[at[i, k]]
    for i, k in T.grid(2, 3):
        if at[i, k] < 3:
            D[at[i, k]] = D[at[i, k]] + 6 // at[i, k]
# args: at=ints(1, 2, 3, 9, 2, 1).reshape(2, 3)
# args: at=ints(1, 2, -1, 9, 2, 1).reshape(2, 3) -> index -1 is outside
# args: at=ints(1, 2, 0, 9, 2, 1).reshape(2, 3) -> division by zero
# methods: add reduction over k; scatter (add)
--- an index outside a matched region is refused inside its buffer too
def f(A: f32[7], n: T.int64):
    for i in range(n):
        with T.block("opaque"):
            U = T.match_buffer(A[1:4], (3,), "float32")
            U[i] = T.float32(i)
# args: n=5 -> outside dimension 0
--- an index outside a matched region that a condition excludes
def f(A: f32[7], n: T.int64):
    for i in range(n):
        with T.block("opaque"):
            U = T.match_buffer(A[1:4], (3,), "float32")
            if i < 3:
                U[i] = T.float32(i)
# args: n=5
""")


@pytest.mark.parametrize("fact", GUARDS)
def test_what_a_condition_protects_stops_the_program_only_where_it_holds(fact: str) -> None:
    run_row(GUARDS[fact])


ASSERTED = """
def f(A: i32[n], B: i32[n]):
    for i in range(n):
        assert {}, "it does not hold"
        B[i] = A[i] * 2
"""


@pytest.mark.parametrize("condition", ["i < n", "0 <= i and i < n + 3", "T.bool(True)"])
def test_an_assertion_that_always_holds_is_not_tested(condition: str) -> None:
    run_row(f"{ASSERTED.format(condition)}# methods: elementwise\n# args: n=0\n# args: n=3\n")


@pytest.mark.parametrize("condition", ["i < 3", "i + 1 < n", "A[i] == A[i]", "n // (n - 4) < 9"])
def test_other_assertions_are_tested(condition: str) -> None:
    row = ASSERTED.format(condition)
    assert methods(kernel(row)) != ["elementwise"]
    fails = "" if condition.startswith("A") else " -> it does not hold|divi"
    run_row(f"{row}# args: n=0\n# args: n=4{fails}\n")


WRAPPED = (
    *("i + c > 1", "c - i <= 3 - c", "i + c <= c", "i * c >= 0", "i < c + 1", "1 - c < i"),
    *("i + c != c + 3", 'T.Cast("int64", i + c) <= T.Cast("int64", c)', "2 * i < c", "i <= c"),
)
"""Conditions that do not hold where they would without wrapping around, or in their solved form."""
LOOPS = {"i": "for i in range(6)", "(j * 3 + k)": "for j, k in T.grid(2, 3)"}


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("condition", WRAPPED)
def test_conditions_on_scalars_wrap_around(condition: str, dtype: str) -> None:
    row = f"def f(A: i32[6], B: i32[6], C: i32[6], D: i32[6], c: T.{dtype}):\n"
    for (index, loops), guarded, chosen in zip(LOOPS.items(), "AC", "BD", strict=True):
        test = condition.replace("i ", f"{index} ").replace(" i", f" {index}")
        row += f"    {loops}:\n        if {test}:\n            {guarded}[{index}] = 7\n"
        row += f"    {loops}:\n        {chosen}[{index}] = T.if_then_else({test}, 1, 2)\n"
    least = np.iinfo(dtype).min
    names = {"i": np.arange(6, dtype=dtype), "T": SimpleNamespace(Cast=lambda to, x: x.astype(to))}
    executables = [relaxpy.compile(kernel(row), t) for t in ("reference", "numpy", "native")]
    for c in (least, least + 2, -1, 0, 3, -(least + 3), -(least + 1)):
        with np.errstate(over="ignore"):
            holds = eval(condition, names | {"c": np.array([c], dtype)})
        for executable in executables:
            found = np.zeros((4, 6), "int32")
            executable["f"](*found, c)
            expected = [np.where(holds, 7, 0), np.where(holds, 1, 2)] * 2
            np.testing.assert_array_equal(found, expected, f"{executable.target}, c = {c}")


def test_a_scalar_alone_bounds_the_loop() -> None:
    head = "def f(A: i32[6], c: T.int64):\n    for i in range(6):\n        if i < "
    body = ":\n            A[i] = 7\n# args: c=(-1, 0, 4, 9)\n"
    run_row(f"{head}c{body}# source: A[:min(6, c)] = 7\n")
    run_row(f"{head}c - 1{body}# not source: A[:min(\n")


LEAST = -(1 << 63)
LARGE = {
    f"i > {-(LEAST + 1)}": [],
    f"i <= {-(LEAST + 1)}": range(6),
    f"i == {-(LEAST + 1)}": [],
    f"0 - i > {-(LEAST + 1)}": [],
    f"i * 2 > {-(LEAST + 1)}": [],
    f"i - 5 > {-(LEAST + 1)}": [],
    f"0 - i < {LEAST + 1}": [],
    f"i * 3 > T.int64({-(LEAST + 3)})": [],
    f"i >= {LEAST + 1}": range(6),
}
"""Conditions next to the ends of int64, and where they hold; the bound solved for i is beyond."""


@pytest.mark.parametrize("condition", LARGE)
def test_conditions_next_to_the_ends_of_int64_bound_no_loop_beyond(condition: str) -> None:
    for size in ("6", "n"):
        row = f"def f(A: i32[{size}]):\n    for i in range({size}):\n        if {condition}:\n"
        expected = np.zeros(6, "int32")
        expected[list(LARGE[condition])] = 7
        for target in ("reference", "numpy", "native"):
            found = np.zeros(6, "int32")
            relaxpy.compile(kernel(f"{row}            A[i] = 7\n"), target)["f"](found)
            np.testing.assert_array_equal(found, expected, f"{target}, {size}")


def test_a_product_of_sizes_that_wraps_around_bounds_no_loop_below_its_start() -> None:
    row = "def f(A: i8[n]):\n    for i in range(n):\n        if i >= n * n * n:\n"
    memory = np.zeros(3 << 21, "int8")
    relaxpy.compile(kernel(f"{row}            A[i] = 7\n"), "native")["f"](
        memory[1 << 21 : 2 << 21]
    )
    assert not memory[: 1 << 21].any()
    assert not memory[2 << 21 :].any()
