"""Struct info of tensors in other layouts, and the maps that are refused."""

from __future__ import annotations

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MisuseError, RelaxpyError
from relaxpy.ir import structural_equal
from relaxpy.ir.relax import nodes as rx, op
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.script import from_source, ir as I, relax as R, tir as T
from tests.ir.relax.op.test_rules import OPEN, Infos, M, Made, N, check, refused
from tests.ir.relax.sinfos import rank, tensor


def blocks(i, j):
    return i, j // 4, j % 4


INFERRED: list[tuple[Made, Infos, rx.StructInfo]] = [
    (lambda x: op.layout_transform(x, blocks), (tensor(2, 8),), tensor(2, 2, 4)),
    (lambda x: op.layout_transform(x, blocks), (tensor(2, 9),), tensor(2, 3, 4)),
    (lambda x: op.layout_transform(x, blocks), (tensor(N, 0),), tensor(N, 0, 4)),
    (lambda x: op.layout_transform(x, blocks), (tensor(N, M * 4),), tensor(N, M, 4)),
    (lambda x: op.layout_transform(x, blocks), (tensor(N, M),), tensor(N, (M + 3) // 4, 4)),
    (
        lambda x: op.layout_transform(x, IndexMap.from_func(blocks, index_dtype="int32")),
        (tensor(N, M * 4),),
        tensor(N, M, 4),
    ),
    (lambda x: op.layout_transform(x, blocks), (rank(2),), rank(3)),
    (lambda x: op.layout_transform(x, blocks), (OPEN,), rank(3)),
    (lambda x: op.layout_transform(x, lambda *i: i[::-1]), (tensor(2, N, 3),), tensor(3, N, 2)),
    (
        lambda x: op.layout_transform(x, blocks, rx.PrimValue(tir.FloatImm("float32", 1.0)), [1]),
        (tensor(2, 9),),
        tensor(2, 3, 4),
    ),
    (
        lambda x: op.layout_transform(
            x, IndexMap.from_func(lambda i: 3 - i, inverse_index_map=lambda i: 3 - i)
        ),
        (tensor(4),),
        tensor(4),
    ),
]


@pytest.mark.rule("DER-35")
@pytest.mark.parametrize(("make", "sinfos", "expected"), INFERRED)
def test_what_is_known_of_the_result(make: Made, sinfos: Infos, expected: rx.StructInfo) -> None:
    check(make, sinfos, expected)


REFUSED: list[tuple[Made, Infos, str]] = [
    (
        lambda x: op.layout_transform(x, blocks),
        (tensor(2),),
        "index_map takes 2 indices, x is R.Tensor((2,)",
    ),
    (
        lambda x: op.layout_transform(x, blocks, tir.FloatImm("float16", 1.0)),
        (tensor(2, 9),),
        'pad_value has the datatype of x R.Tensor((2, 9), dtype="float32"), found float16',
    ),
    (
        lambda x: op.layout_transform(x, blocks, 0.5),
        (tensor(2, 9, dtype="int8"),),
        'pad_value is an integer for x R.Tensor((2, 9), dtype="int8"), found 0.5',
    ),
    (
        lambda x: op.layout_transform(x, lambda i: i // 2),
        (tensor(4),),
        "IndexMap(lambda i: (i // T.int64(2))) loses elements of x R.Tensor((4,)",
    ),
    (
        lambda x: op.layout_transform(x, blocks, axis_separators=[4]),
        (tensor(2, 9),),
        "axis_separators are ascending positions of 3 axes at most, found [4]",
    ),
    (
        lambda x: op.layout_transform(x, blocks, input_axis_separators=[2, 1]),
        (tensor(2, 9),),
        "input_axis_separators are ascending positions of 2 axes at most, found [2, 1]",
    ),
]


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize(("make", "sinfos", "message"), REFUSED)
def test_what_does_not_fit_is_refused(make: Made, sinfos: Infos, message: str) -> None:
    refused(make, sinfos, message)


def test_the_inverse_of_a_map_can_be_stated() -> None:
    x = rx.Var("x", tensor(4))
    with pytest.raises(RelaxpyError) as caught:
        op.layout_transform(x, lambda i: i // 2)
    assert caught.value.diagnostic.hint == (
        "for another inverse pass a T.index_map with inverse_index_map"
    )


def test_an_index_map_is_a_function_of_indices() -> None:
    x = rx.Var("x", tensor(4))
    with pytest.raises(MisuseError, match="index_map is IndexMap, found 3"):
        op.layout_transform(x, 3)
    with pytest.raises(MisuseError, match="the function returns axis separators"):
        op.layout_transform(x, lambda i: (i // 2, IndexMap.AXIS_SEPARATOR, i % 2))


@I.ir_module
class Blocks:
    @R.function
    def forth(x: R.Tensor(("n", "m"), "float32")):
        return R.layout_transform(x, index_map=lambda i, j: (j // 4, i, j % 4), pad_value=7)

    @R.function
    def reverse(x: R.Tensor((5,), "int32")):
        back = T.index_map(lambda i: 4 - i, inverse_index_map=lambda i: 4 - i)
        return R.layout_transform(x, index_map=back)


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

    @I.ir_module
    class Padded:
        @R.function
        def main(x: R.Tensor((2, 30, 8), "float32")):
            return R.layout_transform(x, index_map=lambda n, c, h: (n, c // 16, h, c % 16))

    source = "".join(relaxpy.compile(Padded).source.split())
    assert "gather" not in source
    assert ".transpose(0,1,3,2)" in source


def test_a_list_without_separators_is_no_separators() -> None:
    x = rx.Var("x", tensor(2, 8))
    plain, listed = op.layout_transform(x, blocks), op.layout_transform(x, blocks, None, [], [])
    assert listed.attrs["axis_separators"] is listed.attrs["input_axis_separators"] is None
    assert structural_equal(plain, listed, map_free_vars=True)
