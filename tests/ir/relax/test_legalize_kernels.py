"""Kernels of legalised operators have the loops, blocks and expressions that TVM gives them."""

from __future__ import annotations

from typing import Any

import pytest

from relaxpy.ir.core.traverse import walk
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.ir.relax import nodes as rx, op
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.transform.legalize import LegalizeOps
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.ir.tir.stmt import Block
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Softmax:
    @R.function
    def main(x: R.Tensor((2, 3, 4), "float32")):
        return R.nn.softmax(x, axis=1)


@I.ir_module
class SoftmaxKernel:
    @R.function
    def main(x: R.Tensor((2, 3, 4), "float32")):
        cls = SoftmaxKernel
        return R.call_tir(cls.softmax, (x,), out_sinfo=R.Tensor((2, 3, 4), "float32"))

    @T.prim_func(private=True)
    def softmax(
        x: T.Buffer((T.int64(2), T.int64(3), T.int64(4)), "float32"),
        norm: T.Buffer((T.int64(2), T.int64(3), T.int64(4)), "float32"),
    ):
        T.func_attr({"tir.noalias": True})
        maxelem = T.alloc_buffer((T.int64(2), T.int64(4)))
        exp = T.alloc_buffer((T.int64(2), T.int64(3), T.int64(4)))
        expsum = T.alloc_buffer((T.int64(2), T.int64(4)))
        for i0, i1, k in T.grid(T.int64(2), T.int64(4), T.int64(3)):
            with T.block("T_softmax_maxelem"):
                a, b, r = T.axis.remap("SSR", [i0, i1, k])
                T.reads(x[a, r, b])
                T.writes(maxelem[a, b])
                with T.init():
                    maxelem[a, b] = T.float32(-3.4028234663852886e38)
                maxelem[a, b] = T.max(maxelem[a, b], x[a, r, b])
        for i0, i1, i2 in T.grid(T.int64(2), T.int64(3), T.int64(4)):
            with T.block("T_softmax_exp"):
                a, b, c = T.axis.remap("SSS", [i0, i1, i2])
                T.reads(x[a, b, c], maxelem[a, c])
                T.writes(exp[a, b, c])
                exp[a, b, c] = T.exp(x[a, b, c] - maxelem[a, c])
        for i0, i1, k in T.grid(T.int64(2), T.int64(4), T.int64(3)):
            with T.block("T_softmax_expsum"):
                a, b, r = T.axis.remap("SSR", [i0, i1, k])
                T.reads(exp[a, r, b])
                T.writes(expsum[a, b])
                with T.init():
                    expsum[a, b] = T.float32(0)
                expsum[a, b] = expsum[a, b] + exp[a, r, b]
        for i0, i1, i2 in T.grid(T.int64(2), T.int64(3), T.int64(4)):
            with T.block("T_softmax_norm"):
                a, b, c = T.axis.remap("SSS", [i0, i1, i2])
                T.reads(exp[a, b, c], expsum[a, c])
                T.writes(norm[a, b, c])
                T.block_attr({"axis": 1})
                norm[a, b, c] = exp[a, b, c] / expsum[a, c]


@I.ir_module
class LogSoftmax:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        return R.nn.log_softmax(x)


@I.ir_module
class LogSoftmaxKernel:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        cls = LogSoftmaxKernel
        return R.call_tir(cls.log_softmax, (x,), out_sinfo=R.Tensor((2, 3), "float32"))

    @T.prim_func(private=True)
    def log_softmax(
        x: T.Buffer((T.int64(2), T.int64(3)), "float32"),
        out: T.Buffer((T.int64(2), T.int64(3)), "float32"),
    ):
        T.func_attr({"tir.noalias": True})
        maxelem = T.alloc_buffer((T.int64(2),))
        total = T.alloc_buffer((T.int64(2),))
        for i0, k in T.grid(T.int64(2), T.int64(3)):
            with T.block("T_softmax_maxelem"):
                a, r = T.axis.remap("SR", [i0, k])
                T.reads(x[a, r])
                T.writes(maxelem[a])
                with T.init():
                    maxelem[a] = T.float32(-3.4028234663852886e38)
                maxelem[a] = T.max(maxelem[a], x[a, r])
        for i0, k in T.grid(T.int64(2), T.int64(3)):
            with T.block("compute"):
                a, r = T.axis.remap("SR", [i0, k])
                T.reads(x[a, r], maxelem[a])
                T.writes(total[a])
                with T.init():
                    total[a] = T.float32(0)
                total[a] = total[a] + T.exp(x[a, r] - maxelem[a])
        for i0, i1 in T.grid(T.int64(2), T.int64(3)):
            with T.block("compute_1"):
                a, b = T.axis.remap("SS", [i0, i1])
                T.reads(x[a, b], maxelem[a], total[a])
                T.writes(out[a, b])
                T.block_attr({"axis": 1})
                out[a, b] = x[a, b] - maxelem[a] - T.log(total[a])


