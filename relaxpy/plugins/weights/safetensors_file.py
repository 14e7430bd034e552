"""Files of safetensors: the library checks what is read, and the tensors are mapped."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from relaxpy.errors import MisuseError
from relaxpy.exec.paths import as_path, write_whole
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.tensor import read_array
from relaxpy.plugins.importing.unsupported import FrontendError
from relaxpy.plugins.weights.tensors import Array, Entry, mapped
from relaxpy.support.entry import user_facing

_LENGTH = 8
"""The bytes of the number of bytes of the header, which comes first."""
_DTYPES = {
    "BOOL": "bool",
    "BF16": "bfloat16",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}


def read_safetensors(path: Path) -> dict[str, Entry]:
    """The tensors of a file.

    Errors:
        FrontendError: it is damaged, or has a datatype that Relax lacks.
        ModuleNotFoundError: safetensors is not installed.
    """
    try:
        from safetensors import SafetensorError, safe_open
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "these files are read by the package safetensors: pip install 'relaxpy[safetensors]'",
            name="safetensors",
        ) from None
    try:
        with safe_open(path, "np"):  # names, offsets and lengths are right if this opens it
            pass
    except (SafetensorError, OSError) as error:
        raise FrontendError(f"{str(path)!r} is no file of safetensors: {error}") from None
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH), "little")
        header = json.loads(file.read(length))
    entries = {}
    for name, found in header.items():
        if name == "__metadata__":
            continue
        known = _DTYPES.get(found["dtype"])
        if known is None:
            raise FrontendError(
                f"tensor {name!r:.80} of {str(path)!r} has the datatype {found['dtype']}, which "
                "Relax lacks"
            )
        dtype, shape = DataType(known).numpy(), tuple(found["shape"])
        offset = _LENGTH + length + found["data_offsets"][0]
        read = partial(mapped, path, offset, dtype, shape)
        entries[name] = Entry(shape, dtype, path, read)
    return entries


@user_facing
def save_weights(path: str | os.PathLike[str], values: Mapping[str, Any]) -> None:
    """Write tensors to a file of safetensors, which `open_weights` reads.

    A file of this name is replaced when the new one is complete. Larger datatypes are stored first,
    so that mapped arrays are aligned.

    Errors:
        MisuseError (also TypeError, ValueError): the path does not end in .safetensors, a name is
            not a string, or safetensors lacks the datatype of a value.
        OSError: the file cannot be written.
    """
    place = as_path(path)
    if place.suffix != ".safetensors":
        raise MisuseError(
            f"expected the name of a file of safetensors, found {place.name!r:.80}",
            hint="it ends in .safetensors",
            about=path,
        )
    kinds = {dtype: kind for kind, dtype in _DTYPES.items()}
    arrays: dict[str, Array] = {}
    header: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        array = np.asarray(read_array(value))
        kind = kinds.get(array.dtype.name)
        if not isinstance(name, str) or name == "__metadata__":
            raise MisuseError(f"{name!r:.80} is no name of a tensor", about=values)
        if kind is None:
            raise MisuseError(
                f"tensor {name!r:.80} has the datatype {array.dtype}, which safetensors lacks",
                about=value,
            )
        arrays[name] = array
        header[name] = {"dtype": kind, "shape": array.shape}
    stored = sorted(arrays, key=lambda name: -arrays[name].dtype.itemsize)
    end = 0
    for name in stored:
        begin, end = end, end + arrays[name].nbytes
        header[name]["data_offsets"] = [begin, end]
    table = json.dumps(header, separators=(",", ":")).encode()
    table += b" " * (-len(table) % _LENGTH)
    start = (len(table).to_bytes(_LENGTH, "little"), table)
    write_whole(place, chain(start, (_bytes(arrays[name]) for name in stored)))


def _bytes(array: Array) -> memoryview:
    little = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
    return little.reshape(-1).view(np.uint8).data
