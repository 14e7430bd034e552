"""Programs give the same results with each fast path on and off, and as the reference says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RelaxpyError
from relaxpy.exec.machine.fast_paths import (
    DIRECT_CALLS,
    FAST_PATHS,
    KERNEL_CLASSES,
    LENIENT_TESTS,
    ONLY_KERNEL,
    ONLY_PACKED,
    OUTLINING,
    PACKED_CALLS,
    PACKED_WEIGHTS,
    SHARED_MEMORY,
    VIEWS,
    WHOLE_GRAPH,
    FastPath,
)
from relaxpy.exec.native.calls.entry_table import EntryTable
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.writer import I32, I64, POINTER
from relaxpy.exec.native.machine_code.machine import host
from relaxpy.exec.program.graph.emit import GraphEmitter
from relaxpy.script import from_source

pytest.importorskip("llvmlite")

SCALE = """
@T.prim_func(private=True)
def scale(a: T.handle, {scalar}b: T.handle):
    n, m = T.int64(), T.int64()
    A = T.match_buffer(a, ({shape}), "float32")
    B = T.match_buffer(b, ({shape}), "float32")
    for i, j in T.grid({shape}):
        with T.block("scale"):
            v, w = T.axis.remap("SS", [i, j])
            B[v, w] = A[v, w] * T.float32(2) + T.Cast("float32", {added})
"""
MAIN = """
@R.function
def main(x: R.Tensor({sizes}, "float32"){y}):
    {body}