@I.ir_module
class Elementwise:
    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.greater(x, y)
            b = R.greater_equal(x, y)
            c = R.nn.leakyrelu(x, 0.02)
            out = (a, b, c)
            R.output(out)
        return out


@I.ir_module
class ElementwiseKernels:
    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        cls = ElementwiseKernels
        with R.dataflow():
            a = R.call_tir(cls.greater, (x, y), out_sinfo=R.Tensor((4,), "bool"))
            b = R.call_tir(cls.greater_equal, (x, y), out_sinfo=R.Tensor((4,), "bool"))
            c = R.call_tir(cls.leaky_relu, (x,), out_sinfo=R.Tensor((4,), "float32"))
            out = (a, b, c)
            R.output(out)
        return out

    @T.prim_func(private=True)
    def greater(
        x: T.Buffer((T.int64(4),), "float32"),
        y: T.Buffer((T.int64(4),), "float32"),
        out: T.Buffer((T.int64(4),), "bool"),
    ):
        T.func_attr({"tir.noalias": True})
        for i in range(T.int64(4)):
            with T.block("T_greater"):
                a = T.axis.spatial(T.int64(4), i)
                T.reads(y[a], x[a])
                T.writes(out[a])
                out[a] = y[a] < x[a]

    @T.prim_func(private=True)
    def greater_equal(
        x: T.Buffer((T.int64(4),), "float32"),
        y: T.Buffer((T.int64(4),), "float32"),
        out: T.Buffer((T.int64(4),), "bool"),
    ):
        T.func_attr({"tir.noalias": True})
        for i in range(T.int64(4)):
            with T.block("T_greater_equal"):
                a = T.axis.spatial(T.int64(4), i)
                T.reads(y[a], x[a])
                T.writes(out[a])
                out[a] = y[a] <= x[a]

    @T.prim_func(private=True)
    def leaky_relu(x: T.Buffer((T.int64(4),), "float32"), out: T.Buffer((T.int64(4),), "float32")):
        T.func_attr({"tir.noalias": True})
        for i in range(T.int64(4)):
            with T.block("compute"):
                a = T.axis.spatial(T.int64(4), i)
                T.reads(x[a])
                T.writes(out[a])
                out[a] = T.Select(T.float32(0) < x[a], x[a], x[a] * T.float32(0.02))


@I.ir_module
class Where:
    @R.function
    def main(
        c: R.Tensor((3, 1), "bool"), x: R.Tensor((2, 3, 4), "float32"), y: R.Tensor((4,), "float32")
    ):
        return R.where(c, x, y)


@I.ir_module
class WhereKernel:
    @R.function
    def main(
        c: R.Tensor((3, 1), "bool"), x: R.Tensor((2, 3, 4), "float32"), y: R.Tensor((4,), "float32")
    ):
        cls = WhereKernel
        return R.call_tir(cls.where, (c, x, y), out_sinfo=R.Tensor((2, 3, 4), "float32"))

    @T.prim_func(private=True)
    def where(
        c: T.Buffer((T.int64(3), T.int64(1)), "bool"),
        x: T.Buffer((T.int64(2), T.int64(3), T.int64(4)), "float32"),
        y: T.Buffer((T.int64(4),), "float32"),
        out: T.Buffer((T.int64(2), T.int64(3), T.int64(4)), "float32"),
    ):
        T.func_attr({"tir.noalias": True})
        for i0, i1, i2 in T.grid(T.int64(2), T.int64(3), T.int64(4)):
            with T.block("T_where"):
                i, j, k = T.axis.remap("SSS", [i0, i1, i2])
                T.reads(c[j, T.int64(0)], x[i, j, k], y[k])
                T.writes(out[i, j, k])
                out[i, j, k] = T.Select(
                    T.int64(0) < T.Cast("int64", c[j, T.int64(0)]), x[i, j, k], y[k]
                )


@I.ir_module
class Reshape:
    @R.function
    def main(x: R.Tensor((1, 2, 3, 4), "float32")):
        return R.reshape(x, (8, 3))


