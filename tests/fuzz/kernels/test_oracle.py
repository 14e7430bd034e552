"""The oracle against results worked out by hand, and what it and the shrinker find."""

from __future__ import annotations

import ast
import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.fuzz.kernels import compare, memory, oracle, semantics
from tests.fuzz.kernels.compare import Failure, examine
from tests.fuzz.kernels.generate import generate
from tests.fuzz.kernels.oracle import Oracle
from tests.fuzz.kernels.program import Call, Memory, Program, View, part
from tests.fuzz.kernels.semantics import RefusedError, Semantics, UndefinedError, wrap
from tests.fuzz.kernels.shrink import shrink
from tests.guard_pages import guarded


def run(body: str, *args: Any, params: str = "") -> None:
    """Run the kernel of that `body` over A, int32 of four elements, and what `params` add."""
    lines = "\n".join("    " + line for line in body.strip("\n").split("\n"))
    head = ", ".join(filter(None, ['A: T.Buffer((4,), "int32")', params]))
    Oracle(f"@T.prim_func\ndef f({head}):\n{lines}\n").run(args)


def four(*values: int) -> np.ndarray:
    return np.array(values or (1, 2, 3, 4), np.int32)


@pytest.mark.parametrize("module", [memory, oracle, semantics])
def test_the_oracle_shares_no_code_with_relaxpy(module: Any) -> None:
    tree = ast.parse(Path(module.__file__).read_text())
    names = [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    names += [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    assert not [name for name in names if "relaxpy" in str(name)]


@pytest.mark.rule("PX-2")
@pytest.mark.parametrize(
    ("name", "a", "b", "expected"),
    [
        ("truncdiv", -7, 2, -3),
        ("truncmod", -7, 2, -1),
        ("floordiv", -7, 2, -4),
        ("floormod", -7, 2, 1),
        ("truncdiv", 7, -2, -3),
        ("floormod", 7, -2, -1),
        ("add", 120, 10, -126),
        ("mul", -128, -1, -128),
        ("truncdiv", -128, -1, -128),
        ("shift_left", 1, 7, -128),
        ("shift_right", -3, 1, -2),
        ("bitwise_xor", -1, 1, -2),
    ],
)
def test_integers_of_eight_bits(name: str, a: int, b: int, expected: int) -> None:
    assert Semantics().binary(name, "int8", a, b) == expected


def test_integers_wrap_in_both_families() -> None:
    assert [wrap("uint8", v) for v in (-1, 256, 300)] == [255, 0, 44]
    assert [wrap("int64", v) for v in (2**63, -(2**63) - 1)] == [-(2**63), 2**63 - 1]


@pytest.mark.rule("PX-3")
@pytest.mark.parametrize("name", ["truncdiv", "truncmod", "floordiv", "floormod"])
def test_integers_are_not_divided_by_zero(name: str) -> None:
    with pytest.raises(RefusedError, match="by zero"):
        Semantics().binary(name, "int32", 1, 0)


def test_floats_are_rounded_after_each_operation_and_it_is_noted() -> None:
    machine = Semantics()
    third = machine.binary("div", "float16", np.float16(1), np.float16(3))
    assert type(third) is np.float16
    assert machine.precision.rounded == 1
    machine = Semantics()
    assert machine.binary("add", "bfloat16", *map(ml_dtypes.bfloat16, (256, 1))) == 256
    assert machine.precision.rounded == 1
    machine = Semantics()
    with np.errstate(all="ignore"):
        assert math.isnan(machine.binary("mul", "float32", np.float32(0), np.float32(math.inf)))
    assert machine.binary("sub", "float32", np.float32(2.5), np.float32(1)) == 1.5
    assert machine.precision.rounded == 0


def test_exponentials_of_rounded_values_are_as_imprecise_as_their_operands_are_large() -> None:
    machine = Semantics()
    machine.unary("exp", "float32", np.float32(14))
    assert machine.precision.steepest == 1  # the operand was exact
    machine.unary("exp", "float32", np.float32(14))
    assert machine.precision.steepest == 14
    machine.binary("pow", "float32", np.float32(2), np.float32(20))
    assert machine.precision.steepest == 20


def test_comparisons_with_nan_are_false_but_for_one() -> None:
    nan, one = np.float32("nan"), np.float32(1)
    found = [
        s for s in ("<", "<=", ">", ">=", "==", "!=") if Semantics().compare(s, "float32", nan, one)
    ]
    assert found == ["!="]


def test_casts_go_toward_zero_and_out_of_range_to_the_least_integer_of_the_instruction() -> None:
    machine = Semantics()
    assert machine.cast("float32", "int32", np.float32(-2.75)) == -2
    assert machine.cast("int32", "uint8", -1) == 255
    assert machine.cast("int64", "bool", 2) is True
    for value in (math.nan, math.inf, -math.inf, 2.0**31):
        assert machine.cast("float32", "int32", np.float32(value)) == -(2**31)
        assert machine.cast("float32", "int8", np.float32(value)) == 0
    assert machine.cast("float32", "int8", np.float32(300)) == 44
    assert machine.cast("float64", "uint32", np.float64(-1)) == 2**32 - 1
    assert machine.cast("float64", "int64", np.float64(2.0**63)) == -(2**63)
    assert machine.cast("float64", "uint64", np.float64(2.0**63 + 4096)) == 2**63 + 4096
    assert machine.cast("float64", "uint64", np.float64(2.0**64)) == 0


def test_statements_run_in_the_order_of_the_text() -> None:
    array = four()
    run("for i in range(1, 4):\n    A[i] = A[i - 1] + A[i]", array)
    assert array.tolist() == [1, 3, 6, 10]
    array, count = four(0, 0, 0, 0), four()
    run(
        "for i, j in T.grid(4, 4):\n    C[i] = C[i] + C[j]\n    A[(i + j) % 4] = C[i]",
        array,
        count,
        params='C: T.Buffer((4,), "int32")',
    )
    expected, c = [0] * 4, [1, 2, 3, 4]
    for i in range(4):
        for j in range(4):
            c[i] += c[j]
            expected[(i + j) % 4] = c[i]
    assert (array.tolist(), count.tolist()) == (expected, c)


def test_conditions_choices_and_booleans_evaluate_no_more_than_they_need() -> None:
    array = four()
    run("if 1 > m or A[9] > 0:\n    A[0] = 7", array, 0, params="m: T.int32")
    run("A[1] = T.if_then_else(m < 1, A[2], A[9])", array, 0, params="m: T.int32")
    run("while A[3] > 2 and A[3] < 9:\n    A[3] += 1", array)
    assert array.tolist() == [7, 3, 3, 9]
    with pytest.raises(RefusedError, match="bounds"):
        run("if 1 > m or A[9] > 0:\n    A[0] = 7", array, 5, params="m: T.int32")


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        ("t = A[4]", "bounds"),
        ("A[0 - 1] = 1", "bounds"),
        ("T.evaluate(A[0] // (A[0] - 1))", "division"),
        ("for i in range(1 // (A[0] - 1)):\n    T.evaluate(0)", "division"),
        ('assert A[0] > 1, "no"', "assertion"),
        (
            'with T.block("b"):\n    M = T.match_buffer(A[2:5], (3,), "int32")\n    T.evaluate(0)',
            "region",
        ),
        ('V = T.decl_buffer((5,), "int32", data=A.data)\nV[0] = 1', "view"),
    ],
)
def test_what_ends_in_an_error(body: str, cause: str) -> None:
    with pytest.raises(RefusedError, match=cause):
        run(body, four())


