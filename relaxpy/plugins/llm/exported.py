"""Decoders without Python: prompts and tokens of sequences, whose cache the caller has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from relaxpy import te, tir
from relaxpy.plugins.llm.config import Config
from relaxpy.plugins.llm.decoders import Decoder
from relaxpy.plugins.nn.llm.tree_attention import attention_of_batch, attention_to_buffers
from relaxpy.relax.frontend import nn
from relaxpy.relax.frontend.nn import op, spec
from relaxpy.relax.frontend.nn.llm.kv_cache import PagedKVCache
from relaxpy.relax.frontend.nn.llm.position_embedding import llama_rope_with_position_map
from relaxpy.script import tir as T  # noqa: N812
from relaxpy.support.dataclass import replace


def cache_shape(config: Config, context: int, sequences: int = 1) -> tuple[int, int, int, int]:
    """The shape of the keys, and of the values, of texts of at most `context` tokens.

    Those of the layers of a sequence are next to each other.
    """
    return sequences * config.layers, config.kv_heads, context, config.head_dim


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


def clearing(sizes: tuple[int, int, int, int], dtype: str) -> tir.PrimFunc:
    """The kernel (buffer, layer, position, rows) that clears what is after the start of a text.

    Rows of other sequences are multiplied by zero, which makes nothing of what a longer text
    has left, unless that is not finite.
    """
    layers, heads, tokens, d = sizes

    @T.prim_func(private=True)
    def clear(cache: T.handle, layer: T.int64, position: T.int64, rows: T.int64):  # type: ignore[no-untyped-def]
        buffer = T.match_buffer(cache, (layers, heads, tokens, d), dtype)
        for h, s, c in T.grid(heads, T.if_then_else(position == 0, tokens - rows, 0), d):
            with T.block("clear"):
                vh, vs, vc = T.axis.remap("SSS", [h, s, c])
                buffer[layer, vh, rows + vs, vc] = T.Cast(dtype, 0)

    return clear


def appending_each(sizes: tuple[int, int, int, int], layers: int, dtype: str) -> tir.PrimFunc:
    """The kernel (buffer, rows, positions, layer, length) that writes a row of each sequence.

    Shapes:
        buffer     (sequences * layers, heads, tokens, d): these are the `sizes`
        rows       (rows, heads, d)
        positions  (rows,), below `length`
    """
    planes, heads, tokens, d = sizes

    @T.prim_func(private=True)
    def append(cache: T.handle, new: T.handle, at: T.handle, layer: T.int64, length: T.int64):  # type: ignore[no-untyped-def]
        rows = T.int64()
        buffer = T.match_buffer(cache, (planes, heads, tokens, d), dtype)
        given = T.match_buffer(new, (rows, heads, d), dtype)
        positions = T.match_buffer(at, (rows,), "int32")
        for row in range(rows):
            assert T.Cast("int64", positions[row]) < length, "a position is not below the length"
        for i, h, c in T.grid(rows, heads, d):
            with T.block("append"):
                vi, vh, vc = T.axis.remap("SSS", [i, h, c])
                buffer[vi * layers + layer, vh, positions[vi], vc] = given[vi, vh, vc]

    return append


class CacheInBuffers(PagedKVCache):
    """The keys and values of sequences, in two tensors that calls change; rows are of one of them.

    Shapes:
        keys, values  (sequences * layers, kv heads, tokens, d)
    """

    def __init__(
        self, decoder: ExportedDecoder, keys: nn.Tensor, values: nn.Tensor, slot: Any, position: Any
    ) -> None:
        self.config, self.sizes = decoder.decoder.config, decoder.sizes
        self.buffers, self.slot, self.position = [keys, values], slot, position

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
        config, rows = self.config, qkv.shape[0]
        q, *new = self._split(qkv)
        for number, part in enumerate(new):
            self._append(number, part, layer_id)
        heads = config.kv_heads, num_qo_heads // config.kv_heads, config.head_dim
        slides = bool(config.sliding) and config.sliding[layer_id]
        options = {"window": config.window if slides else None, "score_cap": config.score_cap}
        kernel, place = self._attention((*heads, q.dtype), layer_id, sm_scale, options)
        args = [q.reshape(rows, *heads), *self.buffers, *place]
        out = nn.Tensor.placeholder((rows, *heads), q.dtype)
        mixed: nn.Tensor = op.tensor_ir_op(kernel, "attention", args, out)
        return mixed.reshape(rows, num_qo_heads, config.head_dim)

    def _append(self, number: int, part: nn.Tensor, layer: int) -> None:
        """Write the keys (0) or values (1) of rows."""
        buffer = self.buffers[number]
        args = [buffer, part, self._plane(layer), self.position]
        kernel = appending(self.sizes, part.dtype)
        buffer = op.tensor_ir_inplace_op(kernel, "append", args, 0, buffer)
        if self.sizes[0] > self.config.layers:
            args = [buffer, self._plane(layer), self.position, part.shape[0]]
            kernel = clearing(self.sizes, part.dtype)
            buffer = op.tensor_ir_inplace_op(kernel, "clear", args, 0, buffer)
        self.buffers[number] = buffer

    def _attention(
        self, heads: tuple[int, int, int, str], layer: int, scale: float, options: dict[str, Any]
    ) -> tuple[tir.PrimFunc, list[Any]]:
        """The kernel of a layer, and its last arguments."""
        planes, _, context, _ = self.sizes
        kernel = attention_to_buffers(*heads, (planes, context), scale, **options)
        return kernel, [self._plane(layer), self.position]

    def _plane(self, layer: int) -> Any:
        """Where the buffers have a layer of the sequence."""
        return self.slot * self.config.layers + layer

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


class BatchInBuffers(CacheInBuffers):
    """The same tensors; row r is a token of sequence r, at a position of its own."""

    def __init__(
        self,
        decoder: ExportedDecoder,
        keys: nn.Tensor,
        values: nn.Tensor,
        positions: nn.Tensor,
        length: Any,
    ) -> None:
        super().__init__(decoder, keys, values, 0, 0)
        self.positions, self.length = positions, length

    @override
    def get_query_positions(self, total_length: Any) -> nn.Tensor:
        return self.positions

    @override
    def _append(self, number: int, part: nn.Tensor, layer: int) -> None:
        buffer = self.buffers[number]
        args = [buffer, part, self.positions, layer, self.length]
        kernel = appending_each(self.sizes, self.config.layers, part.dtype)
        self.buffers[number] = op.tensor_ir_inplace_op(kernel, "append", args, 0, buffer)

    @override
    def _attention(
        self, heads: tuple[int, int, int, str], layer: int, scale: float, options: dict[str, Any]
    ) -> tuple[tir.PrimFunc, list[Any]]:
        planes, _, context, _ = self.sizes
        sizes = planes // self.config.layers, self.config.layers, context
        kernel = attention_of_batch(*heads, sizes, scale, **options)
        return kernel, [self.positions, layer, self.length]


class ExportedDecoder(nn.Module):
    """The methods `prefill` and `decode` of a decoder, for one sequence, or one of several.

    The results are the scores of the next token, (1, vocabulary), and the buffers, which change.
    For several sequences there is `decode_batch`, whose row r is a token of sequence r.
    """

    def __init__(self, decoder: Decoder, context: int, sequences: int = 1) -> None:
        self.decoder, self.sequences = decoder, sequences
        self.sizes = cache_shape(decoder.config, context, sequences)

    def prefill(
        self, ids: nn.Tensor, keys: nn.Tensor, values: nn.Tensor, position: Any, slot: Any = 0
    ) -> Any:
        """Append tokens: ids (n,)."""
        cache = CacheInBuffers(self, keys, values, slot, position)
        x = self.decoder.hidden(ids, cache)
        last = op.tensor_expr_op(_last_row, "last", [x])
        return (self.decoder.scores(last), *cache.buffers)

    def decode(
        self, ids: nn.Tensor, keys: nn.Tensor, values: nn.Tensor, position: Any, slot: Any = 0
    ) -> Any:
        """Append a token: ids (1,)."""
        cache = CacheInBuffers(self, keys, values, slot, position)
        return (self.decoder.decode(ids, cache), *cache.buffers)

    def decode_batch(
        self, ids: nn.Tensor, positions: nn.Tensor, keys: nn.Tensor, values: nn.Tensor, length: Any
    ) -> Any:
        """Append a token to each of the first sequences: ids, positions (batch,)."""
        cache = BatchInBuffers(self, keys, values, positions, length)
        return (self.decoder.decode(ids, cache), *cache.buffers)

    def specification(self) -> dict[str, Any]:
        """The specification for `export_tvm`."""
        dtype = self.decoder.config.cache_dtype or self.decoder.norm.weight.dtype
        buffer = spec.Tensor(self.sizes, dtype)
        place = {"position": int} | ({"slot": int} if self.sequences > 1 else {})
        plain = {"param_mode": "plain", "effect_mode": "none"}

        def tokens(count: Any) -> Any:
            return spec.Tensor([count], "int32")

        def method(count: Any) -> dict[str, Any]:
            return {"ids": tokens(count), "keys": buffer, "values": buffer, **place, "$": plain}

        found = {"prefill": method("n"), "decode": method(1)}
        if self.sequences > 1:
            found["decode_batch"] = {
                "ids": tokens("batch"),
                "positions": tokens("batch"),
                "keys": buffer,
                "values": buffer,
                "length": int,
                "$": plain,
            }
        return found


def _last_row(x: Any) -> Any:
    rows, width = x.shape
    return te.compute((1, width), lambda _, c: x[rows - 1, c], name="last")
