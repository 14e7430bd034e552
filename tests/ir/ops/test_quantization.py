"""Quantisation and parameters in another datatype: what only the values decide."""

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax
from relaxpy.ir import assert_structural_equal
from relaxpy.relax.transform import Gradient
from relaxpy.script import relax as R
from tests.ir.relax.texts import graph, module

Open = module("""
def main(x: R.Tensor("float32"), s: R.Tensor("float32"), z: R.Tensor("int8")):
    return R.dequantize(R.quantize(x, s, z, axis=0), s, z, axis=0)
""")


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_what_is_not_known_is_decided_by_the_values(target: str) -> None:
    main = relaxpy.compile(Open, target)["main"]
    x = np.array([[1, -2.6], [30, 4000]], "float32")
    zero = np.zeros(2, "int8")
    by_row = main(x, np.array([1, 10], "float32"), zero)
    np.testing.assert_array_equal(by_row, [[1, -3], [30, 1270]])
    whole = main(x, np.array([2], "float32"), zero[:1])
    np.testing.assert_array_equal(whole, [[0, -2], [30, 254]])
    with pytest.raises(relaxpy.errors.RelaxpyError, match=r"scale \(3,\) has one element"):
        main(x, np.ones(3, "float32"), zero)


def test_a_narrow_float_result_is_finite() -> None:
    @R.function
    def main(x: R.Tensor((2,), "int32")) -> R.Tensor((2,), "float16"):
        return R.dequantize(x, R.const(1, "float32"), R.const(0, "int8"), out_dtype="float16")

    np.testing.assert_array_equal(main(np.array([10**6, -(10**6)], "int32")), [65504, -65504])


def test_floats_of_eight_bits_are_not_rounded_to_integers() -> None:
    @R.function
    def main(x: R.Tensor((3,), "float32")):
        return R.quantize(x, R.const(1.0), R.const(0.0), out_dtype="float8_e4m3fn")

    found = main(np.array([0.4375, 1e6, -3.5], "float32"))
    np.testing.assert_array_equal(found.astype("float32"), [0.4375, 448, -3.5])


def test_a_wrapped_parameter_of_its_datatype_needs_no_kernel() -> None:
    Wraps = module("""
    def main(x: f32[3], y: f16[3]):
        return (R.wrap_param(x), R.wrap_param(y))
    """)
    lowered = relaxpy.relax.transform.LegalizeOps()(Wraps)
    assert [str(var.name_hint) for var in lowered.functions] == ["main", "cast"]


LiteralParameters = module("""
def main(x: f32[2, 4]):
    q = R.quantize(x, R.const(0.5, "float32"), R.const(3, "int8"))
    return R.dequantize(q, R.const(0.5, "float32"), R.const(3, "int8"))
""")

LiteralKernels = module("""
@kernel
def quantize(x: f32[T.int64(2), T.int64(4)], y: i8[T.int64(2), T.int64(4)]):
    T.func_attr({"tir.noalias": True})
    for i, j in T.grid(T.int64(2), T.int64(4)):
        with T.block("quantized"):
            a, b = T.axis.remap("SS", [i, j])
            y[a, b] = T.Cast(
                "int8",
                T.max(
                    T.min(T.round(x[a, b] / T.float32(0.5)) + T.float32(3), T.float32(127)),
                    T.float32(-128),
                ),
            )

@kernel
def dequantize(x: i8[T.int64(2), T.int64(4)], y: f32[T.int64(2), T.int64(4)]):
    T.func_attr({"tir.noalias": True})
    for i, j in T.grid(T.int64(2), T.int64(4)):
        with T.block("dequantized"):
            a, b = T.axis.remap("SS", [i, j])
            y[a, b] = T.Cast("float32", T.Cast("int32", x[a, b]) - 3) * T.float32(0.5)

def main(x: f32[2, 4]):
    q = R.call_tir(cls.quantize, (x,), out_sinfo=i8[2, 4])
    return R.call_tir(cls.dequantize, (q,), out_sinfo=f32[2, 4])
""")


def test_literal_parameters_are_part_of_the_kernels() -> None:
    assert_structural_equal(relax.transform.LegalizeOps()(LiteralParameters), LiteralKernels)


def test_values_with_literal_parameters_are_those_of_operands() -> None:
    @R.function
    def main(x: R.Tensor((2, 4), "float32"), s: R.Tensor((), "float32"), z: R.Tensor((), "int8")):
        return R.dequantize(R.quantize(x, s, z), s, z)

    x = np.linspace(-80, 80, 8, dtype="float32").reshape(2, 4)
    literal = relaxpy.compile(LiteralParameters)["main"](x)
    np.testing.assert_array_equal(literal, main(x, np.float32(0.5), np.int8(3)))


def test_a_literal_scale_of_zero_is_an_operand() -> None:
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        return R.quantize(x, R.const(0, "float32"), R.const(0, "int8"))

    np.testing.assert_array_equal(main(np.array([1, -1], "float32")), [127, -128])


def dequantized(dtype: str) -> IRModule:
    return graph(f"""
    def main(x: i32[4], s: f32, z: f32, g: R.Tensor((4,), "{dtype}")):
        y = R.dequantize(x, s, z, out_dtype="{dtype}")
        w = R.multiply(y, g)
        t = R.sum(w)
        return t
    """)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_of_parameters_are_computed_in_float32(dtype: str) -> None:
    found = []
    for kind in (dtype, "float32"):
        mod = dequantized(kind)
        adjoint = Gradient("main", list(mod["main"].params[1:3]))(mod)
        args = np.array([70000, 3, -5, 100], "int32"), np.float32(1e-4), np.float32(2)
        run = relaxpy.compile(adjoint, "reference")["main_adjoint"]
        found.append(run(*args, np.array([1, 2, 3, 4], kind))[1])
    np.testing.assert_array_equal(*found)