def test_read_only_memory_is_not_written() -> None:
    array = four()
    array.flags.writeable = False
    run("for i in range(0):\n    A[i] = 1", array)
    with pytest.raises(RefusedError, match="read-only"):
        run("A[0] = 1", array)


def test_scratch_that_is_not_written_has_no_value() -> None:
    with pytest.raises(UndefinedError):
        run('S = T.alloc_buffer((4,), "int32")\nS[0] = 1\nA[0] = S[1]', four())


def test_views_and_regions_share_the_memory_they_are_declared_over() -> None:
    array = four()
    run(
        'V = T.decl_buffer((2,), "int32", data=A.data, elem_offset=1, strides=[2])\nV[1] = 9', array
    )
    run('with T.block("b"):\n    M = T.match_buffer(A[1:3], (2,), "int32")\n    M[0] = 8', array)
    assert array.tolist() == [1, 8, 3, 9]


SUM = """
for i in range({rows}):
    for k in range({columns}):
        with T.block("b"):
            vi, vk = T.axis.remap("SR", [i, k])
            {where}
            with T.init():
                A[vi] = 0
            A[vi] = A[vi] + 2
"""


def test_reductions_begin_with_their_init_also_without_iterations() -> None:
    array = four()
    run(SUM.format(rows=2, columns=3, where=""), array)
    assert array.tolist() == [6, 6, 3, 4]
    run(SUM.format(rows=3, columns=0, where="T.where(i + 2 > 2)"), array)
    assert array.tolist() == [6, 0, 0, 4]
    run(SUM.format(rows=4, columns=0, where="T.where(k > 2)"), array)
    assert array.tolist() == [0, 0, 0, 0]
    # A condition is evaluated only where the iteration would be the first.
    text = """
for j, k in T.grid(6, 0):
    with T.block("sum"):
        vj = T.axis.reduce(6, j)
        vk = T.axis.reduce(0, k)
        T.where(A[j] == 0)
        with T.init():
            A[3] = 7
        A[3] = A[3] + vj * vk
"""
    run(text, array)
    assert array.tolist() == [0, 0, 0, 7]


