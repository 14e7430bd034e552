"""Passes that rewrite calls of operators leave what they would change, and refuse wrong arguments.

Each program has a form that looks like one that a pass rewrites: layouts that do not fit together,
blocks that are padded, datatypes that differ, sizes of 0, numbers that are rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relaxpy import relay
from relaxpy.errors import MisuseError
from relaxpy.ir import structural_equal
from relaxpy.relay import transform
from relaxpy.relay.dataflow_pattern import is_op, wildcard

SIMPLIFY = transform.SimplifyExpr()
FOLD = transform.FoldScaleAxis()
NHWC = transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]})
STATIC = transform.DynamicToStatic()
TO_NHWC = 'src_layout="NCHW", dst_layout="NHWC"'
TO_BLOCKS = 'src_layout="NCHW", dst_layout="NCHW2c"'
IMAGES = "%x: Tensor[(1, 2, 5, 5), float32], %w: Tensor[(4, 2, 3, 3), float32]"
CONV = "nn.conv2d(%x, %w, kernel_size=[3, 3])"
BYTES = "%x: Tensor[(2, 3), int8], %w: Tensor[(4, 3), int8]"
ONE = "reshape(Constant(2, (1,), int64), newshape=[1])"
PROGRAMS = {
    "int64 in float64": (
        SIMPLIFY, "%x: Tensor[(5,), int64]",
        'cast(cast(%x + 9007199254740992i64, dtype="float64"), dtype="int64")'),
    "the axes get other names": (
        SIMPLIFY, "%x: Tensor[(2, 3, 3, 3), float32]",
        f"layout_transform(layout_transform(%x, {TO_NHWC}), {TO_NHWC})"),
    "blocks are padded": (
        SIMPLIFY, "%x: Tensor[(2, 3, 4, 4), float32]",
        f"layout_transform(layout_transform(%x, {TO_BLOCKS}), "
        'src_layout="NCHW2c", dst_layout="NCHW")'),
    "blocks that fit": (
        SIMPLIFY, "%x: Tensor[(2, 4, 4, 4), float32]",
        f"layout_transform(layout_transform(%x, {TO_BLOCKS}), "
        'src_layout="NCHW2c", dst_layout="NHWC")'),
    "reciprocals that overflow": (
        transform.DivToMul(), "%x: Tensor[(3,), float32]", "%x * 0f / 1e-42f"),
    "weights of two datatypes": (
        transform.CombineParallelDense(2), BYTES + ", %v: Tensor[(4, 3), uint8]",
        'nn.dense(%x, %w, out_dtype="int32") - nn.dense(%x, %v, out_dtype="int32")'),
    "joined weights of two datatypes": (
        transform.CombineParallelDense(2, to_batch=False), BYTES + ", %v: Tensor[(4, 3), uint8]",
        'nn.dense(%x, %w, out_dtype="int32") - nn.dense(%x, %v, out_dtype="int32")'),
    "factors of a wider datatype": (
        FOLD, BYTES + ", %s: Tensor[(4,), int32]", 'nn.dense(%x, %w, out_dtype="int32") * %s'),
    "factors whose products wrap around": (
        FOLD, BYTES + ", %s: Tensor[(3,), int8]",
        'nn.dense((%x * cast(20, dtype="int8")) * %s, %w, out_dtype="int32")'),
    "no channels": (
        FOLD, "%x: Tensor[(2, 3), float32], %w: Tensor[(0, 3), float32], "
        "%s: Tensor[(1, 0), float32]", "nn.dense(%x, %w) * %s"),
    "a bias that is a call": (
        NHWC, IMAGES + ", %b: Tensor[(4,), float32]", f"nn.bias_add({CONV}, negative(%b))"),
    "a bias of blocks": (
        NHWC, IMAGES + ", %b: Tensor[(2,), float32]",
        f"nn.bias_add(layout_transform({CONV}, {TO_BLOCKS}), %b, axis=-1)"),
    "functions of padded blocks": (
        NHWC, "%x: Tensor[(1, 2, 5, 5), float32], %w: Tensor[(3, 2, 3, 3), float32]",
        f"exp(layout_transform({CONV}, {TO_BLOCKS}))"),
    "a number as a tensor of one element": (
        STATIC, "%x: Tensor[(2, 3), float32]", f'dyn.topk(%x, {ONE}, axis=1, ret_type="values")'),
    "a size beyond its datatype": (
        STATIC, "%x: Tensor[(300,), float32]", 'shape_of(%x, dtype="int8")'),
}  # fmt: skip


@pytest.mark.rule("RLY-108")
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_stay_where_a_rewrite_does_not_hold(name: str) -> None:
    step, params, body = PROGRAMS[name]
    module = relay.parse(f"fn({params}) {{ {body} }}")
    result = transform.InferType()(step(module))
    assert structural_equal(step(result), result)
    rng = np.random.default_rng(len(name))
    args = [
        rng.integers(0 if str(ty.dtype) == "uint8" else -5, 6, ty.shape).astype(str(ty.dtype))
        for ty in (param.checked_type for param in module["main"].params)
    ]
    expected = relay.create_executor(mod=module).evaluate()(*args)
    found = relay.create_executor(mod=result).evaluate()(*args)
    assert found.dtype == expected.dtype
    if expected.dtype.kind == "i":
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-5)


PATTERN = is_op("exp")(wildcard())
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "layouts in a list": (lambda: transform.ConvertLayout(["nn.conv2d"]), "maps names"),  # type: ignore[arg-type]
    "no layouts": (lambda: transform.ConvertLayout({"nn.conv2d": 3}), "are a list"),  # type: ignore[dict-item]
    "a layout of weights": (
        lambda: transform.ConvertLayout({"nn.conv2d": ["NHWC", "OIH"]}), "axes OIHW"),
    "branches": (lambda: transform.CombineParallelConv2D("3"), "is an integer, found '3'"),  # type: ignore[arg-type]
    "arguments": (lambda: transform.SplitArgs(2.5), "an integer of at least 2"),  # type: ignore[arg-type]
    "a table": (lambda: transform.MergeComposite(3), "an entry of a pattern table"),  # type: ignore[arg-type]
    "an entry": (lambda: transform.MergeComposite([("a",)]), "an entry of a pattern table"),
    "a pattern": (lambda: transform.MergeComposite([("a", 3)]), "an entry of a pattern table"),
    "a check": (lambda: transform.MergeComposite([("a", PATTERN, 3)]), "an entry of a pattern"),
    "a gradient": (lambda: transform.gradient(3), "expected a Relay expression"),  # type: ignore[arg-type]
    "weights": (
        lambda: relay.build_module.bind_params_by_name(relay.parse("fn() { 1 }")["main"], 3),  # type: ignore[arg-type]
        "a mapping of names"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_refused(name: str) -> None:
    call, message = WRONG[name]
    with pytest.raises(MisuseError, match=message):
        call()
