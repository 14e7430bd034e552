"""Files whose tables say anything: shapes that no array has, entries that cannot be read."""

import io
import itertools
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxpy.plugins.importing.unsupported import FrontendError
from relaxpy.relax.frontend.weights import open_weights

SIZES: list[Any] = [0, 1, 2, -1, True, 2**31, 2**62, 2**63, 99999999999999999999, 1.0, None]
SHAPES = [
    *([size] for size in SIZES),
    *map(list, itertools.product(SIZES, [0, 2, 2**62])),
    *([1] * 64, [1] * 65, [0] * 100, [2**32, 2**32, 0], [0, 2**62, 2**62]),
]


def npz(path: Path, shape: list[Any], data: bytes = b"") -> Path:
    header = repr({"descr": "<f4", "fortran_order": False, "shape": tuple(shape)}).encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    file = io.BytesIO()
    file.write(b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + data)
    with zipfile.ZipFile(path / "w.npz", "w") as archive:
        archive.writestr("x.npy", file.getvalue())
    return path / "w.npz"


def safetensors(path: Path, shape: list[Any]) -> Path:
    pytest.importorskip("safetensors")
    table = json.dumps({"x": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}).encode()
    (path / "w.safetensors").write_bytes(len(table).to_bytes(8, "little") + table)
    return path / "w.safetensors"


def gguf(path: Path, shape: list[Any], kind: int = 0) -> Path:
    pytest.importorskip("gguf")
    number = lambda n, size=8: (int(n or 0) % 2 ** (8 * size)).to_bytes(size, "little")  # noqa: E731
    text = b"GGUF" + number(3, 4) + number(1) + number(0) + number(1) + b"x"
    text += number(len(shape), 4) + b"".join(number(n) for n in reversed(shape))
    text += number(kind, 4) + number(0)
    (path / "w.gguf").write_bytes(text + bytes(256))
    return path / "w.gguf"


WRITERS: dict[str, Callable[[Path, list[Any]], Path]] = {
    "npz": npz,
    "safetensors": safetensors,
    "gguf": gguf,
    "gguf, quantised": lambda path, shape: gguf(path, shape, kind=8),
}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: str(s)[:40])
@pytest.mark.parametrize("kind", WRITERS)
def test_a_shape_is_that_of_the_array_or_refused(tmp_path: Path, kind: str, shape: Any) -> None:
    path = WRITERS[kind](tmp_path, shape)
    try:
        weights = open_weights(path)
        array = weights["x"]
    except FrontendError:
        return
    repr(weights)
    assert array.shape == weights.entry("x").shape
    assert array.size <= 64


def test_rows_without_elements_are_read(tmp_path: Path) -> None:
    for shape in ([3, 0], [0], [0, 32], [2, 0, 32]):
        array = open_weights(gguf(tmp_path, shape, kind=8))["x"]
        assert (array.shape, array.dtype) == (tuple(shape), np.float32)


@pytest.mark.parametrize("flag", [0x1, 0x40, 0x2041])
def test_an_encrypted_archive_is_refused(tmp_path: Path, flag: int) -> None:
    path = npz(tmp_path, [1], bytes(4))
    content = bytearray(path.read_bytes())
    content[6:8] = flag.to_bytes(2, "little")
    directory = content.index(b"PK\1\2")
    content[directory + 8 : directory + 10] = flag.to_bytes(2, "little")
    path.write_bytes(content)
    with pytest.raises(FrontendError, match=r"encrypted|password|is not an archive"):
        open_weights(path)


def test_each_byte_of_an_archive_may_be_another(tmp_path: Path) -> None:
    path = npz(tmp_path, [1], bytes(4))
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= int(rng.integers(1, 256))
        path.write_bytes(changed)
        try:
            weights = open_weights(path)
            for name in weights:
                weights[name]
        except FrontendError:
            pass


def test_an_archive_of_much_more_than_its_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    zeros = np.zeros(1 << 20, np.float32)
    np.savez_compressed(path, **{f"x{k}": zeros for k in range(20)})
    with pytest.raises(FrontendError, match=r"bytes has arrays of more than .*bytes"):
        open_weights(path)
    np.savez_compressed(path, x=zeros)  # small enough whatever the file has
    assert not open_weights(path)["x"].any()
    np.savez(path, **{f"x{k}": zeros for k in range(20)})
    assert len(open_weights(path)) == 20
