"""Caches of pages: after any operations attention is that to keys and values kept whole."""

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RuntimeCheckError
from relaxpy.plugins.nn.caches.pages import PagedKVCache
from relaxpy.plugins.nn.caches.slots import Pages, Sequence
from relaxpy.plugins.nn.llm.tree_attention import attention_of_rows
from tests.fuzz.seed import COUNT, SEED

HEADS, KV_HEADS, D, LAYERS = 4, 2, 8, 2
LATENT, VALUE = 10, 6


def builtin(name: str) -> Any:
    return relaxpy.get_global_func(f"vm.builtin.{name}")


def state(name: str, *args: Any) -> Any:
    return builtin(f"kv_state_{name}")(*args)


def cache_of(
    sequences: int = 4,
    tokens: int = 64,
    chunk: int = 16,
    page: int = 4,
    *,
    sliding: bool = False,
    kinds: tuple[int, ...] = (0,) * LAYERS,
    d: tuple[int, int] = (D, D),
    dtype: str = "float32",
    attention: Any = (),
    latent: Any = (),
    window: tuple[int, ...] = (),
) -> Any:
    nothing = ()
    return builtin("paged_attention_kv_cache_create")(
        (sequences, tokens, chunk, page, int(sliding), *window),
        (0, len(kinds)),
        HEADS,
        KV_HEADS,
        *d,
        kinds,
        False,
        0,
        1.0,
        10000.0,
        0,
        np.zeros((), dtype),
        *[nothing] * 2,
        attention,
        *[nothing] * 6,
        latent,
        *[nothing] * 5,
    )


@dataclass
class Kept:
    """What a sequence has: for each token its keys and values of each layer, (2, layers, ...)."""

    tokens: list[Any] = field(default_factory=list)
    position: int = 0
    window: tuple[int, int] | None = None

    def slide(self) -> None:
        if self.window is not None and len(self.tokens) > self.window[0]:
            size, sinks = self.window
            self.tokens = self.tokens[:sinks] + self.tokens[len(self.tokens) - (size - sinks) :]


