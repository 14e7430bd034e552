"""SimplifyExpr merges operators that move or convert elements; results stay bit by bit."""

import numpy as np
import pytest

from relaxpy import relay
from relaxpy.ir import structural_equal
from relaxpy.relay import transform

X = "%x: Tensor[(2, 3), float32], %n: int32"
IMAGE = "%x: Tensor[(2, 3, 3, 3), float32], %n: int32"
TO_NHWC = 'src_layout="NCHW", dst_layout="NHWC"'
TO_BLOCKS = 'src_layout="NCHW", dst_layout="NCHW2c"'
SAME = ""
CASES = [
    (X, "reshape(reshape(%x, newshape=[6]), newshape=[3, 2])", "reshape(%x, newshape=[3, 2])"),
    (X, "reshape(expand_dims(%x, axis=0), newshape=[2, 3])", "%x"),
    (X, "reshape(%x, newshape=[0, -1])", "%x"),
    (X, "transpose(transpose(%x))", "%x"),
    (X, "transpose(transpose(expand_dims(%x, axis=0), axes=[1, 2, 0]), axes=[1, 2, 0])",
     "transpose(expand_dims(%x, axis=0), axes=[2, 0, 1])"),
    (X, 'cast(%x, dtype="float32")', "%x"),
    (X, 'cast(cast(%n, dtype="int64"), dtype="float32")', 'cast(%n, dtype="float32")'),
    (X, 'cast(cast(%n, dtype="int8"), dtype="float32")', SAME),
    (X, "1f * (%x - 0f) / 1f", "%x"),
    (X, "%x + 0f", SAME),
    (X, "%x - -0f", SAME),
    (X, "%n + 0", "%n"),
    (X, "0 - %n", SAME),
    (X, "%n * ones_like(%n) + full(0, shape=[])", "%n"),
    (X, "cast_like(%x, 1f)", "%x"),
    (X, 'layout_transform(layout_transform(%x, src_layout="NC", dst_layout="CN"), '
     'src_layout="CN", dst_layout="NC")', "%x"),
    (X, 'layout_transform(layout_transform(%x, src_layout="NC", dst_layout="NC3c"), '
     'src_layout="NC3c", dst_layout="CN")',
     'layout_transform(%x, src_layout="NC", dst_layout="CN")'),
    # int64 in float64 is rounded, the axes get other names in between, blocks are padded
    ("%x: Tensor[(5,), int64], %n: int32",
     'cast(cast(%x + 9007199254740992i64, dtype="float64"), dtype="int64")', SAME),
    (IMAGE, f"layout_transform(layout_transform(%x, {TO_NHWC}), {TO_NHWC})", SAME),
    (IMAGE, f"layout_transform(layout_transform(%x, {TO_BLOCKS}), "
     'src_layout="NCHW2c", dst_layout="NCHW")', SAME),
]  # fmt: skip


@pytest.mark.rule("RLY-108")
@pytest.mark.parametrize(("params", "body", "expected"), CASES)
def test_expressions_are_simplified(params: str, body: str, expected: str) -> None:
    module = relay.parse(f"fn({params}) {{ {body} }}")
    result = transform.SimplifyExpr()(module)
    target = relay.parse(f"fn({params}) {{ {expected or body} }}")
    assert structural_equal(result, target), result.astext()
    assert structural_equal(transform.SimplifyExpr()(result), result)
    ty = module["main"].params[0].checked_type
    args = np.arange(np.prod(ty.shape)).reshape(ty.shape).astype(str(ty.dtype)) - 2, 5
    before, after = (relay.create_executor(mod=m).evaluate()(*args) for m in (module, result))
    assert before.dtype == after.dtype
    assert np.array_equal(before, after)
