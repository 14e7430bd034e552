"""Convolutions and pools: attributes, texts, and sizes that are known in part."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError, RuntimeCheckError
from relaxpy.ir import ops as op
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.op import Op
from relaxpy.ir.passes.legalize import LegalizeOps
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir
from relaxpy.script import from_source
from tests.ir.ops.cases.windows import convolve, pool, transpose_convolve
from tests.ir.relax.graphs import returning
from tests.ir.relax.sinfos import rank, tensor

N, C, H, W = (tir.Var(name, "int64") for name in "nchw")
IMAGE, FILTER = tensor(N, 3, H, W), tensor(8, 3, 3, 3)
Made = Callable[..., rx.Call]


def derive(make: Made, *sinfos: rx.StructInfo) -> rx.StructInfo | None:
    return make(*(rx.Var(f"x{k}", sinfo) for k, sinfo in enumerate(sinfos))).struct_info


def with_attrs(operator: Any, **attrs: Any) -> Made:
    return lambda *operands: operator(*operands, **attrs)


conv2d, deconv = op.nn.conv2d, op.nn.conv2d_transpose
max2d, avg2d = op.nn.max_pool2d, op.nn.avg_pool2d


@pytest.mark.rule("DER-35")
def test_the_shape_of_data_may_be_a_variable() -> None:
    found = derive(op.grad.conv2d_backward_data, rank(4), FILTER, rx.ShapeStructInfo(ndim=4))
    assert isinstance(found, rx.TensorStructInfo)
    assert isinstance(found.shape, rx.Var)
    assert found.ndim == 4


def test_attributes_are_complete_however_they_are_written() -> None:
    x, w = rx.Var("x", IMAGE), rx.Var("w", FILTER)
    short = conv2d(x, w, 2, 1)
    long = conv2d(
        x,
        w,
        strides=[2, 2],
        padding=[1, 1, 1, 1],
        dilation=[1, 1],
        groups=1,
        data_layout="NCHW",
        kernel_layout="OIHW",
        out_layout="NCHW",
        out_dtype="void",
    )
    assert short.attrs == long.attrs
    assert short.attrs["padding"] == (1, 1, 1, 1)
    assert (short.attrs["out_layout"], short.attrs["out_dtype"]) == ("NCHW", None)
    sides = op.nn.avg_pool3d(rx.Var("x", rank(5)), padding=(1, 2, 3))
    assert sides.attrs["padding"] == (1, 2, 3, 1, 2, 3)
    assert op.nn.adaptive_avg_pool2d(x, 7).attrs["output_size"] == (7, 7)
    with pytest.raises(MisuseError, match="strides is int or a list of them, found 'two'"):
        conv2d(x, w, strides="two")


def test_text_leaves_out_what_has_its_default() -> None:
    x, w = rx.Var("x", tensor(1, 3, 5, 5)), rx.Var("w", FILTER)
    texts = {
        conv2d(x, w): "R.nn.conv2d(x, w)",
        conv2d(x, w, padding=1): "R.nn.conv2d(x, w, padding=[1, 1])",
        conv2d(x, w, padding=(0, 0, 1, 0)): "R.nn.conv2d(x, w, padding=[0, 0, 1, 0])",
        conv2d(x, w, out_layout="NHWC"): 'R.nn.conv2d(x, w, out_layout="NHWC")',
        max2d(x, 2, 2): "R.nn.max_pool2d(x, pool_size=[2, 2], strides=[2, 2])",
        op.grad.max_pool2d_backward(x, x): "R.grad.max_pool2d_backward(x, x)",
    }
    for call, text in texts.items():
        assert call.script() == text


def test_a_call_built_by_hand_may_list_one_number_for_all_axes() -> None:
    attrs = {"strides": (2,), "padding": (1,), "out_layout": None}
    module = returning(lambda *v: rx.Call(Op("relax.nn.conv2d"), v, attrs), IMAGE, FILTER)
    x, w = np.ones((1, 3, 5, 6), "float32"), np.ones((8, 3, 3, 3), "float32")
    found = relaxpy.compile(module)["main"](x, w)
    np.testing.assert_allclose(found, convolve(x, w, 2, 1))


def test_mixed_precision_sums_in_the_wider_datatype() -> None:
    record = Op("relax.nn.conv2d").record
    assert record.precision_policy == 0
    narrow = rx.Var("x", tensor(1, 3, 5, 5, dtype="float16"))
    call = conv2d(narrow, rx.Var("w", tensor(8, 3, 3, 3, dtype="float16")), padding=1)
    assert record.mixed_precision is not None
    wide = record.mixed_precision(call, "float32")
    assert wide.struct_info == tensor(1, 8, 5, 5)
    assert dict(wide.attrs) == dict(call.attrs) | {"out_dtype": "float32"}


# ---- programs with sizes that are known in part


PARTLY = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4, "h", "w"), "float32"), k: R.Tensor((6, 2, 3, 3), "float32")):
        y = R.nn.conv2d(x, k, strides=2, padding=1, groups=2)
        z = R.nn.max_pool2d(y, 2, 1, padding=(0, 1), ceil_mode=True)
        return R.nn.conv2d_transpose(z, R.nn.relu(R.ones((6, 1, 2, 2), "float32")), 2, groups=3)
"""


