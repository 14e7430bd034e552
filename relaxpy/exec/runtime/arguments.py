"""Checks of the arguments of kernels: datatypes, shapes, layouts, and shared memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NoReturn

import ml_dtypes
import numpy as np

from relaxpy.errors import RuntimeCheckError, Span
from relaxpy.ir.core.dtype import Array, DataType
from relaxpy.ir.tir.ops import int_range

_SMALL = (
    *("bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "int4"),
    *("float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "uint4", "int2"),
    *("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn", "uint2", "int1"),
)
small = SimpleNamespace(
    **{name: getattr(ml_dtypes, name) for name in _SMALL if hasattr(ml_dtypes, name)}
)
"""The scalar types that NumPy itself lacks."""


def fail(name: str, message: str) -> NoReturn:
    """Stop the program: an assertion of a kernel failed."""
    raise RuntimeCheckError(f"{name}: {message}")


def described(array: Any) -> str:
    """The datatype and shape of an argument, or the name of its class."""
    if not isinstance(array, np.ndarray):
        return type(array).__name__
    swapped = "" if array.dtype.isnative else " with swapped bytes"
    return f"{array.dtype.newbyteorder('=')}{list(array.shape)}{swapped}"


def conversion(kind: str) -> str:
    """The method call that converts an array to a datatype."""
    return f'.astype("{kind}")' if kind not in _SMALL else f".astype(ml_dtypes.{kind})"


def check_layout(title: str, array: Array, strides: tuple[int, ...], offset: int) -> None:
    """Stop the program unless `array` has these strides, and an offset of 0 is expected.

    In a dimension with fewer than two elements, and in an empty array, any stride is accepted.

    Units:
        strides, offset  elements
    Errors:
        RuntimeCheckError: a stride or the offset differs.
    """
    size = array.itemsize
    for axis, (actual, expected) in enumerate(zip(array.strides, strides, strict=False)):
        if actual != expected * size and array.shape[axis] > 1 and array.size:
            stride = actual // size if actual % size == 0 else actual / size
            raise RuntimeCheckError(
                f"{title} has stride {stride} in dimension {axis}, expected {expected}"
            )
    if offset != 0:
        raise RuntimeCheckError(f"{title} has offset 0, expected {offset}")


def overlap(target: Array, others: tuple[Array, ...], same: int) -> bool:
    """True if the kernel must run in source order because of `target`, which is written.

    This holds if `target` is read-only, contains an element twice, or aliases another array. The
    last `same` of these may be the identical array.
    """
    if not target.flags.carray and (not target.flags.writeable or self_overlaps(target)):
        return True
    alone = target.base is None
    for other in others:
        base = other.base
        if other is target:
            if any(array is target for array in others[: len(others) - same]):
                return True
        elif alone and (base is None or _owns(base)):
            # Both arrays own their memory, so their bounds need not be compared.
            if base is target:
                return True
        elif np.may_share_memory(target, other) and np.shares_memory(target, other):
            return True
    return False


def strided_view(array: Array, shape: tuple[int, ...], strides: Iterable[int]) -> Array:
    """The view with `strides` in bytes that begins at the first element of `array`.

    The caller has checked that it is in bounds.
    """
    kind = array.dtype
    if kind.isbuiltin != 1:
        # `as_strided` does not support all extension datatypes.
        array = array.view(f"u{kind.itemsize}")
    return np.lib.stride_tricks.as_strided(array, shape, tuple(strides)).view(kind)


def self_overlaps(array: Array) -> bool:
    """True if two elements of `array` may have the same address."""
    reach = array.itemsize
    for step, size in sorted(zip(map(abs, array.strides), array.shape, strict=True)):
        if size > 1 and step < reach:
            return array.size > 0
        reach += step * (size - 1)
    return False


@contextmanager
def rollback(title: str, *arrays: Array) -> Iterator[None]:
    """A context that restores `arrays` if a store fails because one of them is read-only.

    The `title` names a kernel and the arrays, as `f: X, Y`.

    Errors:
        RuntimeCheckError: the program stores to a read-only array.
    """
    kernel, _, names = title.partition(": ")
    named = zip(names.split(", "), arrays, strict=False)
    frozen = [name for name, array in named if not array.flags.writeable]
    copies = [(a, a.copy()) for a in arrays if a.flags.writeable] if frozen else []
    try:
        yield
    except ValueError as error:
        if not frozen or "read-only" not in str(error):
            raise
        for array, copy in copies:
            array[...] = copy
        raise RuntimeCheckError(
            f"{kernel}: the memory of buffer {' or '.join(frozen)} is read-only", hint="pass a copy"
        ).with_traceback(error.__traceback__) from None


def reinterpreted(
    array: Array,
    kind: np.dtype[Any] | type[Any],
    shape: tuple[int, ...] | None,
    name: str,
    offset: int = 0,
    strides: tuple[int, ...] | None = None,
) -> Array:
    """The memory of `array` with the layout of buffer `name`; without a shape, one dimension.

    Units:
        offset, strides  elements of the buffer
    Errors:
        RuntimeCheckError: the memory is too small, or not contiguous.
    """
    if not isinstance(array, np.ndarray) or not array.flags.c_contiguous:
        raise RuntimeCheckError(f"buffer {name} is declared over memory that is not contiguous")
    size = np.dtype(kind).itemsize
    in_bytes = array.reshape(-1).view(np.uint8)[max(offset, 0) * size :]
    flat = in_bytes[: in_bytes.size // size * size].view(kind)
    if shape is None:
        return flat
    shape = tuple(max(n, 0) for n in shape)
    if 0 in shape:
        return flat[:0].reshape(shape)
    if strides:
        reach = [(n - 1) * step for n, step in zip(shape, strides, strict=True)]
        low, high = sum(min(r, 0) for r in reach), 1 + sum(max(r, 0) for r in reach)
    else:
        low, high = 0, math.prod(shape)
    if offset + low < 0 or high > flat.size:
        raise RuntimeCheckError(f"buffer {name} of shape {shape} is larger than its memory")
    if not strides:
        return flat[:high].reshape(shape)
    # Negative strides go below the offset, but stay in bounds.
    return strided_view(flat, shape, (s * size for s in strides))


def _owns(base: object) -> bool:
    return type(base) is np.ndarray and base.base is None


def scalar(name: str, param: str, value: Any, kind: type[Any], span: Span | None = None) -> Any:
    """A scalar argument in its datatype; integers are Python integers.

    Errors:
        RuntimeCheckError: the argument is not a number of this datatype; its position is `span`.
    """
    dtype = np.dtype(kind)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    declared = f"{name}: {param} is {'an' if dtype.kind == 'i' else 'a'} {dtype}"
    if not _is_number(value):
        found = type(value).__name__
        raise RuntimeCheckError(f"{declared}, found {found}", rule="EV-27", span=span)
    integral = dtype.kind in "biu" or "int" in dtype.name
    number = _exactly(value, dtype) if integral else _nearest(value, dtype)
    if number is None:
        raise RuntimeCheckError(f"{declared}, found {value!r:.40}", rule="EV-27", span=span)
    return number


def _is_number(value: Any) -> bool:
    """True if `value` is a real number. The small datatypes have the kind V."""
    if isinstance(value, np.generic):
        return value.dtype.kind in "biufV" and not isinstance(value, np.void)
    return isinstance(value, (bool, int, float))


def _is_finite(value: Any) -> bool:
    return isinstance(value, int) or math.isfinite(float(value))


def _exactly(value: Any, kind: np.dtype[Any]) -> Any:
    """The number as an integer or bool of `kind`, or None if it is not exact."""
    if not _is_finite(value):
        return None
    number = int(value)
    if kind.kind == "b":
        return np.bool_(number) if number == value and number in (0, 1) else None
    low, high = int_range(DataType(kind.name))
    return number if number == value and low <= number <= high else None


def _nearest(value: Any, kind: np.dtype[Any]) -> Any:
    """The nearest number of `kind`, or None if it is out of range."""
    with np.errstate(all="ignore"):
        try:
            number = kind.type(value)
        except OverflowError:
            return None
        return number if _is_finite(number) or not _is_finite(value) else None
