"""Struct info of tensors in other layouts, and the maps that are refused."""

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError
from relaxpy.ir import structural_equal
from relaxpy.ir.relax import nodes as rx, op
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.script import from_source
from tests.ir.relax import texts
from tests.ir.relax.op.notation import Row, check_known, check_refused, rows
from tests.ir.relax.sinfos import tensor


def blocks(i, j):
    return i, j // 4, j % 4


NAMES = {
    "blocks": blocks,
    "blocks_by_int32": IndexMap.from_func(blocks, index_dtype="int32"),
    "mirrored": IndexMap.from_func(lambda i: 3 - i, inverse_index_map=lambda i: 3 - i),
    "reversed": lambda *i: i[::-1],
    "FloatImm": tir.FloatImm,
}
INFERRED = """
layout_transform(f32(2, 8), blocks) => f32(2, 2, 4)
layout_transform(f32(2, 9), blocks) => f32(2, 3, 4)
layout_transform(f32(n, 0), blocks) => f32(n, 0, 4)
layout_transform(f32(n, m * 4), blocks) => f32(n, m, 4)
layout_transform(f32(n, m), blocks) => f32(n, (m + 3) // 4, 4)
layout_transform(f32(n, m * 4), blocks_by_int32) => f32(n, m, 4)
layout_transform(f32[2], blocks) => f32[3]
layout_transform(f32[...], blocks) => f32[3]
layout_transform(f32(2, n, 3), reversed) => f32(3, n, 2)
layout_transform(f32(2, 9), blocks, at(FloatImm("float32", 1.0)), [1]) => f32(2, 3, 4)
layout_transform(f32(4), mirrored) => f32(4)
"""
REFUSED = """
layout_transform(f32(2), blocks) !! index_map takes 2 indices, x is R.Tensor((2,)
layout_transform(f32(2, 9), blocks, FloatImm("float16", 1.0))
    !! pad_value has the datatype of x R.Tensor((2, 9), dtype="float32"), found float16
layout_transform(i8(2, 9), blocks, 0.5)
    !! pad_value is an integer for x R.Tensor((2, 9), dtype="int8"), found 0.5
layout_transform(f32(4), lambda i: i // 2)
    !! IndexMap(lambda i: (i // T.int64(2))) loses elements of x R.Tensor((4,)
    !! for another inverse pass a T.index_map with inverse_index_map
layout_transform(f32(2, 9), blocks, axis_separators=[4])
    !! axis_separators are ascending positions of 3 axes at most, found [4]
layout_transform(f32(2, 9), blocks, input_axis_separators=[2, 1])
    !! input_axis_separators are ascending positions of 2 axes at most, found [2, 1]
"""


@pytest.mark.rule("DER-35")
@pytest.mark.parametrize("row", rows(INFERRED), ids=str)
def test_what_is_known_of_the_result(row: Row) -> None:
    check_known(row, **NAMES)


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize("row", rows(REFUSED), ids=str)
def test_what_does_not_fit_is_refused(row: Row) -> None:
    check_refused(row, **NAMES)


def test_an_index_map_is_a_function_of_indices() -> None:
    x = rx.Var("x", tensor(4))
    with pytest.raises(MisuseError, match="index_map is IndexMap, found 3"):
        op.layout_transform(x, 3)
    with pytest.raises(MisuseError, match="the function returns axis separators"):
        op.layout_transform(x, lambda i: (i // 2, IndexMap.AXIS_SEPARATOR, i % 2))


Blocks = texts.module("""
def forth(x: f32[n, m]):
    return R.layout_transform(x, index_map=lambda i, j: (j // 4, i, j % 4), pad_value=7)

def reverse(x: i32[5]):
    back = T.index_map(lambda i: 4 - i, inverse_index_map=lambda i: 4 - i)
    return R.layout_transform(x, index_map=back)
""")


@pytest.mark.parametrize("target", ["numpy", "reference"])
@pytest.mark.parametrize("columns", [0, 3, 4, 9])
def test_sizes_of_the_program(target: str, columns: int) -> None:
    again = from_source(Blocks.script())
    for module in (Blocks, again):
        executable = relaxpy.compile(module, target)
        x = np.arange(3 * columns, dtype="float32").reshape(3, columns)
        count = -(-columns // 4)
        padded = np.full((3, count * 4), 7, "float32")
        padded[:, :columns] = x
        expected = padded.reshape(3, count, 4).transpose(1, 0, 2)
        np.testing.assert_array_equal(executable["forth"](x), expected)
        y = np.arange(5, dtype="int32")
        np.testing.assert_array_equal(executable["reverse"](y), y[::-1])


def test_padding_is_copied_in_whole_slices() -> None:
    """A map to blocks is a view of the padded operand, without an index for each element."""

    Padded = texts.module("""
    def main(x: f32[2, 30, 8]):
        return R.layout_transform(x, index_map=lambda n, c, h: (n, c // 16, h, c % 16))
    """)
    source = "".join(relaxpy.compile(Padded).source.split())
    assert "gather" not in source
    assert ".transpose(0,1,3,2)" in source


def test_a_list_without_separators_is_no_separators() -> None:
    x = rx.Var("x", tensor(2, 8))
    plain, listed = op.layout_transform(x, blocks), op.layout_transform(x, blocks, None, [], [])
    assert listed.attrs["axis_separators"] is listed.attrs["input_axis_separators"] is None
    assert structural_equal(plain, listed, map_free_vars=True)
