"""Which stores of initial values an accumulation takes over, and which stay steps of their own.

It begins from a value instead where the same elements are stored to before it, all of them, from
values that are the same then, and where nothing looks at them in between.
"""

import pytest

from tests.exec.loops.test_schedule_decisions import decided
from tests.rows import table

STORE = "for i in range(5): A[i] = B[i] + 3"
SUM = "for i, j in T.grid(5, 4): A[i] = A[i] + X[i, j]"
ADDED = "A: add reduction over j"
STORED = "A: elementwise"


def lines(*loops: str, depth: int = 1) -> str:
    """Each loop with its statement on a line below; a loop may begin with conditions."""
    text = ""
    for loop in loops:
        *heads, statement = loop.split(": ")
        for extra, head in enumerate(heads):
            text += "    " * (depth + extra) + head + ":\n"
        text += "    " * (depth + len(heads)) + statement + "\n"
    return text


def listed(text: str) -> list[str]:
    """The parts of a column, some of which have names."""
    return [globals().get(part, part) for part in text.split("; ")]


#: What is stored to before : the loops => how each runs.
TAKEN = table(
    """
before it : STORE; SUM => ADDED
after something else : for i in range(5): C[i] = D[i] * 2; STORE; SUM => C: elementwise; ADDED
with something else in between : STORE; for i in range(5): C[i] = D[i] * 2; SUM => C: elementwise;
    ADDED
two side by side : STORE; for i in range(5): C[i] = 4; SUM;
    for i, j in T.grid(5, 3): C[i] = C[i] * X[j, i] => ADDED; C: mul reduction over j
one element : A[0] = 5; for j in range(5): A[0] = A[0] + B[j] => ADDED
by other loops : for p, q in T.grid(3, 4): X[q, p] = B[q] * 2 + C[p];
    for i, j, k in T.grid(3, 4, 2): X[j, i] = X[j, i] + Y[i + j, k] => X: add reduction over k
transposed : for p, q in T.grid(4, 4): X[q, p] = B[q] * 2 + C[p];
    for i, j, k in T.grid(4, 4, 2): X[i, j] = X[i, j] + Y[i + j, k] => X: add reduction over k
on the diagonal : for i in range(4): X[i, i] = B[i];
    for i, j in T.grid(4, 3): X[i, i] = X[i, i] + Y[i, j] => X: add reduction over j
every other element : for i in range(4): A[2 * i + 1] = B[i];
    for i, j in T.grid(4, 3): A[2 * i + 1] = A[2 * i + 1] + Y[i, j] => ADDED
of a product : for i, j in T.grid(3, 4): X[i, j] = B[j];
    for i, j, k in T.grid(3, 4, 2): X[i, j] = X[i, j] + Y[i, k] * Y[k + 4, j]
    => X: contraction over k
of terms that a condition chooses : STORE;
    for i, j in T.grid(5, 4): if X[i, j] > 0: A[i] = A[i] + X[i, j] => ADDED
also where there is nothing to add : for i in range(n): A[i] = B[i] + 3;
    for i in range(n): for j in range(m): A[i] = A[i] + Z[i, j] => ADDED
"""
)


@pytest.mark.parametrize(
    ("loops", "expected"), [row[1:] for row in TAKEN], ids=[row[0] for row in TAKEN]
)
def test_a_store_is_what_an_accumulation_begins_with(loops: str, expected: str) -> None:
    decided(lines(*listed(loops)), *listed(expected))


@pytest.mark.parametrize(
    ("extent", "condition", "expected"),
    [("3", "", [ADDED]), ("m", "", [STORED, ADDED]), ("m", "if D[i] > 0", [STORED, ADDED])],
)
def test_a_store_in_the_first_iteration_is_taken_where_there_is_one(extent, condition, expected):
    """With nothing to add A stays as it is, and so it does where a condition on data fails."""
    term = "Z[i, j]" if extent == "m" else "B[j]"
    inner = "if j == 0: A[i] = B[i] + 3", f"A[i] = A[i] + {term}"
    depth = 4 if condition else 3
    head = f"    for i in range(n):\n        for j in range({extent}):\n"
    if condition:
        head += f"            {condition}:\n"
    decided(head + lines(*inner, depth=depth), *expected)


def test_a_store_in_the_first_iteration_of_two_loops_stays() -> None:
    """One of them may have none."""
    decided(
        "    for i in range(n):\n        for j in range(m):\n            for k in range(4):\n"
        + lines("if j == 0 and k == 0: A[i] = B[i]", "A[i] = A[i] + Z[i, j] * X[k, i]", depth=4),
        "A: elementwise",
        "A: contraction over j, k",
    )


def test_a_store_through_a_view_stays() -> None:
    """The memory is the same, but need not be laid out alike."""
    decided(
        '    V = T.decl_buffer((40,), "int32", data=A.data)\n'
        + lines("for i in range(5): V[i] = B[i]", SUM),
        "V: elementwise",
        ADDED,
    )