@I.ir_module
class ReshapeKernel:
    @R.function
    def main(x: R.Tensor((1, 2, 3, 4), "float32")):
        cls = ReshapeKernel
        return R.call_tir(cls.reshape, (x,), out_sinfo=R.Tensor((8, 3), "float32"))

    @T.prim_func(private=True)
    def reshape(
        x: T.Buffer((T.int64(1), T.int64(2), T.int64(3), T.int64(4)), "float32"),
        out: T.Buffer((T.int64(8), T.int64(3)), "float32"),
    ):
        T.func_attr({"tir.noalias": True})
        for i, j in T.grid(T.int64(8), T.int64(3)):
            with T.block("T_reshape"):
                a, b = T.axis.remap("SS", [i, j])
                T.reads(
                    x[
                        T.int64(0),
                        (a * T.int64(3) + b) % T.int64(24) // T.int64(12),
                        (a * T.int64(3) + b) % T.int64(12) // T.int64(4),
                        (a * T.int64(3) + b) % T.int64(4),
                    ]
                )
                T.writes(out[a, b])
                out[a, b] = x[
                    T.int64(0),
                    (a * T.int64(3) + b) % T.int64(24) // T.int64(12),
                    (a * T.int64(3) + b) % T.int64(12) // T.int64(4),
                    (a * T.int64(3) + b) % T.int64(4),
                ]


@I.ir_module
class Gelu:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        return R.nn.gelu_tanh(x)


@I.ir_module
class GeluKernel:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        cls = GeluKernel
        return R.call_tir(cls.gelu_tanh, (x,), out_sinfo=R.Tensor((2, 3), "float32"))

    @T.prim_func(private=True)
    def gelu_tanh(
        x: T.Buffer((T.int64(2), T.int64(3)), "float32"),
        out: T.Buffer((T.int64(2), T.int64(3)), "float32"),
    ):
        T.func_attr({"tir.noalias": True})
        half = T.alloc_buffer((T.int64(2), T.int64(3)))
        scaled = T.alloc_buffer((T.int64(2), T.int64(3)))
        linear = T.alloc_buffer((T.int64(2), T.int64(3)))
        square = T.alloc_buffer((T.int64(2), T.int64(3)))
        factor = T.alloc_buffer((T.int64(2), T.int64(3)))
        argument = T.alloc_buffer((T.int64(2), T.int64(3)))
        tanh = T.alloc_buffer((T.int64(2), T.int64(3)))
        more = T.alloc_buffer((T.int64(2), T.int64(3)))
        for i, j in T.grid(T.int64(2), T.int64(3)):
            with T.block("T_multiply"):
                a, b = T.axis.remap("SS", [i, j])
                half[a, b] = T.float32(0.5) * x[a, b]
        for i, j in T.grid(T.int64(2), T.int64(3)):
            with T.block("T_multiply_1"):
                a, b = T.axis.remap("SS", [i, j])
                scaled[a, b] = T.float32(0.7978845608028654) * x[a, b]
        for i, j in T.grid(T.int64(2), T.int64(3)):
            with T.block("T_multiply_2"):
                a, b = T.axis.remap("SS", [i, j])
                linear[a, b] = T.float32(0.044715) * x[a, b]
        for i, j in T.grid(T.int64(2), T.int64(3)):
            with T.block("T_multiply_3"):
                a, b = T.axis.remap("SS", [i, j])
                square[a, b] = linear[a, b] * x[a, b]
        for i, j in T.grid(T.int64(2), T.int64(3)):
            with T.block("T_add"):
                a, b = T.axis.remap("SS", [i, j])
                factor[a, b] = T.float32(1.0) + square[a, b]
        for i, j in T.grid(T.int64(2), T.int64(3)):
            with T.block("T_multiply_4"):
                a, b = T.axis.remap("SS", [i, j])
                argument[a, b] = scaled[a, b] * factor[a, b]
        for i, j in T.grid(T.int64(2), T.int64(3)):
            with T.block("compute"):
                a, b = T.axis.remap("SS", [i, j])
                tanh[a, b] = T.tanh(argument[a, b])
        for i, j in T.grid(T.int64(2), T.int64(3)):
            with T.block("T_add_1"):
                a, b = T.axis.remap("SS", [i, j])
                more[a, b] = T.float32(1.0) + tanh[a, b]
        for i, j in T.grid(T.int64(2), T.int64(3)):
            with T.block("T_multiply_5"):
                a, b = T.axis.remap("SS", [i, j])
                out[a, b] = half[a, b] * more[a, b]


@I.ir_module
class RootMeanSquare:
    @R.function
    def main(x: R.Tensor((1, "n", 8), "float16"), weight: R.Tensor((8,), "float16")):
        return R.nn.rms_norm(x, weight, axes=[-1])


