"""Weights of files: what is written is read, what does not fit is listed, damage is an error."""

from __future__ import annotations

import json
import random
import struct
import sys
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from relaxpy.errors import MisuseError, UnknownNameError
from relaxpy.plugins.importing.unsupported import FrontendError
from relaxpy.relax.frontend import nn
from relaxpy.relax.frontend.weights import Weights, load_weights, open_weights, save_weights

DTYPES = ("float32", "float16", "float64", "int8", "int16", "int32", "int64")
ALL_DTYPES = (*DTYPES, "uint8", "uint16", "uint32", "uint64", "bool")
SHAPES = ((), (0,), (1,), (3,), (2, 3), (4, 1, 5))


def drawn(dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(np.random.default_rng(0).uniform(0, 100, shape)).astype(dtype)


def written(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    """A file of the kind that its suffix says."""
    match path.suffix:
        case ".safetensors":
            save_file(arrays, path)
        case ".npz":
            np.savez(path, **arrays)
        case _:
            writer = gguf.GGUFWriter(path, "test")
            writer.add_array("words", ["some", "words"])
            writer.add_array("numbers", list(range(5)))
            writer.add_bool("flag", True)
            for name, array in arrays.items():
                writer.add_tensor(name, array)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
    return path


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".gguf"])
def test_every_datatype_and_shape_is_read_as_it_was_written(suffix: str, tmp_path: Path) -> None:
    is_gguf = suffix == ".gguf"
    arrays = {
        f"{dtype}.{k}": drawn(dtype, shape)
        for dtype in (DTYPES if is_gguf else ALL_DTYPES)
        for k, shape in enumerate(SHAPES)
        if not is_gguf or (shape and 0 not in shape)  # which it does not have
    }
    found = open_weights(written(tmp_path / f"w{suffix}", arrays))
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        entry = found.entry(name)
        assert (entry.shape, entry.dtype) == (array.shape, array.dtype), name
        np.testing.assert_array_equal(found[name], array, strict=True)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_floats_that_numpy_lacks(dtype: str, tmp_path: Path) -> None:
    array = drawn(getattr(ml_dtypes, dtype), (3, 4))
    code = {"bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"}[dtype]
    header = json.dumps({"a": {"dtype": code, "shape": [3, 4], "data_offsets": [0, array.nbytes]}})
    path = tmp_path / "w.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header.encode() + array.tobytes())
    found = open_weights(path)["a"]
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found.view("uint8"), array.view("uint8"))
    path = written(tmp_path / "w.npz", {"a": array})
    with pytest.raises(FrontendError, match=r"which Relax lacks|not a valid dtype"):
        open_weights(path)


def test_every_datatype_and_shape_is_written_as_safetensors(tmp_path: Path) -> None:
    arrays = {f"{d}.{k}": drawn(d, s) for d in ALL_DTYPES for k, s in enumerate(SHAPES)}
    path = tmp_path / "w.safetensors"
    save_weights(path, arrays)
    for name, array in load_file(path).items():
        np.testing.assert_array_equal(array, arrays.pop(name), strict=True)
    assert not arrays
    others = {
        "row": np.arange(6, dtype=">i4").reshape(2, 3).T,
        **{d: drawn(getattr(ml_dtypes, d), (2, 3)) for d in ("bfloat16", "float8_e5m2")},
        "x": [1.5, 2.5],
    }
    save_weights(str(path), others)
    found = open_weights(path)
    assert list(found) == list(others)
    for name, array in others.items():
        np.testing.assert_array_equal(found[name].astype("float64"), np.asarray(array, "float64"))
        assert found[name].flags.aligned


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("w.npz", {}, "it ends in .safetensors"),
        ("w.safetensors", {"a": np.ones(2), "b": np.array(["text"])}, "tensor 'b' has the data"),
        ("w.safetensors", {"a": None}, "tensor 'a' has the datatype object"),
        ("w.safetensors", {3: np.ones(2)}, "3 is not a name of a tensor"),
        ("w.safetensors", {"__metadata__": np.ones(2)}, "'__metadata__' is not a name"),
    ],
)
def test_what_is_not_written_leaves_the_file(name, values, message, tmp_path) -> None:
    path = tmp_path / "w.safetensors"
    save_weights(path, {"kept": np.ones(3)})
    with pytest.raises(MisuseError, match=message):
        save_weights(tmp_path / name, values)
    assert list(open_weights(path)) == ["kept"]
    assert list(tmp_path.iterdir()) == [path]


