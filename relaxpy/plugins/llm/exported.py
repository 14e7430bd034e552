"""Decoders without Python: prompts and tokens of one sequence, whose cache the caller has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from relaxpy import te, tir
from relaxpy.plugins.llm.config import Config
from relaxpy.plugins.llm.decoders import Decoder
from relaxpy.plugins.nn.llm.tree_attention import attention_to_buffers
from relaxpy.relax.frontend import nn
from relaxpy.relax.frontend.nn import op, spec
from relaxpy.relax.frontend.nn.llm.kv_cache import PagedKVCache
from relaxpy.relax.frontend.nn.llm.position_embedding import llama_rope_with_position_map
from relaxpy.script import tir as T  # noqa: N812
from relaxpy.support.dataclass import replace


def cache_shape(config: Config, context: int) -> tuple[int, int, int, int]:
    """The shape of the keys, and of the values, of texts of at most `context` tokens."""
    return config.layers, config.kv_heads, context, config.head_dim


def appending(sizes: tuple[int, int, int, int], dtype: str) -> tir.PrimFunc:
    """The kernel (buffer, rows, layer, position) that writes rows from a position on.

    Shapes:
        buffer  (layers, heads, tokens, d): these are the `sizes`
        rows    (rows, heads, d)
    """
    layers, heads, tokens, d = sizes

    @T.prim_func(private=True)
    def append(cache: T.handle, new: T.handle, layer: T.int64, position: T.int64):  # type: ignore[no-untyped-def]
        rows = T.int64()
        buffer = T.match_buffer(cache, (layers, heads, tokens, d), dtype)
        given = T.match_buffer(new, (rows, heads, d), dtype)
        for i, h, c in T.grid(rows, heads, d):
            with T.block("append"):
                vi, vh, vc = T.axis.remap("SSS", [i, h, c])
                buffer[layer, vh, position + vi, vc] = given[vi, vh, vc]

    return append


class CacheInBuffers(PagedKVCache):
    """The keys and values of one sequence, in two tensors that calls change.

    Shapes:
        keys, values  (layers, kv heads, tokens, d)
    """

    def __init__(
        self, config: Config, context: int, keys: nn.Tensor, values: nn.Tensor, position: Any
    ) -> None:
        self.config, self.context = config, context
        self.buffers, self.position = [keys, values], position

    @override
    def get_query_positions(self, total_length: Any) -> nn.Tensor:
        def positions(rows: Any, first: Any) -> Any:
            return te.compute((rows,), lambda i: (first + i).astype("int32"), name="positions")

        found: nn.Tensor = op.tensor_expr_op(positions, "positions", [total_length, self.position])
        return found

    @override
    def attention_with_fused_qkv(
        self,
        layer_id: int,
        qkv: nn.Tensor,
        num_qo_heads: int,
        sm_scale: float,
        sinks: nn.Tensor | None = None,
    ) -> nn.Tensor:
        config, rows, dtype = self.config, qkv.shape[0], qkv.dtype
        kv_heads, d = config.kv_heads, config.head_dim
        place = [layer_id, self.position]
        q, *new = self._split(qkv)
        for number, (buffer, part) in enumerate(zip(self.buffers, new, strict=True)):
            kernel = appending(cache_shape(config, self.context), dtype)
            args = [buffer, part, *place]
            self.buffers[number] = op.tensor_ir_inplace_op(kernel, "append", args, 0, buffer)
        slides = bool(config.sliding) and config.sliding[layer_id]
        attention = attention_to_buffers(
            kv_heads,
            num_qo_heads // kv_heads,
            d,
            dtype,
            (config.layers, self.context),
            sm_scale,
            window=config.window if slides else None,
            score_cap=config.score_cap,
        )
        grouped = q.reshape(rows, kv_heads, num_qo_heads // kv_heads, d)
        out = nn.Tensor.placeholder(grouped.shape, dtype)
        args = [grouped, *self.buffers, *place]
        mixed: nn.Tensor = op.tensor_ir_op(attention, "attention", args, out)
        return mixed.reshape(rows, num_qo_heads, d)

    def _split(self, qkv: nn.Tensor) -> Sequence[nn.Tensor]:
        """Queries, keys and values, rotated as a cache of pages does it."""
        config, rows, d = self.config, qkv.shape[0], self.config.head_dim
        heads = (config.heads, config.kv_heads, config.kv_heads)
        if not config.cache_rotates:
            return op.split(qkv, [heads[0], heads[0] + heads[1]], axis=1)
        kernel = llama_rope_with_position_map(
            config.theta, 1.0, d, *heads[:2], qkv.dtype, config.rope_scaling, config.rotated
        )
        last: Any = 1
        if config.rope_factors:
            last = nn.Tensor.from_const(np.array(config.rope_factors, "float32"))
            fused, place, *results, factors = kernel.params
            kernel = replace(kernel, params=(fused, place, factors, *results))
        outs = [nn.Tensor.placeholder((rows, n, d), qkv.dtype) for n in heads]
        positions = self.get_query_positions(rows)
        operands = [qkv, positions, last]
        parts: Sequence[nn.Tensor] = op.tensor_ir_op(kernel, "rotate", operands, outs)
        return parts


class ExportedDecoder(nn.Module):
    """The methods `prefill` and `decode` of a decoder, for one sequence.

    The results are the scores of the next token, (1, vocabulary), and the buffers, which change.
    """

    def __init__(self, decoder: Decoder, context: int) -> None:
        self.decoder, self.context = decoder, context

    def prefill(self, ids: nn.Tensor, keys: nn.Tensor, values: nn.Tensor, position: Any) -> Any:
        """Append tokens: ids (n,)."""
        cache = CacheInBuffers(self.decoder.config, self.context, keys, values, position)
        x = self.decoder.hidden(ids, cache)
        last = op.tensor_expr_op(_last_row, "last", [x])
        return (self.decoder.scores(last), *cache.buffers)

    def decode(self, ids: nn.Tensor, keys: nn.Tensor, values: nn.Tensor, position: Any) -> Any:
        """Append a token: ids (1,)."""
        cache = CacheInBuffers(self.decoder.config, self.context, keys, values, position)
        return (self.decoder.decode(ids, cache), *cache.buffers)

    def specification(self) -> dict[str, Any]:
        """The specification for `export_tvm`."""
        config = self.decoder.config
        shape = cache_shape(config, self.context)
        dtype = config.cache_dtype or self.decoder.norm.weight.dtype
        plain = {"param_mode": "plain", "effect_mode": "none"}

        def method(count: Any) -> dict[str, Any]:
            buffer = spec.Tensor(shape, dtype)
            ids = spec.Tensor([count], "int32")
            return {"ids": ids, "keys": buffer, "values": buffer, "position": int, "$": plain}

        return {"prefill": method("n"), "decode": method(1)}


def _last_row(x: Any) -> Any:
    rows, width = x.shape
    return te.compute((1, width), lambda _, c: x[rows - 1, c], name="last")
