"""Elementwise steps after a contraction become its epilogue in native code."""

from __future__ import annotations

import numpy as np
import pytest

import relaxpy
from relaxpy.script import from_source
from tests.exec.loops.written import run_row
from tests.exec.native.expressions import run_expression
from tests.rows import table

EXPRESSIONS = table("""
a: f32[M, K], b: f32[K, 50], v: f32[50], r: f32[M, 50] <- BODY => EXPECTED
    : M_K="1 40; 21 100", BODY_EXPECTED="R.nn.relu(R.add(R.matmul(a,b),v)) np.maximum(a@b+v,0);
    R.add(R.add(R.matmul(a,b),v),r) a@b+v+r; R.nn.gelu_tanh(R.add(R.matmul(a,b),v)) gelu(a@b+v);
    R.multiply(R.tanh(R.add(R.matmul(a,b),v)),r) np.tanh(a@b+v)*r", tol=1e-4, tree="then:"
a: f32[m, 40], b: f32[40, 50], v: f32[50], r: f32[m, 50] <- BODY => EXPECTED
    : m=(0, 1, 7, 29), BODY_EXPECTED="R.nn.relu(R.add(R.matmul(a,b),v)) np.maximum(a@b+v,0);
    R.add(R.add(R.matmul(a,b),v),r) a@b+v+r; R.nn.gelu_tanh(R.add(R.matmul(a,b),v)) gelu(a@b+v);
    R.multiply(R.tanh(R.add(R.matmul(a,b),v)),r) np.tanh(a@b+v)*r", tol=1e-4, tree="then:"
x: f32[21, 1100], w: f32[1100, 50], v: f32[50] <- R.nn.relu(R.add(R.matmul(x, w), v))
    => np.maximum(x @ w + v, 0) : tol=4e-4, tree="then:"
x: f32[2, N, H, H], w: f32[40, N, 3, 3], g: f32[40], b: f32[40], m: f32[40], v: f32[40]
    <- R.nn.relu(R.nn.batch_norm(R.nn.conv2d(x, w, padding=1), g, b, m, v, axis=1,
    training=False)[0]) => np.maximum((convolution(x, w, 1, 1) - m[:, None, None])
    / np.sqrt(v + 1e-5)[:, None, None] * g[:, None, None] + b[:, None, None], 0)
    : H_N="30 9; 9 70", v=np.linspace(0.5, 2, 40, dtype="f4"), tol=1e-4,
    tree="then:" if H == 30 else "", no_tree="no such text" if H == 30 else "then:"
""")


@pytest.mark.parametrize("row", EXPRESSIONS, ids=lambda row: row[1][:50])
def test_results_and_trees(row: list[str]) -> None:
    """Sums of output channels are not adjacent: to load them again takes longer than the passes."""
    run_expression(*row)


JOINS = """
def f(A: f32[8, 12], B: f32[12, 20], D: f32[8, 20], C: f32[8, 20]):
    X = T.alloc_buffer((8, 20), "float32")
    for i, j in T.grid(8, 20):
        X[i, j] = f32(0)
    for i, j, k in T.grid(8, 20, 12):
        X[i, j] = X[i, j] + A[i, k] * B[k, j]
    AFTER
# with AFTER: {}
# rtol: 1e-4
# {}: then:
"""


@pytest.mark.parametrize(
    ("after", "joins"),
    [
        ("for i, j in T.grid(8, 20): C[i, j] = X[i, j] * D[i, j]", True),
        ("for j, i in T.grid(20, 8): C[i, j] = X[i, j] * D[i, 19 - j]", True),
        ("for i, j in T.grid(8, 20): C[i, j] = X[7 - i, j]", False),
        ("for i, j in T.grid(8, 20): C[i, j] = X[i, j] + X[i, 0]", False),
        ("for i, j in T.grid(8, 20): C[i, j] = X[i, j] + T.Cast('float32', j)", False),
        ("for i, j in T.grid(7, 20): C[i, j] = X[i, j]", False),
        ("for i, j in T.grid(8, 20): C[j * 8 // 20, j] = X[i, j]", False),
        ("for i, j in T.grid(8, 20): C[i, j] = X[i, j] + B[T.min(i, 11), j]", False),
    ],
)
def test_only_steps_of_the_same_elements_are_joined(*, after: str, joins: bool) -> None:
    run_row(JOINS.format(after, "tree" if joins else "not tree"))


def test_a_result_in_the_memory_of_an_operand() -> None:
    """The caller may pass one array twice; each element is still what the text computes."""
    after = "for i, j in T.grid(8, 20): C[i, j] = X[i, j] + D[i, j]"
    row = JOINS.format(after, "tree")
    parts = "m[:96].reshape(8, 12), m[96:336].reshape(12, 20), *[m[336:].reshape(8, 20)] * 2"
    run_row(f"{row}# memory: 496: {parts}\n")


@pytest.mark.parametrize("rows", [1, 17])
@pytest.mark.parametrize("uses_row", [False, True])
@pytest.mark.parametrize("wide", ["product", "epilogue"])
def test_a_product_and_its_epilogue_have_loops_over_integers_of_different_widths(
    wide: str, uses_row: bool, rows: int
) -> None:
    def loop(part: str, extent: int) -> str:
        return f"T.serial(T.int64({extent}))" if part == wide else f"range({extent})"

    three = "T.int64(3)" if wide == "epilogue" else "3"
    row = f' + T.Cast("float32", i * {three})' if uses_row else ""
    kernel = from_source(f"""
@T.prim_func
def main(
    A: T.Buffer(({rows}, 9), "float32"),
    B: T.Buffer((9, 40), "float32"),
    C: T.Buffer(({rows}, 40), "float32"),
):
    t = T.alloc_buffer(({rows}, 40), "float32")
    for i in {loop("product", rows)}:
        for j in {loop("product", 40)}:
            for k in {loop("product", 9)}:
                with T.block("t"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    with T.init():
                        t[vi, vj] = T.float32(0)
                    t[vi, vj] = t[vi, vj] + A[vi, vk] * B[vk, vj]
    for i in {loop("epilogue", rows)}:
        for j in {loop("epilogue", 40)}:
            C[i, j] = T.max(t[i, j], T.float32(0)){row}
""")
    executable = relaxpy.compile(kernel, "native")
    assert all(row.method.startswith("native") for row in executable.report())
    a, b = np.arange(9.0 * rows).reshape(rows, 9) % 7 - 3, np.arange(360.0).reshape(9, 40) % 5 - 2
    c = np.zeros((rows, 40), "float32")
    executable["main"](a.astype("float32"), b.astype("float32"), c)
    assert (c == np.maximum(a @ b, 0) + 3 * uses_row * np.arange(rows)[:, None]).all()
