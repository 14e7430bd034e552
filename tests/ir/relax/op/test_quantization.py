"""Struct info of quantisation and of parameters in another datatype, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax
from relaxpy.ir import assert_structural_equal
from relaxpy.ir.relax import nodes as rx, op
from relaxpy.relax.transform import Gradient
from relaxpy.script import from_source, ir as I, relax as R, tir as T
from tests.ir.relax.op.test_rules import (
    DEVICE,
    OPEN,
    UNKNOWN,
    Infos,
    M,
    Made,
    N,
    check,
    located,
    refused,
)
from tests.ir.relax.sinfos import rank, tensor

SMALL, HALF = "float8_e5m2", "float16"
ONE, ZERO = tensor(), tensor(dtype="int8")
X = tensor(2, N)
Q = tensor(2, N, dtype="uint8")
UNSHAPED = rank(2, "int8")

INFERRED: list[tuple[Made, Infos, rx.StructInfo]] = [
    (op.quantize, (X, ONE, ZERO), tensor(2, N, dtype="int8")),
    (op.quantize, (tensor(), ONE, ZERO), ZERO),
    (op.quantize, (X, tensor(N), tensor(1, dtype="uint8")), tensor(2, N, dtype="int8")),
    (lambda *v: op.quantize(*v, axis=0), (X, tensor(2), ZERO), tensor(2, N, dtype="int8")),
    (op.quantize, (X, tensor(M), ZERO), UNSHAPED),
    (op.quantize, (X, rank(1), ZERO), tensor(2, N, dtype="int8")),
    (op.quantize, (X, OPEN, ZERO), tensor(2, N, dtype="int8")),
    (op.quantize, (rank(2), ONE, ZERO), UNSHAPED),
    (op.quantize, (rank(2), tensor(3), ZERO), UNSHAPED),
    (op.quantize, (OPEN, tensor(3), UNKNOWN), rank(-1, "int8")),
    (op.quantize, (located(X, DEVICE), ONE, ZERO), located(tensor(2, N, dtype="int8"), DEVICE)),
    (lambda *v: op.quantize(*v, out_dtype=SMALL), (X, ONE, ZERO), tensor(2, N, dtype=SMALL)),
    (op.dequantize, (Q, ONE, ZERO), X),
    (op.dequantize, (Q, tensor(N), tensor(N)), X),
    (lambda *v: op.dequantize(*v, out_dtype=HALF), (Q, ONE, ZERO), tensor(2, N, dtype=HALF)),
    (op.dequantize, (UNKNOWN, UNKNOWN, UNKNOWN), OPEN),
    (op.wrap_param, (Q,), X),
    (lambda x: op.wrap_param(x, "float16"), (OPEN,), rank(-1, "float16")),
]


@pytest.mark.rule("DER-35")
@pytest.mark.parametrize(("make", "sinfos", "expected"), INFERRED)
def test_what_is_known_of_the_result(make: Made, sinfos: Infos, expected: rx.StructInfo) -> None:
    check(make, sinfos, expected)


REFUSED: list[tuple[Made, Infos, str]] = [
    (op.quantize, (Q, ONE, ZERO), "relax.quantize: data holds floats, found R.Tensor((2, n)"),
    (op.quantize, (X, ZERO, ZERO), "scale holds floats, found R.Tensor(()"),
    (op.quantize, (X, ONE, tensor(dtype="bool")), "zero_point holds numbers, found R.Tensor(()"),
    (op.quantize, (X, tensor(1, 2), ZERO), "scale is a scalar or a vector, found R.Tensor((1, 2)"),
    (
        lambda *v: op.quantize(*v, axis=0),
        (X, tensor(3), ZERO),
        "scale (3,) has one element for each index along axis 0 of data (2, n): 2, found 3",
    ),
    (
        lambda *v: op.quantize(*v, axis=-2),
        (X, ONE, tensor(3, dtype="int8")),
        "zero_point (3,) has one element for each index along axis -2 of data (2, n): 2, found 3",
    ),
    (lambda *v: op.quantize(*v, axis=2), (X, tensor(N), ZERO), "axis 2 is out of range for rank 2"),
    (
        lambda *v: op.quantize(*v, out_dtype="int32"),
        (X, ONE, ZERO),
        "out_dtype is one of int8, uint8, int16, uint16, float8_e4m3fn, float8_e5m2, found int32",
    ),
    (op.dequantize, (tensor(dtype="bool"), ONE, ZERO), "data holds numbers, found R.Tensor(()"),
    (
        lambda *v: op.dequantize(*v, out_dtype="int8"),
        (Q, ONE, ZERO),
        "out_dtype is one of float16, bfloat16, float32, float64, found int8",
    ),
    (lambda *v: op.dequantize(*v, axis=1), (tensor(2), tensor(2), ZERO), "axis 1 is out of range"),
]


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize(("make", "sinfos", "message"), REFUSED)
def test_what_does_not_fit_is_refused(make: Made, sinfos: Infos, message: str) -> None:
    refused(make, sinfos, message)


@I.ir_module
class Open:
    @R.function
    def main(x: R.Tensor("float32"), s: R.Tensor("float32"), z: R.Tensor("int8")):
        return R.dequantize(R.quantize(x, s, z, axis=0), s, z, axis=0)


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
    @I.ir_module
    class Wraps:
        @R.function
        def main(x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float16")):
            return R.wrap_param(x), R.wrap_param(y)

    lowered = relaxpy.relax.transform.LegalizeOps()(Wraps)
    assert [str(var.name_hint) for var in lowered.functions] == ["main", "cast"]


@I.ir_module
class LiteralParameters:
    @R.function
    def main(x: R.Tensor((2, 4), "float32")):
        q = R.quantize(x, R.const(0.5, "float32"), R.const(3, "int8"))
        return R.dequantize(q, R.const(0.5, "float32"), R.const(3, "int8"))


@I.ir_module
class LiteralKernels:
    @T.prim_func(private=True)
    def quantize(
        x: T.Buffer((T.int64(2), T.int64(4)), "float32"),
        y: T.Buffer((T.int64(2), T.int64(4)), "int8"),
    ):
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

    @T.prim_func(private=True)
    def dequantize(
        x: T.Buffer((T.int64(2), T.int64(4)), "int8"),
        y: T.Buffer((T.int64(2), T.int64(4)), "float32"),
    ):
        T.func_attr({"tir.noalias": True})
        for i, j in T.grid(T.int64(2), T.int64(4)):
            with T.block("dequantized"):
                a, b = T.axis.remap("SS", [i, j])
                y[a, b] = T.Cast("float32", T.Cast("int32", x[a, b]) - 3) * T.float32(0.5)

    @R.function
    def main(x: R.Tensor((2, 4), "float32")):
        cls = LiteralKernels
        q = R.call_tir(cls.quantize, (x,), out_sinfo=R.Tensor((2, 4), "int8"))
        return R.call_tir(cls.dequantize, (q,), out_sinfo=R.Tensor((2, 4), "float32"))


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
    return from_source(f"""
@I.ir_module
class Module:
    @R.function
    def main(
        x: R.Tensor((4,), "int32"),
        s: R.Tensor((), "float32"),
        z: R.Tensor((), "float32"),
        g: R.Tensor((4,), "{dtype}"),
    ):
        with R.dataflow():
            y = R.dequantize(x, s, z, out_dtype="{dtype}")
            w = R.multiply(y, g)
            t = R.sum(w)
            R.output(t)
        return t
""")  # type: ignore[return-value]


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
