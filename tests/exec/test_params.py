"""Files of parameters in the format of TVM."""

import contextlib
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from relaxpy.errors import MisuseError
from relaxpy.runtime import (
    load_param_dict,
    load_param_dict_from_file,
    save_param_dict,
    save_param_dict_to_file,
)

# TVM wrote {"w": float32 [[1, 2, 3]], "b": int64 7, "t": bool, "h": bfloat16, "f8": float8_e4m3fn}.
BY_TVM = bytes.fromhex(
    "b79c04054f8de5f7000000000000000005000000000000000100000000000000770100000000000000620100000000"
    "000000740100000000000000680200000000000000663805000000000000003fa1b496f0405edd0000000000000000"
    "01000000000000000200000002200100010000000000000003000000000000000c000000000000000000803f000000"
    "40000040403fa1b496f0405edd00000000000000000100000000000000000000000040010008000000000000000700"
    "0000000000003fa1b496f0405edd000000000000000001000000000000000100000006080100020000000000000002"
    "0000000000000001003fa1b496f0405edd000000000000000001000000000000000100000004100100010000000000"
    "00000200000000000000c03f3fa1b496f0405edd00000000000000000100000000000000010000000a080100010000"
    "000000000001000000000000003c"
)
VALUES = {
    "w": np.array([[1, 2, 3]], "float32"),
    "b": np.array(7, "int64"),
    "t": np.array([True, False]),
    "h": np.array([1.5], ml_dtypes.bfloat16),
    "f8": np.array([1.5], ml_dtypes.float8_e4m3fn),
}


def test_the_bytes_are_those_of_tvm(tmp_path: Path) -> None:
    assert save_param_dict(VALUES) == BY_TVM
    save_param_dict_to_file(VALUES, tmp_path / "params")
    for read in (load_param_dict(BY_TVM), load_param_dict_from_file(tmp_path / "params")):
        assert list(read) == list(VALUES)
        for name, value in VALUES.items():
            assert (read[name].dtype, read[name].shape) == (value.dtype, value.shape)
            np.testing.assert_array_equal(read[name].numpy(), value)
    assert load_param_dict(save_param_dict({})) == {}
    read["w"][0, 0] = 5  # it has memory of its own


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1, 1, 1), (3, 2)])
def test_arrays_of_all_shapes_and_layouts_read_back(shape: tuple[int, ...]) -> None:
    value = np.arange(np.prod(shape, dtype=int), dtype=">i4").reshape(shape).T
    read = load_param_dict(save_param_dict({"ä": value}))["ä"]
    assert read.dtype == np.dtype("int32")
    np.testing.assert_array_equal(read, value)


@settings(max_examples=200)
@given(st.integers(0, len(BY_TVM) - 1), st.binary(min_size=0, max_size=3))
def test_other_bytes_are_read_or_refused(at: int, new: bytes) -> None:
    data = BY_TVM[:at] + new + BY_TVM[at + 1 :]
    with contextlib.suppress(MisuseError):
        load_param_dict(data)


@pytest.mark.parametrize("data", [b"", b"x" * 100, BY_TVM[:-1], BY_TVM[:24], "text", None])
def test_what_is_not_a_file_is_refused(data: object) -> None:
    with pytest.raises(MisuseError):
        load_param_dict(data)  # type: ignore[arg-type]


@pytest.mark.parametrize("params", [3, {1: VALUES["w"]}, {"c": np.zeros(2, "complex64")}])
def test_what_cannot_be_saved_is_refused(params: object) -> None:
    with pytest.raises(MisuseError):
        save_param_dict(params)  # type: ignore[arg-type]
