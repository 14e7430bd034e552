"""The small models of `relax.testing`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax, tir
from relaxpy.errors import BuilderStateError, MisuseError
from relaxpy.ir import assert_structural_equal
from relaxpy.relax import testing
from relaxpy.relax.testing import nn
from relaxpy.relax.testing.lib_comparator import LibCompareVMInstrument
from tests.ir.relax.texts import graph, module


def built(model: nn.Module, shape: Any, dtype: str = "float32") -> IRModule:
    """The module whose function `main` is a model."""
    builder = relax.BlockBuilder()
    with builder.function("main"):
        data = nn.Placeholder(shape, dtype, name="data")
        output = model(data)
        builder.emit_func_output(output, params=[data, *model.parameters()])
    return builder.get()


def test_layers_emit_kernels() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2, bias=False), nn.LogSoftmax())
    mod = built(model, (tir.Var("n", "int64"), 4))
    names = ["data", "linear_weight", "linear_bias", "linear_weight"]
    assert [param.name_hint for param in mod["main"].params] == names
    zeros = nn.init_params(mod)
    assert [array.shape for array in zeros] == [(4, 8), (8,), (8, 2)]
    rng = np.random.default_rng(0)
    x, w, b, v = (rng.standard_normal(s).astype("float32") for s in ((3, 4), (4, 8), (8,), (8, 2)))
    y = np.maximum(x @ w + b, 0) @ v
    expected = y - np.log(np.exp(y).sum(1, keepdims=True))
    np.testing.assert_allclose(relaxpy.compile(mod)["main"](x, w, b, v), expected, rtol=1e-4)
    vm = relax.VirtualMachine(relaxpy.compile(mod, relax_pipeline="legalize"))
    comparison = LibCompareVMInstrument(mod, verbose=False)
    vm.set_instrument(comparison)
    vm["main"](x, w, b, v)
    assert comparison.counter == 5
    vm.set_instrument(LibCompareVMInstrument({"relu": lambda a, out: np.copyto(out, a)}))
    with pytest.raises(AssertionError, match="Mismatched elements"):
        vm["main"](x, w, b, v)


def test_names_of_parameters_are_unique_in_a_function() -> None:
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        names = [nn.Parameter((2,), name="w").name_hint for _ in range(3)]
        builder.emit_func_output(relax.Tuple([]))
    assert names == ["w", "w1", "w2"]
    with pytest.raises(MisuseError, match="a shape is a list or a tuple, found 3"):
        nn.Parameter(3)
    with pytest.raises(BuilderStateError):
        nn.emit(relax.const(1))
    with pytest.raises(MisuseError, match="whose shape is not known"):
        nn.init_params(built(nn.Linear(tir.Var("k", "int64"), 2), (3, 4)))


def test_layers_may_be_functions_of_their_own() -> None:
    class Scale(nn.Module):
        define_subroutine = True

        def __init__(self) -> None:
            self.weight = nn.Parameter((4,))

        def forward(self, x: relax.Expr) -> relax.Expr:
            return relax.op.multiply(x, self.weight)

    mod = built(nn.Sequential(Scale(), Scale()), (tir.Var("n", "int64"), 4))

    Expected = module("""
    @private
    def scale(x: f32[n, 4], w: f32[4]):
        return R.multiply(x, w)

    def main(x: f32[n, 4], w0: f32[4], w1: f32[4]):
        return cls.scale(cls.scale(x, w0), w1)
    """)
    assert_structural_equal(mod, relax.transform.Normalize()(Expected))
    ones = np.ones(4, "float32")
    result = relaxpy.compile(mod)["main"](np.ones((2, 4), "float32"), ones * 2, ones * 3)
    assert result.tolist() == [[6] * 4] * 2


def test_a_product_has_a_bias_and_activations() -> None:
    mod = testing.get_relax_matmul_module(
        (2, 3), (4, 3), "float32", transposed_y=True, bias_shape=(4,), activation=relax.op.nn.relu
    )

    Expected = graph("""
    def main(x: f32[2, 3], y: f32[4, 3], bias: f32[4]):
        a = R.permute_dims(y, axes=[-1, -2])
        b = R.matmul(x, a, out_dtype="float32")
        c = R.add(b, bias)
        d = R.nn.relu(c)
        return d
    """)
    assert_structural_equal(mod, Expected)
    residual = testing.get_relax_matmul_module(
        (3, 3), (3, 3), "float32", residual_bin_op=relax.op.add, residual_activation=relax.op.exp
    )
    x, y = np.eye(3, dtype="float32"), np.full((3, 3), 0.5, "float32")
    expected = np.exp(x @ y + x)
    np.testing.assert_allclose(relaxpy.compile(residual)["main"](x, y), expected, rtol=1e-6)


def softmax(x: Any) -> Any:
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def attention(q: Any, k: Any, v: Any, scale: float) -> Any:
    """Scaled dot-product attention of arrays (batch, positions, heads, size)."""
    weights = softmax(np.einsum("bihd,bjhd->bhij", q, k) * scale)
    return np.einsum("bhij,bjhd->bihd", weights, v)


@pytest.mark.parametrize("op", ["split", "strided_slice"])
@pytest.mark.parametrize("layout", ["BS3NH", "SBN3H"])
def test_stacked_attention_is_attention_of_parts(op: Any, layout: Any) -> None:
    batch_first = layout == "BS3NH"
    shape = (2, 5, 24) if batch_first else (5, 2, 2, 12)
    qkv = np.random.default_rng(0).standard_normal(shape).astype("float32")
    stacked = testing.get_relax_stacked_attention_module(
        qkv, 2, 5, 2, 4, 4, op, qk_scale=0.25, layout=layout
    )
    parts = [part.reshape(2, 5, 2, 4) for part in np.split(qkv, 3, 2)] if batch_first else []
    parts = parts or [part.transpose(1, 0, 2, 3) for part in np.split(qkv, 3, 3)]
    expected = attention(*parts, 0.25)
    result = relaxpy.compile(stacked)["main"](qkv)
    if not batch_first:
        result = result.transpose(1, 0, 2, 3)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    shapes = [part.shape for part in parts]
    plain = testing.get_relax_attention_module(*shapes, dtype="float32", qk_scale=0.25)
    result = relaxpy.compile(plain)["main"](*parts)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_attention_has_a_bias_and_a_mask() -> None:
    shape = (1, 4, 2, 3)
    mod = testing.get_relax_attention_module(
        shape, shape, shape, dtype="float32", bias_shape=(1, 2, 4, 4), causal_mask="TopLeft"
    )
    assert [param.name_hint for param in mod["main"].params] == ["q", "k", "v", "bias"]
    assert 'causal_mask="TopLeft"' in mod.script()
    with pytest.raises(MisuseError, match="the layout is BS3NH or SBN3H"):
        testing.get_relax_stacked_attention_module(np.ones((1, 1, 3)), 1, 1, 1, 1, 1, "chunk")  # type: ignore[arg-type]


@pytest.mark.parametrize("as_table", [False, True])
def test_gradients_are_compared_with_differences(as_table: bool) -> None:
    def function(x: Any, w: Any) -> Any:
        return (x**3 * w).sum()

    x, w = np.array([1.0, -2.0]), np.array([[0.5, 3.0]])
    names = ("x", "w")

    def values(*arrays: Any) -> Any:
        return dict(zip(names, arrays, strict=True)) if as_table else list(arrays)

    check: Callable[..., None] = relaxpy.testing.check_numerical_grads
    right = [3 * x**2 * w[0], x[None] ** 3]
    check(function, values(x, w), values(*right))
    with pytest.raises(AssertionError, match=r"the gradient by [0x] differs"):
        check(function, values(x, w), values(2 * right[0], right[1]))
    with pytest.raises(AssertionError, match=r"by [1w] has shape \(2,\), expected \(1, 2\)"):
        check(function, values(x, w), values(right[0], x))
    with pytest.raises(ValueError, match="is not finite"):
        check(lambda x: np.inf, [x], [x])
    ones = np.ones(2)
    for inputs, grads, message in (
        ([], [ones], "gradient 0 is that by an input of floats, found no such input"),
        ({"x": ones}, {"y": ones}, "gradient y is that by an input of floats"),
        ([np.array([1, 2])], [ones], "gradient 0 is that by an input of floats, found int64"),
        ([ones], [ones], r"the function returns a number, found an array of shape \(2,\)"),
        (ones, ones, "expected a list or a table of arrays"),
    ):
        with pytest.raises(MisuseError, match=message):
            check(lambda x: x, inputs, grads)


def test_scalar_expressions_are_compared() -> None:
    n, m = tir.Var("n", "int32"), tir.Var("m", "int32")
    relaxpy.testing.assert_prim_expr_equal((n + m) * 2, 2 * m + 2 * n)
    with pytest.raises(AssertionError, match="are not provably equal"):
        relaxpy.testing.assert_prim_expr_equal(n, m)
    ranges = {n: tir.Range(0, 4), m: tir.Range(1, 4)}
    relaxpy.testing.check_bool_expr_is_true(n < 2 * m, ranges, n < m)
    with pytest.raises(AssertionError, match="is false for n = 2, m = 1"):
        relaxpy.testing.check_bool_expr_is_true(n < 2 * m, ranges)
    with pytest.raises(MisuseError, match="expected a table from variables to ranges"):
        relaxpy.testing.check_bool_expr_is_true(n < m, {n: (0, 4)})
    with pytest.raises(MisuseError, match="symbolic range"):
        relaxpy.testing.check_bool_expr_is_true(n < m, {n: tir.Range(0, m)})