@I.ir_module
class RootMeanSquareKernel:
    @R.function
    def main(x: R.Tensor((1, "n", 8), "float16"), weight: R.Tensor((8,), "float16")):
        cls = RootMeanSquareKernel
        n = T.int64()
        return R.call_tir(cls.rms_norm, (x, weight), out_sinfo=R.Tensor((1, n, 8), "float16"))

    @T.prim_func(private=True)
    def rms_norm(px: T.handle, weight: T.Buffer((T.int64(8),), "float16"), pout: T.handle):
        T.func_attr({"tir.noalias": True})
        n = T.int64()
        x = T.match_buffer(px, (T.int64(1), n, T.int64(8)), "float16")
        out = T.match_buffer(pout, (T.int64(1), n, T.int64(8)), "float16")
        wide = T.alloc_buffer((T.int64(1), n, T.int64(8)))
        square = T.alloc_buffer((T.int64(1), n, T.int64(8)))
        total = T.alloc_buffer((T.int64(1), n))
        rsqrt = T.alloc_buffer((T.int64(1), n))
        scale = T.alloc_buffer((T.int64(8),))
        norm = T.alloc_buffer((T.int64(1), n, T.int64(8)))
        for i, j, k in T.grid(T.int64(1), n, T.int64(8)):
            with T.block("T_cast"):
                a, b, c = T.axis.remap("SSS", [i, j, k])
                wide[a, b, c] = T.Cast("float32", x[a, b, c])
        for i, j, k in T.grid(T.int64(1), n, T.int64(8)):
            with T.block("T_multiply"):
                a, b, c = T.axis.remap("SSS", [i, j, k])
                square[a, b, c] = wide[a, b, c] * wide[a, b, c]
        for i, j, k in T.grid(T.int64(1), n, T.int64(8)):
            with T.block("T_multiply_red"):
                a, b, r = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    total[a, b] = T.float32(0)
                total[a, b] = total[a, b] + square[a, b, r]
        for i, j in T.grid(T.int64(1), n):
            with T.block("rsqrt"):
                a, b = T.axis.remap("SS", [i, j])
                rsqrt[a, b] = T.rsqrt(total[a, b] / T.float32(8) + T.float32(1e-5))
        for k in range(T.int64(8)):
            with T.block("T_cast_1"):
                c = T.axis.spatial(T.int64(8), k)
                scale[c] = T.Cast("float32", weight[c])
        for i, j, k in T.grid(T.int64(1), n, T.int64(8)):
            with T.block("T_rms_norm"):
                a, b, c = T.axis.remap("SSS", [i, j, k])
                norm[a, b, c] = rsqrt[a, b] * wide[a, b, c] * scale[c]
        for i, j, k in T.grid(T.int64(1), n, T.int64(8)):
            with T.block("T_cast_2"):
                a, b, c = T.axis.remap("SSS", [i, j, k])
                out[a, b, c] = T.Cast("float16", norm[a, b, c])


@I.ir_module
class CollapseSum:
    @R.function
    def main(x: R.Tensor((3, 2, 3), "float32")):
        return R.collapse_sum_to(x, (2, 1))


@I.ir_module
class CollapseSumKernel:
    @R.function
    def main(x: R.Tensor((3, 2, 3), "float32")):
        cls = CollapseSumKernel
        return R.call_tir(cls.collapse_sum, (x,), out_sinfo=R.Tensor((2, 1), "float32"))

    @T.prim_func(private=True)
    def collapse_sum(
        x: T.Buffer((T.int64(3), T.int64(2), T.int64(3)), "float32"),
        total: T.Buffer((T.int64(2), T.int64(1)), "float32"),
    ):
        T.func_attr({"tir.noalias": True})
        for i, j, k, m in T.grid(T.int64(2), T.int64(1), T.int64(3), T.int64(3)):
            with T.block("x_red"):
                a, b, r, s = T.axis.remap("SSRR", [i, j, k, m])
                with T.init():
                    total[a, b] = T.float32(0)
                total[a, b] = total[a, b] + x[r, a, s]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Softmax, SoftmaxKernel),
        (LogSoftmax, LogSoftmaxKernel),
        (Elementwise, ElementwiseKernels),
        (Reshape, ReshapeKernel),
        (Where, WhereKernel),
        (Gelu, GeluKernel),
        (RootMeanSquare, RootMeanSquareKernel),
        (CollapseSum, CollapseSumKernel),
    ],
    ids=[
        *("softmax", "log_softmax", "elementwise", "reshape", "where", "gelu_tanh", "rms_norm"),
        "collapse_sum",
    ],
)
def test_kernels_are_those_of_tvm(before: Any, after: Any) -> None:
    assert_structural_equal(LegalizeOps()(before), after)


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
        (lambda x: op.sum(x), ["x_red"]),
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
    x = rx.Var("x", rx.TensorStructInfo((4, 4), "float32"))
    builder = BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(make(x)))
    module = LegalizeOps()(builder.finalize())
    [kernel] = (f for f in module.functions.values() if isinstance(f, PrimFunc))
    blocks = [s.name_hint for s in walk(kernel.body) if isinstance(s, Block)]
    assert [name for name in blocks if name != "root"] == names
