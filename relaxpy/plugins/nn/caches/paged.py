"""The packed functions of `nn.llm.kv_cache`, which change and read a paged cache."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.program.graph.sessions import Forms, Numbers, Plan
from relaxpy.exec.runtime.registry import provided
from relaxpy.exec.runtime.values import Array
from relaxpy.plugins.nn.caches.attention import merge
from relaxpy.plugins.nn.caches.pages import MHA, MHA_SLIDING, MLA, PagedKVCache
from relaxpy.plugins.nn.caches.sequences import check_tensor, whole_number, whole_numbers


def _cache(value: object) -> PagedKVCache:
    if not isinstance(value, PagedKVCache):
        raise RuntimeCheckError(f"expected a cache of pages, found {value!r:.60}")
    return value


def _number(value: object) -> float:
    if isinstance(value, (float, np.floating, Real)):
        return float(value)
    raise RuntimeCheckError(f"expected a number, found {value!r:.60}")


_ARGUMENTS = 28
_ROPE_NONE, _ROPE_INLINE = 0, 2


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
    kernel is an `attention_of_rows`. A rotation that is such a tuple takes keys and values by head.

    Errors:
        RuntimeCheckError: there are other arguments.
    """
    if len(args) != _ARGUMENTS:
        raise RuntimeCheckError(f"a cache is created by {_ARGUMENTS} arguments, found {len(args)}")
    limits, indptr, kinds = (whole_numbers(args[k]) for k in (0, 1, 6))
    heads, kv_heads, d_qk, d_v = sizes = whole_numbers(args[2:6])
    transfer, mode, factors, init, split_rotary = (args[k] for k in (7, 8, 11, 12, 24))
    layers = indptr[-1] - indptr[0] if indptr else 0
    # A cache without layers of windows may have a window of 0, which it ignores.
    positive = limits[:4] + limits[5:] * (MHA_SLIDING in kinds)
    if len(limits) not in {5, 6} or min(positive) < 1:
        raise RuntimeCheckError(f"the limits of a cache are five positive numbers, found {limits}")
    if len(kinds) != layers or not set(kinds) <= {MHA, MLA, MHA_SLIDING}:
        raise RuntimeCheckError(f"{layers} layers have kinds of attention, found {kinds}")
    if min(sizes) < 1:
        raise RuntimeCheckError(f"the heads of a cache and their sizes are positive, found {sizes}")
    if heads % kv_heads:
        raise RuntimeCheckError(f"{heads} heads of queries cannot share {kv_heads} heads of keys")
    if not _ROPE_NONE <= whole_number(mode) <= _ROPE_INLINE:
        raise RuntimeCheckError(f"the rotation of positions is 0, 1 or 2, found {mode}")
    by_head = _kernel(split_rotary)
    rotate = by_head or (split_rotary if callable(split_rotary) else None)
    if mode != _ROPE_NONE and rotate is None and set(kinds) != {MLA}:
        raise RuntimeCheckError(f"a kernel rotates positions, found {split_rotary!r:.60}")
    check_tensor("the tensor that says the datatype", init, (), None)
    if transfer:
        raise RuntimeCheckError("caches are not transferred between processes")
    has_factors = isinstance(factors, np.ndarray)
    extra = factors if has_factors else int(mode != _ROPE_NONE)
    return PagedKVCache(
        (*limits, 0)[:6],
        kinds,
        (heads, kv_heads),
        (d_qk, d_v),
        init.dtype,
        (rotate, extra),
        *(_kernel(given) for given in (args[15], args[22])),
        rotates_by_head=by_head is not None,
    )


def _kernel(given: object) -> Any:
    """The kernel of an argument, which is a tuple; those that others than relaxpy run have none."""
    return given[1] if isinstance(given, tuple) and given[:1] == ("relaxpy",) else None


def _planned(cache: object, forms: Forms, calls: tuple[Numbers, ...]) -> Plan | None:
    """The plan of calls of `attention_with_fused_qkv`."""
    return cache.planned(forms, calls) if type(cache) is PagedKVCache else None


@provided("vm.builtin.attention_kv_cache_attention_with_fused_qkv", pure=True, planned=_planned)
def attention_with_fused_qkv(
    cache: PagedKVCache,
    layer: int,
    scale: float,
    qkv: Array,
    sinks_or_out: Array,
    out: Array | None = None,
) -> None:
    """Append the keys and values of the tokens of a call, and attend with their queries.

    The result is the last argument; the one before it may be the sinks of the heads.
    """
    if type(cache) is not PagedKVCache:
        _cache(cache)
    layer = layer if type(layer) is int else whole_number(layer)
    scale = scale if type(scale) is float else _number(scale)
    if out is None:
        cache.fused(layer, scale, qkv, sinks_or_out)
    else:
        cache.fused(layer, scale, qkv, out, sinks_or_out)


