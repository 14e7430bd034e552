"""The arguments of kernels: their datatypes, what does not fit, what shares memory."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NoReturn, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt

from relaxpy.errors import RuntimeCheckError
from relaxpy.ir.core.dtype import DataType
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
"""The dtype objects; others may equal them, as those of arrays that were pickled do."""


_BUFFER = re.compile(r"(\w+): (\w+)\[(.*?)\]")
_COMMA = re.compile(r", (?![^(]*\))")


def fail(name: str, message: str) -> NoReturn:
    """Stop the program because an assertion of a kernel does not hold."""
    raise RuntimeCheckError(f"{name}: {message}")


def refuse(signature: str, *arrays: Any) -> None:
    """Say which of the `arrays` has another rank or datatype than its buffer; return if none has.

    Errors:
        RuntimeCheckError: an argument is not an array, or its rank or datatype is wrong.
    """
    for wanted, kind, sizes, array in _beside_buffers(signature, arrays):
        hint = None
        if isinstance(array, np.ndarray):
            if array.dtype == getattr(types, kind) and array.ndim == len(sizes):
                continue
            if array.dtype != getattr(types, kind):
                hint = f"convert it with {_conversion(kind)}"
        raise RuntimeCheckError(f"{wanted}, found {_described(array)}", hint=hint)


def refuse_shapes(
    signature: str, arrays: tuple[Array, ...], shapes: tuple[tuple[int, ...], ...]
) -> NoReturn:
    """Say which of the `arrays`, whose ranks and datatypes fit, differs from its shape.

    Errors:
        RuntimeCheckError: always; the first dimension that is wrong is named.
    """
    described = _beside_buffers(signature, arrays)
    for (wanted, _, sizes, array), shape in zip(described, shapes, strict=True):
        for axis, (found, size) in enumerate(zip(array.shape, shape, strict=True)):
            if found != size:
                expected = size if sizes[axis].isdigit() else f"{sizes[axis]} = {size}"
                raise RuntimeCheckError(
                    f"{wanted}, found {_described(array)}: dimension {axis} should be {expected}"
                )
    raise AssertionError(signature)


def _beside_buffers(
    signature: str, arrays: tuple[Any, ...]
) -> Iterator[tuple[str, str, list[str], Any]]:
    """For each argument what its buffer is, in words; its datatype and sizes; and the argument."""
    name = signature.partition("(")[0]
    for (param, kind, shape), array in zip(_BUFFER.findall(signature), arrays, strict=True):
        sizes = _COMMA.split(shape) if shape else []
        yield f"{name}: {param} is {kind}[{shape}]", kind, sizes, array


def _described(array: Any) -> str:
    if not isinstance(array, np.ndarray):
        return type(array).__name__
    swapped = "" if array.dtype.isnative else " with swapped bytes"
    return f"{array.dtype.newbyteorder('=')}{list(array.shape)}{swapped}"


def _conversion(kind: str) -> str:
    return f'.astype("{kind}")' if kind in _PLAIN else f".astype(ml_dtypes.{kind})"


def check_layout(title: str, array: Array, strides: tuple[int, ...], offset: int) -> None:
    """Stop the program unless `array` has these strides, and an offset of 0 is expected.

    Along a dimension of less than two elements, or in an array of none, any stride will do.

    Units:
        strides, offset  elements
    Errors:
        RuntimeCheckError: it lies otherwise.
    """
    size = array.itemsize
    for axis, (found, step) in enumerate(zip(array.strides, strides, strict=False)):
        if found != step * size and array.shape[axis] > 1 and array.size:
            actual = found // size if found % size == 0 else found / size
            raise RuntimeCheckError(
                f"{title} has stride {actual} in dimension {axis}, expected {step}"
            )
    if offset != 0:
        raise RuntimeCheckError(f"{title} begins at its first element, expected offset {offset}")


def overlap(target: Array, others: tuple[Array, ...], same: int) -> bool:
    """Whether `target`, which is written, needs the order of the text: it is no ordinary memory.

    It cannot be written, has an element twice, or shares memory with another array. The last `same`
    of these may be the very array.
    """
    if not target.flags.carray and (not target.flags.writeable or _meets_itself(target)):
        return True
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


def _meets_itself(array: Array) -> bool:
    """Whether two places of `array` may be one in memory."""
    reach = array.itemsize
    for step, size in sorted(zip(map(abs, array.strides), array.shape, strict=True)):
        if size > 1 and step < reach:
            return array.size > 0
        reach += step * (size - 1)
    return False


@contextmanager
def undone(title: str, *arrays: Array) -> Iterator[None]:
    """What the program stores to `arrays`, undone where a store meets one that cannot be written.

    The `title` names a kernel and the arrays, as `f: X, Y`.

    Errors:
        RuntimeCheckError: a store meets one of these.
    """
    kernel, _, names = title.partition(": ")
    named = zip(names.split(", "), arrays, strict=False)
    frozen = [found for found, array in named if not array.flags.writeable]
    kept = [(a, a.copy()) for a in arrays if a.flags.writeable] if frozen else []
    try:
        yield
    except ValueError as error:
        if not frozen or "read-only" not in str(error):
            raise
        for array, before in kept:
            array[...] = before
        wrong = " or ".join(frozen)
        raise RuntimeCheckError(
            f"{kernel}: buffer {wrong} lies in memory that cannot be written",
            hint="pass a copy",
        ).with_traceback(error.__traceback__) from None


def laid_over(
    array: Array,
    kind: np.dtype[Any] | type[Any],
    shape: tuple[int, ...] | None,
    name: str,
    offset: int = 0,
    strides: tuple[int, ...] | None = None,
) -> Array:
    """The memory of `array` as buffer `name` has it; without a shape, all in one dimension.

    Units:
        offset, strides  elements of the buffer
    Errors:
        RuntimeCheckError: it is too small, or has gaps.
    """
    if not isinstance(array, np.ndarray) or not array.flags.c_contiguous:
        raise RuntimeCheckError(f"buffer {name} is declared over memory with gaps")
    size = np.dtype(kind).itemsize
    whole = array.reshape(-1).view(np.uint8)[max(offset, 0) * size :]
    flat = whole[: whole.size // size * size].view(kind)
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
    # A step back leads before what is left of the memory from the offset on, but not out of it.
    return laid(flat, shape, (s * size for s in strides))


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
