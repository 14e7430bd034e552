"""Tables of tensors by name, in the file format of TVM.

All numbers are little-endian: two words, the magic number and 0; the number of names, and each with
its length; the number of tensors, and each with two words as above, its device, rank, datatype,
dimensions, size in bytes, and elements.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from relaxpy.errors import MisuseError, check_type, unexpected
from relaxpy.exec.runtime.values import as_tensor
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.tensor import Tensor
from relaxpy.support.entry import user_facing

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
