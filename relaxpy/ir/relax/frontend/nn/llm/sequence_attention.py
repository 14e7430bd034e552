"""Attention of rows of queries: a kernel for whole sequences, and what caches call."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.lower import create_prim_func
from relaxpy.ir.tir import expr as tir, intrin, ops, reduce
from relaxpy.ir.tir.prim_func.function import PrimFunc


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

    Scores are products times `sm_scale`. A causal query sees the keys up to its own place, where
    the last query has that of the last key. `target` has no effect.

    Shapes:
        queries, result  (batch, rows, h_q, d)
        keys, values     (batch, keys, h_kv, d)
        sums             (batch, rows, h_q)

    Errors:
        MisuseError (also ValueError): the heads of queries cannot share those of keys.
    """
    if h_kv < 1 or h_q % h_kv:
        raise MisuseError(
            f"{h_q} heads of queries cannot share {h_kv} heads of keys and values", about=h_kv
        )
    batch, rows, size = (tir.SizeVar(name, "int64") for name in ("batch_size", "qo_len", "kv_len"))
    q = te.placeholder((batch, rows, h_q, d), dtype, "q")
    k, v = (te.placeholder((batch, size, h_kv, d), dtype, name) for name in ("k", "v"))
    group = h_q // h_kv
    least = intrin.min_value("float32")

    def float32(value: Any) -> Any:
        return value.astype("float32")

    e, j, t, m = (
        te.reduce_axis((0, extent), name)
        for extent, name in ((d, "e"), (size, "j"), (size, "t"), (size, "m"))
    )
    products = te.compute(
        (batch, h_q, rows, size),
        lambda b, h, i, s: reduce.sum(float32(q[b, i, h, e]) * float32(k[b, s, h // group, e]), e),
        name="products",
    )

    def score(b: Any, h: Any, i: Any, s: Any) -> Any:
        value = products[b, h, i, s] * ops.const(sm_scale * math.log2(math.e), "float32")
        seen = ops.compare(tir.LE, s, i + (size - rows))
        return intrin.if_then_else(seen, value, least) if causal else value

    scores = te.compute((batch, h_q, rows, size), score, name="scores")
    top = te.compute(
        (batch, h_q, rows), lambda b, h, i: reduce.max(scores[b, h, i, t], t), name="top"
    )
    weights = te.compute(
        (batch, h_q, rows, size),
        lambda b, h, i, s: intrin.exp2(scores[b, h, i, s] - top[b, h, i]),
        name="weights",
    )
    total = te.compute(
        (batch, h_q, rows), lambda b, h, i: reduce.sum(weights[b, h, i, m], m), name="total"
    )
    mixed = te.compute(
        (batch, h_q, rows, d),
        lambda b, h, i, c: reduce.sum(weights[b, h, i, j] * float32(v[b, j, h // group, c]), j),
        name="mixed",
    )
    out = te.compute(
        (batch, rows, h_q, d),
        lambda b, i, h, c: (mixed[b, h, i, c] / total[b, h, i]).astype(dtype),
        name="output",
    )
    lse = te.compute(
        (batch, rows, h_q),
        lambda b, i, h: (top[b, h, i] + intrin.log2(total[b, h, i])).astype(dtype),
        name="lse",
    )
    kernel: PrimFunc = create_prim_func([q, k, v, out, lse])
    return kernel.without_attr("global_symbol").with_attrs({"op_pattern": 8, "tir.noalias": True})


def attention_of_rows(heads: int, d: int, dv: int) -> rx.Function:
    """The function (queries, keys, values, seen) of attention by which caches read prompts.

    Shapes:
        queries       (heads, rows, d), float32, multiplied by the scale
        keys, values  (heads, keys, d), (heads, keys, dv), float32
        seen          (rows, keys), bool
        result        (heads, rows, dv), float32
    """
    rows, keys = (tir.SizeVar(name, "int64") for name in ("rows", "keys"))

    def param(name: str, shape: Any, dtype: Any = "float32") -> rx.Var:
        return rx.Var(name, rx.TensorStructInfo(shape, dtype))

    q, k = param("q", (heads, rows, d)), param("k", (heads, keys, d))
    v, seen = param("v", (heads, keys, dv)), param("seen", (rows, keys), "bool")
    builder = BlockBuilder()
    with builder.function("attention_of_rows", [q, k, v, seen], private=True):
        with builder.dataflow():
            products = builder.emit(R.matmul(q, R.permute_dims(k, [0, 2, 1])))
            scores = builder.emit(
                R.where(seen, products, rx.const(float(np.finfo("float32").min), "float32"))
            )
            weights = builder.emit(R.nn.softmax(scores, -1))
            result = builder.emit_output(R.matmul(weights, v))
        builder.emit_func_output(result)
    [func] = builder.finalize().functions_by_name.values()
    assert isinstance(func, rx.Function)
    return func
