"""The arguments of kernels: their datatypes, what does not fit, what shares memory."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, NoReturn, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt

from relaxpy.errors import RuntimeCheckError
from relaxpy.ir.dtype import DataType
from relaxpy.ir.tir.ops import int_range

Array: TypeAlias = npt.NDArray[Any]

_SMALL = (
    *("bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "int4"),
    *("float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "uint4", "int2"),
    *("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn", "uint2"),
)
_PLAIN = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
small = SimpleNamespace(**{name: getattr(ml_dtypes, name) for name in _SMALL})
"""The scalar types that NumPy itself does not have."""
types = SimpleNamespace(
    **{name: np.dtype(name) for name in _PLAIN},
    **{name: np.dtype(getattr(ml_dtypes, name)) for name in _SMALL},
)
"""The dtype objects, of which NumPy has one each: compared by identity first."""


_BUFFER = re.compile(r"(\w+): (\w+)\[(.*?)\]")
_COMMA = re.compile(r", (?![^(]*\))")


def fail(name: str, message: str) -> NoReturn:
    """Stop the program because an assertion of a kernel does not hold."""
    raise RuntimeCheckError(f"{name}: {message}")


def refuse(signature: str, *arrays: Any) -> None:
    """Say which of the `arrays` does not fit its buffer in the signature; return if all do.

    Errors:
        RuntimeCheckError: an argument is no array, or its rank, datatype or shape is wrong.
    """
    name = signature.partition("(")[0]
    known: dict[str, int] = {}
    open_sizes = False
    for (param, kind, shape), array in zip(_BUFFER.findall(signature), arrays, strict=True):
        sizes = _COMMA.split(shape) if shape else []
        wanted = f"{name}: {param} is {kind}[{shape}], found "
        if not isinstance(array, np.ndarray):
            raise RuntimeCheckError(wanted + type(array).__name__)
        found = f"{array.dtype}{list(array.shape)}"
        if array.dtype != getattr(types, kind) or array.ndim != len(sizes):
            raise RuntimeCheckError(wanted + found)
        for axis, (size, actual) in enumerate(zip(sizes, array.shape, strict=True)):
            if size.isidentifier():
                value = known.setdefault(size, actual)
            elif size.isdigit():
                value = int(size)
            else:
                open_sizes = True
                continue
            if value != actual:
                equal = f" = {value}" if size.isidentifier() else ""
                raise RuntimeCheckError(
                    f"{wanted}{found}: dimension {axis} should be {size}{equal}"
                )
    if open_sizes:
        found = ", ".join(f"{list(a.shape)}" for a in arrays)
        raise RuntimeCheckError(f"the shapes {found} do not fit {signature}")


def overlap(target: Array, others: tuple[Array, ...], same: int) -> bool:
    """Whether `target` shares memory with another array; the last `same` may be that very array."""
    alone = target.base is None
    for number, other in enumerate(others):
        if other is target:
            if number < len(others) - same:
                return True
        elif alone and (other.base is None or _owns(other.base)):
            # Both have memory of their own, so there is no need to compare bounds.
            if other.base is target:
                return True
        elif np.may_share_memory(target, other) and np.shares_memory(target, other):
            return True
    return False


def laid(array: Array, shape: tuple[int, ...], strides: Iterable[int]) -> Array:
    """The memory from the first element of `array` on, its elements `strides` bytes apart.

    The caller has checked that all of it lies inside.
    """
    kind = array.dtype
    if kind.isbuiltin != 1:
        # NumPy cannot name all datatypes that are not its own, as it must to lay them out anew.
        array = array.view(f"u{kind.itemsize}")
    return np.lib.stride_tricks.as_strided(array, shape, tuple(strides)).view(kind)


def _owns(base: object) -> bool:
    return type(base) is np.ndarray and base.base is None


def scalar(name: str, param: str, value: Any, kind: type[Any]) -> Any:
    """A scalar argument in its datatype: integers as Python integers.

    Errors:
        RuntimeCheckError: it is no number, or not one of this datatype.
    """
    wanted = np.dtype(kind)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    article = "an" if wanted.kind == "i" else "a"
    if not _is_number(value):
        found = type(value).__name__
        raise RuntimeCheckError(f"{name}: {param} is {article} {wanted}, found {found}")
    whole = wanted.kind in "biu" or "int" in wanted.name
    number = _exactly(value, wanted) if whole else _nearest(value, wanted)
    if number is None:
        raise RuntimeCheckError(f"{name}: {param} is {article} {wanted}, found {value!r:.40}")
    return number


def _is_number(value: Any) -> bool:
    """Whether `value` is a number, and no complex one; small datatypes have a kind of their own."""
    if isinstance(value, np.generic):
        return value.dtype.kind in "biufV" and not isinstance(value, np.void)
    return isinstance(value, (bool, int, float))


def _is_finite(value: Any) -> bool:
    return isinstance(value, int) or math.isfinite(float(value))


def _exactly(value: Any, kind: np.dtype[Any]) -> Any:
    """The same number as an integer or truth value of `kind`, or None."""
    if not _is_finite(value):
        return None
    number = int(value)
    if kind.kind == "b":
        return np.bool_(number) if number == value and number in (0, 1) else None
    low, high = int_range(DataType(kind.name))
    return number if number == value and low <= number <= high else None


def _nearest(value: Any, kind: np.dtype[Any]) -> Any:
    """The number of `kind` that is nearest, or None where it is out of range."""
    with np.errstate(all="ignore"):
        try:
            found = kind.type(value)
        except OverflowError:
            return None
        return found if _is_finite(found) or not _is_finite(value) else None
