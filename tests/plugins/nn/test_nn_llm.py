"""What models of language need: rotary embeddings, and exported models over paged caches."""

import math
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError
from relaxpy.ir import assert_structural_equal
from relaxpy.relax.frontend import nn
from relaxpy.relax.frontend.nn import spec
from relaxpy.relax.frontend.nn.llm.kv_cache import (
    AttnKind,
    FlashInferPagedKVCache,
    PagedKVCache,
    RopeMode,
    _attention_sequence_prefill,
)
from relaxpy.relax.frontend.nn.llm.position_embedding import (
    llama_rope,
    llama_rope_with_position_map,
    switch_rope_freq_func,
)
from relaxpy.script import from_source

THETA = 10000.0
LLAMA = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 8, "beta_slow": 1}
LONG = {"max_position_embeddings": 128, "original_max_position_embeddings": 32}
SCALINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "gptj": {},
    "linear": {"factor": 4.0},
    "llama3": LLAMA,
    "llama4": LLAMA,
    "yarn": YARN,
    "yarn between pairs": {**YARN, "rope_type": "yarn", "truncate": False},
    "longrope": LONG,
}


def frequencies(kind: str, d: int, factors: Any) -> tuple[Any, float]:
    """The angle of each pair by one position, and what results are multiplied by.

    From the papers and from the descriptions of the models, in float64.
    """
    base = THETA ** (-np.arange(0, d, 2) / d)
    scaling = SCALINGS[kind]
    match kind:
        case "linear":
            return base / scaling["factor"], 1.0
        case "llama3" | "llama4":
            length = 2 * np.pi / base
            old = scaling["original_max_position_embeddings"]
            low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
            share = np.clip((old / length - low) / (high - low), 0, 1)
            return base * (share + (1 - share) / scaling["factor"]), 1.0
        case "yarn" | "yarn between pairs":
            old, factor = scaling["original_max_position_embeddings"], scaling["factor"]

            def pair(turns: float) -> float:
                return d * math.log(old / (turns * 2 * math.pi)) / (2 * math.log(THETA))

            first, last = pair(8), pair(1)
            if scaling.get("truncate", True):
                first, last = math.floor(first), math.ceil(last)
            first, last = max(first, 0), min(last, d - 1)
            slow = np.clip((np.arange(d // 2) - first) / (last - first), 0, 1)
            return base * (slow / factor + 1 - slow), 0.1 * math.log(factor) + 1
        case "longrope":
            ratio = scaling["max_position_embeddings"] / scaling["original_max_position_embeddings"]
            old = scaling["original_max_position_embeddings"]
            return base / factors, math.sqrt(1 + math.log(ratio) / math.log(old))
    return base, 1.0


def rotated(x: Any, positions: Any, kind: str, d: int, factors: Any = None) -> Any:
    """The first `d` dimensions of heads, rotated pair by pair as complex numbers."""
    angle, magnitude = frequencies(kind, d, factors)
    turn = magnitude * np.exp(1j * np.asarray(positions, "float64")[:, None, None] * angle)
    x = x.astype("float64")
    result = x.copy()
    half = d // 2
    near = kind in ("gptj", "llama4")
    first, second = (x[..., 0:d:2], x[..., 1:d:2]) if near else (x[..., :half], x[..., half:d])
    pairs = (first + 1j * second) * turn
    if near:
        result[..., 0:d:2], result[..., 1:d:2] = pairs.real, pairs.imag
    else:
        result[..., :half], result[..., half:d] = pairs.real, pairs.imag
    return result


@pytest.mark.each_choice
@pytest.mark.parametrize("target", ["native", "numpy"])
@pytest.mark.parametrize("rotary_dim", [16, 8])
@pytest.mark.parametrize("kind", SCALINGS)
def test_positions_rotate_pairs_of_dimensions(kind: str, rotary_dim: int, target: str) -> None:
    heads, kv_heads, d, rows = 3, 2, 16, 7
    scaling = {"rope_type": kind, **SCALINGS[kind]}
    kernel = llama_rope_with_position_map(
        THETA, 1.0, d, heads, kv_heads, "float32", scaling, rotary_dim
    )
    rng = np.random.default_rng(0)
    qkv = rng.standard_normal((rows, heads + 2 * kv_heads, d)).astype("float32")
    positions = rng.integers(0, 100, rows).astype("int32")
    factors = rng.uniform(1, 3, rotary_dim // 2).astype("float32")
    last: Any = factors if kind == "longrope" else 1
    q, k, v = (np.empty((rows, n, d), "float32") for n in (heads, kv_heads, kv_heads))
    run = relaxpy.compile(kernel, target)["main"]
    run(qkv, positions, q, k, v, last)
    wanted = rotated(qkv, positions, kind, rotary_dim, factors)
    np.testing.assert_allclose(q, wanted[:, :heads], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(k, wanted[:, heads : heads + kv_heads], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(v, qkv[:, heads + kv_heads :])
    if kind != "longrope":
        run(qkv, positions, q, k, v, 0)
        np.testing.assert_array_equal(q, qkv[:, :heads])


@pytest.mark.parametrize("target", ["native", "numpy"])
def test_short_texts_have_factors_of_their_own(target: str) -> None:
    scaling = {"rope_type": "longrope", **LONG}
    kernel = llama_rope_with_position_map(THETA, 1.0, 8, 1, 1, "float32", scaling)
    run = relaxpy.compile(kernel, target)["main"]
    rng = np.random.default_rng(0)
    qkv = rng.standard_normal((5, 3, 8)).astype("float32")
    factors = rng.uniform(1, 3, 8).astype("float32")
    for first in (0, LONG["original_max_position_embeddings"] - 5, 30):
        positions = np.arange(first, first + 5, dtype="int32")
        q, k, v = (np.empty((5, 1, 8), "float32") for _ in range(3))
        run(qkv, positions, q, k, v, factors)
        own = factors[:4] if first == 30 else factors[4:]
        wanted = rotated(qkv, positions, "longrope", 8, own)
        np.testing.assert_allclose(q, wanted[:, :1], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(k, wanted[:, 1:2], rtol=1e-4, atol=1e-4)


def test_rows_of_a_batch_are_the_last_of_a_sequence() -> None:
    class Rotation(nn.Module):
        def forward(self, qkv: nn.Tensor, total: Any) -> Any:
            return llama_rope(qkv, total, THETA, 1.0, 2, 1, {})

    mod, _ = Rotation().export_tvm(
        {"forward": {"qkv": spec.Tensor([2, "n", 4, 8], "float32"), "total": int}}
    )
    qkv = np.random.default_rng(0).standard_normal((2, 5, 4, 8)).astype("float32")
    total = relaxpy.runtime.ShapeTuple([9])
    q, k, v = relaxpy.compile(mod)["forward"](qkv, total)
    wanted = np.stack([rotated(part, np.arange(4, 9), "default", 8) for part in qkv])
    np.testing.assert_allclose(q, wanted[:, :, :2], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(k, wanted[:, :, 2:3], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(v, qkv[:, :, 3:])


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ({"rope_type": "none"}, "there is no rotary embedding of type 'none'"),
        ({"rope_type": "linear"}, "of type 'linear' needs 'factor' in its configuration"),
        ({"rope_type": []}, r"there is no rotary embedding of type \[\]"),
        ({"rope_type": "linear", "factor": "8"}, "has the factor '8', expected a number"),
        ({"rope_type": "linear", "factor": 0}, "has the factor 0, expected a number above 0"),
        ({"rope_type": "yarn", "factor": None}, "has the factor None, expected a number above 0"),
        ({"rope_type": "yarn", "mscale": -5.0}, "has the mscale -5.0, expected a number that is"),
        ({"rope_type": "yarn", "attention_factor": [1]}, r"has the attention_factor \[1\]"),
        (
            {"rope_type": "longrope", "original_max_position_embeddings": 1},
            "has the original_max_position_embeddings 1, expected a number above 1",
        ),
    ],
)
def test_a_configuration_that_is_wrong(scaling: dict[str, Any], message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        switch_rope_freq_func(scaling)


@pytest.mark.parametrize("rotary_dim", [0, 7, 18])
def test_dimensions_that_cannot_be_rotated(rotary_dim: int) -> None:
    with pytest.raises(MisuseError, match="an even number from 2 to 16"):
        llama_rope_with_position_map(THETA, 1.0, 16, 2, 1, "float32", {}, rotary_dim or 0)


# --- models over caches

HEADS, KV_HEADS, D, LAYERS, WIDTH, WORDS = 4, 2, 16, 2, 24, 30


class Layer(nn.Module):
    def __init__(self, number: int) -> None:
        self.number = number
        self.qkv = nn.Linear(WIDTH, (HEADS + 2 * KV_HEADS) * D, bias=False)
        self.out = nn.Linear(HEADS * D, WIDTH, bias=False)

    def forward(self, x: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        b, s, _ = x.shape
        qkv = self.qkv(x).reshape(b, s, HEADS + 2 * KV_HEADS, D)
        found = cache.attention_with_fused_qkv(self.number, qkv, HEADS, D**-0.5)
        return x + self.out(found.reshape(b, s, HEADS * D))


class Language(nn.Module):
    def __init__(self) -> None:
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList([Layer(k) for k in range(LAYERS)])

    def forward(self, ids: nn.Tensor, cache: PagedKVCache) -> Any:
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x, cache)
        return x, cache

    def create(self, sequences: Any, tokens: Any, chunk: Any, page: Any, sliding: Any) -> Any:
        return PagedKVCache.create_generic(
            "mha",
            sequences,
            tokens,
            chunk,
            page,
            sliding,
            LAYERS,
            HEADS,
            KV_HEADS,
            D,
            D,
            RopeMode.NORMAL,
            1,
            int(THETA),
            "float32",
        )


def exported() -> Any:
    plain = {"param_mode": "packed", "effect_mode": "none"}
    names = ("sequences", "tokens", "chunk", "page", "sliding")
    return Language().export_tvm(
        {
            "forward": {
                "ids": spec.Tensor([1, "n"], "int32"),
                "cache": spec.Object(object_type=PagedKVCache),
                "$": plain,
            },
            "create": {**dict.fromkeys(names, int), "$": plain | {"param_mode": "none"}},
        }
    )


def without_cache(ids: Any, weights: dict[str, Any]) -> Any:
    """What the model computes of all tokens at once, in float64."""
    weights = {name: w.astype("float64") for name, w in weights.items()}
    n = ids.shape[1]
    x = weights["words.weight"][ids[0]]
    for number in range(LAYERS):
        qkv = (x @ weights[f"layers.{number}.qkv.weight"].T).reshape(n, -1, D)
        q, k = (
            rotated(part, np.arange(n), "default", D)
            for part in (qkv[:, :HEADS], qkv[:, HEADS : HEADS + KV_HEADS])
        )
        k, v = (np.repeat(t, HEADS // KV_HEADS, 1) for t in (k, qkv[:, HEADS + KV_HEADS :]))
        scores = np.einsum("nhd,mhd->hnm", q, k) * D**-0.5
        share = np.exp(np.where(np.tri(n, dtype=bool), scores, -np.inf))
        share /= share.sum(-1, keepdims=True)
        mixed = np.einsum("hnm,mhd->nhd", share, v).reshape(n, -1)
        x = x + mixed @ weights[f"layers.{number}.out.weight"].T
    return x


@pytest.mark.parametrize("target", ["native", "numpy"])
def test_a_model_reads_in_chunks_what_it_reads_at_once(target: str) -> None:
    mod, params = exported()
    assert_structural_equal(from_source(mod.script()), mod)
    rng = np.random.default_rng(0)
    weights = {n: rng.standard_normal(tuple(p.shape)).astype("float32") / 5 for n, p in params}
    program = relaxpy.compile(mod, target)
    sizes = (relaxpy.runtime.ShapeTuple([n]) for n in (2, 64, 16, 4, 0))
    cache = program["create"](*sizes)
    state = {
        name: relaxpy.get_global_func(f"vm.builtin.kv_state_{name}")
        for name in ("add_sequence", "begin_forward", "end_forward")
    }
    texts = [rng.integers(0, WORDS, (1, 11)).astype("int32") for _ in range(2)]
    for number in range(len(texts)):
        state["add_sequence"](cache, number)
    found: list[list[Any]] = [[], []]
    for start, stop in ((0, 5), (5, 6), (6, 9), (9, 11)):
        for number, ids in enumerate(texts):
            state["begin_forward"](cache, (number,), (stop - start,))
            part = np.ascontiguousarray(ids[:, start:stop])
            rows, cache = program["forward"](part, cache, list(weights.values()))
            state["end_forward"](cache)
            found[number].append(rows[0])
    for ids, parts in zip(texts, found, strict=True):
        np.testing.assert_allclose(
            np.concatenate(parts), without_cache(ids, weights), rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 3}, "3 heads of queries cannot share 2 heads"),
        ({"kind": "full"}, "the kind of attention is mha, mla or mha_sliding, found 'full'"),
        ({"kind": ["mha"]}, "2 layers have a kind of attention each, found 1"),
        ({"rope_ext_factors": [1.0] * 5}, "4 pairs of dimensions have a factor each, or one for"),
        ({"dtype": "int8"}, "keys and values of a cache are floats, found int8"),
        ({"layer_sliding_window_size": 0}, "a window has at least one token, found 0"),
    ],
)
def test_a_cache_that_cannot_be(options: dict[str, Any], message: str) -> None:
    class Wrong(nn.Module):
        def create(self, n: Any) -> Any:
            others = dict(options)
            kind, heads = others.pop("kind", "mha"), others.pop("heads", 4)
            rope = RopeMode.NONE, 1, 1, others.pop("dtype", "float32")
            return PagedKVCache.create_generic(
                kind, n, n, n, n, n, 2, heads, 2, 8, 8, *rope, **others
            )

    with pytest.raises(MisuseError, match=message):
        Wrong().export_tvm({"create": {"n": int}})
    with pytest.raises(MisuseError, match="the kernels of FlashInfer are for GPUs"):
        FlashInferPagedKVCache()
    assert [int(kind) for kind in AttnKind] == [0, 1, 3]
    assert not PagedKVCache.extern_mods


@pytest.mark.each_choice
@pytest.mark.parametrize("target", ["native", "numpy"])
@pytest.mark.parametrize(("heads", "kv_heads", "causal"), [(4, 2, 0), (3, 3, 1), (4, 1, 1)])
def test_attention_of_whole_sequences(heads: int, kv_heads: int, causal: int, target: str) -> None:
    kernel = _attention_sequence_prefill(
        kv_heads, heads, 8, "float32", relaxpy.target.Target("cuda"), causal, sm_scale=0.3
    )
    run = relaxpy.compile(kernel.with_attr("global_symbol", "main"), target=target)["main"]
    for batch, rows, size in [(2, 3, 5), (1, 1, 1), (1, 7, 7)]:
        rng = np.random.default_rng(rows)
        q = rng.standard_normal((batch, rows, heads, 8)).astype("float32")
        k, v = (rng.standard_normal((batch, size, kv_heads, 8)).astype("float32") for _ in "kv")
        out, lse = np.empty_like(q), np.empty((batch, rows, heads), "float32")
        run(q, k, v, out, lse)
        k, v = (np.repeat(x, heads // kv_heads, axis=2).astype("float64") for x in (k, v))
        scores = np.einsum("bihd,bjhd->bihj", q, k) * 0.3
        seen = np.tri(rows, size, size - rows, dtype=bool) | (not causal)
        scores = np.where(seen[:, np.newaxis], scores, -np.inf)
        weights = np.exp(scores)
        total = weights.sum(-1)
        wanted = np.einsum("bihj,bjhd->bihd", weights / total[..., np.newaxis], v)
        np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(lse, np.log2(total), rtol=1e-4, atol=1e-5)


def test_heads_that_do_not_share_keys() -> None:
    with pytest.raises(MisuseError, match="3 heads of queries cannot share 2 heads"):
        _attention_sequence_prefill(2, 3, 8, "float32")


@pytest.mark.parametrize("target", ["native", "numpy"])
def test_caches_of_latent_rows_attend_by_kernels(target: str) -> None:
    """A prompt attends to its own heads, a token to all rows, whose first elements are values."""
    heads, latent, value, rng = 3, 8, 6, np.random.default_rng(0)

    class Latent(nn.Module):
        def create(self, n: Any) -> Any:
            return PagedKVCache.create_generic(
                *("mla", n, n, n, n, 0, 1, heads, 1, latent, value, RopeMode.NONE, 1, 1, "float32"),
                mla_original_qk_head_dim=4,
                mla_original_v_head_dim=5,
            )

    mod, _ = Latent().export_tvm({"create": {"n": int}})
    assert sum("attention_of" in gv.name_hint for gv in mod.functions) == 2
    cache = relaxpy.compile(mod, target=target)["create"](relaxpy.runtime.ShapeTuple([16]))

    def state(name: str) -> Any:
        return relaxpy.get_global_func(f"vm.builtin.kv_state_{name}")

    def attention(name: str) -> Any:
        return relaxpy.get_global_func(f"vm.builtin.attention_kv_cache_{name}")

    state("add_sequence")(cache, 0)

    def begin(count: int) -> None:
        state("begin_forward")(cache, (0,), (count,))

    def numbers(*shape: int) -> Any:
        return rng.standard_normal(shape).astype("float32")

    def attended(q: Any, k: Any, v: Any) -> Any:
        scores = np.einsum("ihd,jhd->hij", q.astype("f8"), k) * 0.4
        size = k.shape[0]
        scores[:, ~np.tri(len(q), size, size - len(q), dtype=bool)] = -np.inf
        weights = np.exp(scores)
        return np.einsum("hij,jhd->ihd", weights / weights.sum(-1, keepdims=True), v)

    rows = numbers(4, latent)
    begin(4)
    attention("append_mla_kv")(cache, 0, rows)
    q, k, v = numbers(4, heads, 4), numbers(4, heads, 4), numbers(4, heads, 5)
    out, lse = np.empty((4, heads, 5), "float32"), np.empty((4, heads), "float32")
    attention("self_attention")(cache, 0, 0.4, q, k, v, out, lse)
    np.testing.assert_allclose(out, attended(q, k, v), rtol=1e-5, atol=1e-6)
    state("end_forward")(cache)
    begin(1)
    last = numbers(1, latent)
    attention("append_mla_kv")(cache, 0, last)
    q, out = numbers(1, heads, latent), np.empty((1, heads, value), "float32")
    attention("cross_attention")(cache, 0, 0.4, q, out, np.empty((1, heads), "float32"))
    k = np.repeat(np.concatenate([rows, last])[:, np.newaxis], heads, axis=1)
    np.testing.assert_allclose(out, attended(q, k, k[..., :value]), rtol=1e-5, atol=1e-6)
