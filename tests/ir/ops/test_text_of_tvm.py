"""Calls that TVM prints with every attribute parse to those that are written without them."""

import pytest

from relaxpy.errors import RelaxpyError
from relaxpy.ir import assert_structural_equal
from relaxpy.script import from_source

PAIRS = [
    ("R.matmul(x, x, out_dtype='void')", "R.matmul(x, x)"),
    ("R.matmul(x, x, out_dtype='')", "R.matmul(x, x)"),
    ("R.zeros_like(x, dtype='void')", "R.zeros_like(x)"),
    ("R.cumsum(x, axis=1, dtype='void', exclusive=False)", "R.cumsum(x, axis=1)"),
    (
        "R.unique(x, R.prim_value(1), R.prim_value(0), R.prim_value(0), R.prim_value(1))",
        "R.unique(x, return_counts=True)",
    ),
    ("R.unique(x, R.prim_value(False), axis=R.prim_value(1))", "R.unique(x, False, axis=1)"),
    (
        "R.nn.attention(y, y, y, scale=T.float32(0.25), causal_mask=None, window_size=None)",
        "R.nn.attention(y, y, y, scale=0.25)",
    ),
    (
        "R.image.resize2d(y, R.shape([8, 8]), roi=[T.float32(0.0), T.float32(0.0), "
        "T.float32(0.0), T.float32(0.0)], layout='NCHW', method='linear', "
        "coordinate_transformation_mode='half_pixel', out_dtype='void')",
        "R.image.resize2d(y, (8, 8))",
    ),
    (
        "R.image.resize2d(y, R.shape([8, 8]), roi=[T.float32(0.25), 0, T.float32(0.75), 1], "
        "coordinate_transformation_mode='tf_crop_and_resize')",
        "R.image.resize2d(y, (8, 8), roi=(0.25, 0.0, 0.75, 1.0), "
        "coordinate_transformation_mode='tf_crop_and_resize')",
    ),
    ("R.cumsum(x, axis=1, exclusive=0)", "R.cumsum(x, axis=1, exclusive=False)"),
    ("R.sum(x, axis=1, keepdims=1)", "R.sum(x, axis=1, keepdims=True)"),
]


def program(call: str) -> object:
    return from_source(f"""
@R.function
def main(x: R.Tensor((4, 4), "float32"), y: R.Tensor((1, 2, 4, 4), "float32")):
    z = {call}
    return z
""")


@pytest.mark.parametrize(("printed", "written"), PAIRS)
def test_all_attributes_are_those_that_are_left_out(printed: str, written: str) -> None:
    assert_structural_equal(program(printed), program(written))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("R.unique(x, R.prim_value(2))", "sorted is bool"),
        ("R.unique(x, 2)", "sorted is bool"),
        ("R.sum(x, keepdims=1.0)", "keepdims is bool"),
        ("R.argmax(x, axis=T.float32(1.0))", "axis is int"),
        ("R.image.resize2d(y, (8, 8), roi=(0.0, 0.0))", "roi is one number or 4"),
    ],
)
def test_a_literal_of_another_type_is_refused(call: str, message: str) -> None:
    with pytest.raises(RelaxpyError, match=message):
        program(call)
