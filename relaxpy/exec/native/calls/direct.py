"""Kernels that native code calls by their address, with a table of their arguments.

The program of a packed function (`graph/packed.py`) has such tables.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, Final

import numpy as np

from relaxpy.exec.native.calls.entry import Array, Integer, Number, Param, size_names
from relaxpy.exec.native.calls.interpreter import DTYPES, address_of
from relaxpy.exec.native.llvm.function import I32, I64, POINTER
from relaxpy.exec.native.llvm.module import Module

_LARGEST: Final = 1 << 31
_KINDS: Final[Mapping[str, Callable[..., Param]]] = {
    kind.__name__: kind for kind in (Array, Integer, Number)
}


def direct_name(kernel: str) -> str:
    """The name of the function that takes the arguments of a kernel as a table."""
    return f"{kernel}.words"


def emit_direct(module: Module, kernel: str, params: Sequence[Param]) -> None:
    """Write the function of a kernel that takes the address of its arguments, words of 64 bits."""
    f = module.function(direct_name(kernel), [(POINTER, "words")], I32, optimised=False)
    [words] = f.params
    types = [POINTER if isinstance(param, Array) else I64 for param in params]
    types += [I64] * len(size_names(params))
    arguments = [f.load(t, f.element(words, n, I64), 8) for n, t in enumerate(types)]
    f.ret(f.call(kernel, I32, *arguments))


class DirectKernel:
    """A kernel in machine code at an `address`, which takes a table of its arguments."""

    def __init__(self, address: int, params: Sequence[Param]) -> None:
        self.address, self._params = address, params
        origins: dict[str, tuple[int, int]] = {}
        """The argument and the axis of each size; those of strides follow the axes."""
        for number, param in enumerate(params):
            sizes = (*param.shape, *(param.strides or ())) if isinstance(param, Array) else ()
            for axis, size in enumerate(sizes):
                if isinstance(size, str):
                    origins.setdefault(size, (number, axis))
        self._origins = [origins[name] for name in size_names(params)]

    def takes(self, values: Sequence[Any]) -> bool:
        """True if the kernel takes these arrays and numbers.

        Written arrays must not overlap others.
        """
        sizes: dict[str, int] = {}
        if len(values) != len(self._params):
            return False
        return all(_fits(*pair, sizes) for pair in zip(self._params, values, strict=True))

    def words(self, values: Sequence[Any]) -> list[int]:
        """The table for arrays and numbers such that it takes others of their kinds."""
        words: list[int] = []
        for value in values:
            kind = type(value)
            if kind is np.ndarray:
                words.append(address_of(value))
            else:
                words.append(number_word(value) if kind is float else value)
        for number, axis in self._origins:
            array = values[number]
            steps = axis - array.ndim
            size = array.shape[axis] if steps < 0 else array.strides[steps] // array.itemsize
            words.append(size)
        return words


def number_word(value: float) -> int:
    """The word that a kernel takes for a float."""
    word: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return word


def _fits(param: Param, value: Any, sizes: MutableMapping[str, int]) -> bool:
    """True if a kernel takes an argument; the sizes that it defines are added."""
    if isinstance(param, Number):
        return type(value) is float and param.dtype != "bool"
    if isinstance(param, Integer):
        is_small = type(value) is int and -_LARGEST <= value < _LARGEST
        return is_small and sizes.setdefault(param.name, value) == value
    if type(value) is not np.ndarray or value.dtype != DTYPES[param.dtype]:
        return False
    flags, expected, found = value.flags, param.shape, value.shape
    if value.ndim != len(expected) or not flags.aligned or param.written > flags.writeable:
        return False
    if param.strides is not None:
        expected += param.strides
        found += tuple(stride // value.itemsize for stride in value.strides)
    elif not flags.c_contiguous:
        return False
    pairs = zip(expected, found, strict=True)
    return all((sizes.setdefault(e, n) if isinstance(e, str) else e) == n for e, n in pairs)


def set_direct(function: Any, kernel: DirectKernel) -> None:
    """Let the builtin of a kernel have it."""
    function.__self__.direct = kernel


def direct_kernel(function: object) -> DirectKernel | None:
    """The kernel that a builtin calls, if it takes tables."""
    found: DirectKernel | None = getattr(getattr(function, "__self__", None), "direct", None)
    return found


def saved_params(params: Sequence[Param]) -> list[tuple[object, ...]]:
    """The JSON form of parameters."""
    return [(type(p).__name__, *(getattr(p, name) for name in p.__slots__)) for p in params]


def loaded_params(saved: Sequence[Sequence[Any]]) -> list[Param]:
    """The parameters of a JSON form."""
    return [
        _KINDS[kind](*(tuple(m) if isinstance(m, list) else m for m in members))
        for kind, *members in saved
    ]
