"""Two products with steps on rows between them run in blocks of rows, as those of attention."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest

import relaxpy
from relaxpy.exec.machine import tuning
from relaxpy.exec.native import backend
from relaxpy.ir.passes.fusion import partition
from relaxpy.script import from_source
from tests.exec.loops.written import run_row
from tests.exec.native.test_contract import graph, numbers
from tests.exec.native.test_tasks import compiled

Array = np.ndarray
SIZES = {"batch": 2, "queries": 45, "keys": 77, "heads": 3}
"""No size is a multiple of that of a block or of a vector."""


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks have 16 rows at most."""
    monkeypatch.setattr(tuning.Rows, "MOST_CHAIN", 16)


def attended(
    q: Array, k: Array, v: Array, bias: Array | float = 0.0, mask: Array | None = None
) -> Array:
    """Attention in extended precision: (b, s, h, d)."""
    wide = [np.asarray(x, "float64") for x in (q, k, v)]
    scores = np.einsum("bshd,bthd->bhst", wide[0], wide[1]) / np.sqrt(q.shape[-1]) + bias
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    return np.einsum("bhst,bthd->bshd", shares, wide[2])


def operands(dtype: str = "float32", **changes: int) -> tuple[Array, Array, Array]:
    """Queries, keys and values, before pages that must not be read."""
    sizes = SIZES | changes
    batch, heads = sizes["batch"], sizes["heads"]
    shapes = [(batch, sizes[n], heads, 8) for n in ("queries", "keys", "keys")]
    q, k, v = (numbers(shape, dtype, seed=n) for n, shape in enumerate(shapes))
    return q, k, v


def texts(body: str, dtype: str, *shapes: Sequence[object], more: str = "") -> str:
    names = "qkv"
    dims = (", ".join(f'"{n}"' if isinstance(n, str) else str(n) for n in s) for s in shapes)
    args = (f'{x}: R.Tensor(({d}), "{dtype}")' for x, d in zip(names, dims, strict=True))
    return graph(", ".join([*args, *([more] if more else [])]), body)


def in_blocks(text: str) -> relaxpy.Executable:
    """The program, whose kernel with products runs in blocks of rows."""
    executable = relaxpy.compile(from_source(text), target="native")
    [name] = {row.kernel for row in executable.report() if "einsum" in row.kernel}
    tree = executable.kernel_source(name, kind="tree").splitlines()
    heads = [line for line in tree if not line.startswith("     ")]
    assert any(line.startswith("tasks of") for line in heads)
    assert not any(line.startswith("each") for line in heads), "\n".join(tree)
    return executable


@pytest.mark.parametrize(
    ("causal", "dtype"),
    [(None, "float64"), ("TopLeft", "float32"), ("BottomRight", "float32"), (None, "float16")],
)
@pytest.mark.usefixtures("small_blocks")
def test_attention(causal: str | None, dtype: str) -> None:
    q, k, v = operands(dtype)
    option = "" if causal is None else f', causal_mask="{causal}"'
    text = texts(f"R.nn.attention(q, k, v{option})", dtype, q.shape, k.shape, v.shape)
    found = in_blocks(text)["main"](q, k, v)
    shift = SIZES["keys"] - SIZES["queries"] if causal == "BottomRight" else 0
    mask = None if causal is None else np.tri(q.shape[1], k.shape[1], shift, dtype=bool)
    unit = np.finfo(dtype).eps
    np.testing.assert_allclose(found, attended(q, k, v, mask=mask), atol=64 * unit)


def test_bias_and_unknown_lengths() -> None:
    body = "R.nn.attention_bias(q, k, v, bias)"
    shapes = (("b", "s", 3, 8), ("b", "t", 3, 8), ("b", "t", 3, 8))
    more = 'bias: R.Tensor(("b", 3, "s", "t"), "float32")'
    executable = in_blocks(texts(body, "float32", *shapes, more=more))
    for batch, queries, keys in ((1, 1, 1), (2, 45, 77), (1, 200, 3), (1, 1, 1100), (0, 3, 2)):
        q, k, v = operands(batch=batch, queries=queries, keys=keys)
        bias = numbers((batch, 3, queries, keys), seed=9)
        wanted = attended(q, k, v, bias)
        found = executable["main"](q, k, v, bias)
        np.testing.assert_allclose(found, wanted, atol=64 * 2.0**-23)


