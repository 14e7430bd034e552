"""The packed functions of `nn.llm.kv_cache`, which change and read a cache of pages."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.runtime.attention import merge
from relaxpy.exec.runtime.page_cache import MHA, MHA_SLIDING, MLA, PagedKVCache
from relaxpy.exec.runtime.registry import provided

Array: TypeAlias = "np.ndarray[Any, Any]"


def _cache(value: object) -> PagedKVCache:
    if not isinstance(value, PagedKVCache):
        raise RuntimeCheckError(f"expected a cache of pages, found {value!r:.60}")
    return value


_ARGUMENTS = 28
_ROPE_NONE = 0


@provided("vm.builtin.paged_attention_kv_cache_create", pure=True)
def create(*args: Any) -> PagedKVCache:
    """A cache as TVM's compiled modules create it, by 28 arguments.

    They are the limits (sequences, tokens, tokens of a call, page size, whether windows slide, and
    as of TVM 0.26 the tokens that a layer whose attention slides sees unless a sequence says), the
    first and last layer of each part of a model, the heads of queries, those of keys, their sizes
    and those of values, the kind of attention of each layer, whether caches are transferred, the
    rotation of positions (none, when appended, or when read, which is the same here) with its
    scale, base and factors, a tensor of the datatype, and kernels: those used are the rotation, and
    the attention to heads and the one to latent rows if they are `("relaxpy", kernel)`, where the
    kernel is an `attention_of_rows`.

    Errors:
        RuntimeCheckError: there are other arguments.
    """
    if len(args) != _ARGUMENTS:
        raise RuntimeCheckError(f"a cache is created by {_ARGUMENTS} arguments, found {len(args)}")
    limits, indptr, heads, kv_heads, d_qk, d_v, kinds, transfer, mode, *_ = args
    factors, init, split_rotary = args[11], args[12], args[24]
    limits = tuple(int(n) for n in limits)
    layers = int(indptr[-1]) - int(indptr[0])
    kinds = [int(kind) for kind in kinds]
    if len(limits) not in {5, 6} or min(limits[:4]) < 1:
        raise RuntimeCheckError(f"the limits of a cache are five positive numbers, found {limits}")
    if len(kinds) != layers or not set(kinds) <= {MHA, MLA, MHA_SLIDING}:
        raise RuntimeCheckError(f"{layers} layers have kinds of attention, found {kinds}")
    if heads % kv_heads:
        raise RuntimeCheckError(f"{heads} heads of queries cannot share {kv_heads} heads of keys")
    if transfer:
        raise RuntimeCheckError("caches are not transferred between processes")
    has_factors = isinstance(factors, np.ndarray)
    rotate = split_rotary if callable(split_rotary) else None
    extra = factors if has_factors else int(mode != _ROPE_NONE)
    return PagedKVCache(
        (*limits, 0)[:6],
        kinds,
        (int(heads), int(kv_heads)),
        (int(d_qk), int(d_v)),
        init.dtype,
        (rotate, extra),
        *(given[1] if given[:1] == ("relaxpy",) else None for given in (args[15], args[22])),
    )


@provided("vm.builtin.attention_kv_cache_attention_with_fused_qkv", pure=True)
def attention_with_fused_qkv(
    cache: PagedKVCache, layer: int, scale: float, qkv: Array, *sinks_and_out: Array
) -> None:
    """Append the keys and values of the tokens of a call, and attend with their queries.

    The result is the last argument; the one before it may be the sinks of the heads.
    """
    *sinks, out = sinks_and_out
    _cache(cache).fused(int(layer), float(scale), qkv, out, *sinks)


@provided("vm.builtin.attention_kv_cache_attention_with_shared_kv", pure=True)
def attention_with_shared_kv(
    cache: PagedKVCache, layer: int, scale: float, q: Array, k: Array, v: Array, out: Array
) -> None:
    """Attend to what a layer has, which appended the tokens of the call, the keys `k` of them."""
    _cache(cache).shared(int(layer), float(scale), q, out)


@provided("vm.builtin.attention_kv_cache_self_attention", pure=True)
def self_attention(
    cache: PagedKVCache,
    layer: int,
    scale: float,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    lse: Array,
) -> None:
    """Attend to the tokens of the call."""
    _cache(cache).own(int(layer), float(scale), q, k, v, out, lse)


@provided("vm.builtin.attention_kv_cache_cross_attention", pure=True)
def cross_attention(
    cache: PagedKVCache, layer: int, scale: float, q: Array, out: Array, lse: Array
) -> None:
    """Attend to the tokens before the call, and to the only one that a decoding call appended."""
    _cache(cache).past(int(layer), float(scale), q, out, lse)


@provided("vm.builtin.attention_kv_cache_append_mla_kv", pure=True)
def append_mla_kv(cache: PagedKVCache, layer: int, rows: Array) -> PagedKVCache:
    """Append rows of multi-head latent attention; return the cache."""
    _cache(cache).append_latent(int(layer), rows)
    return cache


@provided("vm.builtin.attention_kv_cache_merge_attn_output_inplace", pure=True)
def merge_attn_output_inplace(
    cache: PagedKVCache, out: Array, lse: Array, other: Array, other_lse: Array
) -> tuple[Array, Array]:
    """Attention to the keys of both results, written to the first one, which is returned."""
    merge(out, lse, other, other_lse)
    return out, lse


@provided("vm.builtin.attention_kv_cache_get_query_positions", pure=True)
def get_query_positions(cache: PagedKVCache) -> Array:
    """The positions of the tokens of the call."""
    _cache(cache).require_running()
    return cache.positions.copy()


@provided("vm.builtin.attention_kv_cache_get_total_sequence_length")
def get_total_sequence_length(cache: PagedKVCache) -> int:
    """The tokens of all sequences."""
    return sum(len(seq.slots) for seq in _cache(cache).sequences.values())


@provided("vm.builtin.attention_kv_cache_get_num_available_pages")
def get_num_available_pages(cache: PagedKVCache) -> int:
    """The pages that no sequence has."""
    return len(_cache(cache).pages.free)


@provided("vm.builtin.attention_kv_cache_empty")
def empty(cache: PagedKVCache) -> bool:
    """Whether no sequence has a token."""
    return get_total_sequence_length(cache) == 0


@provided("vm.builtin.attention_kv_cache_enable_sliding_window_for_seq")
def enable_sliding_window_for_seq(
    cache: PagedKVCache, seq_id: int, window: int, sinks: int = 0
) -> None:
    """Let a sequence keep `window` tokens, the first `sinks` among them."""
    _cache(cache).require_idle()
    cache.require(int(seq_id))
    cache.set_window(int(seq_id), int(window), int(sinks))


@provided("vm.builtin.attention_kv_cache_commit_accepted_token_tree_nodes")
def commit_accepted_token_tree_nodes(cache: PagedKVCache, seq_ids: Any, leaves: Any) -> None:
    """Keep the paths to accepted tokens of the trees at the ends of sequences."""
    _cache(cache).require_idle()
    ids = [int(i) for i in seq_ids]
    for seq_id in ids:
        cache.require(seq_id)
    cache.commit(ids, [int(leaf) for leaf in leaves])


@provided("vm.builtin.attention_kv_cache_debug_get_kv")
def debug_get_kv(
    cache: PagedKVCache, seq_id: int, start: int, end: int, keys: Array, values: Array
) -> None:
    """Write keys and values of a sequence, (layers, tokens, heads, d), to tensors."""
    _cache(cache).require(int(seq_id))
    slots = np.array(cache.sequences[int(seq_id)].slots[int(start) : int(end)], np.int64)
    for layer, (own_keys, own_values) in enumerate(cache.layers):
        keys[layer] = own_keys[:, slots].transpose(1, 0, 2)
        values[layer] = own_values[:, slots].transpose(1, 0, 2)
