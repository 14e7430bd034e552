"""Simplify: what is known at each place of a kernel makes its expressions and branches simpler."""

import pytest

from relaxpy.errors import MisuseError
from relaxpy.ir.module import IRModule
from relaxpy.script import from_source
from relaxpy.tir.transform import Simplify
from relaxpy.transform import PassContext

EXTENSION = {"tir.Simplify": {"apply_constraints_to_boolean_branches": True}}


def simplified(body: str, parameters: str = "") -> str:
    """The lines of the body of a kernel over `A` and `n` after the pass."""
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    head = f'@T.prim_func\ndef f(A: T.Buffer((16,), "int32"), n: T.int32{parameters}):\n'
    func = Simplify()(IRModule({"f": from_source(head + lines)}))["f"]
    _, text = func.script().split("):\n", 1)
    return "\n".join(line.removeprefix("    ") for line in text.strip("\n").splitlines())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # Ranges of loops.
        (
            "for i in range(16):\n    if i < 16:\n        A[i] = i * 2 - i",
            "for i in range(16):\n    A[i] = i",
        ),
        (
            "for i in range(n):\n    if i >= n:\n        A[0] = 1",
            "for i in range(n):\n    T.evaluate(0)",
        ),
        # Branches, and what is known in them.
        (
            "if n < 4:\n    if n < 7:\n        A[0] = 1\n    else:\n        A[0] = 2",
            "if n < 4:\n    A[0] = 1",
        ),
        (
            "if n == 4:\n    A[0] = 1\nelse:\n    if n == 4:\n        A[0] = 2\n    A[1] = 3",
            "if n == 4:\n    A[0] = 1\nelse:\n    A[1] = 3",
        ),
        (
            "if T.likely(n < 4):\n    if T.likely(n < 4):\n        A[0] = 1",
            "if T.likely(n < 4):\n    A[0] = 1",
        ),
        # An element may change, so a condition on it says nothing.
        ("if A[0] == n:\n    A[0] = A[0] + 1\n    if A[0] == n:\n        A[0] = 0", None),
        # Names of literals and names.
        ("m = n\nA[m - n] = m", "A[0] = n"),
        (
            "c = n < 3\nif n < 3:\n    if c:\n        A[0] = 1",
            "c: T.bool = n < 3\nif n < 3:\n    A[0] = 1",
        ),
        # What stores an element to itself does nothing.
        ("A[0] = A[n - n]\nA[1] = 2", "A[1] = 2"),
        ("A[0] = A[1]", None),
        # Assertions and assumptions.
        ('assert n < 4, "small"\nif n < 7:\n    A[0] = 1', 'assert n < 4, "small"\nA[0] = 1'),
        ("T.evaluate(T.assume(n == 0))\nif n == 0:\n    A[0] = 1", "T.assume(n == 0)\nA[0] = 1"),
        ("if n < 3:\n    T.assume(n == 0)\nif n == 0:\n    A[0] = 1", None),
    ],
)
def test_statements_are_simplified(before: str, after: str | None) -> None:
    assert simplified(before) == (before if after is None else after)


def test_dimensions_are_not_negative_and_buffers_keep_the_names_in_their_declarations() -> None:
    parameters = ', m: T.int32, b: T.Buffer((T.int64(4),), "int32")'
    kept = 'k = m\nB = T.decl_buffer((4,), "int32", data=b.data, elem_offset=k)\nB[0] = 1'
    assert "k: T.int32 = m" in simplified(kept, parameters)
    func = from_source(
        "@T.prim_func(check_well_formed=False)\ndef f(a: T.handle):\n    n = T.int64()\n"
        '    A = T.match_buffer(a, (n * 32,), "int32")\n    A[T.min(T.int64(0), n)] = 0'
    )
    assert "A[T.int64(0)] = 0" in Simplify()(IRModule({"f": func}))["f"].script()


def test_options_enable_more_rules() -> None:
    func = from_source(
        '@T.prim_func\ndef f(A: T.Buffer((1,), "bool"), n: T.int32):\n    A[0] = n < 10 and n < 5'
    )
    mod = IRModule({"f": func})
    with PassContext(config=EXTENSION):
        assert "A[0] = n < 5\n" in Simplify()(mod)["f"].script() + "\n"
    with pytest.raises(MisuseError, match=r"tir\.Simplify has no option 'faster'"):
        PassContext(config={"tir.Simplify": {"faster": True}})