HEADS = """
@I.ir_module
class Module:
    @R.function
    def main(
        q: R.Tensor((1, "n", 24), "float32"), k: R.Tensor((1, "n", 24), "float32"),
        v: R.Tensor((1, "n", 24), "float32"), mask: R.Tensor(("n", "n"), "float32"),
    ):
        n = T.int64()
        with R.dataflow():
            heads = R.permute_dims(R.reshape(q, (1, n, 3, 8)), (0, 2, 1, 3))
            keys = R.permute_dims(R.reshape(k, (1, n, 3, 8)), (0, 2, 3, 1))
            values = R.permute_dims(R.reshape(v, (1, n, 3, 8)), (0, 2, 1, 3))
            scores = R.add(R.multiply(R.matmul(heads, keys), R.const(8**-0.5, "float32")), mask)
            y = R.matmul(R.nn.softmax(scores), values)
            R.output(y)
        return y
"""


@pytest.mark.parametrize("length", ["n", 45, 300])
def test_heads_split_by_hand(length: str | int) -> None:
    text = HEADS
    if isinstance(length, int):
        text = text.replace('"n"', str(length)).replace("n = T.int64()\n", "\n")
        text = text.replace("(1, n,", f"(1, {length},")
    executable = relaxpy.compile(from_source(text), target="native")
    [name] = {row.kernel for row in executable.report()}
    assert "in blocks of" in executable.kernel_source(name, kind="tree")
    for n in (length,) if isinstance(length, int) else (1, 17, 130):
        q, k, v = (numbers((1, n, 24), seed=s) for s in range(3))
        mask = np.triu(np.full((n, n), -1e9, "float32"), 1)
        split = (x.reshape(1, n, 3, 8) for x in (q, k, v))
        wanted = attended(*split, mask).transpose(0, 2, 1, 3)
        found = executable["main"](q, k, v, mask)
        np.testing.assert_allclose(found, wanted, atol=64 * 2.0**-23)


@pytest.mark.usefixtures("small_blocks")
def test_bits_are_those_of_any_threads_and_of_whole_products(monkeypatch) -> None:
    q, k, v = operands(queries=200)
    q[0, 3], k[1, 5, 0, 0], v[1, 76] = np.inf, np.nan, -np.inf
    body = 'R.nn.attention(q, k, v, causal_mask="BottomRight")'
    text = texts(body, "float32", q.shape, k.shape, v.shape)
    programs = [compiled(from_source(text), n, monkeypatch)["main"] for n in (1, 2, 3)]
    monkeypatch.setattr(partition._Fusion, "try_products", lambda *_: None)
    monkeypatch.setattr(backend, "with_chains", lambda program: program)
    programs.append(compiled(from_source(text), 1, monkeypatch)["main"])
    results = [main(q, k, v) for main in programs]
    assert np.isnan(results[0]).any()
    assert np.isfinite(results[0]).any()
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


LOOPS = """
def f(a: f32[2, 18, 3], b: f32[2, 17, 3], c: f32[2, 17, 9], out: f32[2, 18, 9]):
    s = T.alloc_buffer((2, 18, 17))
    t = T.alloc_buffer((2, 18, 17))
    for h, i, j, d in T.grid(2, 18, 17, 3):
        if d == 0:
            s[h, i, j] = f32(0)
        s[h, i, j] = s[h, i, j] + a[h, i, d] * b[h, j, d]
    for h, i, j in T.grid(2, 18, 17):
        t[h, i, j] = STEP
    for h, i, j, d in T.grid(2, 18, 9, 17):
        if d == 0:
            out[h, i, j] = f32(0)
        out[h, i, j] = out[h, i, j] + t[h, i, d] * c[h, d, j]
# rtol: 2e-3
"""
STEPS = {
    "T.exp(s[h, i, j])": "tree",
    "s[h, i, j] * s[h, i, 16 - j]": "tree",
    "s[h, 17 - i, j]": "not tree",
    "s[h, i, j] + T.if_then_else(i < 17, s[h, i + 1, j], f32(0))": "not tree",
    "s[1 - h, i, j]": "not tree",
}
KEPT = """
def f(a: f32[2, 18, 3], b: f32[2, 17, 3], c: f32[2, 17, 9], out: f32[2, 18, 9], PARAMETERS):
    T.func_attr({"tir.noalias": True})
    ALLOCATED
    for h, i, j, d in T.grid(2, 18, 17, 3):
        if d == 0:
            scores[h, i, j] = f32(0)
        scores[h, i, j] = scores[h, i, j] + a[h, i, d] * b[h, j, d]
    for h, i, j in T.grid(2, 18, 17):
        if j == 0:
            top[h, i] = f32(-100)
        top[h, i] = T.max(top[h, i], scores[h, i, j])
    for h, i, j in T.grid(2, 18, 17):
        powers[h, i, j] = T.exp(scores[h, i, j] - top[h, i])
    for h, i, j in T.grid(2, 18, 17):
        if j == 0:
            total[h, i] = f32(0)
        total[h, i] = total[h, i] + powers[h, i, j]
    for h, i, j in T.grid(2, 18, 17):
        weights[h, i, j] = powers[h, i, j] / total[h, i]
    for h, i, j, d in T.grid(2, 18, 9, 17):
        if d == 0:
            out[h, i, j] = f32(0)
        out[h, i, j] = out[h, i, j] + weights[h, i, d] * c[h, d, j]
    for h, i in T.grid(2, 18):
        logs[h, i] = T.log(total[h, i]) + top[LATE]
# rtol: 2e-3
"""
LONG, SHORT = "2, 18, 17", "2, 18"
BETWEEN = {"scores": LONG, "top": SHORT, "powers": LONG, "total": SHORT, "weights": LONG}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.usefixtures("small_blocks")
def test_only_rows_of_their_own_are_blocks(step: str) -> None:
    run_row(LOOPS.replace("STEP", step) + f"# {STEPS[step]}: in blocks of\n")


