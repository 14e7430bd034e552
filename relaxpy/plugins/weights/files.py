"""`open_weights`: the tensors of a file or a folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

from relaxpy.errors import unexpected
from relaxpy.plugins.importing.unsupported import FrontendError, pointer_hint
from relaxpy.plugins.weights.gguf_file import read_gguf
from relaxpy.plugins.weights.npz_file import read_npz
from relaxpy.plugins.weights.safetensors_file import read_safetensors
from relaxpy.plugins.weights.tensors import Entry, Weights
from relaxpy.support.entry import user_facing

_INDEX = ".safetensors.index.json"
_LARGEST_INDEX = 256 * 1024 * 1024
_Reader: TypeAlias = Callable[[Path], dict[str, Entry]]
_READERS: Mapping[str, _Reader] = {
    ".safetensors": read_safetensors,
    ".gguf": read_gguf,
    ".npz": read_npz,
}
_PICKLED = {".bin", ".pt", ".pth", ".ckpt", ".pkl"}


@user_facing
def open_weights(path: str | os.PathLike[str]) -> Weights:
    """The tensors of a file of safetensors, GGUF or NumPy (npz), or of a folder, by name.

    A folder has an index as Hugging Face writes it, `*.safetensors.index.json`, or files of one of
    these kinds. Nothing is read but names and shapes; arrays are mapped where that is possible.
    Quantised tensors of GGUF are read as float32.

    Errors:
        FrontendError (also ValueError): a file is damaged, or its kind is not known; a name is in
            two files; the index names a file outside of its folder.
        FileNotFoundError: there is no such file.
        ModuleNotFoundError: the package for this kind is not installed.
    """
    try:
        place = Path(path)
    except TypeError:
        raise unexpected(path, "expected the path of weights") from None
    if not place.exists():
        raise FileNotFoundError(f"there is no file or folder {str(place)!r}")
    return Weights(place, _in_folder(place) if place.is_dir() else _in_file(place))


def _in_file(path: Path) -> dict[str, Entry]:
    if path.name.endswith(_INDEX):
        return _indexed(path)
    reader = _READERS.get(path.suffix)
    if reader is None:
        pickled = "it is unpickled, which runs code of its author: save it as safetensors"
        raise FrontendError(
            f"{str(path)!r} is no file of weights of a known kind",
            hint=pickled if path.suffix in _PICKLED else f"kinds are {', '.join(_READERS)}",
        )
    return _read(path, reader)


def _read(path: Path, reader: _Reader) -> dict[str, Entry]:
    with path.open("rb") as file:
        if hint := pointer_hint(file.read(64)):
            raise FrontendError(f"{str(path)!r} has no weights", hint=hint)
    return reader(path)


def _in_folder(folder: Path) -> dict[str, Entry]:
    files = sorted(path for path in folder.iterdir() if path.is_file())
    indices = [path for path in files if path.name.endswith(_INDEX)]
    if len(indices) == 1:
        return _indexed(indices[0])
    for suffix, reader in _READERS.items():
        if chosen := [path for path in files if path.suffix == suffix]:
            return _merged((path, _read(path, reader)) for path in chosen)
    pickled = next((path for path in files if path.suffix in _PICKLED), None)
    if pickled is not None:
        return _in_file(pickled)
    raise FrontendError(f"{str(folder)!r} has no files of weights ({', '.join(_READERS)})")


def _indexed(index: Path) -> dict[str, Entry]:
    """The tensors of the files that an index names."""
    if index.stat().st_size > _LARGEST_INDEX:
        raise FrontendError(f"{str(index)!r} is too large for an index")
    try:
        table = json.loads(index.read_bytes())["weight_map"]
        names = {str(tensor): str(file) for tensor, file in table.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise FrontendError(f"{str(index)!r} is no index: it has no table weight_map") from None
    files: dict[str, dict[str, Entry]] = {}
    for file in sorted(set(names.values())):
        path = index.parent / file
        if Path(file).name != file or not path.is_file() or file.endswith(_INDEX):
            raise FrontendError(
                f"{str(index)!r} names {file!r:.80}, which is no file of weights beside it"
            )
        files[file] = _in_file(path)
    absent = [tensor for tensor, file in names.items() if tensor not in files[file]]
    if absent:
        raise FrontendError(
            f"{str(index)!r} names {len(absent)} tensors that are not in their files, the first is "
            f"{absent[0]!r:.80} in {names[absent[0]]!r}"
        )
    return {tensor: files[file][tensor] for tensor, file in names.items()}


def _merged(files: Iterable[tuple[Path, dict[str, Entry]]]) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for path, found in files:
        if common := entries.keys() & found.keys():
            name = min(common)
            raise FrontendError(
                f"tensor {name!r:.80} is in {entries[name].file.name!r} and in {path.name!r}",
                hint="pass one of the files",
            )
        entries |= found
    return entries
