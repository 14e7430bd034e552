"""Kernels of legalised operators have the loops, blocks and expressions that TVM gives them."""

from typing import Any

import pytest

from relaxpy.ir.core.traverse import walk
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.ir.relax import op
from relaxpy.ir.relax.transform.legalize import LegalizeOps
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.ir.tir.stmt import Block
from tests.ir.relax import texts
from tests.ir.relax.graphs import returning
from tests.ir.relax.sinfos import tensor

KERNELS = texts.changes("""
--- softmax
def main(x: f32[2, 3, 4]):
    return R.nn.softmax(x, axis=1)
=>
    return R.call_tir(cls.softmax, (x,), out_sinfo=f32[2, 3, 4])

@kernel64
def softmax(x: f32[2, 3, 4], norm: f32[2, 3, 4]):
    T.func_attr({"tir.noalias": True})
    maxelem = T.alloc_buffer((2, 4))
    exp = T.alloc_buffer((2, 3, 4))
    expsum = T.alloc_buffer((2, 4))
    for i0, i1, k in T.grid(2, 4, 3):
        with T.block("T_softmax_maxelem"):
            a, b, r = T.axis.remap("SSR", [i0, i1, k])
            with T.init():
                maxelem[a, b] = T.float32(-3.4028234663852886e38)
            maxelem[a, b] = T.max(maxelem[a, b], x[a, r, b])
    for i0, i1, i2 in T.grid(2, 3, 4):
        with T.block("T_softmax_exp"):
            a, b, c = T.axis.remap("SSS", [i0, i1, i2])
            exp[a, b, c] = T.exp(x[a, b, c] - maxelem[a, c])
    for i0, i1, k in T.grid(2, 4, 3):
        with T.block("T_softmax_expsum"):
            a, b, r = T.axis.remap("SSR", [i0, i1, k])
            with T.init():
                expsum[a, b] = T.float32(0)
            expsum[a, b] = expsum[a, b] + exp[a, r, b]
    for i0, i1, i2 in T.grid(2, 3, 4):
        with T.block("T_softmax_norm"):
            a, b, c = T.axis.remap("SSS", [i0, i1, i2])
            T.block_attr({"axis": 1})
            norm[a, b, c] = exp[a, b, c] / expsum[a, c]
--- log_softmax
def main(x: f32[2, 3]):
    return R.nn.log_softmax(x)
=>
    return R.call_tir(cls.log_softmax, (x,), out_sinfo=f32[2, 3])

@kernel64
def log_softmax(x: f32[2, 3], out: f32[2, 3]):
    T.func_attr({"tir.noalias": True})
    maxelem = T.alloc_buffer((2,))
    total = T.alloc_buffer((2,))
    for i0, k in T.grid(2, 3):
        with T.block("T_softmax_maxelem"):
            a, r = T.axis.remap("SR", [i0, k])
            with T.init():
                maxelem[a] = T.float32(-3.4028234663852886e38)
            maxelem[a] = T.max(maxelem[a], x[a, r])
    for i0, k in T.grid(2, 3):
        with T.block("compute"):
            a, r = T.axis.remap("SR", [i0, k])
            with T.init():
                total[a] = T.float32(0)
            total[a] = total[a] + T.exp(x[a, r] - maxelem[a])
    for i0, i1 in T.grid(2, 3):
        with T.block("compute_1"):
            a, b = T.axis.remap("SS", [i0, i1])
            T.block_attr({"axis": 1})
            out[a, b] = x[a, b] - maxelem[a] - T.log(total[a])
--- elementwise
def main(x: f32[4], y: f32[4]):
    a = R.greater(x, y)
    b = R.greater_equal(x, y)
    c = R.nn.leakyrelu(x, 0.02)
    out = (a, b, c)
    return out
=>
    a = R.call_tir(cls.greater, (x, y), out_sinfo=bool[4])
    b = R.call_tir(cls.greater_equal, (x, y), out_sinfo=bool[4])
    c = R.call_tir(cls.leaky_relu, (x,), out_sinfo=f32[4])
    out = (a, b, c)
    return out

@kernel64
def greater(x: f32[4], y: f32[4], out: bool[4]):
    T.func_attr({"tir.noalias": True})
    for i in range(4):
        with T.block("T_greater"):
            a = T.axis.spatial(4, i)
            out[a] = y[a] < x[a]

@kernel64
def greater_equal(x: f32[4], y: f32[4], out: bool[4]):
    T.func_attr({"tir.noalias": True})
    for i in range(4):
        with T.block("T_greater_equal"):
            a = T.axis.spatial(4, i)
            out[a] = y[a] <= x[a]

@kernel64
def leaky_relu(x: f32[4], out: f32[4]):
    T.func_attr({"tir.noalias": True})
    for i in range(4):
        with T.block("compute"):
            a = T.axis.spatial(4, i)
            out[a] = T.Select(T.float32(0) < x[a], x[a], x[a] * T.float32(0.02))
--- reshape
def main(x: f32[1, 2, 3, 4]):
    return R.reshape(x, (8, 3))
=>
    return R.call_tir(cls.reshape, (x,), out_sinfo=f32[8, 3])

@kernel64
def reshape(x: f32[1, 2, 3, 4], out: f32[8, 3]):
    T.func_attr({"tir.noalias": True})
    for i, j in T.grid(8, 3):
        with T.block("T_reshape"):
            a, b = T.axis.remap("SS", [i, j])
            out[a, b] = x[0, (a * 3 + b) % 24 // 12, (a * 3 + b) % 12 // 4, (a * 3 + b) % 4]
--- where
def main(c: bool[3, 1], x: f32[2, 3, 4], y: f32[4]):
    return R.where(c, x, y)
=>
    return R.call_tir(cls.where, (c, x, y), out_sinfo=f32[2, 3, 4])

@kernel64
def where(c: bool[3, 1], x: f32[2, 3, 4], y: f32[4], out: f32[2, 3, 4]):
    T.func_attr({"tir.noalias": True})
    for i0, i1, i2 in T.grid(2, 3, 4):
        with T.block("T_where"):
            i, j, k = T.axis.remap("SSS", [i0, i1, i2])
            out[i, j, k] = T.Select(0 < T.Cast("int64", c[j, 0]), x[i, j, k], y[k])
--- gelu_tanh
def main(x: f32[2, 3]):
    return R.nn.gelu_tanh(x)
=>
    return R.call_tir(cls.gelu_tanh, (x,), out_sinfo=f32[2, 3])

@kernel64
def gelu_tanh(x: f32[2, 3], out: f32[2, 3]):
    T.func_attr({"tir.noalias": True})
    half = T.alloc_buffer((2, 3))
    scaled = T.alloc_buffer((2, 3))
    linear = T.alloc_buffer((2, 3))
    square = T.alloc_buffer((2, 3))
    factor = T.alloc_buffer((2, 3))
    argument = T.alloc_buffer((2, 3))
    tanh = T.alloc_buffer((2, 3))
    more = T.alloc_buffer((2, 3))
    for i, j in T.grid(2, 3):
        with T.block("T_multiply"):
            a, b = T.axis.remap("SS", [i, j])
            half[a, b] = T.float32(0.5) * x[a, b]
    for i, j in T.grid(2, 3):
        with T.block("T_multiply_1"):
            a, b = T.axis.remap("SS", [i, j])
            scaled[a, b] = T.float32(0.7978845608028654) * x[a, b]
    for i, j in T.grid(2, 3):
        with T.block("T_multiply_2"):
            a, b = T.axis.remap("SS", [i, j])
            linear[a, b] = T.float32(0.044715) * x[a, b]
    for i, j in T.grid(2, 3):
        with T.block("T_multiply_3"):
            a, b = T.axis.remap("SS", [i, j])
            square[a, b] = linear[a, b] * x[a, b]
    for i, j in T.grid(2, 3):
        with T.block("T_add"):
            a, b = T.axis.remap("SS", [i, j])
            factor[a, b] = T.float32(1.0) + square[a, b]
    for i, j in T.grid(2, 3):
        with T.block("T_multiply_4"):
            a, b = T.axis.remap("SS", [i, j])
            argument[a, b] = scaled[a, b] * factor[a, b]
    for i, j in T.grid(2, 3):
        with T.block("compute"):
            a, b = T.axis.remap("SS", [i, j])
            tanh[a, b] = T.tanh(argument[a, b])
    for i, j in T.grid(2, 3):
        with T.block("T_add_1"):
            a, b = T.axis.remap("SS", [i, j])
            more[a, b] = T.float32(1.0) + tanh[a, b]
    for i, j in T.grid(2, 3):
        with T.block("T_multiply_5"):
            a, b = T.axis.remap("SS", [i, j])
            out[a, b] = half[a, b] * more[a, b]
--- rms_norm
def main(x: f16[1, n, 8], weight: f16[8]):
    return R.nn.rms_norm(x, weight, axes=[-1])
=>
    return R.call_tir(cls.rms_norm, (x, weight), out_sinfo=f16[1, n, 8])

@kernel64
def rms_norm(px: T.handle, weight: f16[8], pout: T.handle):
    T.func_attr({"tir.noalias": True})
    n = T.int64()
    x = T.match_buffer(px, (1, n, 8), "float16")
    out = T.match_buffer(pout, (1, n, 8), "float16")
    wide = T.alloc_buffer((1, n, 8))
    square = T.alloc_buffer((1, n, 8))
    total = T.alloc_buffer((1, n))
    rsqrt = T.alloc_buffer((1, n))
    scale = T.alloc_buffer((8,))
    norm = T.alloc_buffer((1, n, 8))
    for i, j, k in T.grid(1, n, 8):
        with T.block("T_cast"):
            a, b, c = T.axis.remap("SSS", [i, j, k])
            wide[a, b, c] = T.Cast("float32", x[a, b, c])
    for i, j, k in T.grid(1, n, 8):
        with T.block("T_multiply"):
            a, b, c = T.axis.remap("SSS", [i, j, k])
            square[a, b, c] = wide[a, b, c] * wide[a, b, c]
    for i, j, k in T.grid(1, n, 8):
        with T.block("T_multiply_red"):
            a, b, r = T.axis.remap("SSR", [i, j, k])
            with T.init():
                total[a, b] = T.float32(0)
            total[a, b] = total[a, b] + square[a, b, r]
    for i, j in T.grid(1, n):
        with T.block("rsqrt"):
            a, b = T.axis.remap("SS", [i, j])
            rsqrt[a, b] = T.rsqrt(total[a, b] / T.float32(8) + T.float32(1e-05))
    for k in range(8):
        with T.block("T_cast_1"):
            c = T.axis.spatial(8, k)
            scale[c] = T.Cast("float32", weight[c])
    for i, j, k in T.grid(1, n, 8):
        with T.block("T_rms_norm"):
            a, b, c = T.axis.remap("SSS", [i, j, k])
            norm[a, b, c] = rsqrt[a, b] * wide[a, b, c] * scale[c]
    for i, j, k in T.grid(1, n, 8):
        with T.block("T_cast_2"):
            a, b, c = T.axis.remap("SSS", [i, j, k])
            out[a, b, c] = T.Cast("float16", norm[a, b, c])
--- collapse_sum
def main(x: f32[3, 2, 3]):
    return R.collapse_sum_to(x, (2, 1))
=>
    return R.call_tir(cls.collapse_sum, (x,), out_sinfo=f32[2, 1])

@kernel64
def collapse_sum(x: f32[3, 2, 3], total: f32[2, 1]):
    T.func_attr({"tir.noalias": True})
    for i, j, k, m in T.grid(2, 1, 3, 3):
        with T.block("x_red"):
            a, b, r, s = T.axis.remap("SSRR", [i, j, k, m])
            with T.init():
                total[a, b] = T.float32(0)
            total[a, b] = total[a, b] + x[r, a, s]
""")


