"""Checkpoints around functions that build programs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax
from relaxpy.errors import BuilderStateError, MisuseError
from relaxpy.ir import assert_structural_equal
from relaxpy.relax.testing import nn
from relaxpy.relax.transform import Gradient
from tests.ir.relax import graphs
from tests.ir.relax.sinfos import tensor
from tests.ir.relax.texts import graph


def built(names: str, body: Callable[..., Any]) -> IRModule:
    """A function of 3 x 3 matrices, whose body receives the builder and the parameters."""
    return graphs.built(body, *[tensor(3, 3)] * len(names))


def test_expressions_between_checkpoints() -> None:
    three = relax.const(3, "float32")

    def cube(x: relax.Expr) -> relax.Expr:
        return relax.op.power(x, three)

    def body(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        lv1 = builder.emit(nn.checkpoint(cube, x))
        lv2 = builder.emit(cube(lv1))
        return nn.checkpoint(lambda y: relax.op.sum(cube(cube(y))), lv2)

    Expected = graph("""
    def main(x: f32[3, 3]):
        x_scp = R.grad.start_checkpoint(x)
        lv1 = R.power(x_scp, R.const(3, "float32"))
        lv1_ecp = R.grad.end_checkpoint(lv1)
        lv2 = R.power(lv1_ecp, R.const(3, "float32"))
        lv2_scp = R.grad.start_checkpoint(lv2)
        lv3 = R.power(lv2_scp, R.const(3, "float32"))
        lv4 = R.power(lv3, R.const(3, "float32"))
        gv = R.sum(lv4)
        gv_ecp = R.grad.end_checkpoint(gv)
        return gv_ecp
    """)
    assert_structural_equal(built("x", body), Expected)


def test_several_arguments_and_results() -> None:
    def products(x: Any, y: Any, *, z: Any, w: Any) -> tuple[Any, Any, str]:
        return x * y, z * w, "kept"

    def body(builder: relax.BlockBuilder, x: Any, y: Any, z: Any, u: Any, v: Any) -> relax.Expr:
        lv1 = builder.emit(x * y)
        first, second, kept = nn.checkpoint(products, lv1, z, z=u, w=v)
        assert kept == "kept"
        lv2, lv3 = builder.emit(first), builder.emit(second)
        return relax.op.sum(builder.emit(lv2 * lv3))

    Expected = graph("""
    def main(x: f32[3, 3], y: f32[3, 3], z: f32[3, 3], u: f32[3, 3], v: f32[3, 3]):
        lv1 = x * y
        lv1_scp = R.grad.start_checkpoint(lv1)
        z_scp = R.grad.start_checkpoint(z)
        lv2 = lv1_scp * z_scp
        lv2_ecp = R.grad.end_checkpoint(lv2)
        u_scp = R.grad.start_checkpoint(u)
        v_scp = R.grad.start_checkpoint(v)
        lv3 = u_scp * v_scp
        lv3_ecp = R.grad.end_checkpoint(lv3)
        lv4 = lv2_ecp * lv3_ecp
        gv = R.sum(lv4)
        return gv
    """)
    assert_structural_equal(built("xyzuv", body), Expected)


def doubled(x: Any) -> Any:
    return x + x


@pytest.mark.parametrize("first", [2, [0, 2, 4], [0, 2, 4, 5]])
def test_segments_of_functions(first: Any) -> None:
    def body(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        lv1 = nn.emit_checkpoint_sequential([doubled] * 5, first, x)
        return nn.emit_checkpoint_sequential([doubled] * 4, 2, lv1)

    Expected = graph("""
    def main(x: f32[3, 3]):
        x_scp = R.grad.start_checkpoint(x)
        lv = R.add(x_scp, x_scp)
        lv1 = R.add(lv, lv)
        lv1_ecp = R.grad.end_checkpoint(lv1)
        lv1_ecp_scp = R.grad.start_checkpoint(lv1_ecp)
        lv2 = R.add(lv1_ecp_scp, lv1_ecp_scp)
        lv3 = R.add(lv2, lv2)
        lv3_ecp = R.grad.end_checkpoint(lv3)
        lv4 = R.add(lv3_ecp, lv3_ecp)
        lv4_scp = R.grad.start_checkpoint(lv4)
        lv5 = R.add(lv4_scp, lv4_scp)
        lv6 = R.add(lv5, lv5)
        lv6_ecp = R.grad.end_checkpoint(lv6)
        lv7 = R.add(lv6_ecp, lv6_ecp)
        lv8 = R.add(lv7, lv7)
        gv = lv8
        return gv
    """)
    assert_structural_equal(built("x", body), Expected)


def test_a_checkpoint_around_the_last_segment() -> None:
    def body(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return nn.emit_checkpoint_sequential([doubled] * 3, 2, x, checkpoint_last=True)

    operators = [
        binding.value.op.name
        for binding in built("x", body)["main"].body.blocks[0].bindings
        if isinstance(binding.value, relax.Call)
    ]
    one = ["relax.grad.start_checkpoint", "relax.add", "relax.grad.end_checkpoint"]
    assert operators == one * 3


def test_checkpoints_keep_the_gradient() -> None:
    def body(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        steps = [relax.op.sin, lambda y: relax.op.multiply(y, y), relax.op.exp, relax.op.cos]
        value = nn.emit_checkpoint_sequential(steps, [0, 1, 3], x)
        return relax.op.sum(nn.emit_checkpoint(lambda y: y * x, value))

    mod = Gradient("main")(built("x", body))
    x = np.random.default_rng(0).uniform(-1, 1, (3, 3)).astype("float32")
    e = np.exp(np.sin(x) ** 2)
    expected = np.cos(e) - x * np.sin(e) * e * np.sin(2 * x)
    for target in ("numpy", "reference"):
        _, (found,) = relaxpy.compile(mod, target=target)["main_adjoint"](x)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("segments", [0, 4, -1, True, "2", [], [1, 2], [0, 2, 1], [0, 3, 3]])
def test_segments_that_do_not_fit(segments: Any) -> None:
    def body(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        with pytest.raises(MisuseError, match="segments are a number from 1 to 3"):
            nn.emit_checkpoint_sequential([doubled] * 3, segments, x)
        return x

    built("x", body)


def test_wrong_functions_and_places() -> None:
    x = relax.Var("x", relax.TensorStructInfo((3,), "float32"))
    with pytest.raises(MisuseError, match="is around a function, found 3"):
        nn.checkpoint(3, x)
    with pytest.raises(MisuseError, match="returns expressions, found None"):
        nn.checkpoint(lambda y: None, x)
    for emit in (
        lambda: nn.emit_checkpoint(doubled, x),
        lambda: nn.emit_checkpoint_sequential([doubled], 1, x),
    ):
        with pytest.raises(BuilderStateError, match="no function is being built"):
            emit()