"""
Y = ', y: R.Tensor((4, 3), "float32")'
CALL = "R.call_tir(scale, ({operands},), out_sinfo=R.Tensor({sizes}, 'float32'){extra})"


def main(body: str, sizes: str = "(4, 3)", *, y: str = Y) -> str:
    """A function with this body, of `x` and, unless that is left out, of `y`."""
    return MAIN.format(sizes=sizes, body=body, y=y)


def kernel_program(shape: str, sizes: str, *, scalar: str = "", calls: int = 1) -> str:
    """A function of arrays of these `sizes`, which calls a kernel of this `shape`."""
    added = {"": "0", "int64": "k"}[scalar]
    parameter = f"k: T.{scalar}, " if scalar else ""
    kernel = SCALE.format(shape=shape, added=added, scalar=parameter)
    if scalar:
        kernel = kernel.replace(parameter, "").replace("b: T.handle", f"b: T.handle, k: T.{scalar}")
    extra = ", tir_vars=R.shape([5])" if scalar else ""
    body = f"t0 = {CALL.format(operands='x', sizes=sizes, extra=extra)}"
    for number in range(1, calls):
        call = CALL.format(operands=f"t{number - 1}", sizes=sizes, extra=extra)
        body += f"\n    t{number} = {call}"
    return kernel + main(f"{body}\n    return t{calls - 1}", sizes, y="")


RESHAPE = """
@T.prim_func(private=True)
def wide(A: T.Buffer((4, 3), "float32"), B: T.Buffer((3, 4), "float32")):
    for i, j in T.grid(3, 4):
        with T.block("wide"):
            v, w = T.axis.remap("SS", [i, j])
            B[v, w] = A[(v * 4 + w) // 3, (v * 4 + w) % 3]
"""
CHOSEN = """
@T.prim_func(private=True)
def chosen(A: T.Buffer((4, 3), "float32"), I: T.Buffer((4, 3), "float32"),
           B: T.Buffer((4, 3), "float32")):
    C = T.alloc_buffer((4, 3), "float32")
    for i, j in T.grid(4, 3):
        with T.block("signs"):
            v, w = T.axis.remap("SS", [i, j])
            C[v, w] = T.cos(I[v, w])
    for i, j in T.grid(4, 3):
        with T.block("chosen"):
            v, w = T.axis.remap("SS", [i, j])
            B[v, w] = T.if_then_else(
                C[v, w] > T.float32(0.7), A[v, T.Cast("int64", I[v, w])], T.float32(0)
            )
"""
WEIGHT = "R.cos(R.reshape(R.arange(0, 131072, 1, 'float32'), (64, 2048)))"
PROGRAMS = {
    f"{calls} {scalar or 'no scalar'}, kernel {shape}, function {sizes}": kernel_program(
        shape, sizes, scalar=scalar, calls=calls
    )
    for shape in ("n, m", "4, m", "n, 3", "4, 3", "n, n - 1")
    for sizes in ('("n", "m")', '(4, "m")', '("n", 3)', "(4, 3)")
    for scalar in ("", "int64")
    for calls in (1, 2)
    if shape in ("n, m", "4, m", "4, 3") or sizes == "(4, 3)"
} | {
    "unused parameter": main("return R.exp(x)"),
    "swapped": main("return R.subtract(y, x)"),
    "repeated": main("return R.subtract(x, x)"),
    "tuple": main("return (R.exp(x), R.sum(y, axis=[0]), x)"),
    "reshape": RESHAPE
    + main(
        "a = R.call_tir(wide, (x,), R.Tensor((3, 4), 'float32'))\n"
        "    return (R.matmul(y, a), R.matmul(a, y))"
    ),
    "packed": main(f"return R.nn.relu(R.matmul(R.tanh(x), {WEIGHT}))", '("n", 64)', y=""),
    "outlined": main(
        "a = R.sum(R.exp(x), axis=[0])\n    b = R.nn.softmax(R.tanh(a))\n"
        "    return (b, R.shape_of(x))"
    ),
    "two sizes": main(
        "m = R.max(x)\n    return (R.full((20, 24), m, 'float32'), R.full((33, 40), m, 'float32'))"
    ),
    "chosen": CHOSEN + main("return R.call_tir(chosen, (x, y), R.Tensor((4, 3), 'float32'))"),
    "chain": main(
        "\n    ".join(
            ["a = R.matmul(x, R.permute_dims(y))"]
            + ["a = R.matmul(a, R.nn.softmax(a))"] * 4
            + ["return a"]
        )
    ),
}


def arguments(text: str) -> tuple[Any, ...]:
    rng = np.random.default_rng(1)
    columns = 64 if '("n", 64)' in text else 3
    arrays = rng.standard_normal((4, columns)), rng.standard_normal((4, 3))
    return tuple(a.astype("float32") for a in arrays[: 1 + (Y in text)])


def results(text: str, target: str) -> list[Any]:
    """The arrays that a program returns, or the text of its error."""
    try:
        found = relaxpy.compile(from_source(text), target)["main"](*arguments(text))
    except RelaxpyError as error:
        return [type(error).__name__]
    return list(found) if isinstance(found, tuple) else [found]


def check_equal(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        if not isinstance(b, np.ndarray):
            assert a == b
        else:
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_path_on_and_off(name: str) -> None:
    text = PROGRAMS[name]
    # The reference takes seconds for a product that is large enough to be packed.
    expected = results(text, "numpy" if name == "packed" else "reference")
    check_equal(results(text, "native"), expected)
    for path in FAST_PATHS:
        with path.off():
            check_equal(results(text, "native"), expected)
    with VIEWS.off(), SHARED_MEMORY.off():
        check_equal(results(text, "numpy"), expected)


REACHED = {
    ONLY_KERNEL: "1 no scalar, kernel 4, 3, function (4, 3)",
    WHOLE_GRAPH: "chain",
    OUTLINING: "outlined",
    PACKED_WEIGHTS: "packed",
    ONLY_PACKED: "packed",
    VIEWS: "reshape",
    SHARED_MEMORY: "chain",
    KERNEL_CLASSES: "two sizes",
    LENIENT_TESTS: "chosen",
}
# Calls of caches are in `test_cache_programs.py`, others in `test_direct_calls.py`.
assert {*REACHED, PACKED_CALLS, DIRECT_CALLS} == {*FAST_PATHS}


@pytest.mark.parametrize("path", REACHED, ids=lambda path: path.name)
def test_each_path_is_taken(path: FastPath, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the path, the program of the table above is compiled to something else."""
    emitted: list[object] = []
    emit = GraphEmitter.emit

    def noted(self: GraphEmitter) -> EntryTable:
        entry = emit(self)
        packings = [constant.packing for constant in self.graph.constants]
        emitted.append((self.module.text(), packings))
        return entry

    monkeypatch.setattr(GraphEmitter, "emit", noted)

    def compiled() -> list[object]:
        emitted.clear()
        relaxpy.compile(from_source(PROGRAMS[REACHED[path]]), "native")
        return [*emitted]

    with path.off():
        without = compiled()
    assert compiled() not in ([], without)


def test_a_call_with_other_arguments_than_the_function_has_is_refused() -> None:
    module = Module(host().triple, host().vector_bits)
    module.function("kernel", [(POINTER, "a"), (I64, "n")], I32)
    caller = module.function("caller", [(POINTER, "a")], I32)
    with pytest.raises(AssertionError, match=r"kernel is i32 \(ptr, i64\), and is used as"):
        caller.call("kernel", I32, *caller.params)
    caller.call("later", I32, *caller.params)
    with pytest.raises(AssertionError, match=r"later is i32 \(ptr\), and is used as i32 \(i64\)"):
        module.function("later", [(I64, "n")], I32)
