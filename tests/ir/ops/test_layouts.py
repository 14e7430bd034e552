"""Tensors in other layouts: maps, sizes of the program, and padding."""

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError
from relaxpy.ir import ops as op, structural_equal
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.script import from_source
from tests.ir.ops.notation import blocks
from tests.ir.relax import texts
from tests.ir.relax.sinfos import tensor


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


@pytest.mark.each_choice
@pytest.mark.parametrize("target", ["numpy", "reference"])
@pytest.mark.parametrize("columns", [0, 3, 4, 9])
def test_sizes_of_the_program(target: str, columns: int) -> None:
    again = from_source(Blocks.script())
    known = Blocks.clone()
    known["forth"] = Blocks["forth"].bind_symbolic_vars({"n": 3, "m": columns})
    for module in (Blocks, again, known):
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
