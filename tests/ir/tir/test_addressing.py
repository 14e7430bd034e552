"""Where elements of buffers lie, and pointers into them."""

import itertools

import pytest

from relaxpy.errors import MisuseError
from relaxpy.ir.equality.structural import assert_structural_equal, structural_equal
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import Buffer, decl_buffer

M, N, S = (tir.SizeVar(name, "int32") for name in "mns")


@pytest.mark.parametrize(
    ("shape", "strides", "offset", "separators"),
    [
        ((2, 3, 4), None, 0, ()),
        ((2, 3, 4), None, 5, ()),
        ((2, 3), (7, 2), 1, ()),
        ((2, 3, 4), None, 0, (1,)),
        ((2, 3, 4), None, 0, (1, 2)),
        ((2, 3, 4), (20, 5, 1), 0, (2,)),
        ((), None, 3, ()),
    ],
)
def test_offsets_are_sums_of_indices_times_strides(shape, strides, offset, separators) -> None:
    buffer = decl_buffer(
        shape, strides=strides, elem_offset=offset, axis_separators=separators, name="A"
    )
    for indices in itertools.product(*map(range, shape)):
        expected = []
        for begin, end in itertools.pairwise((0, *separators, len(shape))):
            here = 0
            for axis in range(begin, end):
                if strides is None:
                    here = here * shape[axis] + indices[axis]
                else:
                    here += indices[axis] * strides[axis]
            expected.append(here)
        expected[0] += offset
        found = buffer.offset_of(indices)
        assert [x.value for x in found if isinstance(x, tir.IntImm)] == expected


def test_offsets_of_indices_that_were_divided_are_simple() -> None:
    buffer = decl_buffer((M, N), elem_offset=100)
    assert_structural_equal(buffer.offset_of([2, 3]), [N * 2 + 103])
    i, wide = tir.SizeVar("i", "int32"), decl_buffer((M, N), strides=(S, 1))
    plain = decl_buffer((M, N))
    assert_structural_equal(plain.offset_of([i // N, i % N]), [i])
    assert_structural_equal(wide.offset_of([i // S, i % S]), [i])


def test_a_flat_buffer_is_the_same_memory() -> None:
    buffer = decl_buffer((4, M, 32), "int8", elem_offset=8)
    flat = buffer.get_flattened_buffer()
    assert flat.data is buffer.data
    assert (flat.dtype, flat.strides, flat.ndim) == ("int8", (), 1)
    assert structural_equal(flat.elem_offset, ops.const(8))
    assert structural_equal(flat.shape[0], 4 * M * 32)
    parted = decl_buffer((4, 16, 32), axis_separators=[2]).get_flattened_buffer()
    assert parted.axis_separators == (1,)
    assert [s.value for s in parted.shape if isinstance(s, tir.IntImm)] == [64, 32]
    wide = decl_buffer((4, 5), strides=(8, 1)).get_flattened_buffer()
    assert [s.value for s in wide.shape if isinstance(s, tir.IntImm)] == [32]
    one = decl_buffer((16,))
    assert one.get_flattened_buffer() is one
    assert decl_buffer(()).get_flattened_buffer().ndim == 1


def test_pointers_say_what_is_done_with_how_much() -> None:
    buffer = decl_buffer((M, N), elem_offset=4)
    pointer = buffer.access_ptr("rw", offset=100)
    kind, data, where, count, mask = pointer.args
    assert pointer.dtype == "handle"
    assert pointer.op.name == "tir.tvm_access_ptr"
    assert (kind.dtype, data) == ("float32", buffer.data)
    assert structural_equal(where, ops.const(104))
    assert structural_equal(count, M * N - 100)
    assert structural_equal(mask, ops.const(Buffer.READ | Buffer.WRITE))
    assert structural_equal(buffer.access_ptr("w").args[4], ops.const(Buffer.WRITE))
    assert structural_equal(buffer.access_ptr(1, extent=7).args[3], ops.const(7))
    wide = decl_buffer((M, N), strides=(N + 1, 1))
    assert structural_equal(wide.access_ptr("r").args[3], (N + 1) * M)
    for lanes, kind, found in (
        (1, "float32", [8, 8]),
        (2, "float32x2", [4, 4]),
        (4, "float32x4", [2, 2]),
    ):
        wide = decl_buffer((16,)).access_ptr("r", content_lanes=lanes, offset=8)
        assert wide.args[0].dtype == kind
        assert [a.value for a in wide.args[2:4] if isinstance(a, tir.IntImm)] == found


def test_what_is_not_a_place_or_mask_is_refused() -> None:
    buffer = decl_buffer((M, N), name="A")
    with pytest.raises(MisuseError, match="buffer A has 2 dimensions, found 1 index"):
        buffer.offset_of([1])
    with pytest.raises(MisuseError, match="expected a list of indices, found 3"):
        buffer.offset_of(3)  # type: ignore[arg-type]
    parted = decl_buffer((4, 4), axis_separators=[1], elem_offset=3, name="B")
    with pytest.raises(MisuseError, match="the memory of buffer B has several axes"):
        parted.offset_of([0, 0])
    for mask in ("x", "", "rx"):
        with pytest.raises(MisuseError, match='a mask consists of "r" and "w"'):
            buffer.access_ptr(mask)
    with pytest.raises(MisuseError, match=r"an offset is an integer, found 0\.5"):
        buffer.access_ptr("r", offset=0.5)
    with pytest.raises(MisuseError, match="an extent is an integer, found True"):
        buffer.access_ptr("r", extent=True)
    with pytest.raises(MisuseError, match=r"an index is an integer, found 1\.5"):
        buffer.offset_of([0, 1.5])
