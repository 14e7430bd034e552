"""What convolutions and pools say of their results, and how they refuse what does not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError, RuntimeCheckError, StructInfoError
from relaxpy.ir.core.dtype import VOID
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx, op
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.transform.legalize import LegalizeOps
from relaxpy.ir.tir import expr as tir
from relaxpy.script import from_source
from tests.ir.relax.op.cases.windows import convolve, pool, transpose_convolve
from tests.ir.relax.sinfos import rank, shape, tensor

N, C, H, W = (tir.Var(name, "int64") for name in "nchw")
UNKNOWN = rx.TensorStructInfo(None, VOID)
S = rx.Var("s", rx.ShapeStructInfo(None, 4))
BY_SHAPE = rx.TensorStructInfo(S, "float32")
SHAPED = rx.TensorStructInfo(rx.Var("s", rx.ShapeStructInfo()), "float32")
IMAGE, FILTER = tensor(N, 3, H, W), tensor(8, 3, 3, 3)
Made = Callable[..., rx.Call]


def derive(make: Made, *sinfos: rx.StructInfo) -> rx.StructInfo | None:
    return make(*(rx.Var(f"x{k}", sinfo) for k, sinfo in enumerate(sinfos))).struct_info


def located(sinfo: rx.TensorStructInfo, vdevice: str) -> rx.TensorStructInfo:
    return rx.TensorStructInfo(sinfo.shape, sinfo.dtype, vdevice)


def with_attrs(operator: Any, **attrs: Any) -> Made:
    return lambda *operands: operator(*operands, **attrs)


conv2d, deconv = op.nn.conv2d, op.nn.conv2d_transpose
max2d, avg2d = op.nn.max_pool2d, op.nn.avg_pool2d
KNOWN: list[tuple[Made, tuple[rx.StructInfo, ...], rx.StructInfo]] = [
    (conv2d, (tensor(2, 3, 8, 9), FILTER), tensor(2, 8, 6, 7)),
    (conv2d, (IMAGE, FILTER), tensor(N, 8, H - 2, W - 2)),
    (with_attrs(conv2d, padding=1), (IMAGE, FILTER), IMAGE_OF := tensor(N, 8, H, W)),
    (with_attrs(conv2d, padding=(1, 1)), (IMAGE, FILTER), IMAGE_OF),
    (with_attrs(conv2d, padding=(0, 2, 2, 0)), (IMAGE, FILTER), IMAGE_OF),
    (
        with_attrs(conv2d, padding=1, strides=2),
        (IMAGE, FILTER),
        tensor(N, 8, (H - 1) // 2 + 1, (W - 1) // 2 + 1),
    ),
    (with_attrs(conv2d, dilation=2), (tensor(1, 3, 9, 7), FILTER), tensor(1, 8, 5, 3)),
    (with_attrs(conv2d, strides=4), (tensor(1, 3, 1, 9), tensor(1, 3, 3, 3)), tensor(1, 1, 0, 2)),
    (with_attrs(conv2d, groups=3), (tensor(1, 6, 3, 3), tensor(9, 2, 3, 3)), tensor(1, 9, 1, 1)),
    (conv2d, (tensor(N, C, 5, 5), tensor(8, C, 3, 3)), tensor(N, 8, 3, 3)),
    (conv2d, (tensor(N, C, 5, 5), tensor(8, 4, 3, 3)), tensor(N, 8, 3, 3)),
    (
        with_attrs(conv2d, data_layout="NHWC", kernel_layout="HWIO"),
        (tensor(N, H, W, 3), tensor(3, 3, 3, 8)),
        tensor(N, H - 2, W - 2, 8),
    ),
    (
        with_attrs(conv2d, data_layout="NCHW4c", out_layout="NHWC8c", kernel_layout="OIHW2i"),
        (tensor(1, 2, 5, 5, 4), tensor(16, 4, 3, 3, 2)),
        tensor(1, 3, 3, 2, 8),
    ),
    (
        with_attrs(conv2d, out_dtype="int32"),
        (tensor(1, 3, 3, 3, dtype="int8"), tensor(8, 3, 3, 3, dtype="uint8")),
        tensor(1, 8, 1, 1, dtype="int32"),
    ),
    (conv2d, (rank(4), FILTER), rank(4)),
    (conv2d, (IMAGE, BY_SHAPE), rank(4)),
    (conv2d, (BY_SHAPE, FILTER), rank(4)),
    (conv2d, (UNKNOWN, UNKNOWN), rx.TensorStructInfo(None, VOID, ndim=4)),
    (with_attrs(conv2d, out_layout="NCHW8c"), (UNKNOWN, FILTER), rank(5, "")),
    (conv2d, (located(tensor(1, 3, 3, 3), "cpu"), FILTER), located(tensor(1, 8, 1, 1), "cpu")),
    (op.nn.conv1d, (tensor(N, 3, W), tensor(8, 3, 3)), tensor(N, 8, W - 2)),
    (op.nn.conv3d, (tensor(N, 3, 4, H, W), tensor(8, 3, 1, 3, 1)), tensor(N, 8, 4, H - 2, W)),
    (deconv, (IMAGE, tensor(3, 8, 3, 3)), tensor(N, 8, H + 2, W + 2)),
    (
        with_attrs(deconv, strides=2, padding=1, output_padding=1),
        (IMAGE, tensor(3, 8, 3, 3)),
        tensor(N, 8, H * 2, W * 2),
    ),
    (
        with_attrs(deconv, groups=3, kernel_layout="OIHW"),
        (IMAGE, tensor(2, 3, 1, 1)),
        tensor(N, 6, H, W),
    ),
    (deconv, (IMAGE, UNKNOWN), rank(4, "")),
    (op.nn.conv1d_transpose, (tensor(N, 3, 5), tensor(3, 8, 3)), tensor(N, 8, 7)),
    (
        op.nn.conv3d_transpose,
        (tensor(N, 3, 5, 1, W), tensor(3, 8, 3, 1, 2)),
        tensor(N, 8, 7, 1, W + 1),
    ),
    (with_attrs(max2d, pool_size=3), (IMAGE,), tensor(N, 3, H - 2, W - 2)),
    (with_attrs(max2d, pool_size=2, strides=2), (IMAGE,), tensor(N, 3, H // 2, W // 2)),
    (
        with_attrs(max2d, pool_size=2, strides=2, ceil_mode=True),
        (IMAGE,),
        tensor(N, 3, (H - 1) // 2 + 1, (W - 1) // 2 + 1),
    ),
    (with_attrs(avg2d, pool_size=3, padding=1), (IMAGE,), IMAGE),
    (with_attrs(avg2d, pool_size=3, layout="NHWC"), (tensor(N, 8, 8, C),), tensor(N, 6, 6, C)),
    (with_attrs(avg2d, layout="NCHW4c"), (tensor(N, 2, H, W, 4),), tensor(N, 2, H, W, 4)),
    (with_attrs(avg2d, out_layout="NHWC3c"), (IMAGE,), tensor(N, H, W, 1, 3)),
    (max2d, (BY_SHAPE,), rank(4)),
    (max2d, (UNKNOWN,), rx.TensorStructInfo(None, VOID, ndim=4)),
    (max2d, (tensor(1, 2, 3, 3, dtype="bool"),), tensor(1, 2, 3, 3, dtype="bool")),
    (op.nn.avg_pool1d, (located(tensor(N, 3, W), "cpu"),), located(tensor(N, 3, W), "cpu")),
    (
        with_attrs(op.nn.max_pool3d, pool_size=2),
        (tensor(N, 1, 2, 2, W),),
        tensor(N, 1, 1, 1, W - 1),
    ),
    (op.nn.adaptive_avg_pool2d, (IMAGE,), IMAGE),
    (op.nn.adaptive_avg_pool2d, (SHAPED,), SHAPED),
    (op.nn.adaptive_avg_pool2d, (BY_SHAPE,), BY_SHAPE),
    (op.nn.adaptive_avg_pool2d, (rank(4),), rank(4)),
    (op.nn.adaptive_avg_pool2d, (rank(-1),), rank(4)),
    (with_attrs(op.nn.adaptive_avg_pool2d, output_size=7), (IMAGE,), tensor(N, 3, 7, 7)),
    (with_attrs(op.nn.adaptive_avg_pool2d, output_size=(1, 7)), (BY_SHAPE,), rank(4)),
    (with_attrs(op.nn.adaptive_avg_pool2d, out_layout="NHWC"), (IMAGE,), tensor(N, H, W, 3)),
    (with_attrs(op.nn.adaptive_avg_pool1d, output_size=1), (tensor(N, C, W),), tensor(N, C, 1)),
    (
        lambda g, w: op.grad.conv2d_backward_data(g, w, (N, 3, H, W)),
        (tensor(N, 8, H - 2, W - 2), FILTER),
        IMAGE,
    ),
    (op.grad.conv2d_backward_data, (rank(4), FILTER, rx.ShapeStructInfo(ndim=4)), None),
    (
        lambda g, x: op.grad.conv2d_backward_weight(g, x, (8, 3, 3, 3)),
        (tensor(N, 8, H - 2, W - 2), IMAGE),
        FILTER,
    ),
    (op.grad.max_pool2d_backward, (IMAGE, IMAGE), IMAGE),
    (op.grad.avg_pool2d_backward, (UNKNOWN, IMAGE), IMAGE),
    (
        with_attrs(op.grad.max_pool2d_selected, pool_size=2),
        (IMAGE, IMAGE),
        tensor(N, 3, H - 1, W - 1),
    ),
    (
        lambda g: op.grad.adaptive_avg_pool2d_backward(g, (N, 3, H, W), output_size=1),
        (tensor(N, 3, 1, 1),),
        IMAGE,
    ),
]


@pytest.mark.rule("DER-35")
@pytest.mark.parametrize(("make", "sinfos", "expected"), KNOWN)
def test_what_is_known_of_results(
    make: Made, sinfos: tuple[rx.StructInfo, ...], expected: rx.StructInfo | None
) -> None:
    found = derive(make, *sinfos)
    if expected is None:  # the shape is the variable itself
        assert isinstance(found, rx.TensorStructInfo)
        assert isinstance(found.shape, rx.Var)
        assert found.ndim == 4
    else:
        assert found == expected


#: Each beside a call that differs from it in what is wrong alone, and is taken.
REFUSED: list[tuple[Any, dict[str, Any], dict[str, Any], tuple[Any, ...], str, str | None]] = [
    (
        conv2d,
        {"strides": (1, 1, 1)},
        {"strides": (1, 1)},
        (IMAGE, FILTER),
        "strides has 1 or 2 numbers, found [1, 1, 1]",
        None,
    ),
    (
        conv2d,
        {"strides": 0},
        {"strides": 1},
        (IMAGE, FILTER),
        "strides is 1 at least, found [0, 0]",
        None,
    ),
    (
        conv2d,
        {"padding": (1, 1, 1)},
        {"padding": (1, 1, 1, 1)},
        (IMAGE, FILTER),
        "padding has 1, 2 or 4 numbers, found [1, 1, 1]",
        None,
    ),
    (
        op.nn.conv1d,
        {"padding": (1, 1, 1)},
        {"padding": (1, 1)},
        (rank(3), rank(3)),
        "padding has 1 or 2 numbers, found [1, 1, 1]",
        None,
    ),
    (
        conv2d,
        {"padding": -1},
        {"padding": 0},
        (IMAGE, FILTER),
        "padding is 0 at least, found [-1",
        None,
    ),
    (conv2d, {"dilation": 0}, {"dilation": 1}, (IMAGE, FILTER), "dilation is 1 at least", None),
    (conv2d, {"groups": 0}, {"groups": 1}, (IMAGE, FILTER), "groups is 1 at least, found 0", None),
    (
        conv2d,
        {"groups": 1},
        {"groups": 2},
        (tensor(N, 6, H, W), FILTER),
        "data has 6 channels, the weight is for 3 in 1 group: data is R.Tensor((n, 6, h, w), "
        'dtype="float32") in NCHW, weight is R.Tensor((8, 3, 3, 3), dtype="float32") in OIHW',
        "write groups=2",
    ),
    (
        conv2d,
        {"groups": 3},
        {"groups": 2},
        (tensor(N, C, H, W), FILTER),
        "3 groups do not divide the 8 output channels of the weight",
        None,
    ),
    (
        conv2d,
        {"data_layout": "NHCD"},
        {"data_layout": "NHCW"},
        (rank(4), FILTER),
        "data_layout arranges the axes NCHW, found 'NHCD'",
        "such as 'NCHW', 'NHWC' or 'NCHW16c'",
    ),
    (
        conv2d,
        {"kernel_layout": "IO"},
        {"kernel_layout": "OIHW"},
        (rank(4), rank(4)),
        "kernel_layout arranges the axes OIHW, found 'IO'",
        "such as 'OIHW', 'OHWI' or 'OIHW16o'",
    ),
    (
        conv2d,
        {"out_layout": "nchw"},
        {"out_layout": "NHWC"},
        (rank(4), rank(4)),
        "out_layout arranges the axes NCHW, found 'nchw'",
        "such as 'NCHW', 'NHWC' or 'NCHW16c'",
    ),
    (
        conv2d,
        {"out_layout": "NCHW3c"},
        {"out_layout": "NCHW4c"},
        (IMAGE, FILTER),
        "axis C of the result has size 8, which blocks of 3 do not divide, as NCHW3c has them",
        None,
    ),
    (
        conv2d,
        {"data_layout": "NCHW8c", "out_layout": "NCHW"},
        {"data_layout": "NCHW3c", "out_layout": "NCHW"},
        (tensor(N, 1, H, W, 3), FILTER),
        "dimension 4 of data (n, 1, h, w, 3) is 3, blocks in NCHW8c have 8",
        None,
    ),
    (
        conv2d,
        {"dilation": 4},
        {"dilation": 3},
        (tensor(1, 3, 7, 8), FILTER),
        "a window of 3 with dilation 4 does not fit in axis H, which has size 7 and 0 of padding",
        None,
    ),
    (
        op.nn.conv2d_transpose,
        {"strides": (1, 3), "output_padding": 1},
        {"strides": (2, 3), "output_padding": 1},
        (IMAGE, tensor(3, 8, 3, 3)),
        "output_padding is less than the stride, found 1 and stride 1 along axis H",
        None,
    ),
    (
        op.nn.conv2d_transpose,
        {"padding": 4},
        {"padding": 3},
        (tensor(1, 3, 5, 5), tensor(3, 8, 3, 3)),
        "padding removes 8 elements of axis H, which without it has size 7",
        None,
    ),
    (
        op.nn.conv2d_transpose,
        {"kernel_layout": "OIHW"},
        {"kernel_layout": "IOHW"},
        (IMAGE, tensor(3, 8, 3, 3)),
        "data has 3 channels, the weight is for 8 in 1 group",
        None,
    ),
    (
        op.nn.conv2d_transpose,
        {"groups": 2},
        {"groups": 3},
        (IMAGE, tensor(3, 8, 3, 3)),
        "2 groups do not divide the 3 input channels of the weight",
        None,
    ),
    (
        max2d,
        {"pool_size": (1, 2, 3)},
        {"pool_size": (1, 2)},
        (IMAGE,),
        "pool_size has 1 or 2 numbers",
        None,
    ),
    (max2d, {"pool_size": 0}, {"pool_size": 1}, (IMAGE,), "pool_size is 1 at least", None),
    (
        avg2d,
        {"pool_size": 9},
        {"pool_size": 8},
        (tensor(1, 3, 7, 7),),
        "a window of 9 does not fit in axis H, which has size 7 and 0 of padding",
        None,
    ),
    (
        avg2d,
        {"layout": "NCWH1w2h"},
        {"layout": "NCWH1w1h"},
        (tensor(1, 1, 5, 5, 1, 1),),
        "dimension 5 of data (1, 1, 5, 5, 1, 1) is 1, blocks in NCWH1w2h have 2",
        None,
    ),
    (
        op.nn.adaptive_avg_pool2d,
        {"output_size": (1, 2, 3)},
        {"output_size": (1, 2)},
        (IMAGE,),
        "output_size has 1 or 2 numbers, found [1, 2, 3]",
        None,
    ),
    (
        op.nn.adaptive_avg_pool2d,
        {"output_size": 0},
        {"output_size": 1},
        (IMAGE,),
        "output_size is 1 at least, found [0, 0]",
        None,
    ),
    (
        op.grad.conv2d_backward_data,
        {"padding": 1},
        {"padding": 0},
        (tensor(1, 8, 3, 3), FILTER, shape(1, 3, 5, 5)),
        "output_grad has the shape of the result, whose axis H has size 5, found R.Tensor(",
        None,
    ),
    (
        op.grad.avg_pool2d_backward,
        {"pool_size": 2},
        {"pool_size": 3},
        (tensor(1, 8, 3, 3), tensor(1, 8, 5, 5)),
        "output_grad has the shape of the result, whose axis H has size 4, found R.Tensor(",
        None,
    ),
    (
        op.grad.adaptive_avg_pool2d_backward,
        {"output_size": 2},
        {"output_size": 3},
        (tensor(1, 8, 3, 3), shape(1, 8, 5, 5)),
        "output_grad has the shape of the result, whose axis H has size 2",
        None,
    ),
]


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize(("operator", "wrong", "right", "sinfos", "message", "hint"), REFUSED)
def test_an_attribute_that_does_not_fit_is_refused(
    operator: Any,
    wrong: dict[str, Any],
    right: dict[str, Any],
    sinfos: tuple[rx.StructInfo, ...],
    message: str,
    hint: str | None,
) -> None:
    assert derive(with_attrs(operator, **right), *sinfos) is not None
    with pytest.raises(StructInfoError) as caught:
        derive(with_attrs(operator, **wrong), *sinfos)
    assert f"{operator.name}: {message}" in str(caught.value)
    assert caught.value.diagnostic.rule == "DER-36"
    assert caught.value.diagnostic.hint == hint


OPERANDS: list[tuple[Made, tuple[Any, ...], tuple[Any, ...], str, str | None]] = [
    (
        conv2d,
        (tensor(3, H, W), FILTER),
        (tensor(1, 3, H, W), FILTER),
        'data has the axes NCHW, found R.Tensor((3, h, w), dtype="float32") of rank 3',
        "add an axis by R.expand_dims",
    ),
    (
        conv2d,
        (IMAGE, tensor(8, 3)),
        (IMAGE, tensor(8, 3, 3, 3)),
        'weight has the axes OIHW, found R.Tensor((8, 3), dtype="float32") of rank 2',
        None,
    ),
    (
        conv2d,
        (IMAGE, tensor(8, 3, 3, 3, dtype="float16")),
        (IMAGE, FILTER),
        "data and weight have one datatype, found float32 and float16",
        "convert one of them with R.astype",
    ),
    (
        conv2d,
        (located(IMAGE, "cpu"), located(FILTER, "gpu")),
        (located(IMAGE, "cpu"), located(FILTER, "cpu")),
        "the operands are on one device, found cpu and gpu",
        None,
    ),
    (
        conv2d,
        (IMAGE, shape(8, 3, 3, 3)),
        (IMAGE, FILTER),
        "weight is a tensor, found R.Shape",
        None,
    ),
    (
        max2d,
        (tensor(3, H, W),),
        (tensor(1, 3, H, W),),
        'data has the axes NCHW, found R.Tensor((3, h, w), dtype="float32") of rank 3',
        "add an axis by R.expand_dims",
    ),
    (
        avg2d,
        (tensor(1, 3, H, W, dtype="bool"),),
        (tensor(1, 3, H, W, dtype="int8"),),
        'data holds numbers, found R.Tensor((1, 3, h, w), dtype="bool")',
        'convert it first: R.astype(data, "float32")',
    ),
    (
        op.grad.max_pool2d_selected,
        (tensor(1, 3, 4, 4), tensor(1, 3, 4, 5)),
        (tensor(1, 3, 4, 4), tensor(1, 3, 4, 4)),
        "values has the shape of data, found R.Tensor((1, 3, 4, 4)",
        None,
    ),
    (
        op.grad.max_pool2d_backward,
        (tensor(1, 3, 4, 4), tensor(1, 3, 4, 4, dtype="float16")),
        (tensor(1, 3, 4, 4), tensor(1, 3, 4, 4)),
        "output_grad and data have one datatype, found float32 and float16",
        "convert one of them with R.astype",
    ),
]


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize(("make", "wrong", "right", "message", "hint"), OPERANDS)
def test_an_operand_that_does_not_fit_is_refused(
    make: Made, wrong: tuple[Any, ...], right: tuple[Any, ...], message: str, hint: str | None
) -> None:
    assert derive(make, *right) is not None
    with pytest.raises(StructInfoError) as caught:
        derive(make, *wrong)
    assert message in str(caught.value)
    assert caught.value.diagnostic.hint == hint


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
    call = rx.Call(Op("relax.nn.conv2d"), (rx.Var("x", IMAGE), rx.Var("w", FILTER)), attrs)
    builder = BlockBuilder()
    with builder.function("main", list(call.args)):
        with builder.dataflow():
            out = builder.emit_output(call)
        builder.emit_func_output(out)
    module = builder.finalize()
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


def undecided() -> IRModule:
    x, w = rx.Var("x", tensor(1, C, 4, 4)), rx.Var("w", tensor(4, N, 3, 3))
    builder = BlockBuilder()
    with builder.function("main", [x, w]):
        with builder.dataflow():
            out = builder.emit_output(conv2d(x, w, groups=2))
        builder.emit_func_output(out)
    return builder.finalize()


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_channels_that_may_not_fit_are_looked_at_when_values_arrive(target: str) -> None:
    main = relaxpy.compile(undecided(), target)["main"]
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
    params = [rx.Var(f"x{k}", sinfo) for k, sinfo in enumerate(sinfos)]
    builder = BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(call(*params))
        builder.emit_func_output(out)
    report = str(relaxpy.compile(builder.finalize()).report())
    assert "scalar" not in report
    assert "scatter" not in report
    assert any(kind in report for kind in ("elementwise", "reduction", "contraction"))