def test_bfloat16_of_gguf(tmp_path: Path) -> None:
    array = drawn(ml_dtypes.bfloat16, (3, 4))
    writer = gguf.GGUFWriter(tmp_path / "w.gguf", "test")
    writer.add_tensor("a", array.view("uint16"), raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = open_weights(tmp_path / "w.gguf")["a"]
    assert found.shape in {(3, 4), (3, 2)}
    np.testing.assert_array_equal(
        found.reshape(-1).view("uint16")[:6], array.reshape(-1).view("uint16")[:6]
    )


def dequantized(kind: str, stored: np.ndarray) -> np.ndarray:
    """What blocks of 32 numbers mean, from the description of the formats."""
    blocks = stored.reshape(-1, {"Q8_0": 34, "Q4_0": 18, "Q4_1": 20}[kind])
    scale = blocks[:, :2].copy().view("float16").astype("float32")
    if kind == "Q8_0":
        return (scale * blocks[:, 2:].copy().view("int8")).reshape(len(stored), -1)
    nibbles = blocks[:, -16:]
    levels = np.concatenate([nibbles & 15, nibbles >> 4], axis=1).astype("float32")
    if kind == "Q4_0":
        return (scale * (levels - 8)).reshape(len(stored), -1)
    least = blocks[:, 2:4].copy().view("float16").astype("float32")
    return (scale * levels + least).reshape(len(stored), -1)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1"])
def test_quantised_tensors_are_read_as_float32(kind: str, tmp_path: Path) -> None:
    format_ = getattr(gguf.GGMLQuantizationType, kind)
    values = np.random.default_rng(0).standard_normal((6, 64)).astype("float32")
    stored = gguf.quants.quantize(values, format_)
    writer = gguf.GGUFWriter(tmp_path / "w.gguf", "test")
    writer.add_tensor("a", stored, raw_dtype=format_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    weights = open_weights(tmp_path / "w.gguf")
    assert (weights.entry("a").shape, weights.entry("a").dtype) == ((6, 64), np.dtype("float32"))
    np.testing.assert_allclose(weights["a"], dequantized(kind, stored), rtol=1e-6)
    np.testing.assert_allclose(weights["a"], values, atol=0.5)


@pytest.mark.parametrize("suffix", [".safetensors", ".gguf"])
def test_arrays_are_the_mapped_file(suffix: str, tmp_path: Path) -> None:
    path = written(tmp_path / f"w{suffix}", {"a": drawn("float32", (8, 8))})
    array = open_weights(path)["a"]
    assert not array.flags.writeable
    assert not array.flags.owndata
    base = array
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)


def test_a_folder_with_an_index(tmp_path: Path) -> None:
    first, second = {"a": drawn("float32", (2,))}, {"b": drawn("float16", (3,))}
    written(tmp_path / "model-1.safetensors", first)
    written(tmp_path / "model-2.safetensors", second)
    weights = open_weights(tmp_path)  # without an index: all files
    assert set(weights) == {"a", "b"}
    index = tmp_path / "model.safetensors.index.json"
    table = {"a": "model-1.safetensors", "b": "model-2.safetensors"}
    index.write_text(json.dumps({"metadata": {}, "weight_map": table}))
    for path in (tmp_path, index):
        weights = open_weights(path)
        assert list(weights) == ["a", "b"]
        np.testing.assert_array_equal(weights["b"], second["b"])
    assert repr(weights) == "<2 tensors, 1.4e-08 GB, in 2 files>"
    with pytest.raises(UnknownNameError, match="no tensor 'bb'"):
        weights["bb"]
    index.unlink()
    written(tmp_path / "model.safetensors", first)  # Hugging Face reads no other then
    assert list(open_weights(tmp_path)) == ["a"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"a": "../w.safetensors"}, "which is not a file of weights beside it"),
        ({"a": "other.safetensors"}, "which is not a file of weights beside it"),
        ({"a": "m.safetensors.index.json"}, "which is not a file of weights beside it"),
        ({"a": "o.safetensors.index.json"}, "which is not a file of weights beside it"),
        ({"z": "w.safetensors"}, "names 1 tensors that are not in their files"),
        ([], "has no table weight_map"),
    ],
)
def test_an_index_that_is_wrong(table: Any, message: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    written(tmp_path / "w.safetensors", {"a": drawn("float32", (2,))})
    written(folder / "w.safetensors", {"a": drawn("float32", (2,))})
    for name in "om":
        index = folder / f"{name}.safetensors.index.json"
        index.write_text(json.dumps({"weight_map": table}))
    with pytest.raises(FrontendError, match=message):
        open_weights(index)


def test_a_name_in_two_files(tmp_path: Path) -> None:
    for name in ("v", "w"):
        written(tmp_path / f"{name}.safetensors", {"a": drawn("float32", (2,))})
    with pytest.raises(FrontendError, match=r"'a' is in 'v.safetensors' and in 'w.safetensors'"):
        open_weights(tmp_path)


def test_what_is_no_file_of_weights(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no file or folder"):
        open_weights(tmp_path / "w.safetensors")
    with pytest.raises(FrontendError, match="has no files of weights"):
        open_weights(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(FrontendError, match=r"(?s)known kind.*save it as safetensors"):
        open_weights(tmp_path)
    np.savez(tmp_path / "o.npz", a=np.array([{}], object))
    with pytest.raises(FrontendError, match="has the datatype object"):
        open_weights(tmp_path / "o.npz")
    with pytest.raises(MisuseError, match="expected the path of weights, found 3"):
        open_weights(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("package", ["safetensors", "gguf"])
def test_without_the_package(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / f"w.{package}", {"a": drawn("float32", (2,))})
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'relaxpy\[{package}\]'"):
        open_weights(path)


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".gguf"])
def test_damaged_files_are_errors_or_tensors(suffix: str, tmp_path: Path) -> None:
    arrays = {"first": drawn("float32", (4, 4)), "second": drawn("int32", (3,))}
    whole = written(tmp_path / f"w{suffix}", arrays).read_bytes()
    rng, path = random.Random(0), tmp_path / f"damaged{suffix}"
    for _ in range(150):
        data = bytearray(whole)
        match rng.randrange(4):
            case 0:
                del data[rng.randrange(len(data)) :]
            case 1:
                data[rng.randrange(min(len(data), 300))] = rng.randrange(256)
            case 2:
                place = rng.randrange(min(len(data), 300))
                data[place : place + 8] = struct.pack("<Q", rng.choice([2**63, 2**40, 2**31, 0]))
            case _:
                data[rng.randrange(300) : 0] = rng.randbytes(rng.randrange(1, 9))
        path.write_bytes(data)
        try:
            for array in open_weights(path).values():
                assert array.nbytes <= 10_000
        except FrontendError:
            pass


# --- into models


class Model(nn.Module):
    def __init__(self) -> None:
        self.qkv = nn.Linear(4, 6, bias=False)
        self.out = nn.Linear(2, 4)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.out(self.qkv(x)[:, :2])


STORED = {
    "q.weight": drawn("float32", (2, 4)),
    "k.weight": drawn("float16", (2, 4)) * 2,
    "v.weight": drawn("float32", (2, 4)) * 3,
    "o.weight": drawn("float64", (2, 4)),
    "o.bias": drawn("float32", (4,)),
}
NAMES = {
    "qkv.weight": ["q.weight", "k.weight", "v.weight"],
    "out.weight": (["o.weight"], np.transpose),
    "out.bias": "o.bias",
}


@pytest.mark.parametrize("kind", ["file", "table"])
@pytest.mark.parametrize("params", ["model", "state", "exported"])
@pytest.mark.parametrize("as_function", [False, True])
def test_tensors_are_renamed_joined_and_converted(kind, params, as_function, tmp_path) -> None:
    source = STORED if kind == "table" else written(tmp_path / "w.safetensors", STORED)
    model = Model()
    spec = {"forward": {"x": nn.spec.Tensor([1, 4], "float32")}}
    wanted: Any = {
        "model": model,
        "state": model.state_dict(),
        "exported": model.export_tvm(spec)[1],
    }[params]
    found = load_weights(source, wanted, NAMES.get if as_function else NAMES)
    assert list(found) == ["qkv.weight", "out.weight", "out.bias"]
    parts = [STORED[name].astype("float32") for name in ("q.weight", "k.weight", "v.weight")]
    np.testing.assert_array_equal(found["qkv.weight"], np.concatenate(parts), strict=True)
    np.testing.assert_array_equal(
        found["out.weight"], STORED["o.weight"].T.astype("float32"), strict=True
    )
    model.load_state_dict(found)
    assert model.out.bias.data is not None
    if kind == "file":
        assert not found["out.bias"].flags.owndata  # which needs no conversion


@pytest.mark.parametrize("stored", [("a.weight",), ("b.weight",), ("a.weight", "b.weight")])
def test_a_tied_weight_may_be_stored_once(stored: tuple[str, ...], tmp_path: Path) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.a = nn.Linear(2, 3, bias=False)
            self.b = nn.Linear(2, 3, bias=False)
            self.b.weight = self.a.weight

    weight = drawn("float32", (3, 2))
    path = written(tmp_path / "model.safetensors", dict.fromkeys(stored, weight))
    model = Model()
    values = load_weights(path, model)
    assert tuple(values) == stored
    assert model.load_state_dict(values) == ([], [])
    np.testing.assert_array_equal(model.b.weight.data, weight)
    with pytest.raises(FrontendError, match=r"missing: a\.weight"):
        load_weights({}, model)


def test_all_that_does_not_fit_is_listed(tmp_path: Path) -> None:
    stored = {k: v for k, v in STORED.items() if k != "k.weight"} | {"rope.inv_freq": np.ones(2)}
    with pytest.raises(FrontendError) as caught:
        load_weights(stored, Model(), NAMES)
    text = str(caught.value)
    assert "1 missing, 1 left over" in text
    assert "missing: k.weight, for qkv.weight" in text
    assert "left over: rope.inv_freq" in text
    with pytest.raises(FrontendError, match="1 missing, 0 left over"):
        load_weights(stored, Model(), NAMES, ignore=["*.inv_freq"])

    wrong = STORED | {"v.weight": np.ones((2, 5), "float32"), "o.bias": np.ones(4, "int32")}
    for source in (wrong, written(tmp_path / "w.safetensors", wrong)):
        with pytest.raises(FrontendError) as caught:
            load_weights(source, Model(), NAMES)
        text = str(caught.value)
        assert "2 parameters cannot have these values" in text
        assert "qkv.weight: expected the shape (6, 4)" in text
        assert "out.bias: expected float32, found int32" in text
    with pytest.raises(FrontendError, match=r"qkv.weight: expected float32, found int8"):
        load_weights(STORED | {"k.weight": STORED["k.weight"].astype("int8")}, Model(), NAMES)


@pytest.mark.parametrize(
    ("params", "names", "message"),
    [
        (3, None, "params is a model, or names with parameters, found 3"),
        ({"a": 3}, None, "params has names and parameters"),
        (Model(), 3, "names is a table or a function, found 3"),
        (Model(), {"qkv.weight": 3}, "comes from a name, names, or names and a function"),
        (Model(), {"qkv.weight": []}, "comes from a name, names, or names and a function"),
        ({"a": nn.Parameter(("n", 2))}, None, "the sizes of parameter a are not known"),
    ],
)
def test_what_cannot_be_loaded_into(params: Any, names: Any, message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        load_weights(STORED, params, names)


def test_progress_is_shown_where_it_is_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    weights = Weights(Path(), {})
    assert load_weights(weights, {}, progress=False) == {}
    load_weights(STORED, Model(), NAMES)
    assert capfd.readouterr().err == ""
    load_weights(STORED, Model(), NAMES, progress=True)


@pytest.mark.parametrize("suffix", ["safetensors", "gguf", "npz"])
def test_pointers_of_git_lfs_are_named(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"model.{suffix}"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 12\n")
    for place in (path, tmp_path):
        with pytest.raises(FrontendError, match=r"no weights\n(.*\n)*  hint: .* `git lfs pull`"):
            open_weights(place)
