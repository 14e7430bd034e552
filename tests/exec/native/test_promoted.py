"""Variables of loops that run in order are buffers, which LLVM promotes to registers."""

from __future__ import annotations

import math

import numpy as np
import pytest

import relaxpy
from relaxpy.exec.machine.platforms import platform_of_triple
from relaxpy.exec.native.llvm.writer import I64, PROMOTED, VOID
from relaxpy.exec.native.machine_code.machine import machine_of
from relaxpy.exec.native.machine_code.objects import compile_assembly
from relaxpy.script import from_source

HEAD = """
@T.prim_func
def main(A: T.Buffer((200,), "float32"), B: T.Buffer((200,), "float32"),
         C: T.Buffer((200,), "float32")):
    x = T.alloc_buffer((1,), "float32")
    y = T.alloc_buffer((2,), "float32")
    n = T.alloc_buffer((1,), "int64")
"""
PROGRAMS = {
    # The statements, and whether their variables are promoted.
    "a while loop": (
        """
    for i in range(200):
        x[0] = T.float32(0)
        y[0] = T.float32(0)
        n[0] = T.int64(0)
        while n[0] < 50 and x[0] * x[0] + y[0] * y[0] < T.float32(4):
            y[1] = x[0] * x[0] - y[0] * y[0] + A[i]
            y[0] = T.float32(2) * x[0] * y[0] + B[i]
            x[0] = y[1]
            n[0] = n[0] + 1
        C[i] = x[0] * y[0] + A[i]
""",
        True,
    ),
    "a loop with a jump": (
        """
    for i in range(200):
        x[0] = T.float32(0)
        for j in range(200):
            if x[0] > A[i]:
                break
            x[0] = x[0] * T.float32(0.75) + B[j] * A[j]
        C[i] = x[0]
""",
        True,
    ),
    "a prefix sum": (
        """
    x[0] = T.float32(0)
    for i in range(200):
        x[0] = x[0] + A[i] * B[i]
        C[i] = x[0]
""",
        True,
    ),
    "independent elements": (
        """
    for i in range(200):
        C[i] = A[i] * B[i] + A[i]
""",
        False,
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_promotion_changes_no_bit(name: str) -> None:
    body, promotes = PROGRAMS[name]
    module = relaxpy.IRModule({"main": from_source(HEAD + body)})
    executable = relaxpy.compile(module, "native")
    assert all(row.method.startswith("native") for row in executable.report())
    assert (PROMOTED in executable.kernel_source("main", "llvm")) == promotes
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((2, 200)).astype("float32")
    found, expected = np.zeros((2, 200), "float32")
    executable["main"](a, b, found)
    relaxpy.compile(module, "reference")["main"](a, b, expected)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("source", ["float32", "float64"])
def test_variables_that_are_out_of_the_range_of_integers_convert_as_elements_do(source) -> None:
    numbers = [math.nan, math.inf, -3e9, 70000.5, 1e19, 1e30]
    kinds = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    results = [f'B{k}: T.Buffer((2, {len(numbers)}), "{kind}")' for k, kind in enumerate(kinds)]
    lines = [
        "@T.prim_func",
        f'def main(A: T.Buffer(({len(numbers)},), "{source}"), {", ".join(results)}):',
        f'    x = T.alloc_buffer((1,), "{source}")',
        '    n = T.alloc_buffer((1,), "int64")',
    ]
    for k, number in enumerate(numbers):
        lines += [
            f'    x[0] = T.{source}("{number}")',
            "    n[0] = T.int64(0)",
            "    while n[0] < 1:",
        ]
        for b, kind in enumerate(kinds):
            lines.append(f'        B{b}[0, {k}] = T.cast(x[0], "{kind}")')
            lines.append(f'        B{b}[1, {k}] = T.cast(A[{k}], "{kind}")')
        lines.append("        n[0] = n[0] + 1")
    executable = relaxpy.compile(from_source("\n".join(lines)), "native")
    assert PROMOTED in executable.kernel_source("main", "llvm")
    found = [np.zeros((2, len(numbers)), kind) for kind in kinds]
    executable["main"](np.array(numbers, source), *found)
    for variable, element in found:
        np.testing.assert_array_equal(variable, element)


@pytest.mark.parametrize("promoted", [True, False])
def test_only_promoted_functions_have_their_memory_in_registers(promoted: bool) -> None:
    platform = platform_of_triple("x86_64-unknown-linux-gnu")
    assert platform is not None
    machine = machine_of(platform, "x86-64-v3")
    module = machine.module()
    f = module.function("count", [(I64, "n")], I64)
    f.promoted = promoted
    place = f.alloca(I64, 1)
    f.store(f.const(I64, 0), place)
    f.loop(0, f.params[0], 1, (), lambda index: f.store(f.load(I64, place) * 3 + index, place))
    f.ret(f.load(I64, place))
    other = module.function("other", [(I64, "n")], VOID)
    kept = other.alloca(I64, 1)
    other.store(other.params[0], kept)
    other.ret()
    count, _, rest = compile_assembly(module.text(), machine).partition("other:")
    assert ("(%rsp)" in count or "(%rbp)" in count) == (not promoted)
    assert "(%rsp)" in rest or "(%rbp)" in rest