def test_the_whole_of_what_is_stored_is_read_by_no_block() -> None:
    """A row of a buffer that is stored must not depend on another block's rows."""
    text = LOOPS.replace("STEP", "s[h, i, j]").replace("t[h, i, d] * c", "t[h, 17 - i, d] * c")
    text = text.replace("    t = T.alloc_buffer((2, 18, 17))\n", "")
    run_row(text.replace("9]):", "9], t: f32[2, 18, 17]):"))


@pytest.mark.each_choice
@pytest.mark.parametrize("late", ["h, i", "1 - h, 17 - i"])
@pytest.mark.parametrize("kept", [(), *combinations(BETWEEN, 1), ("weights", "top"), (*BETWEEN,)])
@pytest.mark.usefixtures("small_blocks")
def test_what_is_used_after_the_blocks_is_stored(kept: tuple[str, ...], late: str) -> None:
    results = {"logs": SHORT} | {name: BETWEEN[name] for name in kept}
    parameters = ", ".join(f"{n}: f32[{s}]" for n, s in results.items())
    rest = {n: s for n, s in BETWEEN.items() if n not in kept}
    allocated = "\n    ".join(f"{n} = T.alloc_buffer(({s}))" for n, s in rest.items())
    text = KEPT.replace("PARAMETERS", parameters).replace("ALLOCATED", allocated)
    is_block = {"powers", "weights"}.isdisjoint(kept)
    run_row(text.replace("LATE", late) + f"# {'tree' if is_block else 'not tree'}: in blocks of\n")


def test_a_product_of_which_only_the_epilogue_reads_another_one_is_no_chain() -> None:
    args = ", ".join(
        f'{n}: R.Tensor({s}, "float32")'
        for n, s in (("a", (64, 40)), ("b", (40, 48)), ("c", (64, 32)), ("d", (32, 48)))
    )
    text = f"""
@I.ir_module
class Module:
    @R.function
    def main({args}):
        with R.dataflow():
            first = R.nn.gelu_tanh(R.matmul(a, b))
            y = R.add(R.matmul(c, d), first)
            R.output(y)
        return y
"""
    executable = relaxpy.compile(from_source(text), target="native")
    names = dict.fromkeys(row.kernel for row in executable.report())
    trees = "\n".join(executable.kernel_source(name, kind="tree") for name in names)
    assert len(re.findall(r"^each .*, over k", trees, re.MULTILINE)) == 2


@pytest.mark.parametrize("rows", [30, "n"])
@pytest.mark.usefixtures("small_blocks")
def test_low_precision_in_the_memory_of_elided_buffers(rows: object) -> None:
    """The shares are stored as float16 in the memory of those in float32, which are not stored."""
    q, k, v = (numbers(s, "float16", seed=s[1]) for s in ((2, 30, 16), (2, 16, 77), (2, 77, 8)))
    shapes = ((2, rows, 16), k.shape, v.shape)
    text = texts("R.matmul(R.nn.softmax(R.matmul(q, k)), v)", "float16", *shapes)
    executable = relaxpy.compile(from_source(text), target="native")
    [name] = {row.kernel for row in executable.report() if "softmax" in row.kernel}
    tree = executable.kernel_source(name, kind="tree")
    assert "in registers: T_cast, T_softmax_norm, matmul" in tree
    found = executable["main"](q, k, v)
    scores = q.astype("float64") @ k
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = shares / shares.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(found, wanted, atol=4e-3)
