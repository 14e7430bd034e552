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

SIMPLIFY = transform.SimplifyExpr()
TO_NHWC = 'src_layout="NCHW", dst_layout="NHWC"'
TO_BLOCKS = 'src_layout="NCHW", dst_layout="NCHW2c"'
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
    "reciprocals that overflow": (
        transform.DivToMul(), "%x: Tensor[(3,), float32]", "%x * 0f / 1e-42f"),
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


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "arguments": (lambda: transform.SplitArgs(2.5), "an integer of at least 2"),  # type: ignore[arg-type]
    "a gradient": (lambda: transform.gradient(3), "expected a Relay expression"),  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_refused(name: str) -> None:
    call, message = WRONG[name]
    with pytest.raises(MisuseError, match=message):
        call()
