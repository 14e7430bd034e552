"""Only what is evaluated may be out of bounds or divide by zero: branches, operands, iterations."""

import textwrap
from collections.abc import Sequence

import numpy as np
import pytest

from tests.exec.kernel.outcomes import TARGETS, Program, run

BUFFERS = {"C": "bool", "A": "int32", "D": "int32", "count": "int32", "Y": "int32"}
"""The datatype of each buffer, here in the order of parameters; other parameters are scalars."""
UP = [0, 1, 2, 3]
OUT_OF_A = "index 4 is outside dimension 0 of buffer A"


def program(
    name: str,
    body: str,
    args: dict[str, Sequence[int] | int],
    expected: str | Sequence[int] = (0, 0, 0, 0),
) -> Program:
    """A body that may change the buffer Y of four zeros: the error, or what Y becomes."""
    values = {**args, "Y": (0, 0, 0, 0)}
    params = ", ".join(
        f"{param}: T.int32"
        if isinstance(value, int)
        else f'{param}: T.Buffer(({len(value)},), "{BUFFERS[param]}")'
        for param, value in values.items()
    )
    text = f"@T.prim_func\ndef f({params}):\n{textwrap.indent(textwrap.dedent(body), '    ')}"
    return Program(
        name,
        text,
        lambda: [
            value if isinstance(value, int) else np.array(value, BUFFERS[param])
            for param, value in values.items()
        ],
        expected if isinstance(expected, str) else {len(args): list(expected)},
    )


def guarded(
    name: str,
    conditions: str | Sequence[str],
    args: dict[str, Sequence[int] | int],
    expected: str | Sequence[int] = (0, 0, 0, 0),
) -> Program:
    """A loop of four iterations that stores 5 where each of the nested conditions is true."""
    lines = ["for k in range(4):"]
    for condition in [conditions] if isinstance(conditions, str) else conditions:
        lines.append(f"{'    ' * len(lines)}if {condition}:")
    lines.append(f"{'    ' * len(lines)}Y[k] = 5")
    return program(name, "\n".join(lines), args, expected)


CASES = [
    guarded(
        "an invariant operand decides and", "T.And(C[0], A[k + 1] > 0)", {"C": [False], "A": UP}
    ),
    guarded(
        "an invariant operand does not decide and",
        "T.And(C[0], A[k + 1] > 0)",
        {"C": [True], "A": UP},
        OUT_OF_A,
    ),
    program(
        "or is decided in each iteration that would read outside",
        """
        for k in range(4):
            Y[k] = T.Select(T.Or(k >= 3, A[k + 1] > 1), 1, 0)
        """,
        {"A": UP},
        [0, 1, 1, 1],
    ),
    program(
        "a branch of Select and of if_then_else",
        """
        for k in range(4):
            Y[k] = T.Select(D[k] != 0, 12 // D[k], A[3 - k] + T.if_then_else(k < 2, 1, A[k]))
        """,
        {"A": [5, 6, 7, 8], "D": [0, 2, 0, 4]},
        [9, 6, 13, 3],
    ),
    program(
        "the extent of a loop under a guard",
        """
        for j in range(2):
            if count[0] > 0:
                for i in range(n // m):
                    Y[i] = Y[i] + 1
        """,
        {"count": [0], "n": 3, "m": 0},
    ),
    program(
        "the extent of a loop in a loop without iterations",
        """
        for j in range(m):
            for i in range(count[j] + n // m):
                Y[i] = Y[i] + 1
        """,
        {"count": [0], "n": 3, "m": 0},
    ),
    program(
        "a condition on loops without iterations",
        """
        for k in range(4):
            if A[k + 1] > 0:
                for i in range(n):
                    Y[k] = Y[k] + 1
        """,
        {"A": UP, "n": 0},
        OUT_OF_A,
    ),
    program(
        "a condition on a condition that never holds",
        """
        for k in range(4):
            if A[k + 1] > 0:
                if k == 4:
                    Y[k] = Y[k] + 1
        """,
        {"A": UP, "n": 0},
        OUT_OF_A,
    ),
    guarded(
        "an invariant condition under one that never holds",
        ["A[k] > 9", "A[n] > 0"],
        {"A": UP, "n": 4},
    ),
    guarded(
        "an invariant operand that is false, after one that stops the program",
        "T.And(A[k + n] > 0, A[0] > 0)",
        {"A": UP, "n": 4},
        "index [4-7] is outside dimension 0 of buffer A",
    ),
    guarded(
        "a bound of the loop after an operand that stops the program",
        "T.And(A[k + 1] > 0, k < 3)",
        {"A": UP},
        OUT_OF_A,
    ),
    guarded(
        "a bound of the loop before an operand that would stop the program",
        "T.And(k < 3, A[k + 1] > 0)",
        {"A": UP},
        [5, 5, 5, 0],
    ),
    program(
        "a let that only a branch uses",
        """
        for k in range(4):
            t = A[k + 1]
            if k < 3:
                Y[k] = t
        """,
        {"A": UP},
        OUT_OF_A,
    ),
    program(
        "a let in an expression that does not use it",
        """
        x = T.int32()
        for k in range(4):
            Y[k] = T.Let(k, where={x: 7 // A[k]})
        """,
        {"A": [3, 2, 1, 0]},
        "division by zero",
    ),
    Program(
        "a conjunction over a row is decided before it leaves the row",
        """
        @T.prim_func
        def f(A: T.Buffer((3, 3), "int32"), n: T.int32, Y: T.Buffer((3,), "bool")):
            for i in range(3):
                Y[i] = T.bool(True)
                for k in range(n):
                    Y[i] = T.And(Y[i], A[i, k] > 0)
        """,
        lambda: [np.tri(3, dtype=np.int32) - np.eye(3, dtype=np.int32), 5, np.ones(3, bool)],
        {2: [False] * 3},
    ),
    Program(
        "a region of another shape",
        """
        @T.prim_func
        def f(n: T.int32, Y: T.Buffer((8,), "int32")):
            with T.block("b"):
                M = T.match_buffer(Y[0:n], (4,), "int32")
                M[0] = 1
        """,
        lambda: [5, np.zeros(8, np.int32)],
        "does not have the shape of M",
    ),
    *(
        Program(
            f"a view with a step back, from element {offset} on",
            f"""
            @T.prim_func
            def f(Y: T.Buffer((4,), "int32"), Z: T.Buffer((4,), "int32")):
                B = T.decl_buffer((4,), "int32", data=Y.data, elem_offset={offset}, strides=[-1])
                for i in range(4):
                    Z[i] = B[i]
            """,
            lambda: [np.arange(4, dtype=np.int32), np.zeros(4, np.int32)],
            expected,
        )
        for offset, expected in (
            (3, {1: [3, 2, 1, 0]}),
            (
                2,
                "buffer B of shape .* is larger than its memory"
                "|index -1 is outside .* buffer Y_flat",
            ),
        )
    ),
]


@TARGETS
@pytest.mark.parametrize("program", CASES, ids=lambda p: p.name)
def test_only_what_is_evaluated_stops_a_program(program: Program, target: str) -> None:
    run(program, target)
