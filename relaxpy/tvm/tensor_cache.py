"""Files of weights in TVM's formats: folders of shards, and tables of tensors by name.

In a folder, `tensor-cache.json` (older: `ndarray-cache.json`) has `metadata`, and `records` of
shards. A shard has `dataPath`, `format`, `nbytes`, `md5sum`, and `records` of tensors: `name`,
`shape`, `dtype`, `format`, `nbytes`, `byteOffset`. With the format "f32-to-bf16", float32 is stored
as bfloat16.

All numbers of a table are little-endian: two words, the magic number and 0; the number of names,
and each with its length; the number of tensors, and each with two words as above, its device, rank,
datatype, dimensions, size in bytes, and elements.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Final, Self, TypeAlias, TypeVar
from weakref import finalize

import ml_dtypes
import numpy as np

from relaxpy.errors import MisuseError, check_type, unexpected
from relaxpy.exec.runtime.registry import provided
from relaxpy.exec.runtime.values import as_tensor
from relaxpy.ir.core.device import Device
from relaxpy.ir.core.dtype import Array, DataType
from relaxpy.ir.core.tensor import Tensor
from relaxpy.support.entry import user_facing

F = TypeVar("F", bound=Callable[..., Any])
Records: TypeAlias = list[dict[str, Any]]
_FILES: Final = ("tensor-cache.json", "ndarray-cache.json")
_SHORT_FILE: Final = "tensor-cache-b16.json"
_SHORT: Final = "f32-to-bf16"
_SHORT_MAX: Final = (2 - 2**-7) * 2.0**127
_LITTLE_ENDIAN: Final = "<"


@user_facing
def dump_tensor_cache(
    params: Mapping[str, object] | Iterable[tuple[str, object]],
    cache_dir: str | os.PathLike[str],
    encode_format: str = _SHORT,
    meta_data: object = None,
    shard_cap_mb: int = 32,
    show_progress: bool = False,
    update_if_exists: bool = False,
) -> None:
    """Write tensors by name to a folder, in shards of at most `shard_cap_mb` times 2**20 bytes.

    `meta_data` is a JSON value, or a function that returns one after all tensors are written. With
    `update_if_exists`, tensors that the folder has are replaced, and others added. float32 is
    rounded to bfloat16, unless `encode_format` is "raw"; finite numbers stay finite.

    Errors:
        MisuseError (also TypeError, ValueError): a name is not a string or occurs twice, a value is
            not a tensor of numbers, one that is replaced has another size, there is no such
            format, the size of shards is not positive, or JSON cannot represent the metadata.
    """
    if encode_format not in ("raw", _SHORT):
        raise unexpected(encode_format, f"encode_format is 'raw' or {_SHORT!r}")
    if not isinstance(shard_cap_mb, int) or shard_cap_mb is True or shard_cap_mb < 1:
        raise MisuseError(f"shard_cap_mb is a positive int, found {shard_cap_mb!r:.60}")
    pairs = list(_pairs(params))
    if not callable(meta_data):
        _json(meta_data)
    folder = Path(cache_dir)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / _FILES[0]
    old = _read(file) if update_if_exists and file.exists() else {"records": [], "metadata": {}}
    shards = _Shards(folder, old["records"], shard_cap_mb << 20)
    for name, value in pairs:
        record, data = _encoded(name, value, encode_format)
        if show_progress:
            print(f"saving {name}: {len(data)} bytes", file=sys.stderr)
        shards.add(record, data, replace=update_if_exists)
    shards.finish()
    info = meta_data() if callable(meta_data) else meta_data
    table = {"metadata": old["metadata"] if info is None else info, "records": shards.records}
    file.write_text(_json(table), encoding="utf-8")
    stored = [record for shard in shards.records for record in shard["records"]]
    short = [record for record in stored if _is_short(record)]
    if short:  # the file for programs that compute in bfloat16
        for record in short:
            record |= {"dtype": "bfloat16", "format": "raw"}
        (folder / _SHORT_FILE).write_text(_json(table), encoding="utf-8")
    else:
        (folder / _SHORT_FILE).unlink(missing_ok=True)  # an older one, of other shards


@user_facing
def load_tensor_cache(
    cachepath: str | os.PathLike[str], device: Device | None = None
) -> tuple[dict[str, Tensor], Any]:
    """The tensors by name, and the metadata, of a folder or of one of its JSON files.

    Errors:
        MisuseError (also TypeError, ValueError): there is no such file, or it does not describe
            the shards.
    """
    path = Path(cachepath)
    if path.suffix != ".json":
        path = next((path / name for name in _FILES if (path / name).exists()), path / _FILES[0])
    table = _read(path)
    tensors: dict[str, Tensor] = {}
    for shard in table["records"]:
        data = _shard_file(path.parent, shard["dataPath"]).read_bytes()
        if shard.get("format") != "raw-shard" or shard.get("nbytes") != len(data):
            raise MisuseError(f"{path}: the shard {shard['dataPath']} has {len(data)} bytes")
        for record in shard["records"]:
            tensors[record["name"]] = _decoded(record, data, path)
    return tensors, table["metadata"]


def _pairs(params: object) -> Iterator[tuple[object, object]]:
    """The names and values of tensors."""
    items = params.items() if isinstance(params, Mapping) else params
    for item in items if isinstance(items, Iterable) else [items]:
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise MisuseError(f"expected pairs of names and tensors, found {item!r:.60}")
        yield item[0], item[1]


def _json(value: object) -> str:
    try:
        return json.dumps(value, indent=4)
    except (TypeError, ValueError, RecursionError) as error:
        raise MisuseError(f"JSON cannot represent the metadata: {error}", about=value) from None


def _read(path: Path) -> dict[str, Any]:
    """The table of a JSON file, whose records have the fields that they need."""
    table: Any = None
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        described = all(
            isinstance(shard["dataPath"], str)
            and all(_FIELDS.keys() <= record.keys() for record in shard["records"])
            and all(
                isinstance(record[key], _FIELDS[key])
                for record in shard["records"]
                for key in _FIELDS
            )
            for shard in table["records"]
        )
        table.setdefault("metadata", {})
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise MisuseError(f"there is no file {path}", about=path) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        described = False
    if not described:
        raise MisuseError(f"{path} does not describe tensors", about=path)
    return dict(table)


_FIELDS: Final[Mapping[str, type]] = {
    "name": str,
    "shape": list,
    "dtype": str,
    "format": str,
    "nbytes": int,
    "byteOffset": int,
}


def _shard_file(folder: Path, name: str) -> Path:
    """The file of a shard, which is in the folder."""
    file = folder / name
    if Path(name).name != name or not file.is_file():
        raise MisuseError(f"the folder {folder} has no shard {name!r:.60}")
    return file


def _is_short(record: Mapping[str, Any]) -> bool:
    """True if a tensor of float32 is stored as bfloat16."""
    return bool(record["format"] == _SHORT and record["dtype"] == "float32")


def _encoded(name: object, value: object, encode_format: str) -> tuple[dict[str, Any], bytes]:
    """The record of a tensor, without its position, and its bytes."""
    array = np.asarray(as_tensor(value))
    dtype = array.dtype.name
    if not isinstance(name, str) or _numpy_dtype(dtype) != array.dtype.newbyteorder("="):
        raise MisuseError(f"{name!r:.60} is not the name of a tensor of numbers", about=value)
    record = {"name": name, "shape": list(array.shape), "dtype": dtype, "format": encode_format}
    if _is_short(record):
        limited = np.clip(array, -_SHORT_MAX, _SHORT_MAX)
        array = np.where(np.isfinite(array), limited, array).astype(ml_dtypes.bfloat16)
    data = array.astype(array.dtype.newbyteorder(_LITTLE_ENDIAN), copy=False).tobytes()
    return record | {"nbytes": len(data)}, data


def _decoded(record: Mapping[str, Any], data: bytes, path: Path) -> Tensor:
    """The tensor of a record in the bytes of a shard, as a copy."""
    name, shape, begin, size = (record[key] for key in ("name", "shape", "byteOffset", "nbytes"))
    dtype = _numpy_dtype("bfloat16" if _is_short(record) else record["dtype"])
    fits = all(type(n) is int and n >= 0 for n in shape)
    if (
        dtype is None
        or not fits
        or math.prod(n or 1 for n in shape) * dtype.itemsize >= 1 << 63
        or math.prod(shape) * dtype.itemsize != size
        or not 0 <= begin <= len(data) - size
    ):
        raise MisuseError(
            f"{path}: {name!r:.60} of shape {shape!r:.60} and datatype {record['dtype']!r:.20} "
            f"does not have {size} bytes at {begin}"
        )
    elements = np.frombuffer(data, dtype.newbyteorder(_LITTLE_ENDIAN), math.prod(shape), begin)
    result = elements.astype("float32" if _is_short(record) else dtype)
    return result.reshape(shape).view(Tensor)


def _numpy_dtype(name: str) -> np.dtype[Any] | None:
    try:
        dtype = DataType(name)
        return None if dtype.lanes != 1 else dtype.numpy()
    except (TypeError, ValueError):
        return None


class _Shards:
    """The files of a folder; the last is written when it is full."""

    def __init__(self, folder: Path, records: Records, capacity: int) -> None:
        self.folder, self.records, self.capacity = folder, records, capacity
        self._known = {r["name"]: (shard, r) for shard in records for r in shard["records"]}
        self._new: set[str] = set()
        self._open: Records = []
        self._data = bytearray()

    def add(self, record: dict[str, Any], data: bytes, *, replace: bool) -> None:
        """Add a tensor, or replace the one of its name that the folder has."""
        name = record["name"]
        if name in self._known and replace:
            self._replace(record, data)
            return
        if name in self._new:
            raise MisuseError(f"the name {name!r:.60} occurs twice", about=name)
        self._new.add(name)
        if self._data and len(self._data) + len(data) > self.capacity:
            self.finish()
        self._open.append(record | {"byteOffset": len(self._data)})
        self._data += data

    def _replace(self, record: dict[str, Any], data: bytes) -> None:
        shard, known = self._known[record["name"]]
        if known["nbytes"] != len(data):
            raise MisuseError(
                f"{record['name']!r:.60} has {known['nbytes']} bytes, found {len(data)}"
            )
        file = _shard_file(self.folder, shard["dataPath"])
        with file.open("r+b") as stream:
            stream.seek(known["byteOffset"])
            stream.write(data)
        known |= record
        shard["md5sum"] = _digest(file.read_bytes())

    def finish(self) -> None:
        """Write the last shard."""
        if not self._open:
            return
        name = f"params_shard_{len(self.records)}.bin"
        (self.folder / name).write_bytes(self._data)
        self.records.append(
            {
                "dataPath": name,
                "format": "raw-shard",
                "nbytes": len(self._data),
                "records": self._open,
                "md5sum": _digest(self._data),
            }
        )
        self._open, self._data = [], bytearray()


def _digest(data: bytes | bytearray) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


_loaded: dict[str, Array] = {}
"""The tensors that programs load by name, until they are removed."""


def _builtin(name: str) -> Callable[[F], F]:
    return provided(f"vm.builtin.{name}")


@_builtin("tensor_cache.load")
def load(path: str, device_type: int = 1, device_id: int = 0) -> None:
    """Load the tensors of a folder.

    Errors:
        MisuseError: as `load_tensor_cache`.
    """
    _loaded.update(load_tensor_cache(path)[0])


@_builtin("tensor_cache.update")
def update(name: str, value: Array, override: bool = True) -> None:
    """Enter a tensor; one that has the name already stays unless `override` is set."""
    if override or name not in _loaded:
        _loaded[str(name)] = value


@_builtin("tensor_cache.get")
def get(name: str) -> Array | None:
    """The tensor of a name, null if there is none."""
    return _loaded.get(name)


@_builtin("tensor_cache.remove")
def remove(name: str) -> None:
    """Remove the tensor of a name, if there is one."""
    _loaded.pop(name, None)


@_builtin("tensor_cache.clear")
def clear() -> None:
    """Remove all tensors."""
    _loaded.clear()


@_builtin("param_array_from_cache")
def param_array(prefix: str, count: int) -> tuple[Array, ...]:
    """The tensors `prefix_0`, `prefix_1` and so on; for -1, all until a number is missing.

    Errors:
        MisuseError (also ValueError): there are fewer.
    """
    if count >= 0:
        return param_array_by_name([f"{prefix}_{k}" for k in range(count)])
    found: list[Array] = []
    while (name := f"{prefix}_{len(found)}") in _loaded:
        found.append(_loaded[name])
    return tuple(found)


@_builtin("param_array_from_cache_by_name")
def param_array_by_name(names: Sequence[str]) -> tuple[Array, ...]:
    """The tensors of these names.

    Errors:
        MisuseError (also ValueError): there is none of a name.
    """
    missing = [name for name in names if name not in _loaded]
    if missing:
        raise MisuseError(f"no tensor {missing[0]!r:.60} was loaded", about=missing[0])
    return tuple(_loaded[name] for name in names)


_TABLE: Final = 0xF7E58D4F05049CB7
_TENSOR: Final = 0xDD5E40F096B4A13F
_CPU: Final = (1, 0)
_BOOL: Final = (6, 8)
_KINDS: Final = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
)
_CODES: Final = {
    **{name: (DataType(name).type_code, DataType(name).bits) for name in _KINDS},
    "bool": _BOOL,
}
# Older files have bools as 1-bit integers.
_DTYPES: Final = {**{code: name for name, code in _CODES.items()}, (1, 1): "bool"}


@user_facing
def save_param_dict(params: Mapping[str, object]) -> bytes:
    """The bytes of a file with tensors by name, which TVM reads, too.

    Errors:
        MisuseError (also TypeError, ValueError): a name is not a string, or a value is not a tensor
            of a datatype that the format has.
    """
    if not isinstance(params, Mapping) or not all(isinstance(name, str) for name in params):
        raise unexpected(params, "expected a dict of tensors by name")
    names = [name.encode() for name in params]
    parts = [struct.pack("<3Q", _TABLE, 0, len(names))]
    parts += [struct.pack("<Q", len(name)) + name for name in names]
    parts.append(struct.pack("<Q", len(names)))
    parts += [_saved(name, value) for name, value in params.items()]
    return b"".join(parts)


def _saved(name: str, value: object) -> bytes:
    array = np.asarray(as_tensor(value))
    code = _CODES.get(array.dtype.name)
    if code is None:
        raise MisuseError(
            f"the format has no datatype {array.dtype}, which {name} has", about=value
        )
    shape = array.shape
    head = struct.pack("<2Q3i2BH", _TENSOR, 0, *_CPU, len(shape), *code, 1)
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return head + struct.pack(f"<{len(shape)}qq", *shape, array.nbytes) + little.tobytes()


@user_facing
def load_param_dict(param_bytes: bytes) -> dict[str, Tensor]:
    """The tensors by name that the bytes of a file contain.

    Errors:
        MisuseError (also TypeError, ValueError): they are not such a file.
    """
    check_type(param_bytes, (bytes, bytearray, memoryview), "expected bytes")
    reader = _Reader(bytes(param_bytes))
    reader.expect(_TABLE)
    names = [reader.text() for _ in range(reader.count())]
    if reader.count() != len(names) or len(set(names)) != len(names):
        raise MisuseError("the file of parameters has other names than tensors", about=param_bytes)
    return {name: reader.tensor() for name in names}


class _Reader:
    """Reads the bytes of a file one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise MisuseError("the file of parameters is incomplete")
        self.at += size
        return self.data[self.at - size : self.at]

    def numbers(self, layout: str) -> tuple[Any, ...]:
        return struct.unpack(f"<{layout}", self.take(struct.calcsize(f"<{layout}")))

    def count(self) -> int:
        """A number of items, each of which takes at least eight bytes."""
        (count,) = self.numbers("Q")
        if count > len(self.data) // 8:
            raise MisuseError("the file of parameters is incomplete")
        return int(count)

    def expect(self, magic: int) -> None:
        if self.numbers("2Q")[0] != magic:
            raise MisuseError("this is not a file of parameters")

    def text(self) -> str:
        try:
            return self.take(self.numbers("Q")[0]).decode()
        except UnicodeDecodeError:
            raise MisuseError("a name in the file of parameters is not UTF-8") from None

    def tensor(self) -> Tensor:
        self.expect(_TENSOR)
        _, _, rank, code, bits, lanes = self.numbers("3i2BH")
        if (code, bits) not in _DTYPES or lanes != 1 or not 0 <= rank <= 64:
            raise MisuseError(f"a parameter has datatype {code, bits, lanes} and rank {rank}")
        dtype = DataType(_DTYPES[code, bits]).numpy()
        *shape, size = self.numbers(f"{rank}qq")
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != size:
            raise MisuseError(f"a parameter of shape {tuple(shape)} has {size} bytes")
        elements = np.frombuffer(self.take(size), dtype.newbyteorder("<"))
        return elements.astype(dtype).reshape(shape).view(Tensor)