LEFT = table(
    """
read in between : STORE; for i in range(5): C[i] = A[i] * 2; SUM => STORED; C: elementwise; ADDED
changed in between : STORE; A[0] = A[0] * 2; SUM => STORED; A: single element; ADDED
from what changes in between : STORE; for i in range(5): B[i] = C[i] * 2; SUM => STORED;
    B: elementwise; ADDED
from what it replaces : for i in range(5): A[i] = A[i] * 2 + 1; SUM => STORED; ADDED
of more elements : for i in range(6): A[i] = B[i]; SUM => STORED; ADDED
of fewer elements : for i in range(4): A[i] = B[i]; SUM => STORED; ADDED
of all but the first : for i in range(1, 5): A[i] = B[i]; SUM => STORED; ADDED
of the next elements : for i in range(5): A[i + 1] = B[i]; SUM => STORED; ADDED
of every other element : for i in range(5): A[i * 2] = B[i]; SUM => STORED; ADDED
of one element : A[0] = 5; SUM => A: single element; ADDED
of a row, for one element : for i in range(5): A[i] = B[i];
    for j in range(5): A[0] = A[0] + B[j] => STORED; ADDED
of a square, for its diagonal : for i, j in T.grid(4, 4): X[i, j] = B[i];
    for i, j in T.grid(4, 3): X[i, i] = X[i, i] + Y[i, j] => X: elementwise; X: add reduction over j
of the diagonal, for a square : for i in range(4): X[i, i] = B[i];
    for i, j, k in T.grid(4, 4, 3): X[i, j] = X[i, j] + Y[i + j, k] => X: elementwise;
    X: add reduction over k
of the diagonal, for a row : for i in range(4): X[i, i] = B[i];
    for i, k in T.grid(4, 3): X[0, i] = X[0, i] + Y[i, k] => X: elementwise; X: add reduction over k
of a row, for the diagonal : for i in range(4): X[0, i] = B[i];
    for i, k in T.grid(4, 3): X[i, i] = X[i, i] + Y[i, k] => X: elementwise; X: add reduction over k
of a slope, for a square : for i, j in T.grid(3, 4): X[i * 4 + j, j] = B[i];
    for i, j, k in T.grid(3, 4, 3): X[i, j] = X[i, j] + Y[i + j, k] => X: elementwise;
    X: add reduction over k
of a square, for a slope : for i, j in T.grid(3, 4): X[i, j] = B[i];
    for i, j, k in T.grid(3, 4, 3): X[i * 4 + j, j] = X[i * 4 + j, j] + Y[i + j, k]
    => X: elementwise; X: add reduction over k
of the same rows, but other columns : for i, j in T.grid(4, 3): X[i, j] = B[i];
    for i, j, k in T.grid(4, 4, 3): X[i, j] = X[i, j] + Y[i + j, k] => X: elementwise;
    X: add reduction over k
where a condition holds : for i in range(5): if B[i] > 0: A[i] = B[i]; SUM => STORED; ADDED
of terms that may all be left out : STORE;
    for i, j in T.grid(5, 4): if B[0] > 0: A[i] = A[i] + X[i, j] => STORED; ADDED
of terms that may all be left out, whatever they are : STORE;
    for i, j in T.grid(5, 4): if X[i, j] > 0 and B[0] > 0: A[i] = A[i] + X[i, j] => STORED; ADDED
of elements that a condition may keep inside : for i in range(n): A[i] = B[i];
    for i in range(n): for j in range(4): if X[i, j] > 0: A[i] = A[i] + X[i, j] => STORED; ADDED
of rows that a condition may keep inside : for i in range(n): for j in range(4): X[i, j] = B[i];
    for i in range(n): for j, k in T.grid(4, 3): if Y[i, k] > 0: X[i, j] = X[i, j] + 2
    => X: elementwise; X: add reduction over k
where another number is positive : for i in range(n): if s > 0: A[i] = B[i];
    for i in range(n): for j in range(m): A[i] = A[i] + Z[i, j] => STORED; ADDED
where a number is positive : for i in range(5): if s > 0: A[i] = B[i]; SUM => STORED; ADDED
of another buffer : for i in range(5): C[i] = B[i]; SUM => C: elementwise; ADDED
"""
)


@pytest.mark.parametrize(
    ("loops", "expected"), [row[1:] for row in LEFT], ids=[row[0] for row in LEFT]
)
def test_a_store_stays(loops: str, expected: str) -> None:
    decided(lines(*listed(loops)), *listed(expected))


INSIDE = [
    "for i in range(5): A[i] = B[i] + t",
    "for i, j in T.grid(5, 4): A[i] = A[i] + X[i, j]",
    "for i in range(5): C[i] = C[i] * 2 + A[i]",
]


def test_an_accumulation_begins_anew_in_each_iteration_around_it() -> None:
    decided(
        "    for t in range(3):\n" + lines(*INSIDE, depth=2),
        "A: loop over t, add reduction over j",
        "C: loop over t, elementwise",
    )


def test_a_store_in_some_iterations_stays() -> None:
    """In the last iteration A goes on from where it was."""
    decided(
        "    for t in range(3):\n        if t < 2:\n"
        + lines(INSIDE[0], depth=3)
        + lines(*INSIDE[1:], depth=2),
        "A: loop over t, elementwise",
        "A: loop over t, add reduction over j",
        "C: loop over t, elementwise",
    )
