"""RemoveNoOp: what has no effect goes, and what is called stays."""

import pytest

from relaxpy.ir.module import IRModule
from relaxpy.script import from_source
from relaxpy.tir.transform import RemoveNoOp

NOTHING = "T.evaluate(0)"
CALL = 'T.call_extern("int32", "f")'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("for i in range(16):\n    T.evaluate(n + i)", NOTHING),
        ("for i in range(n):\n    for j in range(i - n):\n        A[i] = j", NOTHING),
        ("for i in range(n):\n    A[i] = A[n - (n - i)]", NOTHING),
        ("for i in range(n):\n    A[i] = A[i + 1]", None),
        ("if n < 8:\n    T.evaluate(0)\nelse:\n    A[0] = 1", "if not n < 8:\n    A[0] = 1"),
        ("if n < 8:\n    A[0] = 1\nelse:\n    T.evaluate(0)", "if n < 8:\n    A[0] = 1"),
        ("if n != 0:\n    A[n] = 1\nelse:\n    A[n] = A[0]", "if n != 0:\n    A[n] = 1"),
        ("if A[0] == 1:\n    T.evaluate(0)", NOTHING),
        (f"if {CALL} == 1:\n    T.evaluate(0)", f"T.evaluate({CALL} == 1)"),
        ("x = n * 2\nA[0] = 1", "A[0] = 1"),
        ("x: T.int32 = n * 2\nA[0] = x", None),
        (f"x = {CALL}\nT.evaluate(0)", CALL),
        ('B = T.allocate([16], "int32", "local")\nT.evaluate(0)', NOTHING),
        (f"for i in range({CALL}):\n    T.evaluate(0)", CALL),
    ],
)
def test_statements_without_effect_are_removed(before: str, after: str | None) -> None:
    lines = "\n".join(f"    {line}" for line in before.splitlines())
    head = '@T.prim_func\ndef f(A: T.Buffer((16,), "int32"), n: T.int32):\n'
    mod = IRModule({"f": from_source(head + lines)})
    changed = RemoveNoOp()(mod)
    _, text = changed["f"].script().split("):\n", 1)
    found = "\n".join(line.removeprefix("    ") for line in text.strip("\n").splitlines())
    assert found == (before if after is None else after)
    assert after is not None or changed is mod
