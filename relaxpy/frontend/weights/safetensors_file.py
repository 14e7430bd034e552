"""Files of safetensors: the library checks them, and the tensors are mapped."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from relaxpy.frontend.shared.unsupported import FrontendError
from relaxpy.frontend.weights.tensors import Entry, mapped
from relaxpy.ir.core.dtype import DataType

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
