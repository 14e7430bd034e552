"""Attention to trees of tokens: over rows of a batch, and over a cache of pages."""

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError
from relaxpy.relax.frontend.nn.llm.tree_attn import (
    tree_attn,
    tree_attn_cpu,
    tree_attn_with_paged_kv_cache,
    tree_attn_with_paged_kv_cache_cpu,
)
from relaxpy.target import Target

THETA, SCALE, D = 1000.0, 0.5, 8
#: The parents of the nodes of trees, each listed after its parent, in the order of a walk.
TREES = ([-1, 0, 1, 0, 3], [-1], [-1, 0, 0])


def orders(parents: list[int]) -> list[tuple[int, int]]:
    """The number of each node, and the first number after those below it."""
    ends = list(range(1, len(parents) + 1))
    for node in reversed(range(len(parents))):
        if parents[node] >= 0:
            ends[parents[node]] = max(ends[parents[node]], ends[node])
    return list(zip(range(len(parents)), ends, strict=True))


def ancestors(parents: list[int], node: int) -> set[int]:
    found = set()
    while node >= 0:
        found.add(node)
        node = parents[node]
    return found


def rotated(x: Any, positions: Any) -> Any:
    """The rotation of halves, in float64; rows are the first axis."""
    angles = np.outer(np.asarray(positions) * SCALE, THETA ** (-np.arange(0, D, 2) / D))
    cos, sin = (np.concatenate([f(angles)] * 2, -1)[:, None] for f in (np.cos, np.sin))
    first, second = np.split(x.astype("float64"), 2, axis=-1)
    return x * cos + np.concatenate([-second, first], -1) * sin


def attention(q: Any, k: Any, v: Any, seen: Any, scale: float) -> tuple[Any, Any]:
    """The results for one sequence; `seen` is (rows, keys)."""
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, group, axis=1).astype("float64") for x in (k, v))
    scores = np.einsum("ihd,jhd->ihj", q.astype("float64"), k) * scale
    weights = np.where(seen[:, None], np.exp(scores), 0)
    total = weights.sum(-1)
    return np.einsum("ihj,jhd->ihd", weights / total[..., None], v), np.log2(total)


def starts(sizes: Any) -> Any:
    return np.cumsum([0, *sizes]).astype("int32")


def compiled(kernel: relaxpy.tir.PrimFunc, target: str) -> Any:
    return relaxpy.compile(kernel.with_attr("global_symbol", "main"), target=target)["main"]


@pytest.mark.each_choice
@pytest.mark.parametrize("target", ["numpy", "native"])
@pytest.mark.parametrize(("heads", "kv_heads", "mode"), [(4, 2, 0), (2, 2, 1)])
def test_drafts_see_their_ancestors(target: str, heads: int, kv_heads: int, mode: int) -> None:
    run = compiled(tree_attn(kv_heads, heads, D, "float32", {}, Target("cuda")), target)
    rng = np.random.default_rng(0)
    sizes = [len(tree) for tree in TREES]
    rows = sum(sizes)
    q = rng.standard_normal((rows, heads, D)).astype("float32")
    k, v = (rng.standard_normal((rows, kv_heads, D)).astype("float32") for _ in "kv")
    mask = np.array([pair for tree in TREES for pair in orders(tree)], "int32")
    positions = rng.integers(0, 40, rows).astype("int32")
    out, lse = np.empty_like(q), np.empty((rows, heads), "float32")
    at = starts(sizes)
    run(q, at, k, v, at, positions, at, mask, out, lse, mode, SCALE, THETA, 0.3)
    turned = (rotated(q, positions), rotated(k, positions)) if mode else (q, k)
    for tree, first, end in zip(TREES, at[:-1], at[1:], strict=True):
        seen = np.array(
            [[j in ancestors(tree, i) for j in range(len(tree))] for i in range(len(tree))]
        )
        own = slice(first, end)
        wanted, sums = attention(turned[0][own], turned[1][own], v[own], seen, 0.3)
        np.testing.assert_allclose(out[own], wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(lse[own], sums, rtol=1e-4, atol=1e-5)


@pytest.mark.each_choice
@pytest.mark.parametrize("target", ["numpy", "native"])
@pytest.mark.parametrize(("heads", "kv_heads", "mode"), [(4, 2, 0), (2, 2, 1)])
def test_drafts_see_all_tokens_before_their_tree(target, heads, kv_heads, mode) -> None:
    run = compiled(
        tree_attn_with_paged_kv_cache(kv_heads, heads, D, "float32", {}, Target("cuda")), target
    )
    rng = np.random.default_rng(1)
    sizes = [len(tree) for tree in TREES]
    past = [19, 0, 31]
    lengths = [p + n for p, n in zip(past, sizes, strict=True)]
    counts = [-(-n // 16) for n in lengths]
    rows = sum(sizes)
    pages = rng.standard_normal((11, 2, kv_heads, 16, D)).astype("float32")
    values = rng.permutation(11)[: sum(counts)].astype("int32")
    last = np.array([n - 16 * (c - 1) for n, c in zip(lengths, counts, strict=True)], "int32")
    q = rng.standard_normal((rows, heads, D)).astype("float32")
    order = np.array([pair for tree in TREES for pair in orders(tree)], "int32")
    positions = rng.integers(0, 40, rows).astype("int32")
    offsets = np.array([0, 3, 5], "int32")
    out, lse = np.empty_like(q), np.empty((rows, heads), "float32")
    at, page_at = starts(sizes), starts(counts)
    numbers = (mode, SCALE, THETA, 0.3)
    run(
        *(q, at, pages, page_at, values, last, offsets, positions, out, lse), *(*numbers, at, order)
    )
    turned = rotated(q, positions) if mode else q
    for b, tree in enumerate(TREES):
        held = pages[values[page_at[b] : page_at[b + 1]]]
        k, v = (
            held[:, side].transpose(0, 2, 1, 3).reshape(-1, kv_heads, D)[: lengths[b]]
            for side in range(2)
        )
        k = rotated(k, offsets[b] + np.arange(lengths[b])) if mode else k
        seen = np.ones((sizes[b], lengths[b]), bool)
        for i in range(sizes[b]):
            seen[i, past[b] :] = [j in ancestors(tree, i) for j in range(sizes[b])]
        own = slice(at[b], at[b + 1])
        wanted, sums = attention(turned[own], k, v, seen, 0.3)
        np.testing.assert_allclose(out[own], wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(lse[own], sums, rtol=1e-4, atol=1e-5)


def test_the_kernels_for_a_cpu_are_the_same() -> None:
    same = relaxpy.ir.assert_structural_equal
    same(tree_attn_cpu(1, 2, 8, "float16", {}), tree_attn(1, 2, 8, "float16", {}))
    same(
        tree_attn_with_paged_kv_cache_cpu(1, 2, 8, "float16", {}),
        tree_attn_with_paged_kv_cache(1, 2, 8, "float16", {}),
    )


def test_what_the_kernels_refuse() -> None:
    with pytest.raises(MisuseError, match="3 heads of queries cannot share 2 heads"):
        tree_attn(2, 3, 8, "float32", {})
    with pytest.raises(MisuseError, match="theta is an argument cannot rotate by yarn"):
        tree_attn_with_paged_kv_cache(2, 2, 8, "float32", {"rope_type": "yarn"})
