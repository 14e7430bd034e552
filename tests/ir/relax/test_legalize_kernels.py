"""Kernels of legalised operators have the loops, blocks and expressions that TVM gives them."""

from typing import Any

import pytest

from relaxpy.ir import ops as op
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.ir.passes.legalize import LegalizeOps
from relaxpy.ir.tir.prim_func import PrimFunc
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
    for i0, i1, k in SSR(2, 4, 3, "T_softmax_maxelem"):
        with T.init():
            maxelem[vi0, vi1] = T.float32(-3.4028234663852886e38)
        maxelem[vi0, vi1] = T.max(maxelem[vi0, vi1], x[vi0, vk, vi1])
    for i0, i1, i2 in SSS(2, 3, 4, "T_softmax_exp"):
        exp[vi0, vi1, vi2] = T.exp(x[vi0, vi1, vi2] - maxelem[vi0, vi2])
    for i0, i1, k in SSR(2, 4, 3, "T_softmax_expsum"):
        with T.init():
            expsum[vi0, vi1] = T.float32(0)
        expsum[vi0, vi1] = expsum[vi0, vi1] + exp[vi0, vk, vi1]
    for i0, i1, i2 in SSS(2, 3, 4, "T_softmax_norm"):
        T.block_attr({"axis": 1})
        norm[vi0, vi1, vi2] = exp[vi0, vi1, vi2] / expsum[vi0, vi2]
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
    for i0, k in SR(2, 3, "T_softmax_maxelem"):
        with T.init():
            maxelem[vi0] = T.float32(-3.4028234663852886e38)
        maxelem[vi0] = T.max(maxelem[vi0], x[vi0, vk])
    for i0, k in SR(2, 3, "compute"):
        with T.init():
            total[vi0] = T.float32(0)
        total[vi0] = total[vi0] + T.exp(x[vi0, vk] - maxelem[vi0])
    for i0, i1 in SS(2, 3, "compute_1"):
        T.block_attr({"axis": 1})
        out[vi0, vi1] = x[vi0, vi1] - maxelem[vi0] - T.log(total[vi0])
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
    for i in S(4, "T_greater"):
        out[vi] = y[vi] < x[vi]

@kernel64
def greater_equal(x: f32[4], y: f32[4], out: bool[4]):
    T.func_attr({"tir.noalias": True})
    for i in S(4, "T_greater_equal"):
        out[vi] = y[vi] <= x[vi]

@kernel64
def leaky_relu(x: f32[4], out: f32[4]):
    T.func_attr({"tir.noalias": True})
    for i in S(4, "compute"):
        out[vi] = T.Select(T.float32(0) < x[vi], x[vi], x[vi] * T.float32(0.02))
--- reshape
def main(x: f32[1, 2, 3, 4]):
    return R.reshape(x, (8, 3))
=>
    return R.call_tir(cls.reshape, (x,), out_sinfo=f32[8, 3])

@kernel64
def reshape(x: f32[1, 2, 3, 4], out: f32[8, 3]):
    T.func_attr({"tir.noalias": True})
    for i, j in SS(8, 3, "T_reshape"):
        out[vi, vj] = x[0, (vi * 3 + vj) % 24 // 12, (vi * 3 + vj) % 12 // 4, (vi * 3 + vj) % 4]
--- where
def main(c: bool[3, 1], x: f32[2, 3, 4], y: f32[4]):
    return R.where(c, x, y)
=>
    return R.call_tir(cls.where, (c, x, y), out_sinfo=f32[2, 3, 4])

@kernel64
def where(c: bool[3, 1], x: f32[2, 3, 4], y: f32[4], out: f32[2, 3, 4]):
    T.func_attr({"tir.noalias": True})
    for i0, i1, i2 in SSS(2, 3, 4, "T_where"):
        out[vi0, vi1, vi2] = T.Select(0 < T.Cast("int64", c[vi1, 0]), x[vi0, vi1, vi2], y[vi2])
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
    for i, j in SS(2, 3, "T_multiply"):
        half[vi, vj] = T.float32(0.5) * x[vi, vj]
    for i, j in SS(2, 3, "T_multiply_1"):
        scaled[vi, vj] = T.float32(0.7978845608028654) * x[vi, vj]
    for i, j in SS(2, 3, "T_multiply_2"):
        linear[vi, vj] = T.float32(0.044715) * x[vi, vj]
    for i, j in SS(2, 3, "T_multiply_3"):
        square[vi, vj] = linear[vi, vj] * x[vi, vj]
    for i, j in SS(2, 3, "T_add"):
        factor[vi, vj] = T.float32(1.0) + square[vi, vj]
    for i, j in SS(2, 3, "T_multiply_4"):
        argument[vi, vj] = scaled[vi, vj] * factor[vi, vj]
    for i, j in SS(2, 3, "compute"):
        tanh[vi, vj] = T.tanh(argument[vi, vj])
    for i, j in SS(2, 3, "T_add_1"):
        more[vi, vj] = T.float32(1.0) + tanh[vi, vj]
    for i, j in SS(2, 3, "T_multiply_5"):
        out[vi, vj] = half[vi, vj] * more[vi, vj]
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
    for i, j, k in SSS(1, n, 8, "T_cast"):
        wide[vi, vj, vk] = T.Cast("float32", x[vi, vj, vk])
    for i, j, k in SSS(1, n, 8, "T_multiply"):
        square[vi, vj, vk] = wide[vi, vj, vk] * wide[vi, vj, vk]
    for i, j, k in SSR(1, n, 8, "T_multiply_red"):
        with T.init():
            total[vi, vj] = T.float32(0)
        total[vi, vj] = total[vi, vj] + square[vi, vj, vk]
    for i, j in SS(1, n, "rsqrt"):
        rsqrt[vi, vj] = T.rsqrt(total[vi, vj] / T.float32(8) + T.float32(1e-05))
    for k in S(8, "T_cast_1"):
        scale[vk] = T.Cast("float32", weight[vk])
    for i, j, k in SSS(1, n, 8, "T_rms_norm"):
        norm[vi, vj, vk] = rsqrt[vi, vj] * wide[vi, vj, vk] * scale[vk]
    for i, j, k in SSS(1, n, 8, "T_cast_2"):
        out[vi, vj, vk] = T.Cast("float16", norm[vi, vj, vk])
--- collapse_sum
def main(x: f32[3, 2, 3]):
    return R.collapse_sum_to(x, (2, 1))
=>
    return R.call_tir(cls.collapse_sum, (x,), out_sinfo=f32[2, 1])

@kernel64
def collapse_sum(x: f32[3, 2, 3], total: f32[2, 1]):
    T.func_attr({"tir.noalias": True})
    for i, j, k, m in SSRR(2, 1, 3, 3, "x_red"):
        with T.init():
            total[vi, vj] = T.float32(0)
        total[vi, vj] = total[vi, vj] + x[vk, vi, vm]
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
