"""Elementwise steps after a contraction become its epilogue in native code."""

from __future__ import annotations

import re

import numpy as np
import pytest

import relaxpy
from relaxpy.script import from_source
from tests.exec.native.test_contract import graph, numbers

UNIT = 2.0**-24


def compiled(text: str) -> relaxpy.Executable:
    """The program, all of whose kernels are native."""
    executable = relaxpy.compile(from_source(text), target="native")
    assert all("native" in row.method for row in executable.report().rows), executable.report()
    return executable


def trees(executable: relaxpy.Executable) -> list[str]:
    names = dict.fromkeys(row.kernel for row in executable.report().rows)
    return [executable.kernel_source(name, kind="tree") for name in names]


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


EPILOGUES = {
    "R.nn.relu(R.add(p, v))": lambda p, v, r: np.maximum(p + v, 0),
    "R.add(R.add(p, v), r)": lambda p, v, r: p + v + r,
    "R.nn.gelu_tanh(R.add(p, v))": lambda p, v, r: gelu(p + v),
    "R.multiply(R.tanh(R.add(p, v)), r)": lambda p, v, r: np.tanh(p + v) * r,
}


@pytest.mark.each_choice
@pytest.mark.parametrize("body", EPILOGUES)
@pytest.mark.parametrize(("m", "k"), [(1, 40), (21, 1100), ("m", 40)])
def test_results_and_trees(body: str, m: int | str, k: int) -> None:
    shape = f'"{m}"' if isinstance(m, str) else m
    args = (
        f'a: R.Tensor(({shape}, {k}), "float32"), b: R.Tensor(({k}, 50), "float32"), '
        f'v: R.Tensor((50,), "float32"), r: R.Tensor(({shape}, 50), "float32")'
    )
    executable = compiled(graph(args, re.sub(r"\bp\b", "R.matmul(a, b)", body)))
    assert all("then:" in tree for tree in trees(executable))
    for rows in (m,) if isinstance(m, int) else (0, 1, 7, 29):
        a, b = numbers((rows, k)) / np.float32(k**0.5), numbers((k, 50))
        v, r = numbers((50,)), numbers((rows, 50), seed=1)
        wide = [x.astype("float64") for x in (a, b, v, r)]
        wanted = EPILOGUES[body](wide[0] @ wide[1], *wide[2:])
        size = abs(wide[0]) @ abs(wide[1]) + abs(wide[2]) + abs(wide[3])
        found = executable["main"](a, b, v, r)
        # No derivative of an epilogue is greater than 16.
        assert (abs(found - wanted) <= 16 * (k + 16) * UNIT * (size + 1)).all()


@pytest.mark.parametrize(("size", "channels"), [(30, 9), (9, 70)])
def test_normalised_convolutions(size: int, channels: int) -> None:
    """With vectors of columns and of output channels; nothing uses the moving moments."""
    shapes = [(2, channels, size, size), (40, channels, 3, 3), *[(40,)] * 4]
    names = "xwgbmv"
    args = ", ".join(f'{n}: R.Tensor({s}, "float32")' for n, s in zip(names, shapes, strict=True))
    norm = "R.nn.batch_norm(R.nn.conv2d(x, w, padding=1), g, b, m, v, axis=1, training=False)"
    body = f"R.nn.relu({norm}[0])"
    executable = compiled(graph(args, body))
    # Sums of output channels are not adjacent: to load them again takes longer than the passes.
    assert any("then:" in tree for tree in trees(executable)) == (size == 30)
    values = [numbers(s, seed=n) for n, s in enumerate(shapes)]
    values[5] = abs(values[5]) + np.float32(0.5)
    found = executable["main"](*values)
    x, w, g, b, m, v = (a.astype("float64") for a in values)
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), axis=(2, 3)
    )
    sums = np.einsum("nchwij,ocij->nohw", windows, w, optimize=True)
    column = (slice(None), None, None)
    wanted = (sums - m[column]) / np.sqrt(v[column] + 1e-5) * g[column] + b[column]
    np.testing.assert_allclose(found, np.maximum(wanted, 0), atol=1e-4, rtol=1e-4)


def kernel(after: str, locals_: str = 'X = T.alloc_buffer((8, 20), "float32")') -> str:
    return f"""
@T.prim_func
def main(
    A: T.Buffer((8, 12), "float32"),
    B: T.Buffer((12, 20), "float32"),
    D: T.Buffer((8, 20), "float32"),
    C: T.Buffer((8, 20), "float32"),
):
    {locals_}
    for i, j in T.grid(8, 20):
        X[i, j] = T.float32(0)
    for i, j, k in T.grid(8, 20, 12):
        X[i, j] = X[i, j] + A[i, k] * B[k, j]
    {after}
"""


@pytest.mark.parametrize(
    ("after", "joins"),
    [
        ("for i, j in T.grid(8, 20):\n        C[i, j] = X[i, j] * D[i, j]", True),
        ("for j, i in T.grid(20, 8):\n        C[i, j] = X[i, j] * D[i, 19 - j]", True),
        ("for i, j in T.grid(8, 20):\n        C[i, j] = X[7 - i, j]", False),
        ("for i, j in T.grid(8, 20):\n        C[i, j] = X[i, j] + X[i, 0]", False),
        ("for i, j in T.grid(8, 20):\n        C[i, j] = X[i, j] + T.Cast('float32', j)", False),
        ("for i, j in T.grid(7, 20):\n        C[i, j] = X[i, j]", False),
        ("for i, j in T.grid(8, 20):\n        C[j * 8 // 20, j] = X[i, j]", False),
        ("for i, j in T.grid(8, 20):\n        C[i, j] = X[i, j] + B[T.min(i, 11), j]", False),
    ],
)
def test_only_steps_of_the_same_elements_are_joined(*, after: str, joins: bool) -> None:
    func = from_source(kernel(after))
    mod = relaxpy.IRModule({"main": func})
    executable = relaxpy.compile(mod, target="native")
    a, b, d = numbers((8, 12)), numbers((12, 20)), numbers((8, 20))
    found, wanted = np.zeros((8, 20), "float32"), np.zeros((8, 20), "float32")
    executable["main"](a, b, d, found)
    relaxpy.compile(mod, target="reference")["main"](a, b, d, wanted)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    if "native" in executable.report().rows[0].method:
        assert ("then:" in executable.kernel_source("main", kind="tree")) == joins


def test_a_result_in_the_memory_of_an_operand() -> None:
    """The caller may pass one array twice; each element is still what the text computes."""
    text = kernel("for i, j in T.grid(8, 20):\n        C[i, j] = X[i, j] + D[i, j]")
    main = relaxpy.compile(relaxpy.IRModule({"main": from_source(text)}), target="native")["main"]
    a, b, d = numbers((8, 12)), numbers((12, 20)), numbers((8, 20)).copy()
    wanted = a @ b + d
    main(a, b, d, d)
    np.testing.assert_allclose(d, wanted, rtol=1e-4, atol=1e-4)


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