def plain(q: Any, k: Any, v: Any, mask: Any, sinks: Any = None) -> Any:
    """Attention of heads to keys that the mask has, and to their sinks, in float64."""
    k, v = (np.repeat(x, HEADS // x.shape[1], 1).astype("float64") for x in (k, v))
    scores = np.einsum("nhd,mhd->hnm", q.astype("float64"), k) / 3
    scores = np.where(mask, scores, -np.inf)
    if sinks is not None:
        sinks = np.broadcast_to(sinks[:, None, None], (*scores.shape[:2], 1))
        scores = np.concatenate([scores, sinks.astype("float64")], axis=-1)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("hnm,mhd->nhd", weights[..., : len(k)], v)


class Model:
    """A cache, and beside it all that it should have."""

    def __init__(
        self,
        rng: random.Random,
        *,
        sliding: bool,
        attention: Any = (),
        latent: Any = None,
        dtype: str = "float32",
        window: int = 0,
    ) -> None:
        """The last layer sees the last `window` tokens, and has sinks, unless it is 0.

        Layers keep latent rows, to which the kernel `latent` attends, unless it is None.
        """
        self.rng, self.sliding, self.dtype, self.window = rng, sliding, dtype, window
        self.is_latent = latent is not None
        self.d = (LATENT, VALUE) if self.is_latent else (D, D)
        self.kv_heads = 1 if self.is_latent else KV_HEADS
        self.arrays = np.random.default_rng(rng.randrange(2**30))
        page = rng.choice([1, 2, 4, 16])
        # Short runs of slots are copied, long ones are read where they lie.
        tokens, self.chunk, self.longest = rng.choice([(64, 16, 5), (64, 16, 12), (900, 200, 90)])
        self.cache = cache_of(
            tokens=tokens,
            chunk=self.chunk,
            page=page,
            sliding=sliding,
            attention=attention,
            dtype=dtype,
            latent=latent or (),
            d=self.d,
            kinds=(1,) * LAYERS if self.is_latent else (0,) * (LAYERS - 1) + (3 if window else 0,),
            window=(window,) if window else (),
        )
        self.free = builtin("attention_kv_cache_get_num_available_pages")(self.cache)
        self.kept: dict[int, Kept] = {}

    def add(self) -> None:
        new = self.rng.randrange(10)
        if new in self.kept or len(self.kept) == 4:
            with pytest.raises(RuntimeCheckError):
                state("add_sequence", self.cache, new)
            return
        state("add_sequence", self.cache, new)
        self.kept[new] = Kept()

    def narrow(self) -> None:
        if self.kept and self.sliding:
            old = self.rng.choice(list(self.kept))
            size = self.rng.randint(2, 12)
            self.narrow_to(old, (size, self.rng.randrange(size)))

    def narrow_to(self, seq_id: int, window: tuple[int, int]) -> None:
        name = "attention_kv_cache_enable_sliding_window_for_seq"
        builtin(name)(self.cache, seq_id, *window)
        self.kept[seq_id].window = window
        self.kept[seq_id].slide()

    def remove(self) -> None:
        if self.kept:
            old = self.rng.choice(list(self.kept))
            state("remove_sequence", self.cache, old)
            del self.kept[old]

    def fork(self) -> None:
        new = self.rng.randrange(10)
        if not self.kept or new in self.kept or len(self.kept) == 4:
            return
        old = self.rng.choice(list(self.kept))
        parent = self.kept[old]
        whole = parent.window is not None or self.rng.random() < 0.4
        count = parent.position if whole else self.rng.randint(0, parent.position)
        state("fork_sequence", self.cache, old, new, -1 if whole else count)
        tokens = list(parent.tokens) if whole else parent.tokens[:count]
        self.kept[new] = Kept(tokens, count, parent.window)

    def pop(self) -> None:
        if self.kept:
            old = self.rng.choice(list(self.kept))
            kept = self.kept[old]
            count = self.rng.randint(0, len(kept.tokens))
            state("popn", self.cache, old, count)
            kept.tokens, kept.position = (
                kept.tokens[: len(kept.tokens) - count],
                kept.position - count,
            )

    def forward(self, *, tree: bool = False) -> None:
        if not self.kept:
            return
        ids = self.rng.sample(list(self.kept), self.rng.randint(1, len(self.kept)))
        lengths = [self.rng.randint(1, self.longest) for _ in ids]
        parents = [self.rng.randint(-1, t - 1) for n in lengths for t in range(n)] if tree else None
        total = sum(lengths)
        extra = () if parents is None else (tuple(parents),)
        try:
            state("begin_forward", self.cache, tuple(ids), tuple(lengths), *extra)
        except RuntimeCheckError as error:
            if "the cache is full" in str(error) or f"at most {self.chunk} tokens" in str(error):
                return
            raise
        new = self.rows(total)
        start = 0
        positions = builtin("attention_kv_cache_get_query_positions")(self.cache)
        masks, windows, wanted_positions = [], [], []
        for seq_id, length in zip(ids, lengths, strict=True):
            past = len(self.kept[seq_id].tokens)
            own = np.tri(length, dtype=bool)
            depths = list(range(length))
            if parents is not None:
                own = np.eye(length, dtype=bool)
                for t, parent in enumerate(parents[start : start + length]):
                    depths[t] = 0 if parent == -1 else depths[parent] + 1
                    if parent != -1:
                        own[t] |= own[parent]
            masks.append(np.concatenate([np.ones((length, past), bool), own], axis=1))
            at = np.array([*range(-past, 0), *depths])
            windows.append(masks[-1] & (at > at[past:, None] - self.window))
            wanted_positions += [self.kept[seq_id].position + d for d in depths]
            start += length
        np.testing.assert_array_equal(positions, wanted_positions)
        for layer in range(LAYERS):
            q = self.arrays.standard_normal((total, HEADS, self.d[0])).astype(self.dtype)
            out = np.full((total, HEADS, self.d[1]), np.nan, self.dtype)
            last = bool(self.window) and layer == LAYERS - 1
            sinks = self.arrays.standard_normal(HEADS).astype(self.dtype) if last else None
            k, v = (x[layer] for x in new)
            if self.is_latent:
                self.attend_latent(layer, q, k, v, out, decodes=set(lengths) == {1})
            else:
                builtin("attention_kv_cache_attention_with_fused_qkv")(
                    *(self.cache, layer, 1 / 3, np.concatenate([q, k, v], axis=1)),
                    *([sinks] if last else []),
                    out,
                )
            if self.window and not last:
                q = self.arrays.standard_normal((total, HEADS, D)).astype(self.dtype)
                builtin("attention_kv_cache_attention_with_shared_kv")(
                    self.cache, layer, 1 / 3, q, k, v, out
                )
            start = 0
            seen = windows if last else masks
            for seq_id, length, mask in zip(ids, lengths, seen, strict=True):
                rows = slice(start, start + length)
                old = self.kept[seq_id].tokens
                k, v = (
                    np.stack([*(t[which][layer] for t in old), *new[which][layer, rows]])
                    for which in range(2)
                )
                # The queries, sums and weights are float32 throughout, the results rounded once.
                rtol, atol = (1e-4, 1e-5) if self.dtype == "float32" else (2e-3, 1e-3)
                np.testing.assert_allclose(
                    out[rows], plain(q[rows], k, v, mask, sinks), rtol=rtol, atol=atol
                )
                start += length
        state("end_forward", self.cache)
        leaves = [self.rng.randrange(-1, n) for n in lengths]
        if parents is not None:
            with pytest.raises(RuntimeCheckError, match="ends with a tree of tokens"):
                state("popn", self.cache, ids[0], 1)
            if self.sliding:
                with pytest.raises(RuntimeCheckError, match="ends with a tree of tokens"):
                    self.narrow_to(ids[0], (3, 1))
            builtin("attention_kv_cache_commit_accepted_token_tree_nodes")(
                self.cache, tuple(ids), tuple(leaves)
            )
        start = 0
        for seq_id, length, leaf in zip(ids, lengths, leaves, strict=True):
            kept, path = self.kept[seq_id], list(range(length))
            if parents is not None:
                path, at = [], leaf
                while at != -1:
                    path.append(at)
                    at = parents[start + at]
                path.reverse()
            kept.tokens += [[x[:, start + t] for x in new] for t in path]
            kept.position += len(path)
            kept.slide()
            start += length

    def rows(self, total: int) -> tuple[Any, Any]:
        """New keys and values of each layer."""
        k, v = (
            self.arrays.standard_normal((LAYERS, total, self.kv_heads, d)).astype(self.dtype)
            for d in self.d
        )
        return k, k[..., :VALUE] if self.is_latent else v

    def attend_latent(self, layer: int, q: Any, k: Any, v: Any, out: Any, *, decodes: bool) -> None:
        """Append rows, and attend to them and the past at once, or to both one after the other."""
        builtin("attention_kv_cache_append_mla_kv")(self.cache, layer, k[:, 0])
        lse, past, of_past = (
            np.zeros(out.shape[:2], "f4"),
            out.copy(),
            np.zeros(out.shape[:2], "f4"),
        )
        attend = builtin("attention_kv_cache_cross_attention")
        if decodes and self.rng.random() < 0.5:
            attend(self.cache, layer, 1 / 3, q, out, lse)
            return
        heads = [np.repeat(x, HEADS, 1) for x in (k, v)]
        builtin("attention_kv_cache_self_attention")(self.cache, layer, 1 / 3, q, *heads, out, lse)
        attend(self.cache, layer, 1 / 3, q, past, of_past)
        merge = builtin("attention_kv_cache_merge_attn_output_inplace")
        merge(self.cache, out, lse, past, of_past)

    def check(self) -> None:
        total = builtin("attention_kv_cache_get_total_sequence_length")(self.cache)
        assert total == sum(len(kept.tokens) for kept in self.kept.values())
        assert builtin("attention_kv_cache_empty")(self.cache) == (total == 0)
        for seq_id, kept in self.kept.items():
            count = len(kept.tokens)
            k, v = (np.empty((LAYERS, count, self.kv_heads, d), self.dtype) for d in self.d)
            builtin("attention_kv_cache_debug_get_kv")(self.cache, seq_id, 0, count, k, v)
            for t, token in enumerate(kept.tokens):
                np.testing.assert_array_equal(k[:, t], token[0])
                np.testing.assert_array_equal(v[:, t], token[1])


def kernel(
    target: str,
    dtype: str,
    sizes: tuple[int, ...] = (KV_HEADS, HEADS // KV_HEADS, D, D),
    pitch: int | None = None,
) -> Any:
    """The kernel by which a cache attends, which the modules of caches have."""
    if target == "none":
        return ()
    func = attention_of_rows(*sizes, dtype, pitch=pitch).with_attr("global_symbol", "main")
    return "relaxpy", relaxpy.compile(relaxpy.IRModule({"main": func}), target)["main"]


@pytest.fixture(scope="module", params=["none", "numpy", "native"])
def attention(request: pytest.FixtureRequest) -> Any:
    """The kernel for float32, or none."""
    return kernel(request.param, "float32")


@pytest.mark.each_choice
@pytest.mark.parametrize(
    "kind", ["full", "sliding", "windows of layers, sinks, shared keys", "latent"]
)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("target", ["none", "numpy", "native"])
def test_attention_after_random_operations(target: str, dtype: str, kind: str) -> None:
    latent = None
    if kind == "latent":
        attention = kernel(target, dtype, (HEADS, 1, LATENT, VALUE))
        latent = kernel(target, dtype, (1, HEADS, LATENT, VALUE), LATENT)
    else:
        attention = kernel(target, dtype)
    for number in range(max(4, COUNT // 7)):
        rng = random.Random(f"{SEED} {kind} {dtype} {target} {number}")
        window = rng.choice([1, 2, 3, 7, 30]) if kind.startswith("windows") else 0
        sliding = kind == "sliding"
        model = Model(
            rng, sliding=sliding, attention=attention, latent=latent, dtype=dtype, window=window
        )
        steps = [model.add, model.narrow, model.remove, model.fork, model.pop, *[model.forward] * 2]
        steps += [lambda m=model: m.forward(tree=True)]
        for _ in range(30):
            rng.choice(steps)()
            model.check()
        state("clear", model.cache)
        assert builtin("attention_kv_cache_get_num_available_pages")(model.cache) == model.free


def test_a_long_prompt_is_read_in_blocks(attention: Any) -> None:
    count = 800  # 2.5 million scores
    cache = cache_of(tokens=count, chunk=count, kinds=(0,), attention=attention)
    state("add_sequence", cache, 0)
    state("begin_forward", cache, (0,), (count,))
    rng = np.random.default_rng(5)
    qkv = rng.standard_normal((count, HEADS + 2 * KV_HEADS, D)).astype("float32")
    out = np.empty((count, HEADS, D), "float32")
    builtin("attention_kv_cache_attention_with_fused_qkv")(cache, 0, 1 / 3, qkv, out)
    q, k, v = np.split(qkv, [HEADS, HEADS + KV_HEADS], axis=1)
    wanted = plain(q, k, v, np.tri(count, dtype=bool))
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)


def test_what_is_refused_leaves_the_cache_usable() -> None:
    cache = cache_of(sequences=2, tokens=8, chunk=6, page=4)
    state("add_sequence", cache, 0)
    qkv, out = np.zeros((2, 8, D), "float32"), np.zeros((2, 4, D), "float32")
    fused, commit, debug = (
        builtin(f"attention_kv_cache_{name}")
        for name in ("attention_with_fused_qkv", "commit_accepted_token_tree_nodes", "debug_get_kv")
    )
    refused: list[tuple[Any, str]] = [
        (lambda: state("add_sequence", cache, 0), "sequence 0 has been added already"),
        (lambda: state("remove_sequence", cache, 3), "there is no sequence 3; there are 0"),
        (lambda: state("popn", cache, 0, 1), "sequence 0 has 0 tokens, 1 cannot be removed"),
        (lambda: state("popn", cache, 0, -1), "-1 tokens cannot be removed"),
        (lambda: state("popn", cache, 0, "1"), "expected an integer, found '1'"),
        (lambda: state("add_sequence", cache, 1.5), "expected an integer, found 1.5"),
        (lambda: state("begin_forward", cache, ("a",), (1,)), "expected an integer, found 'a'"),
        (lambda: state("begin_forward", cache, 0, 1), "expected integers, found 0"),
        (lambda: commit(cache, (0, 0), (0, 0)), r"a token each, found \[0, 0\] and \[0, 0\]"),
        (lambda: commit(cache, (0,), (0, 0)), r"a token each, found \[0\] and \[0, 0\]"),
        (lambda: commit(cache, (0,), (0,)), "a tree of 0 tokens, none is token 0"),
        (lambda: debug(cache, 0, 0, 2, qkv, qkv), "has 0 tokens, found a range from 0 to 2"),
        (
            lambda: debug(cache, 0, 0, 0, qkv, qkv),
            r"keys has the shape \(2, 8, 8\), expected \(2, 0",
        ),
        (lambda: state("fork_sequence", cache, 0, 1, 3), "it cannot be forked at 3"),
        (lambda: state("begin_forward", cache, (0, 0), (1, 1)), "a sequence occurs twice"),
        (lambda: state("begin_forward", cache, (0,), (0,)), "append at least one token each"),
        (lambda: state("begin_forward", cache, (0,), (7,)), "at most 6 tokens, found 7"),
        (lambda: state("begin_forward", cache, (0,), (2,), (0, 0)), "which is not before it"),
        (lambda: state("end_forward", cache), "no call has begun"),
        (lambda: fused(cache, 0, 1.0, qkv, out), "no call has begun"),
        (lambda: state("end_forward", 3), "expected a cache or a state of sequences, found 3"),
        (
            lambda: builtin("attention_kv_cache_enable_sliding_window_for_seq")(cache, 0, 4, 1),
            "without support of sliding windows",
        ),
    ]
    for step, message in refused:
        with pytest.raises(RuntimeCheckError, match=message):
            step()
    state("begin_forward", cache, (0,), (2,))
    with pytest.raises(RuntimeCheckError, match="a call has begun and not ended"):
        state("begin_forward", cache, (0,), (2,))
    with pytest.raises(RuntimeCheckError, match="the layers 0 to 1, found 2"):
        fused(cache, 2, 1.0, qkv, out)
    shared, own, past, latent, merge = (
        builtin(f"attention_kv_cache_{name}")
        for name in (
            "attention_with_shared_kv",
            "self_attention",
            "cross_attention",
            "append_mla_kv",
            "merge_attn_output_inplace",
        )
    )
    lse, k = np.zeros((2, 4), "float32"), qkv[:, :2]
    refused = [
        (
            lambda: fused(cache, 0, 1.0, qkv[:1], out),
            r"qkv has the shape \(1, 8, 8\), expected \(2, ",
        ),
        (
            lambda: fused(cache, 0, 1.0, qkv.astype("float64"), out),
            "qkv has the datatype float64, ",
        ),
        (lambda: fused(cache, 0, 1.0, None, out), "qkv is not a tensor, found None"),
        (lambda: fused(cache, 0, 1.0, qkv, out.astype("int32")), "int32, expected a float"),
        (lambda: fused(cache, 0, 1.0, qkv, lse[0, :3], out), r"of sinks has the shape \(3,\), exp"),
        (lambda: fused(cache, 0.5, 1.0, qkv, out), "expected an integer, found 0.5"),
        (lambda: fused(cache, 0, "1", qkv, out), "expected a number, found '1'"),
        (lambda: shared(cache, 0, 1.0, out, k, k, out), "layer 0 has not appended the tokens of"),
        (lambda: shared(cache, 0, 1.0, out, qkv, k, out), r"k has the shape \(2, 8, 8\), expected"),
        (lambda: own(cache, 0, 1.0, out, k[0], k, out, lse), r"expected \(2, any, 8\)"),
        (lambda: own(cache, 0, 1.0, out, k, k[:, :1], out, lse), "v has the shape"),
        (lambda: past(cache, 0, 1.0, out, out, lse.astype("int32")), "int32, expected float32"),
        (lambda: latent(cache, 0, qkv[:, 0]), "layer 0 keeps heads of keys and values"),
        (lambda: merge(cache, out, lse, out[:1], lse), "the second result has the shape"),
        (lambda: merge(3, out, lse, out, lse), "expected a cache of pages, found 3"),
    ]
    for step, message in refused:
        with pytest.raises(RuntimeCheckError, match=message):
            step()
    fused(cache, 0, 1.0, qkv, out)
    state("end_forward", cache)
    for _ in range(2):
        state("begin_forward", cache, (0,), (6,))
        state("end_forward", cache)
    with pytest.raises(RuntimeCheckError, match="the cache is full: 6 tokens need 1 page, 0 of 4"):
        state("begin_forward", cache, (0,), (6,))
    state("popn", cache, 0, 14)
    state("begin_forward", cache, (0,), (6,))


def test_a_token_that_is_decoded_is_one_of_those_in_the_cache() -> None:
    """Layers that decode ask for the past alone, after they have appended the new token."""
    rng = np.random.default_rng(0)
    cache = cache_of(kinds=(1,), d=(10, 6))
    rows: dict[int, list[Any]] = {0: [], 3: []}
    for seq_id in rows:
        state("add_sequence", cache, seq_id)
    for ids, lengths in (((0, 3), (4, 2)), ((3, 0), (1, 1)), ((3,), (1,)), ((0, 3), (1, 2))):
        state("begin_forward", cache, ids, lengths)
        new = rng.standard_normal((sum(lengths), 10)).astype("float32")
        builtin("attention_kv_cache_append_mla_kv")(cache, 0, new)
        q = rng.standard_normal((len(new), HEADS, 10)).astype("float32")
        out, lse = np.zeros((len(new), HEADS, 6), "f4"), np.zeros((len(new), HEADS), "f4")
        builtin("attention_kv_cache_cross_attention")(cache, 0, 1 / 3, q, out, lse)
        state("end_forward", cache)
        start = 0
        for seq_id, length in zip(ids, lengths, strict=True):
            seen = list(rows[seq_id])
            rows[seq_id] += list(new[start : start + length])
            seen = rows[seq_id] if set(lengths) == {1} else seen
            part = slice(start, start + length)
            if seen:
                k = np.stack(seen)[:, None]
                wanted = plain(q[part], k, k[..., :6], True)
                np.testing.assert_allclose(out[part], wanted, rtol=1e-5, atol=1e-5)
            else:
                assert not out[part].any()
            start += length


@pytest.mark.parametrize(
    ("number", "value", "message"),
    [
        (0, (4, 64, 0, 4, 0), "five positive numbers, found"),
        (0, 64, "expected integers, found 64"),
        (1, (), "0 layers have kinds of attention"),
        (2, "4", "expected an integer, found '4'"),
        (3, 0, r"positive, found \[4, 0, 8, 8\]"),
        (3, 3, "4 heads of queries cannot share 3"),
        (6, (2, 2), "2 layers have kinds of attention"),
        (7, True, "not transferred between processes"),
        (8, 3, "the rotation of positions is 0, 1 or 2, found 3"),
        (8, 1, r"a kernel rotates positions, found \(\)"),
        (12, np.zeros((), "int32"), "int32, expected a float"),
    ],
)
def test_arguments_that_make_no_cache(number: int, value: object, message: str) -> None:
    create = builtin("paged_attention_kv_cache_create")
    args = [
        (4, 64, 16, 4, 0),
        (0, 2),
        4,
        2,
        8,
        8,
        (0, 0),
        False,
        0,
        1.0,
        1e4,
        0,
        np.zeros((), "f4"),
    ]
    args += [()] * 15
    create(*args)
    args[number] = value
    with pytest.raises(RuntimeCheckError, match=message):
        create(*args)
    with pytest.raises(RuntimeCheckError, match="28 arguments, found 27"):
        create(*args[1:])


def test_a_window_of_a_layer_is_not_divided() -> None:
    cache = cache_of(kinds=(3,), window=(1,))
    state("add_sequence", cache, 0)
    state("begin_forward", cache, (0,), (2,))
    out, lse = np.zeros((2, HEADS, D), "float32"), np.zeros((2, HEADS), "float32")
    v = np.arange(2 * HEADS * D, dtype="float32").reshape(out.shape)
    builtin("attention_kv_cache_self_attention")(cache, 0, 1.0, v, v, v, out, lse)
    np.testing.assert_array_equal(out, v)
    with pytest.raises(RuntimeCheckError, match="layer 0 sees a window of tokens"):
        builtin("attention_kv_cache_cross_attention")(cache, 0, 1.0, out, out, lse)


def test_recurrent_states_go_back() -> None:
    create, get, put = (builtin(f"rnn_state_{name}") for name in ("create", "get", "set"))
    states = create(2, 3, 4, (), (), (np.zeros(2, "float32"), np.ones((), "int64")))
    state("add_sequence", states, 5)
    state("add_sequence", states, 7)
    history: dict[int, list[int]] = {5: [1], 7: [1]}
    rng = random.Random(0)
    for step in range(40):
        if rng.random() < 0.3:
            seq = rng.choice([5, 7])
            back = rng.randint(0, min(3, len(history[seq]) - 1))
            state("popn", states, seq, back)
            history[seq] = history[seq][: len(history[seq]) - back]
        ids = rng.sample([5, 7], rng.randint(1, 2))
        state("begin_forward", states, tuple(ids), (1,) * len(ids))
        out = np.zeros(len(ids), "int64")
        get(states, 1, 1, out)
        np.testing.assert_array_equal(out, [history[seq][-1] for seq in ids])
        put(states, 1, 1, out * 2 + step)
        state("end_forward", states)
        for seq, value in zip(ids, out * 2 + step, strict=True):
            history[seq] = [*history[seq], int(value)][-4:]
    with pytest.raises(RuntimeCheckError, match="sequence 5 can go back by"):
        state("popn", states, 5, 9)
    with pytest.raises(RuntimeCheckError, match="found state 2 of layer 0"):
        get(states, 0, 2, np.zeros(1))
    state("begin_forward", states, (5, 7), (1, 1))
    for wrong, message in (
        (np.zeros(3, "int64"), r"has the shape \(3,\), expected \(2\)"),
        (np.zeros(2, "int32"), "datatype int32, expected int64"),
        (None, "is not a tensor, found None"),
    ):
        for access in (get, put):
            with pytest.raises(RuntimeCheckError, match=message):
                access(states, 1, 1, wrong)
    put(states, 1, 1, np.array([3, 4]))
    state("end_forward", states)
    history[5].append(3)
    state("fork_sequence", states, 5, 6)
    assert builtin("rnn_state_debug_get")(states, 1, 1, 6) == history[5][-1]
    with pytest.raises(RuntimeCheckError, match="has its 3 sequences already"):
        state("add_sequence", states, 8)


@pytest.mark.parametrize("seed", range(6))
def test_the_slots_of_a_sequence_are_found_as_they_are_added(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pages = Pages(64, 16)
    sequences = [Sequence() for _ in range(3)]
    for _ in range(60):
        number = int(rng.integers(3))
        seq = sequences[number]
        count = int(rng.integers(1, 40))
        match int(rng.integers(6)):
            case 0:
                pages.keep(seq, seq.slots[: len(seq.slots) // 2])
            case 1:
                pages.keep(sequences[(number + 1) % 3], [])
                sequences[(number + 1) % 3] = pages.forked(seq, len(seq.slots))
            case _ if pages.needed(seq, count) <= len(pages.free):
                pages.append(seq, count)
        places = [np.arange(p.start, p.stop) if isinstance(p, slice) else p for p in seq.places()]
        np.testing.assert_array_equal(np.concatenate([[], *places]), seq.slots)
        runs = 1 + int(np.count_nonzero(np.diff(seq.slots) != 1))
        is_copied = runs > 1 + len(seq.slots) // 64
        if seq.slots:
            assert len(places) == (1 if is_copied else runs)


def test_runs_are_those_of_a_sequence_with_the_same_slots() -> None:
    rng = random.Random(f"{SEED} runs")
    for _ in range(COUNT * 4):
        pages, other = Pages(12, rng.choice([1, 2, 4])), Sequence()
        kept = Sequence()
        for _ in range(30):
            seq = rng.choice([kept, kept, other])
            count = rng.randint(1, 5)
            if rng.random() < 0.5 and pages.needed(seq, count) <= len(pages.free):
                pages.append(seq, count)
            else:
                pages.drop(seq, rng.randint(0, len(seq.slots)))
            if rng.random() < 0.6:
                assert [*map(str, seq.places())] == [
                    *map(str, Sequence(slots=[*seq.slots]).places())
                ]
            for each in (kept, other):
                assert each.pages == [*dict.fromkeys(slot // pages.size for slot in each.slots)]
            used = {*kept.pages, *other.pages}
            assert pages.free == {*range(12)} - used


def split(qkv: Any, positions: Any, q: Any, k: Any, v: Any, extra: int) -> None:
    """A kernel that does not rotate, whose strides are checked as those of keys by head."""
    q[...], k[...], v[...] = np.split(qkv, [HEADS, HEADS + KV_HEADS], axis=1)
    if extra:
        assert k.strides[0] == v.strides[0] == D * k.itemsize or len(k) == 1
    else:
        assert k.flags.c_contiguous
        assert v.flags.c_contiguous


@pytest.mark.parametrize("by_head", [0, 1])
def test_a_kernel_splits_heads_as_the_cache_does(by_head: int) -> None:
    limits = (4, 64, 16, 2, 0, 0)
    options = limits, [0, 0], (HEADS, KV_HEADS), (D, D), np.dtype("float32")
    caches = [
        PagedKVCache(*options, (None, 0)),
        PagedKVCache(*options, (split, by_head), rotates_by_head=bool(by_head)),
    ]
    rng = np.random.default_rng(by_head)
    for ids, lengths in (([0], [3]), ([1], [2]), ([0, 1], [5, 1]), ([1, 0], [1, 1]), ([1], [6])):
        tensors = [rng.standard_normal((sum(lengths), HEADS + 2 * KV_HEADS, D)) for _ in range(2)]
        results = []
        for cache in caches:
            for seq_id in set(ids) - cache.sequence_ids():
                state("add_sequence", cache, seq_id)
            state("begin_forward", cache, ids, lengths)
            for layer, qkv in enumerate(tensors):
                out = np.empty((sum(lengths), HEADS, D), np.float32)
                cache.fused(layer, 0.5, qkv.astype("float32"), out)
                results.append(out.tobytes())
            state("end_forward", cache)
        assert results[:2] == results[2:]
    for own, others in zip(caches[0].pages.tensors, caches[1].pages.tensors, strict=True):
        np.testing.assert_array_equal(own, others)