def test_sizes_may_be_known_when_values_arrive() -> None:
    module = from_source(PARTLY)
    lowered = LegalizeOps()(module)
    ops = {node.op for node in walk(lowered["main"]) if isinstance(node, rx.Call)}
    assert ops == {Op("relax.call_tir")}
    executable = relaxpy.compile(module)
    assert "scalar" not in str(executable.report())
    random = np.random.default_rng(0)
    k = random.standard_normal((6, 2, 3, 3)).astype("float32")
    for n, h, w in ((1, 5, 6), (2, 8, 3), (0, 4, 4)):
        x = random.standard_normal((n, 4, h, w)).astype("float32")
        y = convolve(x, k, 2, 1, groups=2)
        z = (
            pool(y, "max", 2, 1, (0, 1), ceil=True)
            if n
            else np.zeros((0, 6, -(-h // 2) - 1, -(-w // 2) + 1))
        )
        expected = transpose_convolve(z, np.ones((6, 1, 2, 2)), 2, groups=3)
        found = executable["main"](x, k)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(
            relaxpy.compile(module, "reference")["main"](x, k), found, rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_channels_that_may_not_fit_are_looked_at_when_values_arrive(target: str) -> None:
    call = with_attrs(conv2d, groups=2)
    undecided = returning(call, tensor(1, C, 4, 4), tensor(4, N, 3, 3))
    main = relaxpy.compile(undecided, target)["main"]
    x, w = np.ones((1, 4, 4, 4), "float32"), np.ones((4, 2, 3, 3), "float32")
    np.testing.assert_allclose(main(x, w), convolve(x, w, groups=2))
    with pytest.raises(RuntimeCheckError, match="data has 3 channels, the weight is for 4 in 2 gr"):
        main(x[:, :3], w)


@pytest.mark.parametrize(
    ("call", "sinfos"),
    [
        (with_attrs(conv2d, padding=1), (tensor(2, 8, 9, 9), tensor(4, 8, 3, 3))),
        (with_attrs(conv2d, groups=8, strides=2), (tensor(2, 8, 9, 9), tensor(16, 1, 3, 3))),
        (with_attrs(conv2d, groups=2), (tensor(2, 8, 9, 9), tensor(4, 4, 3, 3))),
        (with_attrs(deconv, strides=2), (tensor(2, 8, 9, 9), tensor(8, 4, 3, 3))),
        (with_attrs(max2d, pool_size=3, strides=2, padding=1), (tensor(2, 8, 9, 9),)),
        (with_attrs(avg2d, pool_size=3, padding=1, ceil_mode=True), (tensor(2, 8, 9, 9),)),
        (with_attrs(avg2d, pool_size=3, padding=1), (tensor(N, 8, H, W),)),
        (with_attrs(op.nn.adaptive_avg_pool2d, output_size=4), (tensor(2, 8, 9, 9),)),
        (with_attrs(op.nn.adaptive_avg_pool2d, output_size=4), (tensor(N, C, H, W),)),
        (
            with_attrs(op.grad.max_pool2d_backward, pool_size=2),
            (tensor(2, 8, 8, 8), tensor(2, 8, 9, 9)),
        ),
        (
            with_attrs(op.grad.avg_pool2d_backward, pool_size=2),
            (tensor(2, 8, 8, 8), tensor(2, 8, 9, 9)),
        ),
    ],
)
def test_nothing_runs_one_element_at_a_time(call: Made, sinfos: tuple[Any, ...]) -> None:
    report = str(relaxpy.compile(returning(call, *sinfos)).report())
    assert "scalar" not in report
    assert "scatter" not in report
    assert any(kind in report for kind in ("elementwise", "reduction", "contraction"))