@user_facing
def save_param_dict_to_file(params: Mapping[str, object], path: str | os.PathLike[str]) -> None:
    """Write tensors by name to a file."""
    Path(path).write_bytes(save_param_dict(params))


@user_facing
def load_param_dict_from_file(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Read the tensors by name that a file contains."""
    return load_param_dict(Path(path).read_bytes())


class TempDirectory:
    """A new directory, which is removed at the end of a `with` block or with this object.

    Its path is `path`, or `custom_path` if that is passed. With `keep_for_debug` it stays.
    """

    def __init__(
        self, custom_path: str | os.PathLike[str] | None = None, keep_for_debug: bool = False
    ) -> None:
        if custom_path is None:
            self.path = mkdtemp()
        else:
            self.path = os.fspath(custom_path)
            os.makedirs(self.path)
        self._end = finalize(self, rmtree, self.path, ignore_errors=True)
        if keep_for_debug:
            self._end.detach()

    @property
    def temp_dir(self) -> str:
        """The path of the directory."""
        return self.path

    def relpath(self, name: str) -> str:
        """The path of a file in the directory, also written `directory / name`."""
        return os.path.join(self.path, name)

    __truediv__ = relpath

    def listdir(self) -> list[str]:
        """The names of the files in the directory."""
        return os.listdir(self.path)

    def remove(self) -> None:
        """Remove the directory and its files."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def tempdir(
    custom_path: str | os.PathLike[str] | None = None, keep_for_debug: bool = False
) -> TempDirectory:
    """A new temporary directory."""
    return TempDirectory(custom_path, keep_for_debug)
