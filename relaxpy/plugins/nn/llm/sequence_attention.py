"""Attention of rows of queries: a kernel for whole sequences, and the kernels of caches."""

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
    e, j = te.reduce_axis((0, d), "e"), te.reduce_axis((0, size), "j")
    scaled = te.compute(
        (heads, rows * group, d),
        lambda h, i, c: _float32(q[i // group, h, i % group, c]) * (scale * _LOG2_E),
        name="scaled",
    )
    products = te.compute(
        (heads, rows * group, size),
        lambda h, i, s: reduce.sum(scaled[h, i, e] * _float32(k[h, s, e]), e),
        name="products",
    )
    capped = products
    if score_cap:
        cap = ops.const(score_cap * _LOG2_E, "float32")
        capped = te.compute(
            products.shape,
            lambda h, i, s: intrin.tanh(products(h, i, s) / cap) * cap,
            name="capped",
        )
    scores = te.compute(
        products.shape,
        lambda h, i, s: tir.Select(seen(i, s), capped(h, i, s), _LEAST),
        name="scores",
    )
    weights, logs = _weights(scores)
    mixed = te.compute(
        (heads, rows * group, dv),
        lambda h, i, c: reduce.sum(weights[h, i, j] * _float32(v[h, j, c]), j),
        name="mixed",
    )
    out = te.compute(
        (rows, heads, group, dv),
        lambda r, h, g, c: mixed[h, r * group + g, c].astype(dtype),
        name="out",
    )
    lse = te.compute((rows, heads, group), lambda r, h, g: logs(h, r * group + g), name="lse")
    func: PrimFunc = create_prim_func([q, k, v, seen, scale, out, lse])
    inner = {"k": (d, 1), "v": (pitch or dv, 1), "seen": (1,)}
    return _with_strides(func, inner).without_attr("global_symbol")


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


def _with_strides(func: PrimFunc, inner: Mapping[str, Sequence[int]]) -> PrimFunc:
    """The function with buffers whose first dimension has any stride, the others those given."""
    buffers: dict[Buffer, Buffer] = {}
    for buffer in func.buffer_map.values():
        if buffer.name in inner:
            outer = tir.SizeVar(f"{buffer.name}_stride", "int64")
            strides = [outer, *(ops.const(n, "int64") for n in inner[buffer.name])]
            buffers[buffer] = decl_buffer(buffer.shape, buffer.dtype, buffer.name, strides=strides)
    buffer_map = {param: buffers.get(buffer, buffer) for param, buffer in func.buffer_map.items()}
    return replace(func, body=replace_buffers(func.body, buffers), buffer_map=buffer_map)
