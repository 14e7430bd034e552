"""Attention as kernels: of rows of queries to sequences, to trees of tokens, and to caches."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relaxpy.errors import MisuseError
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.lower import create_prim_func, replace_buffers
from relaxpy.ir.tir import expr as tir, intrin, ops, reduce
from relaxpy.ir.tir.buffer import Buffer, decl_buffer
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.plugins.nn.llm.position_embedding import Rotary, kernel_of
from relaxpy.support.dataclass import replace
from relaxpy.support.entry import user_facing

_LEAST = intrin.min_value("float32")
_LOG2_E = math.log2(math.e)


def heads_of_each(queries: int, keys: int) -> int:
    """How many heads of queries share one of keys and values.

    Errors:
        MisuseError (also ValueError): their numbers do not go together.
    """
    if keys < 1 or queries % keys:
        raise MisuseError(
            f"{queries} heads of queries cannot share {keys} heads of keys and values", about=keys
        )
    return queries // keys


@user_facing
def _attention_sequence_prefill(
    h_kv: int,
    h_q: int,
    d: int,
    dtype: str,
    target: object = None,
    causal: int = 0,
    sm_scale: float = 1.0,
) -> PrimFunc:
    """The kernel (queries, keys, values, result, log2 of the sums of weights) of attention.

    Scores are dot products times `sm_scale`. A causal query sees the keys up to its own position;
    the last query has that of the last key. `target` has no effect.

    Shapes:
        queries, result  (batch, rows, h_q, d)
        keys, values     (batch, keys, h_kv, d)
        sums             (batch, rows, h_q)

    Errors:
        MisuseError (also ValueError): the heads of queries cannot share those of keys.
    """
    group = heads_of_each(h_q, h_kv)
    batch, rows, size = (tir.SizeVar(name, "int64") for name in ("batch_size", "qo_len", "kv_len"))
    q = te.placeholder((batch, rows, h_q, d), dtype, "q")
    k, v = (te.placeholder((batch, size, h_kv, d), dtype, name) for name in ("k", "v"))
    e, j = te.reduce_axis((0, d), "e"), te.reduce_axis((0, size), "j")
    products = te.compute(
        (batch, h_q, rows, size),
        lambda b, h, i, s: reduce.sum(
            _float32(q[b, i, h, e]) * _float32(k[b, s, h // group, e]), e
        ),
        name="products",
    )

    def score(b: Any, h: Any, i: Any, s: Any) -> Any:
        value = products[b, h, i, s] * ops.const(sm_scale * _LOG2_E, "float32")
        seen = ops.compare(tir.LE, s, i + (size - rows))
        return intrin.if_then_else(seen, value, _LEAST) if causal else value

    weights, logs = _weights(te.compute((batch, h_q, rows, size), score, name="scores"))
    mixed = te.compute(
        (batch, h_q, rows, d),
        lambda b, h, i, c: reduce.sum(weights[b, h, i, j] * _float32(v[b, j, h // group, c]), j),
        name="mixed",
    )
    out = te.compute(
        (batch, rows, h_q, d), lambda b, i, h, c: mixed[b, h, i, c].astype(dtype), name="output"
    )
    lse = te.compute((batch, rows, h_q), lambda b, i, h: logs(b, h, i).astype(dtype), name="lse")
    kernel: PrimFunc = create_prim_func([q, k, v, out, lse])
    return kernel.without_attr("global_symbol").with_attrs({"op_pattern": 8, "tir.noalias": True})


def attention_of_rows(
    heads: int,
    group: int,
    d: int,
    dv: int,
    dtype: str,
    *,
    pitch: int | None = None,
    score_cap: float = 0.0,
) -> PrimFunc:
    """The kernel (queries, keys, values, seen, scale, result, log2 of the sums) of caches.

    Each head of keys has a group of heads of queries. Keys, values, and what is seen are read where
    they are: there may be gaps between heads, and between rows of what is seen. Rows of values are
    `pitch` elements apart, by default `dv`; those of latent attention are the first elements of
    keys. A positive `score_cap` replaces a score x by score_cap * tanh(x / score_cap).

    Shapes:
        queries       (rows, heads, group, d)
        keys, values  (heads, keys, d), (heads, keys, dv)
        seen          (rows * group, keys), bool
        scale         float32
        result, sums  (rows, heads, group, dv), (rows, heads, group); the sums are float32
    """
    rows, size = (tir.SizeVar(name, "int64") for name in ("rows", "keys"))
    scale = tir.Var("scale", "float32")
    q = te.placeholder((rows, heads, group, d), dtype, "q")
    k, v = (te.placeholder((heads, size, n), dtype, name) for name, n in (("k", d), ("v", dv)))
    seen = te.placeholder((rows * group, size), "bool", "seen")
    out, lse = _attention_of_rows(q, (k, v), (size, dv), seen, scale, score_cap)
    func: PrimFunc = create_prim_func([q, k, v, seen, scale, out, lse])
    strides = {"k": (None, d, 1), "v": (None, pitch or dv, 1), "seen": (None, 1)}
    return with_strides(func, strides).without_attr("global_symbol")


def attention_to_buffers(
    heads: int,
    group: int,
    d: int,
    dtype: str,
    sizes: tuple[int, int],
    scale: float,
    *,
    window: int | None = None,
    score_cap: float = 0.0,
) -> PrimFunc:
    """The kernel (queries, keys, values, result, layer, position) of a sequence in buffers.

    The buffers have the keys and values of all layers; their `sizes` are the numbers of layers and
    of tokens. The first query is that of the token at `position`, whose keys they have. A
    query sees the tokens up to its own, of a `window` the last ones. Numbers are as of
    `attention_of_rows`.

    Shapes:
        queries, result  (rows, heads, group, d)
        keys, values     (layers, heads, tokens, d)
    """
    layers, tokens = sizes
    rows = tir.SizeVar("rows", "int64")
    layer, position = (tir.Var(name, "int64") for name in ("layer", "position"))
    q = te.placeholder((rows, heads, group, d), dtype, "q")
    k, v = (te.placeholder((layers, heads, tokens, d), dtype, name) for name in "kv")

    def seen(i: Any, s: Any) -> Any:
        own = position + i // group
        is_past = ops.compare(tir.LE, s, own)
        return is_past if window is None else ops.all_of(is_past, s > own - window)

    def of_layer(buffer: Any) -> Callable[..., Any]:
        return lambda h, s, c: buffer[layer, h, s, c]

    both = of_layer(k), of_layer(v)
    shape, factor = (position + rows, d), ops.const(scale, "float32")
    out, _ = _attention_of_rows(q, both, shape, seen, factor, score_cap)
    return kernel_of([q, k, v, out, layer, position])


def attention_of_batch(
    heads: int,
    group: int,
    d: int,
    dtype: str,
    sizes: tuple[int, int, int],
    scale: float,
    *,
    window: int | None = None,
    score_cap: float = 0.0,
) -> PrimFunc:
    """The kernel (queries, keys, values, positions, result, layer, length) of several sequences.

    The buffers have the keys and values of all layers of each sequence; their `sizes` are the
    numbers of sequences, of layers and of tokens. Row r is a token of sequence r, at its own
    position below `length`. Otherwise it is as `attention_to_buffers`.

    Shapes:
        queries, result  (rows, heads, group, d)
        keys, values     (sequences * layers, heads, tokens, d)
        positions        (rows,), int32
    """
    sequences, layers, tokens = sizes
    rows = tir.SizeVar("rows", "int64")
    layer, length = (tir.Var(name, "int64") for name in ("layer", "length"))
    q = te.placeholder((rows, heads, group, d), dtype, "q")
    k, v = (te.placeholder((sequences * layers, heads, tokens, d), dtype, name) for name in "kv")
    positions: Any = te.placeholder((rows,), "int32", "positions")

    def seen(r: Any, _: Any, __: Any, s: Any) -> Any:
        own = positions[r].astype("int64")
        is_past = ops.compare(tir.LE, s, own)
        return is_past if window is None else ops.all_of(is_past, s > own - window)

    def of_layer(buffer: Any) -> Callable[..., Any]:
        return lambda r, h, s, c: buffer[r * layers + layer, h, s, c]

    mixed, _ = _attention(
        ((rows, heads), group, length),
        (d, d),
        (lambda r, h, g, c: q[r, h, g, c], of_layer(k), of_layer(v)),
        seen,
        ops.const(scale, "float32"),
        score_cap,
    )
    out = te.compute(q.shape, lambda *at: mixed[at].astype(dtype), name="out")
    return kernel_of([q, k, v, positions, out, layer, length])


def _attention_of_rows(
    q: Any,
    both: tuple[Callable[..., Any], Callable[..., Any]],
    sizes: tuple[Any, int],
    seen: Callable[..., Any],
    scale: Any,
    score_cap: float,
) -> tuple[te.Tensor, te.Tensor]:
    """The result and log2 of the sums of `attention_of_rows`.

    `both` are the keys and values by head, token and element; `sizes` the number of tokens, and
    that of the elements of values.
    """
    rows, heads, group, d = q.shape
    size, dv = sizes
    mixed, logs = _attention(
        ((heads,), rows * group, size),
        (d, dv),
        (lambda h, i, c: q[i // group, h, i % group, c], *both),
        lambda _, i, s: seen(i, s),
        scale,
        score_cap,
    )
    out = te.compute(
        (rows, heads, group, dv),
        lambda r, h, g, c: mixed[h, r * group + g, c].astype(q.dtype),
        name="out",
    )
    lse = te.compute((rows, heads, group), lambda r, h, g: logs(h, r * group + g), name="lse")
    return out, lse


def _attention(
    shape: tuple[tuple[Any, ...], Any, Any],
    sizes: tuple[int, int],
    read: tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]],
    seen: Callable[..., Any],
    scale: Any,
    score_cap: float,
) -> tuple[Any, Callable[..., Any]]:
    """The values, weighted, (*outer, rows, dv), and log2 of the sums of the weights.

    `shape` has the outer dimensions, the number of rows and that of keys; `sizes` the elements of
    keys and of values. `read` are queries (*outer, row, element), keys and values (*outer, key,
    element), and `seen` (*outer, row, key).
    """
    (outer, rows, size), (d, dv) = shape, sizes
    query, key, value = read
    e, j = te.reduce_axis((0, d), "e"), te.reduce_axis((0, size), "j")
    scaled = te.compute(
        (*outer, rows, d), lambda *at: _float32(query(*at)) * (scale * _LOG2_E), name="scaled"
    )
    products = te.compute(
        (*outer, rows, size),
        lambda *at: reduce.sum(scaled[(*at[:-1], e)] * _float32(key(*at[:-2], at[-1], e)), e),
        name="products",
    )
    capped = products
    if score_cap:
        cap = ops.const(score_cap * _LOG2_E, "float32")
        capped = te.compute(
            products.shape, lambda *at: intrin.tanh(products(*at) / cap) * cap, name="capped"
        )
    scores = te.compute(
        products.shape, lambda *at: tir.Select(seen(*at), capped(*at), _LEAST), name="scores"
    )
    weights, logs = _weights(scores)
    mixed = te.compute(
        (*outer, rows, dv),
        lambda *at: reduce.sum(weights[(*at[:-1], j)] * _float32(value(*at[:-2], j, at[-1])), j),
        name="mixed",
    )
    return mixed, logs


def _float32(value: Any) -> Any:
    return value.astype("float32")


def _weights(scores: te.Tensor) -> tuple[te.Tensor, Callable[..., Any]]:
    """The weights of rows, whose scores are powers of 2, and log2 of their sums before division."""
    *rows, size = scores.shape
    t, m = te.reduce_axis((0, size), "t"), te.reduce_axis((0, size), "m")
    top = te.compute(rows, lambda *at: reduce.max(scores[(*at, t)], t), name="top")
    powers = te.compute(
        scores.shape, lambda *at: intrin.exp2(scores[at] - top[at[:-1]]), name="powers"
    )
    total = te.compute(rows, lambda *at: reduce.sum(powers[(*at, m)], m), name="total")
    weights = te.compute(scores.shape, lambda *at: powers[at] / total[at[:-1]], name="weights")
    return weights, lambda *at: top[at] + intrin.log2(total[at])


def with_strides(func: PrimFunc, strides: Mapping[str, Sequence[int | None]]) -> PrimFunc:
    """The function with these strides of buffers by their names; a stride may be any if None."""
    buffers: dict[Buffer, Buffer] = {}
    for buffer in func.buffer_map.values():
        if buffer.name in strides:
            any_stride = tir.SizeVar(f"{buffer.name}_stride", "int64")
            given = [ops.const(n, "int64") if n else any_stride for n in strides[buffer.name]]
            buffers[buffer] = decl_buffer(buffer.shape, buffer.dtype, buffer.name, strides=given)
    buffer_map = {param: buffers.get(buffer, buffer) for param, buffer in func.buffer_map.items()}
    return replace(func, body=replace_buffers(func.body, buffers), buffer_map=buffer_map)


_PAGE_SIZE = 16
_LEAST_SCORE = -5e4
"""The score of masked keys, and log2 of the sum of no weights."""


def _at(x: te.Tensor, *indices: Any) -> Any:
    """An element; a first index outside of `x` means the nearest one."""
    first, *rest = indices
    last = x.shape[0] - 1
    nearest = ops.maximum(
        ops.const(0, last.dtype), ops.minimum(ops.cast_to(first, last.dtype), last)
    )
    return x[(nearest, *rest)]


def _computed(shape: Sequence[Any], element: Callable[..., Any], name: str) -> Any:
    return te.compute(shape, element, name=name)


def _int32(value: Any) -> Any:
    return ops.cast_to(value, "int32")


def _segments(count: Any, bounds: te.Tensor, name: str) -> Any:
    """The segment of each number below a count; `bounds` are the starts, and the end."""
    b = te.reduce_axis((0, bounds.shape[0] - 1), "b")

    def segment(i: Any) -> Any:
        after = ops.compare(tir.LE, _at(bounds, b + 1), _int32(i))
        return reduce.sum(intrin.if_then_else(after, _int32(1), _int32(0)), b)

    return _computed((count,), segment, name=name)


class _Trees:
    """Queries of a batch, which see the keys before a tree, and in it their ancestors.

    A node of a tree is a pair (number, end): it sees the nodes whose pair includes its number.
    """

    def __init__(
        self, h_kv: int, h_q: int, d: int, dtype: str, rope_scaling: Mapping[str, Any]
    ) -> None:
        self.group = heads_of_each(h_q, h_kv)
        if rope_scaling.get("rope_type") in {"yarn", "longrope"}:
            raise MisuseError(
                f"a kernel whose theta is an argument cannot rotate by {rope_scaling['rope_type']}",
                hint="rotate queries and keys before, by llama_rope_with_position_map",
                about=rope_scaling,
            )
        self.h_q, self.d, self.dtype = h_q, d, dtype
        self.rows, self.starts, self.nodes = (
            tir.SizeVar(name, "int64") for name in ("qo_len", "batch_size_plus_1", "tree_size")
        )
        self.q: Any = te.placeholder((self.rows, h_q, d), dtype, "q")
        self.q_starts = te.placeholder((self.starts,), "int32", "q_indptr")
        self.positions: Any = te.placeholder((self.rows,), "int32", "q_rope_position")
        self.tree_starts = te.placeholder((self.starts,), "int32", "tree_order_indptr")
        self.trees = te.placeholder((self.nodes, 2), "int32", "tree_order")
        self.mode = tir.Var("rotary_mode", "int32")
        self.scale, self.theta, self.sm_scale = (
            tir.Var(name, "float32") for name in ("rope_scale", "rope_theta", "sm_scale")
        )
        self.rotary = Rotary(rope_scaling, self.theta, d, d, dtype)
        self.query = self.rotated(self.q, lambda i: self.positions[i], "query")

    @property
    def numbers(self) -> list[tir.Var]:
        """The scalar parameters."""
        return [self.mode, self.scale, self.theta, self.sm_scale]

    def rotated(self, x: Any, position: Callable[[Any], Any], name: str) -> Any:
        """`x` (rows, heads, d), rotated by the positions of rows where `rotary_mode` is 1."""
        tables = self.rotary.tables(
            x.shape[0], lambda s: ops.cast_to(position(s), "float32") * self.scale
        )
        condition = ops.compare(tir.EQ, self.mode, 1)
        return self.rotary.heads(x, 0, x.shape[1], name, tables, condition)

    def attend(
        self, k: Any, v: Any, sequence: Any, column: Any, length: Callable[[Any], Any]
    ) -> tuple[te.Tensor, te.Tensor]:
        """The results for keys and values (slots, h_kv, d) and log2 of the sums of the weights.

        `sequence` and `column` are those of the slots, `length` the number of keys of a sequence.
        """
        slots = k.shape[0]
        own = _segments(self.rows, self.q_starts, "own_sequence")

        def number(i: Any) -> Any:
            b = own[i]
            left = _at(self.q_starts, b + 1) - _int32(i)
            return _at(self.trees, _at(self.tree_starts, b + 1) - left, 0)

        numbers = _computed((self.rows,), number, name="number")

        def before_tree(s: Any) -> Any:
            b = sequence[s]
            size = _at(self.tree_starts, b + 1) - _at(self.tree_starts, b)
            return column[s] - (length(b) - size)

        node = _computed((slots,), before_tree, name="node")

        def bound(s: Any, side: Any) -> Any:
            return _at(self.trees, _at(self.tree_starts, sequence[s]) + node[s], side)

        bounds = _computed((slots, 2), bound, name="bounds")

        def is_there(s: Any) -> Any:
            used = ops.compare(tir.LT, column[s], length(sequence[s]))
            return intrin.if_then_else(used, sequence[s], _int32(-1))

        there = _computed((slots,), is_there, name="there")
        e = te.reduce_axis((0, self.d), "e")
        products = _computed(
            (self.h_q, self.rows, slots),
            lambda h, i, s: reduce.sum(
                ops.cast_to(self.query[i, h, e], "float32")
                * ops.cast_to(k[s, h // self.group, e], "float32"),
                e,
            ),
            name="products",
        )

        def sees(i: Any, s: Any) -> Any:
            inside = ops.all_of(
                ops.compare(tir.GE, numbers[i], bounds[s, 0]),
                ops.compare(tir.LT, numbers[i], bounds[s, 1]),
            )
            return ops.all_of(
                ops.compare(tir.EQ, there[s], own[i]),
                ops.any_of(ops.compare(tir.LT, node[s], 0), inside),
            )

        seen = _computed((self.rows, slots), sees, name="seen")
        least = ops.const(_LEAST_SCORE, "float32")
        factor = self.sm_scale * ops.const(math.log2(math.e), "float32")
        scores = _computed(
            (self.h_q, self.rows, slots),
            lambda h, i, s: intrin.if_then_else(seen[i, s], products[h, i, s] * factor, least),
            name="scores",
        )
        t, m, j = (te.reduce_axis((0, slots), name) for name in "tmj")
        top = _computed(
            (self.h_q, self.rows), lambda h, i: reduce.max(scores[h, i, t], t), name="top"
        )
        weights = _computed(
            (self.h_q, self.rows, slots),
            lambda h, i, s: intrin.if_then_else(
                seen[i, s], intrin.exp2(scores[h, i, s] - top[h, i]), ops.const(0, "float32")
            ),
            name="weights",
        )
        total = _computed(
            (self.h_q, self.rows), lambda h, i: reduce.sum(weights[h, i, m], m), name="total"
        )
        mixed = _computed(
            (self.h_q, self.rows, self.d),
            lambda h, i, c: reduce.sum(
                weights[h, i, j] * ops.cast_to(v[j, h // self.group, c], "float32"), j
            ),
            name="mixed",
        )
        some = _computed(
            (self.h_q, self.rows),
            lambda h, i: intrin.if_then_else(
                total[h, i] > ops.const(0, "float32"), total[h, i], ops.const(1, "float32")
            ),
            name="some",
        )
        out = _computed(
            (self.rows, self.h_q, self.d),
            lambda i, h, c: ops.cast_to(mixed[h, i, c] / some[h, i], self.dtype),
            name="output",
        )
        lse = _computed(
            (self.rows, self.h_q),
            lambda i, h: ops.maximum(top[h, i], least) + intrin.log2(some[h, i]),
            name="lse",
        )
        return out, lse


@user_facing
def tree_attn_cpu(
    h_kv: int, h_q: int, d: int, dtype: str, rope_scaling: Mapping[str, Any]
) -> PrimFunc:
    """The kernel by which the tokens of trees attend to each other.

    Its parameters are q, q_indptr, k, v, kv_indptr, q_rope_position, mn_indptr, mask, output, lse,
    rotary_mode, rope_scale, rope_theta and sm_scale. The rows of sequence b are those from
    q_indptr[b] to q_indptr[b + 1], its nodes in `mask` those from mn_indptr[b] to
    mn_indptr[b + 1]. A token sees the tokens whose pair in `mask` includes its own first number.
    For `rotary_mode` 1, queries and keys are rotated by q_rope_position. `lse` is log2 of the sum
    of the weights.

    Shapes:
        q, output        (rows, h_q, d)
        k, v             (keys, h_kv, d)
        q_rope_position  (rows,)
        mask             (nodes, 2)
        lse              (rows, h_q)
    Errors:
        MisuseError (also ValueError): the heads of queries cannot share those of keys, or the
            rotation needs a theta that is known.
    """
    trees = _Trees(h_kv, h_q, d, dtype, rope_scaling)
    size = tir.SizeVar("kv_len", "int64")
    k, v = (te.placeholder((size, h_kv, d), dtype, name) for name in ("k", "v"))
    starts = te.placeholder((trees.starts,), "int32", "kv_indptr")
    keys = trees.rotated(k, lambda s: _at(trees.positions, s), "keys")
    sequence = _segments(size, starts, "sequence")
    column = _computed((size,), lambda s: _int32(s) - _at(starts, sequence[s]), name="column")
    out, lse = trees.attend(
        keys, v, sequence, column, lambda b: _at(starts, b + 1) - _at(starts, b)
    )
    first = (trees.q, trees.q_starts, k, v, starts, trees.positions)
    return kernel_of([*first, trees.tree_starts, trees.trees, out, lse, *trees.numbers])


@user_facing
def tree_attn(
    h_kv: int, h_q: int, d: int, dtype: str, rope_scaling: Mapping[str, Any], target: object = None
) -> PrimFunc:
    """The kernel of `tree_attn_cpu`; `target` has no effect."""
    return tree_attn_cpu(h_kv, h_q, d, dtype, rope_scaling)


@user_facing
def tree_attn_with_paged_kv_cache_cpu(
    h_kv: int, h_q: int, d: int, dtype: str, rope_scaling: Mapping[str, Any]
) -> PrimFunc:
    """The kernel by which the tokens of trees attend to all tokens in the pages of a cache.

    Its parameters are q, q_indptr, pages, page_indptr, page_values, length_info,
    k_rope_pos_offset, q_rope_position, output, lse, rotary_mode, rope_scale, rope_theta, sm_scale,
    tree_order_indptr and tree_order. The pages of sequence b are page_values[page_indptr[b] :
    page_indptr[b + 1]], of the last of which it uses length_info[b] places; its last tokens are
    those of its tree, as for `tree_attn_cpu`, and all tokens see those before.

    Shapes:
        q, output    (rows, h_q, d)
        pages        (pages, 2, h_kv, 16, d), keys and values
        page_values  (used pages,)
        length_info, k_rope_pos_offset  (batch,)
        tree_order   (nodes, 2)
        lse          (rows, h_q)
    Errors:
        MisuseError (also ValueError): as for `tree_attn_cpu`.
    """
    trees = _Trees(h_kv, h_q, d, dtype, rope_scaling)
    count, used, batch = (
        tir.SizeVar(name, "int64") for name in ("max_num_pages", "nnz_pages", "batch_size")
    )
    pages = te.placeholder((count, 2, h_kv, _PAGE_SIZE, d), dtype, "pages")
    starts = te.placeholder((trees.starts,), "int32", "page_indptr")
    values: Any = te.placeholder((used,), "int32", "page_values")
    lengths = te.placeholder((batch,), "int32", "length_info")
    offsets = te.placeholder((batch,), "int32", "k_rope_pos_offset")
    slots = used * _PAGE_SIZE
    page_sequence = _segments(used, starts, "page_sequence")
    sequence = _computed((slots,), lambda s: page_sequence[s // _PAGE_SIZE], name="sequence")
    column = _computed(
        (slots,), lambda s: _int32(s) - _at(starts, sequence[s]) * _PAGE_SIZE, name="column"
    )

    def member(side: int, name: str) -> Any:
        def element(s: Any, h: Any, c: Any) -> Any:
            return _at(pages, values[s // _PAGE_SIZE], side, h, s % _PAGE_SIZE, c)

        return _computed((slots, h_kv, d), element, name=name)

    def length(b: Any) -> Any:
        number = _at(starts, b + 1) - _at(starts, b)
        full = (number - 1) * _PAGE_SIZE + _at(lengths, b)
        return intrin.if_then_else(number > 0, full, _int32(0))

    keys = trees.rotated(member(0, "k"), lambda s: _at(offsets, sequence[s]) + column[s], "keys")
    out, lse = trees.attend(keys, member(1, "v"), sequence, column, length)
    first = (trees.q, trees.q_starts, pages, starts, values, lengths, offsets, trees.positions)
    return kernel_of([*first, out, lse, *trees.numbers, trees.tree_starts, trees.trees])


@user_facing
def tree_attn_with_paged_kv_cache(
    h_kv: int, h_q: int, d: int, dtype: str, rope_scaling: Mapping[str, Any], target: object = None
) -> PrimFunc:
    """The kernel of `tree_attn_with_paged_kv_cache_cpu`; `target` has no effect."""
    return tree_attn_with_paged_kv_cache_cpu(h_kv, h_q, d, dtype, rope_scaling)
