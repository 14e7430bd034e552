"""First-order gradients beside finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxpy import relay
from relaxpy.errors import MisuseError, RelaxpyError, TransformError
from relaxpy.relay import transform

FLOAT = "Tensor[(2, 3), float64]"


def tensors(value: Any) -> list[np.ndarray]:
    return [t for field in value for t in tensors(field)] if isinstance(value, tuple) else [value]


def assert_gradients(text: str, *args: Any) -> None:
    """The gradients of a function of float64 are those of the sum of its results."""
    function = relay.parse_expr(text)
    run = relay.create_executor().evaluate(function)
    adjoint = transform.gradient(function)
    result, gradients = relay.create_executor().evaluate(adjoint)(*args)
    for one, other in zip(tensors(result), tensors(run(*args)), strict=True):
        np.testing.assert_array_equal(one, other)

    def total() -> float:
        return sum(float(t.sum()) for t in tensors(run(*args)))

    for arg, gradient in zip(tensors(tuple(args)), tensors(gradients), strict=True):
        assert gradient.shape == arg.shape
        assert gradient.dtype == arg.dtype
        expected = np.zeros(arg.shape)
        for place in np.ndindex(arg.shape) if arg.dtype.kind == "f" else ():
            number = arg[place]
            arg[place] = number + 1e-5
            above = total()
            arg[place] = number - 1e-5
            expected[place] = (above - total()) / 2e-5
            arg[place] = number
        np.testing.assert_allclose(gradient, expected, 1e-5, 1e-6)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).uniform(0.2, 0.9, shape)


@pytest.mark.parametrize(
    "body",
    [
        "%x",
        "exp(%x) * %x + %x",
        "let %y = %x * %x; let %z = %y + %x; %z * %y",
        "%0 = tanh(%x)\n%0 * %0 * 3f64",
        "sum(%x * %x, axis=[1])",
        "nn.softmax(%x)",
        "nn.log_softmax(%x, axis=0) * %x",
        "mean(log(%x), axis=[0], keepdims=True) * %x",
        "variance(%x, mean(%x, axis=[0], keepdims=True), axis=[0])",
        "concatenate((%x, transpose(transpose(%x)), %x * 2f64), axis=1)",
        "let %s = split(%x, indices_or_sections=3, axis=1); (%s.2 * %s.0, %s.1)",
        "let %t = (%x, (%x * 2f64, exp(%x))); %t.1.0 * %t.0",
        "clip(%x, a_min=0.3f, a_max=0.7f)",
        "max(%x, axis=[1])",
        "cast(less(%x, 0.5f64), dtype=\"float64\") * %x",
        "where(less(%x, 0.5f64), %x * 2f64, %x)",
        "power(%x, %x)",
        "nn.dense(%x, %x * %x)",
        "nn.batch_matmul(expand_dims(%x, axis=0), expand_dims(%x, axis=0), transpose_b=True)",
        "reshape(%x, newshape=[3, -1]) * 2f64",
        "strided_slice(%x, begin=[0, 1], end=[2, 3])",
        "take(%x, Constant(1, (2,), int32), axis=1)",
        "nn.l2_normalize(%x, axis=[1])",
        "log10(%x) + log2(%x) + sqrt(%x) / rsqrt(%x)",
        "nn.leaky_relu(%x - 0.5f64) + nn.relu(%x - 0.4f64) + sigmoid(%x) + abs(%x - 0.6f64)",
        "copy(%x) + stop",
        "zeros_like(%x)",
    ],
)  # fmt: skip
def test_gradients_of_operators(body: str) -> None:
    text = body.replace("stop", '(cast(cast(%x, dtype="int32"), dtype="float64"))')
    assert_gradients(f"fn(%x: {FLOAT}) {{ {text} }}", numbers(2, 3))


def test_gradients_of_layers() -> None:
    text = """fn(%x: Tensor[(1, 2, 5, 5), float64], %w: Tensor[(3, 2, 3, 3), float64],
                 %b: Tensor[(3,), float64]) {
      let %c = nn.bias_add(nn.conv2d(%x, %w, padding=[1, 1]), %b);
      nn.max_pool2d(nn.relu(%c), pool_size=[2, 2]) + nn.avg_pool2d(%c, pool_size=[2, 2]) }"""
    assert_gradients(text, numbers(1, 2, 5, 5), numbers(3, 2, 3, 3), numbers(3))


def test_parameters_may_be_tuples_and_integers() -> None:
    text = """fn(%t: (Tensor[(2,), float64], Tensor[(2,), float64]), %n: int32) {
      %t.0 * %t.0 * cast(%n, dtype="float64") }"""
    assert_gradients(text, (numbers(2), numbers(2)), np.array(3, "int32"))


def test_broadcast_operands_have_gradients_of_their_shapes() -> None:
    text = "fn(%x: Tensor[(2, 3), float64], %y: Tensor[(3,), float64]) { %x * %y + %y }"
    assert_gradients(text, numbers(2, 3), numbers(3))


def test_the_pass_differentiates_each_function() -> None:
    module = relay.parse("def @main(%x: float32) { %x * %x } def @f(%x: float32) { exp(%x) }")
    result = transform.FirstOrderGradient()(module)
    value, gradients = relay.create_executor(mod=result).evaluate()(3.0)
    assert (value, gradients) == (9, (6,))
    assert relay.parse(result.astext())["f"].astext() == result["f"].astext()
    translated = relay.create_executor("vm", mod=result).evaluate()
    assert translated(3.0) == (9, (6,))


def test_what_first_order_gradients_do_not_pass_through_is_named() -> None:
    for text, what in (
        ("fn(%x: float32) { if (%x < 1f) { %x } else { 2f } }", "If"),
        ("fn(%x: float32) { let %f = fn(%y: float32) { %y }; %f(%x) }", "Function"),
        ("fn(%x: float32) { ref_read(ref(%x)) }", "RefCreate"),
        ("fn<t>(%x: t) { %x }", "polymorphic"),
    ):
        with pytest.raises(TransformError, match=what):
            transform.gradient(relay.parse_expr(text))
    with pytest.raises(MisuseError, match="mode"):
        transform.gradient(relay.parse_expr("fn(%x: float32) { %x }"), mode="second_order")


def test_partial_evaluation_makes_programs_first_order() -> None:
    module = relay.parse(
        """def @power(%n: int32, %x: float32) -> float32 {
             if (%n == 0) { 1f } else { %x * @power(%n - 1, %x) } }
           def @main(%x: float32) { @power(3, %x) }"""
    )
    known = transform.DeadCodeElimination()(transform.PartialEvaluate()(module))
    adjoint = transform.gradient(known["main"])
    assert relay.create_executor().evaluate(adjoint)(2.0) == (8, (12,))


def test_users_register_gradients() -> None:
    op = relay.op.register("test_gradient.cube")
    op.set_num_inputs(1)
    op.add_type_rel("Identity")
    relay.op.register_compute(
        op.name, lambda attrs, inputs, ty: [inputs[0] * inputs[0] * inputs[0]]
    )
    function = relay.parse_expr("fn(%x: float64) { test_gradient.cube(%x) }")
    with pytest.raises(RelaxpyError, match="has no gradient"):
        transform.gradient(function)

    @relay.op.register_gradient(op.name)
    def rule(call: relay.Call, gradient: relay.Expr) -> list[relay.Expr]:
        x = call.args[0]
        return [gradient * x * x * relay.const(3.0, "float64")]

    assert_gradients("fn(%x: float64) { test_gradient.cube(%x) }", numbers())
