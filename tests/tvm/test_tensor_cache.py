"""Folders of weights in the format of TVM and MLC."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import relaxpy
from relaxpy.contrib import tvmjs
from relaxpy.contrib.utils import tempdir
from relaxpy.errors import MisuseError
from relaxpy.runtime import dump_tensor_cache, load_tensor_cache
from relaxpy.script import relax as R

VALUES = {
    "w": np.array([[1, 2, 3]], "float32"),
    "b": np.array(7, "int64"),
    "t": np.array([True, False]),
    "h": np.array([1.5], ml_dtypes.bfloat16),
    "f8": np.array([1.5], ml_dtypes.float8_e4m3fn),
    "none": np.zeros((0, 3), "float16"),
}


def assert_same(read: dict[str, Any], expected: dict[str, np.ndarray]) -> None:
    assert list(read) == list(expected)
    for name, value in expected.items():
        assert (read[name].dtype, read[name].shape) == (value.dtype, value.shape)
        np.testing.assert_array_equal(read[name].numpy(), value)


@pytest.mark.parametrize("encode_format", ["raw", "f32-to-bf16"])
def test_tensors_read_back(tmp_path: Path, encode_format: str) -> None:
    dump_tensor_cache(VALUES, tmp_path, encode_format, meta_data={"made": "here"})
    read, metadata = load_tensor_cache(tmp_path)
    assert metadata == {"made": "here"}
    assert_same(read, VALUES)
    read["w"][0, 0] = 5  # it has memory of its own
    assert tvmjs.load_tensor_cache is load_tensor_cache


def test_the_files_are_those_of_tvm(tmp_path: Path) -> None:
    dump_tensor_cache({"x": np.array([1, 2], "float32"), "y": np.array([3], "int8")}, tmp_path)
    data = bytes.fromhex("803f004003")
    assert (tmp_path / "params_shard_0.bin").read_bytes() == data
    x = {"name": "x", "shape": [2], "dtype": "float32", "format": "f32-to-bf16"}
    y = {"name": "y", "shape": [1], "dtype": "int8", "format": "f32-to-bf16"}
    shard = {
        "dataPath": "params_shard_0.bin",
        "format": "raw-shard",
        "nbytes": 5,
        "records": [x | {"nbytes": 4, "byteOffset": 0}, y | {"nbytes": 1, "byteOffset": 4}],
        "md5sum": hashlib.md5(data, usedforsecurity=False).hexdigest(),
    }
    assert json.loads((tmp_path / "tensor-cache.json").read_text()) == {
        "metadata": {},
        "records": [shard],
    }
    read, _ = load_tensor_cache(tmp_path / "tensor-cache-b16.json")
    assert_same(read, {"x": np.array([1, 2], "bfloat16"), "y": np.array([3], "int8")})


def test_float32_is_rounded_to_finite_bfloat16(tmp_path: Path) -> None:
    value = np.array([1 + 2**-8, 1 + 3 * 2**-8, 3.4e38, -3.4e38, np.inf, np.nan], "float32")
    dump_tensor_cache({"x": value}, tmp_path)
    largest = float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)  # type: ignore[no-untyped-call]
    expected = np.array([1, 1 + 2**-6, largest, -largest, np.inf, np.nan], "float32")
    np.testing.assert_array_equal(load_tensor_cache(tmp_path)[0]["x"], expected)


def test_shards_have_a_size(tmp_path: Path) -> None:
    def values() -> Iterator[tuple[str, np.ndarray]]:
        for k in range(5):
            yield f"x_{k}", np.full(100_000, k, "float32")

    dump_tensor_cache(values(), tmp_path, "raw", lambda: ["late"], shard_cap_mb=1)
    assert [f.stat().st_size for f in sorted(tmp_path.glob("*.bin"))] == [800_000, 800_000, 400_000]
    read, metadata = load_tensor_cache(tmp_path)
    assert metadata == ["late"]
    assert_same(read, dict(values()))


def test_a_folder_is_updated(tmp_path: Path) -> None:
    dump_tensor_cache(VALUES, tmp_path, meta_data=1)
    new = {"w": VALUES["w"] + 1, "more": np.arange(3)}
    dump_tensor_cache(new, tmp_path, update_if_exists=True)
    read, metadata = load_tensor_cache(tmp_path)
    assert metadata == 1
    assert_same(read, VALUES | new)
    with pytest.raises(MisuseError, match="has 6 bytes, found 2"):
        dump_tensor_cache({"w": np.zeros(1, "float32")}, tmp_path, update_if_exists=True)


def test_a_folder_of_other_tensors_has_no_file_of_bfloat16(tmp_path: Path) -> None:
    dump_tensor_cache({"x": np.ones(2, "float32")}, tmp_path)
    assert (tmp_path / "tensor-cache-b16.json").exists()
    dump_tensor_cache({"x": np.ones(2, "int8")}, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["params_shard_0.bin", "tensor-cache.json"]


def test_older_folders_are_read(tmp_path: Path) -> None:
    dump_tensor_cache(VALUES, tmp_path)
    (tmp_path / "tensor-cache.json").rename(tmp_path / "ndarray-cache.json")
    assert_same(load_tensor_cache(str(tmp_path))[0], VALUES)


def test_progress_goes_to_standard_error(tmp_path, capsys) -> None:
    dump_tensor_cache(VALUES, tmp_path, show_progress=True)
    assert capsys.readouterr() == (
        "",
        "".join(
            f"saving {name}: {n} bytes\n"
            for name, n in (("w", 6), ("b", 8), ("t", 2), ("h", 2), ("f8", 1), ("none", 0))
        ),
    )
    assert sys.stderr


@pytest.mark.parametrize(
    ("params", "options", "message"),
    [
        ({"x": np.array(["a"])}, {}, "'x' is not the name of a tensor of numbers"),
        ({"x": np.array([1j])}, {}, "'x' is not the name of a tensor of numbers"),
        ({1: np.zeros(1)}, {}, "1 is not the name of a tensor of numbers"),
        ([("x", np.zeros(1)), ("x", np.zeros(1))], {}, "the name 'x' occurs twice"),
        (3, {}, "expected pairs of names and tensors, found 3"),
        ([("x", np.zeros(1), 1)], {}, "expected pairs of names and tensors, found"),
        ({}, {"shard_cap_mb": 0.5}, "shard_cap_mb is a positive int, found 0.5"),
        ({}, {"shard_cap_mb": "1"}, "shard_cap_mb is a positive int, found '1'"),
        ({}, {"shard_cap_mb": -1}, "shard_cap_mb is a positive int, found -1"),
        ({}, {"meta_data": {1, 2}}, "JSON cannot represent the metadata: .* set"),
        ({}, {"meta_data": lambda: {(1,): 2}}, "JSON cannot represent the metadata"),
        ({}, {"encode_format": "zip"}, "encode_format is 'raw' or 'f32-to-bf16', found 'zip'"),
    ],
)
def test_what_cannot_be_written_is_an_error(params, options, message, tmp_path) -> None:
    with pytest.raises(MisuseError, match=message):
        dump_tensor_cache(params, tmp_path, **options)


def test_a_folder_without_tensors_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="there is no file"):
        load_tensor_cache(tmp_path)


RECORD = {"name": "x", "shape": [2], "dtype": "int8", "format": "raw", "nbytes": 2, "byteOffset": 1}


def write(folder: Path, record: object, **shard: object) -> None:
    (folder / "s.bin").write_bytes(b"abc")
    table = {"dataPath": "s.bin", "format": "raw-shard", "nbytes": 3, "records": [record]} | shard
    (folder / "tensor-cache.json").write_text(json.dumps({"records": [table]}))


def test_a_record_by_hand_is_read(tmp_path: Path) -> None:
    write(tmp_path, RECORD)
    assert_same(load_tensor_cache(tmp_path)[0], {"x": np.frombuffer(b"bc", "int8")})


@pytest.mark.parametrize(
    ("changes", "shard"),
    [
        ({"byteOffset": 2}, {}),
        ({"byteOffset": -1}, {}),
        ({"nbytes": 3}, {}),
        ({"shape": [-2]}, {}),
        ({"shape": ["2"]}, {}),
        ({"shape": [True, 2]}, {}),
        ({"shape": [0, 10**30], "nbytes": 0}, {}),
        ({"shape": [0, 2**62, 4], "nbytes": 0}, {}),
        ({"shape": "2"}, {}),
        ({"dtype": "int8x2"}, {}),
        ({"dtype": "handle"}, {}),
        ({"dtype": "no"}, {}),
        ({"name": None}, {}),
        ({}, {"nbytes": 4}),
        ({}, {"format": "zip"}),
        ({}, {"dataPath": "../s.bin"}),
        ({}, {"dataPath": "/etc/hostname"}),
        ({}, {"dataPath": "missing.bin"}),
        ({}, {"dataPath": ""}),
        ({}, {"records": 3}),
        ({}, {"records": [3]}),
    ],
)
def test_a_wrong_record_is_an_error(changes, shard, tmp_path) -> None:
    write(tmp_path, RECORD | changes, **shard)
    with pytest.raises(MisuseError):
        load_tensor_cache(tmp_path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*RECORD, "records", "dataPath", "metadata"]), inner)
    ),
)


@settings(max_examples=200)
@given(JSON)
def test_any_other_file_is_an_error(
    tmp_path_factory: pytest.TempPathFactory, value: object
) -> None:
    folder = tmp_path_factory.mktemp("cache")
    (folder / "tensor-cache.json").write_text(json.dumps(value))
    if not (isinstance(value, dict) and not value.get("records", 1)):
        with pytest.raises(MisuseError):
            load_tensor_cache(folder)


def test_programs_take_loaded_tensors(tmp_path: Path) -> None:
    dump_tensor_cache({f"x_{k}": np.full(2, k, "int32") for k in range(3)}, tmp_path)
    cache = {
        name: relaxpy.get_global_func(f"vm.builtin.tensor_cache.{name}")
        for name in ("load", "get", "update", "remove", "clear")
    }
    cache["clear"]()
    cache["load"](str(tmp_path), 1, 0)

    @R.function(pure=False)
    def main():
        return R.call_packed(
            "vm.builtin.param_array_from_cache",
            R.str("x"),
            R.prim_value(2),
            sinfo_args=R.Tuple(R.Tensor((2,), "int32"), R.Tensor((2,), "int32")),
        )

    np.testing.assert_array_equal(main(), [[0, 0], [1, 1]])
    in_order = relaxpy.get_global_func("vm.builtin.param_array_from_cache")
    by_name = relaxpy.get_global_func("vm.builtin.param_array_from_cache_by_name")
    assert len(in_order("x", -1)) == 3
    cache["remove"]("x_1")
    assert len(in_order("x", -1)) == 1
    assert cache["get"]("x_1") is None
    with pytest.raises(MisuseError, match="no tensor 'x_1' was loaded"):
        by_name(["x_0", "x_1"])
    cache["update"]("x_0", np.ones(1), False)
    np.testing.assert_array_equal(by_name(["x_0"])[0], [0, 0])
    cache["update"]("x_0", np.ones(1))
    np.testing.assert_array_equal(cache["get"]("x_0"), [1])
    cache["clear"]()
    assert in_order("x", -1) == ()


def test_a_temporary_directory_is_removed_at_the_end_of_its_use(tmp_path: Path) -> None:
    with tempdir() as directory:
        path = Path(directory.relpath("weights"))
        path.write_text("w")
        assert directory / "weights" == str(path)
        assert directory.listdir() == ["weights"]
    assert not path.parent.exists()
    unnamed = tempdir().path  # not used any more
    assert not Path(unnamed).exists()
    kept = tempdir(tmp_path / "kept", keep_for_debug=True)
    assert Path(kept.temp_dir) == tmp_path / "kept"
    kept.remove()
    del kept
    assert (tmp_path / "kept").is_dir()