@provided("vm.builtin.attention_kv_cache_attention_with_shared_kv", pure=True)
def attention_with_shared_kv(
    cache: PagedKVCache, layer: int, scale: float, q: Array, k: Array, v: Array, out: Array
) -> None:
    """Attend to the cache of a layer that appended the tokens of the call, with keys `k`."""
    _cache(cache).shared(whole_number(layer), _number(scale), q, k, v, out)


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
    _cache(cache).own(whole_number(layer), _number(scale), q, k, v, out, lse)


@provided("vm.builtin.attention_kv_cache_cross_attention", pure=True)
def cross_attention(
    cache: PagedKVCache, layer: int, scale: float, q: Array, out: Array, lse: Array
) -> None:
    """Attend to the tokens before the call, and to the only one that a decoding call appended."""
    _cache(cache).past(whole_number(layer), _number(scale), q, out, lse)


@provided("vm.builtin.attention_kv_cache_append_mla_kv", pure=True)
def append_mla_kv(cache: PagedKVCache, layer: int, rows: Array) -> PagedKVCache:
    """Append rows of multi-head latent attention; return the cache."""
    _cache(cache).append_latent(whole_number(layer), rows)
    return cache


@provided("vm.builtin.attention_kv_cache_merge_attn_output_inplace", pure=True)
def merge_attn_output_inplace(
    cache: PagedKVCache, out: Array, lse: Array, other: Array, other_lse: Array
) -> tuple[Array, Array]:
    """Merge two partial attention results into the first one, which is returned."""
    _cache(cache)
    check_tensor("the first result", out, (None, None, None), None)
    check_tensor("the second result", other, out.shape, None)
    for name, sums in (("first", lse), ("second", other_lse)):
        check_tensor(f"the {name} tensor of sums", sums, out.shape[:2], np.dtype("float32"))
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
    """The number of free pages."""
    return len(_cache(cache).pages.free)


@provided("vm.builtin.attention_kv_cache_empty")
def empty(cache: PagedKVCache) -> bool:
    """True if no sequence has a token."""
    return get_total_sequence_length(cache) == 0


@provided("vm.builtin.attention_kv_cache_enable_sliding_window_for_seq")
def enable_sliding_window_for_seq(
    cache: PagedKVCache, seq_id: int, window: int, sinks: int = 0
) -> None:
    """Let a sequence keep `window` tokens, the first `sinks` among them."""
    _cache(cache).require_idle()
    cache.require(whole_number(seq_id))
    cache.set_window(whole_number(seq_id), whole_number(window), whole_number(sinks))


@provided("vm.builtin.attention_kv_cache_commit_accepted_token_tree_nodes")
def commit_accepted_token_tree_nodes(cache: PagedKVCache, seq_ids: Any, leaves: Any) -> None:
    """Keep the paths to accepted tokens of the trees at the ends of sequences."""
    _cache(cache).require_idle()
    ids, nodes = whole_numbers(seq_ids), whole_numbers(leaves)
    for seq_id in ids:
        cache.require(seq_id)
    if len(set(ids)) != len(ids) or len(ids) != len(nodes):
        raise RuntimeCheckError(f"sequences accept a token each, found {ids} and {nodes}")
    cache.commit(ids, nodes)


@provided("vm.builtin.attention_kv_cache_debug_get_kv")
def debug_get_kv(
    cache: PagedKVCache, seq_id: int, start: int, end: int, keys: Array, values: Array
) -> None:
    """Write keys and values of a sequence, (layers, tokens, heads, d), to tensors."""
    _cache(cache).require(whole_number(seq_id))
    kept = cache.sequences[seq_id].slots
    if not 0 <= whole_number(start) <= whole_number(end) <= len(kept):
        raise RuntimeCheckError(
            f"sequence {seq_id} has {len(kept)} tokens, found a range from {start} to {end}"
        )
    slots = np.array(kept[start:end], np.int64)
    for name, tensor, d in (("keys", keys, cache.d_qk), ("values", values, cache.d_v)):
        heads = len(cache.memory(0)[0])
        wanted = len(cache.kinds), len(slots), heads, d
        check_tensor(f"the tensor of {name}", tensor, wanted, cache.dtype)
    for layer in range(len(cache.kinds)):
        own_keys, own_values = cache.memory(layer)
        keys[layer] = own_keys[:, slots].transpose(1, 0, 2)
        values[layer] = own_values[:, slots].transpose(1, 0, 2)
