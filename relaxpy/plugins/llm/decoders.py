"""Decoders over a paged cache: Llama-like models, mixtures of experts, GPT-2.

Rows of tokens come one after another in an axis, those of several sequences too: the cache knows
which rows belong to which sequence.
"""

from __future__ import annotations

from typing import Any

from relaxpy import te, tir
from relaxpy.plugins.llm.config import Config
from relaxpy.plugins.llm.hooks import step
from relaxpy.relax.frontend import nn
from relaxpy.relax.frontend.nn import op, spec
from relaxpy.relax.frontend.nn.llm.kv_cache import PagedKVCache, RopeMode
from relaxpy.relax.frontend.nn.llm.position_embedding import llama_rope_with_position_map


def activate(x: nn.Tensor, name: str) -> nn.Tensor:
    if name in ("silu", "relu"):
        return op.silu(x) if name == "silu" else op.relu(x)
    return op.gelu(x, approximate="tanh" if name == "gelu_tanh" else None)


class Attention(nn.Module):
    """Queries, keys and values by one product, attention by the cache, and a product."""

    def __init__(self, config: Config, layer: int) -> None:
        self.layer, self.config = layer, config
        heads, d = config.heads + 2 * config.kv_heads, config.head_dim
        self.qkv = nn.Linear(config.width, heads * d, bias=config.qkv_bias)
        self.out = nn.Linear(config.heads * d, config.width, bias=config.family == "gpt2")
        if config.qk_norm:
            self.q_norm = nn.RMSNorm(d, -1, config.eps, bias=False)
            self.k_norm = nn.RMSNorm(d, -1, config.eps, bias=False)

    def forward(self, x: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        config, rows = self.config, x.shape[0]
        heads, kv_heads, d = config.heads, config.kv_heads, config.head_dim
        qkv = self.qkv(x).reshape(rows, heads + 2 * kv_heads, d)
        if config.qk_norm:
            q, k, v = op.split(qkv, [heads, heads + kv_heads], axis=1)
            qkv = op.concat([self.q_norm(q), self.k_norm(k), v], dim=1)
        if config.local_theta is not None:
            qkv = self.rotated(qkv, cache)
        qkv = op.astype(qkv, config.cache_dtype or x.dtype)
        scale = d**-0.5 if config.score_scale is None else config.score_scale
        mixed = cache.attention_with_fused_qkv(self.layer, qkv, heads, scale)
        return self.out(op.astype(mixed, x.dtype).reshape(rows, heads * d))

    def rotated(self, qkv: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        """Queries and keys rotated here, as the cache rotates those of all layers alike."""
        config, rows, d = self.config, qkv.shape[0], self.config.head_dim
        is_local = config.sliding[self.layer] if config.sliding else False
        theta = (is_local and config.local_theta) or config.theta
        heads = (config.heads, config.kv_heads, config.kv_heads)
        scaling = {} if is_local else config.rope_scaling
        kernel = llama_rope_with_position_map(theta, 1.0, d, *heads[:2], qkv.dtype, scaling)
        operands: list[Any] = [qkv, cache.get_query_positions(rows), 1]
        outs = [nn.Tensor.placeholder((rows, n, d), qkv.dtype) for n in heads]
        parts = op.tensor_ir_op(kernel, "rotate", operands, outs)
        return op.concat(list(parts), dim=1)


class GatedMLP(nn.Module):
    """A product whose first half, activated, multiplies its second half; and a product."""

    def __init__(self, config: Config) -> None:
        self.activation = config.activation
        self.gate_up = nn.Linear(config.width, 2 * config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        gate, up = op.split(self.gate_up(x), 2, axis=-1)
        return self.down(activate(gate, self.activation) * up)


class Experts(nn.Module):
    """Gated MLPs of which every token takes those with the best scores, weighted by these."""

    def __init__(self, config: Config) -> None:
        self.count, self.chosen = config.experts, config.chosen_experts
        self.activation, self.sums_to_one = config.activation, config.chosen_sum_to_one
        self.gate = nn.Linear(config.width, self.count, bias=False)
        self.gate_up = nn.Parameter((self.count, 2 * config.hidden, config.width))
        self.down = nn.Parameter((self.count, config.width, config.hidden))

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        scores = self.gate(x)
        if not self.sums_to_one:
            scores = op.softmax(scores, axis=-1)
        shares, experts = op.topk(scores, k=self.chosen)
        if self.sums_to_one:
            shares = op.softmax(shares, axis=-1)
        mix = self.one_row if x.shape[0] == 1 else self.many_rows
        return mix(x, shares, experts)

    def one_row(self, x: nn.Tensor, shares: nn.Tensor, experts: nn.Tensor) -> nn.Tensor:
        """Read the weights of the chosen experts only."""
        both = op.tensor_expr_op(products_with_chosen, "up", [x, self.gate_up, experts])
        gate, up = op.split(both, 2, axis=-1)
        hidden = activate(gate, self.activation) * up
        outs = op.tensor_expr_op(products_with_chosen, "down", [hidden, self.down, experts])
        return op.matmul(shares, outs)

    def many_rows(self, x: nn.Tensor, shares: nn.Tensor, experts: nn.Tensor) -> nn.Tensor:
        """Take the rows through all experts, as their products are large; others count nothing."""
        gate, up = op.split(op.matmul(x, op.permute_dims(self.gate_up, [0, 2, 1])), 2, axis=-1)
        hidden = activate(gate, self.activation) * up
        outs = op.matmul(hidden, op.permute_dims(self.down, [0, 2, 1]))
        weights = op.tensor_expr_op(
            lambda s, e: by_expert(s, e, self.count), "weights", [shares, experts]
        )
        return op.sum(outs * weights, axis=0)


def products_with_chosen(x: Any, weights: Any, experts: Any) -> te.Tensor:
    """The row k of the result is the product of row k of `x`, or its only row, with expert k."""
    rows, size = x.shape
    k = te.reduce_axis((0, size), "k")
    return te.compute(
        (experts.shape[1], weights.shape[1]),
        lambda c, o: te.sum(x[c if rows != 1 else 0, k] * weights[experts[0, c], o, k], k),
    )


def by_expert(shares: Any, experts: Any, count: int) -> te.Tensor:
    """The shares (rows, chosen) as (count, rows, 1), with 0 for experts that are not chosen."""
    rows, chosen = shares.shape
    k = te.reduce_axis((0, chosen), "k")
    return te.compute(
        (count, rows, 1),
        lambda e, r, _: te.sum(
            tir.if_then_else(experts[r, k] == e, shares[r, k], tir.const(0, shares.dtype)), k
        ),
    )


class Block(nn.Module):
    """Attention and an MLP, each added to what comes in."""

    def __init__(self, config: Config, layer: int) -> None:
        self.attention_norm = nn.RMSNorm(config.width, -1, config.eps, bias=False)
        self.attention = Attention(config, layer)
        self.mlp_norm = nn.RMSNorm(config.width, -1, config.eps, bias=False)
        self.mlp = Experts(config) if config.experts else GatedMLP(config)
        if config.post_norms:
            self.attention_post_norm = nn.RMSNorm(config.width, -1, config.eps, bias=False)
            self.mlp_post_norm = nn.RMSNorm(config.width, -1, config.eps, bias=False)
        self.post_norms = config.post_norms

    def forward(self, x: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        added = self.attention(self.attention_norm(x), cache)
        x = x + (self.attention_post_norm(added) if self.post_norms else added)
        added = self.mlp(self.mlp_norm(x))
        return x + (self.mlp_post_norm(added) if self.post_norms else added)


class GPT2Block(nn.Module):
    """The block of GPT-2: layer norms, biases, an MLP without a gate."""

    def __init__(self, config: Config, layer: int) -> None:
        self.attention_norm = nn.LayerNorm(config.width, config.eps)
        self.attention = Attention(config, layer)
        self.mlp_norm = nn.LayerNorm(config.width, config.eps)
        self.up = nn.Linear(config.width, config.hidden)
        self.down = nn.Linear(config.hidden, config.width)

    def forward(self, x: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        x = x + self.attention(self.attention_norm(x), cache)
        return x + self.down(activate(self.up(self.mlp_norm(x)), "gelu_tanh"))


class Words(nn.Embedding):
    """The embedding of words, which may be the last layer, too."""

    def lm_head_forward(self, x: nn.Tensor) -> nn.Tensor:
        return op.matmul(x, op.permute_dims(self.weight))


class Decoder(nn.Module):
    """Embeddings, blocks, a norm, and the scores of the next token.

    One that is `hooked` has a step for hooks after the embedding and after each block.
    """

    def __init__(self, config: Config, *, hooked: bool = False) -> None:
        self.config, self.hooked = config, hooked
        self.embedding = Words(config.vocabulary, config.width)
        if config.family == "gpt2":
            self.places = nn.Embedding(config.positions, config.width)
            self.blocks = nn.ModuleList([GPT2Block(config, k) for k in range(config.layers)])
            self.norm: Any = nn.LayerNorm(config.width, config.eps)
        else:
            self.blocks = nn.ModuleList([Block(config, k) for k in range(config.layers)])
            self.norm = nn.RMSNorm(config.width, -1, config.eps, bias=False)
        if not config.tied:
            self.head = nn.Linear(config.width, config.vocabulary, bias=False)

    def hidden(self, ids: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        x = self.embedding(ids)
        if self.config.embedding_scale != 1:
            x = x * self.config.embedding_scale
        if self.config.family == "gpt2":
            x = x + self.places(cache.get_query_positions(ids.shape[0]))
        x = self.after(0, x, cache)
        for layer, block in enumerate(self.blocks, 1):
            x = self.after(layer, block(x, cache), cache)
        return x  # before the norm, which other rows than those of the result do not need

    def after(self, layer: int, x: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        return step(cache, layer, x) if self.hooked else x

    def scores(self, x: nn.Tensor) -> nn.Tensor:
        x = self.norm(x)
        rows = self.embedding.lm_head_forward(x) if self.config.tied else self.head(x)
        rows = rows if rows.dtype == "float32" else op.astype(rows, "float32")
        cap = self.config.logit_cap
        return op.tanh(rows * (1 / cap)) * cap if cap else rows

    def decode(self, ids: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        """The scores after one token of one sequence: ids (1,), result (1, vocabulary)."""
        return self.scores(self.hidden(ids, cache))

    def forward(self, ids: nn.Tensor, rows: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        """The scores after some rows: ids (n,), rows (m,), result (m, vocabulary)."""
        return self.scores(op.take(self.hidden(ids, cache), rows, axis=0))

    def states(self, ids: nn.Tensor, cache: PagedKVCache) -> nn.Tensor:
        """The states of rows before the last layer: ids (n,), result (n, width)."""
        return op.astype(self.norm(self.hidden(ids, cache)), "float32")

    def create_cache(self, sequences, tokens, chunk, page, sliding):  # type: ignore[no-untyped-def]
        config = self.config
        kinds: Any = [("mha", "mha_sliding")[slides] for slides in config.sliding]
        by_cache = config.cache_rotates
        return PagedKVCache.create_generic(
            kinds or "mha",
            sequences,
            tokens,
            chunk,
            page,
            sliding,
            config.layers,
            config.heads,
            config.kv_heads,
            config.head_dim,
            config.head_dim,
            RopeMode.NORMAL if by_cache else RopeMode.NONE,
            1,
            config.theta,
            config.cache_dtype or self.norm.weight.dtype,
            rotary_dim=config.rotated,
            rope_scaling=config.rope_scaling if by_cache else {},
            rope_ext_factors=config.rope_factors or None,
            layer_sliding_window_size=config.window or 1,
            score_cap=config.score_cap,
        )

    def specification(self, *methods: str) -> dict[str, Any]:
        """The specification of these methods for `export_tvm`, or of those that generate."""
        cache = spec.Object(object_type=PagedKVCache)
        plain = {"param_mode": "packed", "effect_mode": "none"}
        limits = ("sequences", "tokens", "chunk", "page", "sliding")
        known = {
            "decode": {"ids": spec.Tensor([1], "int32"), "cache": cache, "$": plain},
            "forward": {
                "ids": spec.Tensor(["n"], "int32"),
                "rows": spec.Tensor(["m"], "int32"),
                "cache": cache,
                "$": plain,
            },
            "create_cache": {**dict.fromkeys(limits, int), "$": {**plain, "param_mode": "none"}},
            "states": {"ids": spec.Tensor(["n"], "int32"), "cache": cache, "$": plain},
        }
        return {name: known[name] for name in methods or ("decode", "forward", "create_cache")}