@pytest.mark.parametrize(("before", "after"), KERNELS)
def test_kernels_are_those_of_tvm(before: str, after: str) -> None:
    assert_structural_equal(LegalizeOps()(texts.graph(before)), texts.graph(after))


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (op.sigmoid, ["compute"]),
        (op.tanh, ["compute"]),
        (op.negative, ["compute"]),
        (op.square, ["T_multiply"]),
        (op.logical_not, ["T_logical_not"]),
        (lambda x: op.astype(x, "float16"), ["compute"]),
        (lambda x: op.clip(x, 0, 1), ["compute"]),
        (op.nn.relu, ["compute"]),
        (op.nn.leakyrelu, ["compute"]),
        (op.nn.softplus, ["compute"]),
        (op.nn.silu, ["compute", "T_multiply"]),
        (op.nn.gelu, ["T_multiply", "compute", "T_multiply_1", "T_add", "T_multiply_2"]),
        (lambda x: op.flip(x, 0), ["T_reverse_sequence"]),
        (lambda x: op.permute_dims(x), ["T_transpose"]),
        (lambda x: op.concat((x, x)), ["T_concat"]),
        (lambda x: op.split(x, 2), ["T_split", "T_split_1"]),
        (lambda x: op.sum(x), ["x0_red"]),
        (lambda x: op.matmul(x, x), ["matmul"]),
        (lambda x: op.nn.pad(x, (1, 1, 0, 0)), ["PadInput"]),
        (lambda x: op.triu(x), ["trilu"]),
        (lambda x: op.expand_dims(x, [0, -1]), ["expand_dims"]),
        (lambda x: op.strided_slice(x, [0], [1], [3]), ["T_strided_slice_with_axes"]),
        (lambda x: op.eye_like(x), ["eye"]),
        (lambda x: op.broadcast_to(x, (3, 4, 4)), ["T_broadcast_to"]),
    ],
)
def test_blocks_have_the_names_that_tvm_gives_them(make: Any, names: list[str]) -> None:
    module = LegalizeOps()(returning(make, tensor(4, 4)))
    [kernel] = (f for f in module.functions.values() if isinstance(f, PrimFunc))
    blocks = [s.name_hint for s in walk(kernel.body) if isinstance(s, Block)]
    assert [name for name in blocks if name != "root"] == names