def test_arguments_bind_sizes_and_must_fit() -> None:
    program = Oracle("""
    @T.prim_func
    def f(a: T.handle, b: T.handle, m: T.int64):
        n = T.int64()
        A = T.match_buffer(a, (n, n + m), "int32")
        B = T.match_buffer(b, (n,), "int32", strides=[2])
        B[0] = T.Cast("int32", n)
    """)
    spaced = np.zeros(6, np.int32)[::2]
    program.run([np.zeros((3, 2), np.int32), spaced, -1])
    assert spaced.tolist() == [3, 0, 0]
    for args in (
        [np.zeros((3, 2), np.int32), spaced, 0],
        [np.zeros((3, 2), np.int32), np.zeros(3, np.int32), -1],
        [np.zeros((3, 2), np.int64), spaced, -1],
        [np.zeros((0, 0), np.int32), np.zeros(0, np.int32), -1],
    ):
        with pytest.raises(RefusedError):
            program.run(args)


# ---- the machine around it


def test_a_seed_gives_one_program_and_its_text_the_same_arguments() -> None:
    one, other = generate("seed/1"), generate("seed/1")
    assert one == other
    for number in range(20):
        for call in generate(f"arguments/{number}").calls:
            space: dict[str, Any] = {"np": np, "part": part, "guarded": guarded}
            exec(call.source(), space)
            for found, expected in zip(space["args"], call.build()[0], strict=True):
                assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()
                if isinstance(expected, np.ndarray) and expected.size:
                    assert (found.strides, found.flags.writeable) == (
                        expected.strides,
                        expected.flags.writeable,
                    )


PLANTED = """
@T.prim_func
def f(A: T.Buffer((4,), "int32"), b: T.handle):
    n = T.int64()
    B = T.match_buffer(b, (n,), "int32")
    S = T.alloc_buffer((4,), "int32")
    for i in range(4):
        S[i] = A[i] * 2
    for i, j in T.grid(n, 4):
        if i < 3:
            B[i] = B[i] + S[j] // 3 - A[j]
    for i in range(n):
        B[i] = T.max(B[i], A[0])
"""


def test_a_planted_fault_is_found_and_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the compiler took quotients of negative numbers for truncated ones."""
    call = Call(
        (Memory("int32", (-1, -2, 3, -4)), Memory("int32", (1, 2, 3))),
        (View(0, 0, (4,), (1,)), View(1, 0, (3,), (1,), origin="copy")),
    )
    program = Program(PLANTED, (call, call))
    assert examine(program).failures == []
    whole = Semantics._whole

    def mistaken(self: Semantics, name: str, dtype: str, a: int, b: int) -> int:
        return whole(self, "truncdiv" if name == "floordiv" else name, dtype, a, b)

    monkeypatch.setattr(Semantics, "_whole", mistaken)
    found = examine(program).failures
    assert {f.kind for f in found} == {f"wrong result ({target})" for target in compare.TARGETS}
    small = shrink(program, found[0])
    assert "//" in small.text
    assert len(small.text.splitlines()) < len(PLANTED.splitlines()) - 3
    assert len(small.calls) == 1
    assert small.standalone(["wrong"]).startswith("# wrong\nimport")


def test_errors_other_than_relaxpys_are_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **options: Any) -> Any:
        raise KeyError("i")

    monkeypatch.setattr(compare.relaxpy, "compile", broken)
    kinds = [f.kind for f in examine(generate("1")).failures]
    assert kinds == [f"bare exception when compiled ({t})" for t in compare.TARGETS]
    assert Failure("kind", "detail").call == 0
