"""The run-time library of generated kernels beside NumPy: `rt` in their source.

It has float functions over arrays that NumPy lacks, or defines differently from C, calls of
external functions, reinterpreted memory, and constants.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache, partial
from operator import mul
from typing import Any, Final, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from relaxpy.errors import MisuseError, RuntimeCheckError
from relaxpy.exec.machine.tuning import NumPy
from relaxpy.exec.numpy.products import contract, dot, matmul, stays_finite
from relaxpy.exec.numpy.row_blocks import blocks, combine, end_if_interrupted
from relaxpy.exec.runtime.arguments import fail, reinterpreted, small, strided_view
from relaxpy.exec.runtime.registry import call_packed
from relaxpy.exec.runtime.scalar import cast, divisor
from relaxpy.exec.runtime.values import describe, empty as new_tensor, memory_bytes
from relaxpy.ir.core.dtype import Array, DataType
from relaxpy.ir.tir.ops import trunc_div

Doubles: TypeAlias = npt.NDArray[np.float64]

_MIDDLE = 2.0
_FAR = 6.0
"""For larger arguments erf is 1 in double precision."""


@cache
def _series() -> tuple[Doubles, Doubles]:
    """The Taylor series of erf(x) / x in x**2, and the Chebyshev series of erfc(x) * exp(x**2)."""
    near = [(-1) ** n * 2 / math.sqrt(math.pi) / math.factorial(n) / (2 * n + 1) for n in range(40)]
    return np.array(near), _interpolated(_tail, 24)


def _interpolated(function: Callable[[float], float], degree: int) -> Doubles:
    """The Chebyshev coefficients of `function` on [-1, 1]."""
    points = np.polynomial.chebyshev.chebpts1(degree + 1)
    values = np.array([function(float(t)) for t in points])
    basis = np.polynomial.chebyshev.chebvander(points, degree)
    coefficients: Doubles = basis.T @ values * (2 / (degree + 1))
    coefficients[0] /= 2
    return coefficients


def _tail(t: float) -> float:
    x = 1 / ((t + 1) / 2 * (1 / _MIDDLE - 1 / _FAR) + 1 / _FAR)
    return math.erfc(x) * math.exp(x * x)


def integers(x: Any, kind: str, out: Array | None = None) -> Any:
    """Floats as integers; those that are out of range are converted as by x86-64."""
    values, dtype = np.asarray(x, np.float64), np.dtype(kind)
    if dtype == np.uint64:
        above = values >= 2.0**63
        low = _signed(np.where(above, values - 2.0**63, values), np.dtype(np.int64))
        result = low.astype(dtype) ^ (above.astype(dtype) << 63)
    else:
        result = _signed(values, np.promote_types(dtype, np.int32)).astype(dtype)
    if out is None:
        return result[()]
    out[...] = result
    return out


def _signed(values: Doubles, dtype: np.dtype[Any]) -> Array:
    """Floats toward zero; the smallest integer of a NaN or of a value that is out of range."""
    smallest = np.iinfo(dtype).min
    is_inside = np.abs(values) < -float(smallest)
    return np.where(is_inside, np.where(is_inside, values, 0).astype(dtype), smallest)


_NUMERATOR = (2.1945832e-06, 0.00028753822, 0.0035613365, 0.052159645, 0.18471454, 1.1283791)
_DENOMINATOR = (3.971173e-05, 0.0011260384, 0.014560502, 0.111904256, 0.49703202, 1.0)
_REACH = 3.8
"""erf(x) = x * N(x**2) / D(x**2), highest powers first, in single precision.

Fitted to erf on [0, 3.75] by reweighted least squares, with a maximum relative error of 1e-8. In
float32 the result is accurate to 6 units in the last place; it is 1 above `_REACH`.
"""


def _single(x: npt.NDArray[np.float32], out: Array | None) -> Array:
    """erf in single precision, with few passes over the array and without branches."""
    x = np.clip(x, np.float32(-_REACH), np.float32(_REACH))
    square = np.multiply(x, x)
    above, below = (_horner(c, square) for c in (_NUMERATOR, _DENOMINATOR))
    np.multiply(above, x, out=above)
    result: Array = np.divide(above, below, out=above if out is None else out)
    return np.clip(result, np.float32(-1), np.float32(1), out=result)


def _horner(coefficients: tuple[float, ...], x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    first, *rest = map(np.float32, coefficients)
    value = np.multiply(x, first)
    for coefficient in rest[:-1]:
        np.add(value, coefficient, out=value)
        np.multiply(value, x, out=value)
    return np.add(value, rest[-1], out=value)


def _double(value: Doubles) -> Doubles:
    """erf of double precision."""
    size = np.minimum(np.abs(value), _FAR)
    small, large = _series()
    near = size <= _MIDDLE
    square = np.where(near, size, _MIDDLE) ** 2
    near_value = size * np.polynomial.polynomial.polyval(square, small)
    safe = np.where(near, _MIDDLE, size)
    u = (1 / safe - 1 / _FAR) / (1 / _MIDDLE - 1 / _FAR) * 2 - 1
    far_value = 1 - np.exp(-safe * safe) * np.polynomial.chebyshev.chebval(u, large)
    return np.copysign(np.where(near, near_value, far_value), value)


def erf(x: Any, out: Array | None = None) -> Any:
    """The error function of each element."""
    array = np.atleast_1d(x)
    if array.dtype == np.float32:
        result = _single(array, None if out is None else np.atleast_1d(out))
    else:
        result = _double(array.astype(np.float64)).astype(array.dtype)
    if out is None:
        return result.reshape(np.shape(x))[()]
    if array.dtype != np.float32:
        out[...] = result.reshape(out.shape)
    return out


def exp10(x: Any, out: Array | None = None) -> Any:
    """10 to the power x."""
    return np.power(_like(10, x), x, out=out)


def pow(x: Any, y: Any, out: Array | None = None) -> Any:
    """x to the power y. NumPy replaces one exponent of 0.5 by the root, which is -0.0 of -0.0."""
    roots = np.equal(y, 0.5)
    if np.any(roots):
        differs = np.logical_and(roots, np.logical_or(x == 0, x == -math.inf))
        x = np.where(differs, np.abs(x), x) if np.any(differs) else x
    return np.power(x, y, out)


def rsqrt(x: Any, out: Array | None = None) -> Any:
    """1 / sqrt(x)."""
    return np.reciprocal(np.sqrt(x, out), out)


def sigmoid(x: Any, out: Array | None = None) -> Any:
    """1 / (1 + exp(-x)). If exp overflows to infinity, the result is 0, as it should be."""
    power = np.exp(np.negative(x, out), out)
    return np.reciprocal(np.add(_like(1, x), power, out), out)


def _like(value: float, x: Any) -> Any:
    dtype = x.dtype if isinstance(x, np.ndarray) else np.asarray(x).dtype
    return dtype.type(value)


def ldexp(x: Any, exponent: Any, out: Array | None = None) -> Any:
    """x times 2 to the power `exponent`, which may be a float with an integer value."""
    # Further ones have no other results.
    steps = np.clip(np.asarray(exponent).astype(np.float64), -5000, 5000).astype(np.int32)
    return np.ldexp(x, steps, out=out)


Function = Callable[..., Any]


def call_external(name: str, function: str | Function, kind: type[Any] | None, *args: Any) -> Any:
    """Call `function`, which may be the name of a registered one, and return a scalar of `kind`.

    A function that returns nothing counts as one that returns 0.

    Errors:
        UnknownPackedFuncError: no function is registered under that name (EV-13).
        RuntimeCheckError: the result is not a scalar.
    """
    values = tuple(map(_as_python, args))
    result = call_packed(function, values) if isinstance(function, str) else function(*values)
    if result is None or kind is None:
        return kind and kind(0)
    dtype = DataType("bool" if kind is np.bool_ else np.dtype(kind).name)
    try:
        return kind(cast(result, DataType(np.asarray(result).dtype), dtype))
    except (MisuseError, TypeError, ValueError):
        called = function if isinstance(function, str) else function.__name__
        message = f"{name}: {called} returned {describe(result)}, expected {dtype}"
        raise RuntimeCheckError(message) from None


def _as_python(value: Any) -> Any:
    """An argument for an external function: integers and bools become Python's."""
    if isinstance(value, (np.integer, np.bool_)):
        return value.item()
    return value


class OutOfMemory:
    """Stands for a buffer that does not fit its memory: any use of it stops the program."""

    def __init__(self, error: RuntimeCheckError, kind: type[Any]) -> None:
        self._error = error
        self.kind = kind

    def unless_unused(self, where: Any) -> None:
        """Stop the program if an element is accessed. Errors: RuntimeCheckError: one is."""
        if np.any(where):
            self._raise()

    def _raise(self, *args: object, **keywords: object) -> NoReturn:
        raise self._error

    __getattr__ = __getitem__ = __setitem__ = __array_ufunc__ = __array_function__ = _raise


def overlay(
    array: Array,
    kind: type[Any],
    shape: tuple[int, ...] | None,
    name: str,
    offset: int = 0,
    strides: tuple[int, ...] | None = None,
) -> Array | OutOfMemory:
    """As `reinterpreted`, but its errors are raised when an element is accessed."""
    try:
        return reinterpreted(array, kind, shape, name, offset, strides)
    except RuntimeCheckError as error:
        return OutOfMemory(error, kind)


@lru_cache(maxsize=256)
def constant(data: str | tuple[Any, ...], kind: type[Any], shape: tuple[int, ...]) -> Array:
    """A read-only array, from its elements in order or from their compressed bytes."""
    if isinstance(data, str):
        elements = np.frombuffer(zlib.decompress(base64.b85decode(data)), kind)
    else:
        elements = np.array(data).astype(kind)
    array: Array = elements.reshape(shape)
    array.flags.writeable = False
    return array


class Literals(dict[float, Array]):
    """Numbers as read-only arrays of a datatype: NumPy converts a Python number in each call.

    Those of ended programs are forgotten with all others when there are many.
    """

    _MOST: Final = 1 << 16

    def __init__(self, dtype: str) -> None:
        self._dtype = dtype

    def __missing__(self, number: float) -> Array:
        if len(self) >= self._MOST:
            self.clear()
        array = self[number] = np.array(number, self._dtype)
        array.flags.writeable = False
        return array


float16, float32, float64 = map(Literals, ("float16", "float32", "float64"))
int8, int16, int32, int64 = map(Literals, ("int8", "int16", "int32", "int64"))
uint8, uint16, uint32, uint64 = map(Literals, ("uint8", "uint16", "uint32", "uint64"))


Ufunc: TypeAlias = Any
_MOST_POSITIONS = 1 << 60

__all__ = [
    "blocks",
    "call_external",
    "combine",
    "constant",
    "contract",
    "dot",
    "erf",
    "exp10",
    "fail",
    "ldexp",
    "matmul",
    "overlay",
    "pow",
    "rsqrt",
    "sigmoid",
    "small",
    "stays_finite",
]


# ---- indices


def grid(*ranges: range) -> Iterator[tuple[int, ...]]:
    """The Cartesian product of ranges, the last varying fastest."""
    if not ranges:
        yield ()
        return
    *outer, inner = ranges
    for numbers in grid(*outer):
        for number in inner:
            yield (*numbers, number)


def positions(start: int, stop: int, dtype: Any) -> Array:
    """The iterations of a loop from `start` to below `stop`, as an array.

    Errors:
        RuntimeCheckError: there is not enough memory.
    """
    count = stop - start
    try:
        # NumPy returns none where there are nearly 2**63. Linux grants memory that does not exist.
        if count < NumPy.MANY_POSITIONS or (
            count < _MOST_POSITIONS
            and count * np.dtype(dtype).itemsize * NumPy.ARRAYS < memory_bytes()
        ):
            return np.arange(start, stop, dtype=dtype)
    except MemoryError:
        pass
    raise _too_many(count)


def broadcast_to(value: Any, shape: tuple[int, ...]) -> Array:
    """`value` for each iteration of loops over `shape`. Errors: as `positions`."""
    try:
        return np.broadcast_to(value, shape)
    except ValueError:  # of 2**63 bytes and more, although it is a view
        raise _too_many(math.prod(shape)) from None


def repeated(
    ufunc: np.ufunc,
    values: Array,
    *,
    axis: int | tuple[int, ...] | None = None,
    where: Any = True,
    out: Array | None = None,
    dtype: Any = None,
    **initial: Any,
) -> Any:
    """As `ufunc.reduce`, in parts between which signals interrupt it.

    The memory of `values` may be much smaller than their number, as they are those of many
    iterations.
    """
    axes = range(values.ndim) if axis is None else np.atleast_1d(axis) % values.ndim
    longest = max(axes, key=lambda n: values.shape[n])
    count = values.shape[longest]
    if values.size <= NumPy.MOST_REDUCED or count == 1:
        return ufunc.reduce(values, axis, dtype, out, where=where, **initial)
    kind = out.dtype if dtype is None and out is not None else dtype
    step = max(count * NumPy.MOST_REDUCED // values.size, 1)
    mask = where if where is True else np.broadcast_to(where, values.shape)
    total: Any = None
    for first in range(0, count, step):
        end_if_interrupted()
        part = (slice(None),) * longest + (slice(first, first + step),)
        where = mask if mask is True else mask[part]
        found = repeated(ufunc, values[part], axis=axis, where=where, dtype=kind, **initial)
        total = found if total is None else ufunc(total, found)
        initial = {} if ufunc.identity is not None else initial
    if out is None:
        return total
    out[...] = total
    return out


def _too_many(count: int) -> RuntimeCheckError:
    return RuntimeCheckError(
        f"a loop of {count} iterations needs more memory than there is: NumPy runs it on arrays",
        hint="the target 'native' needs none",
    )


def empty(shape: tuple[int, ...], kind: Any) -> Array:
    """A new array. Errors: RuntimeCheckError: there is not enough memory."""
    return new_tensor(shape, np.dtype(kind))


def checked_index(index: Any, size: int, axis: int, title: str) -> int:
    """`index`, checked against the `size` of dimension `axis`; `title` is as `kernel: buffer`.

    Errors:
        RuntimeCheckError: the index is out of bounds.
    """
    if 0 <= index < size:
        return int(index)
    kernel, _, buffer = title.partition(": ")
    raise RuntimeCheckError(
        f"{kernel}: index {index} is outside dimension {axis} of buffer {buffer}, "
        f"which has size {size}"
    )


def check_bounds(low: int, high: int, size: int, axis: int, title: str) -> None:
    """Check that `low` and `high` are in bounds. Errors: as `checked_index`."""
    checked_index(low, size, axis, title)
    checked_index(high, size, axis, title)


def checked_indices(indices: Any, size: int, axis: int, title: str) -> Any:
    """The `indices` of a gather, checked. Errors: as `checked_index`, for the first one."""
    if isinstance(indices, np.ndarray):
        if not _are_inside(indices, size):
            outside = np.logical_or(indices < 0, indices >= size)
            checked_index(indices[outside][0], size, axis, title)
        return indices
    return checked_index(indices, size, axis, title)


_UNSIGNED = {np.dtype(f"i{size}"): np.dtype(f"u{size}") for size in (1, 2, 4, 8)}


def _are_inside(indices: Array, size: int) -> bool:
    """True if all integers are in [0, size). As unsigned integers, negatives are large."""
    unsigned = _UNSIGNED.get(indices.dtype)
    if unsigned is not None:
        indices = indices.view(unsigned)
    return not indices.size or int(np.maximum.reduce(indices, axis=None)) < size


def wrapped(index: Any, size: Any) -> Any:
    """`index`, with `size` added where it is negative."""
    return np.where(index < 0, index + size, index) if np.min(index, initial=0) < 0 else index


def from_end(index: Any, size: Any) -> Any:
    """`index`, with `size` added where it is from -size to -1."""
    if np.min(index, initial=0) >= 0:
        return index
    return np.where(np.logical_and(index < 0, index >= -size), index + size, index)


def take(array: Array, indices: Array, axis: int, out: Array | None = None) -> Array:
    """The slices of `array` at `indices` along `axis`; the indices are in bounds.

    `np.take` copies an array that is not contiguous, which here is not larger than the result.
    """
    if array.flags.c_contiguous or indices.size >= array.shape[axis]:
        return np.take(array, indices, axis=axis, out=out, mode="clip")
    slices: Array = array[(slice(None),) * axis + (indices,)]
    if out is None:
        return slices
    out[...] = slices
    return out


def elements(array: Array, indices: tuple[Any, ...]) -> Array:
    """The elements at `indices`, which are broadcast and in bounds."""
    if len(indices) == 1 or not array.flags.c_contiguous:
        selected: Array = array[indices]
        return selected
    # NumPy is faster with one index, the position in memory.
    return array.reshape(-1).take(_position(array, indices), mode="clip")


def _position(array: Array, indices: tuple[Any, ...]) -> Array:
    """The positions of the elements at `indices` in the memory of a contiguous array."""
    position = np.asarray(indices[0], np.intp)
    for index, size in zip(indices[1:], array.shape[1:], strict=True):
        position = np.multiply(position, size, dtype=np.intp) + index
    return position


def gather(
    array: Array, indices: tuple[Any, ...], checked: tuple[int, ...], where: Any, title: str
) -> Any:
    """The elements at `indices` where `where` holds, and arbitrary ones elsewhere.

    The indices along the dimensions in `checked` may be out of bounds.

    Errors:
        RuntimeCheckError: an index is out of bounds where `where` holds.
    """
    if isinstance(array, OutOfMemory):
        array.unless_unused(where)
        return np.zeros(np.broadcast_shapes(*map(np.shape, indices)), array.kind)[()]
    safe = list(indices)
    for axis in checked:
        index, size = indices[axis], array.shape[axis]
        if _are_inside(np.asarray(index), size):
            continue
        valid = np.logical_and(index >= 0, index < size)
        wrong = np.logical_and(where, ~valid)
        if wrong.any():
            checked_index(np.broadcast_to(index, wrong.shape)[wrong][0], size, axis, title)
        safe[axis] = np.where(valid, index, 0)
    if 0 in array.shape:
        return np.zeros(np.broadcast_shapes(*map(np.shape, safe)), array.dtype)[()]
    return array[tuple(safe)]


# ---- views and stores


def strided(
    array: Array,
    offsets: tuple[int, ...],
    shape: tuple[int, ...],
    steps: tuple[tuple[int, ...], ...],
) -> Array:
    """The view whose axis a steps by `steps[a][d]` elements along dimension d of `array`.

    Errors:
        RuntimeCheckError: the view is out of bounds, although the caller has proved the contrary.
    """
    if min(shape, default=1) <= 0:
        return np.empty([max(size, 0) for size in shape], array.dtype)
    place = 0
    for axis, first in enumerate(offsets):
        low = high = first
        for step, count in zip(steps, shape, strict=True):
            distance = step[axis] * (count - 1)
            if distance > 0:
                high += distance
            else:
                low += distance
        if low < 0 or high >= array.shape[axis]:
            check_bounds(low, high, array.shape[axis], axis, "a kernel: of a view")
        place += first * array.strides[axis]
    strides = [sum(map(mul, step, array.strides)) for step in steps]
    if array.flags.c_contiguous and array.dtype.isbuiltin == 1:
        view: Array = np.ndarray(shape, array.dtype, array, place, strides)
        return view
    return strided_view(array[tuple(slice(o, None) for o in offsets)], shape, strides)


def scatter(
    array: Array,
    indices: tuple[Any, ...],
    values: Any,
    shape: tuple[int, ...],
    ufunc: Ufunc | None,
    mask: Any,
    title: str,
) -> None:
    """Store `values` at `indices`, in order; or combine them with the current values by `ufunc`.

    Shapes:
        indices     those of the first dimensions, each broadcast to `shape`
        values      broadcast to `shape` and the other dimensions of the array
        mask        broadcast to `shape`, only with indices of all dimensions

    Errors:
        RuntimeCheckError: an index is out of bounds.
    """
    if mask is not None and isinstance(array, OutOfMemory):
        array.unless_unused(np.broadcast_to(mask, shape))
        return
    if not indices:
        array, indices = array[np.newaxis], (0,)
    slices = (*shape, *array.shape[len(indices) :])
    chosen = values if np.shape(values) == slices else np.broadcast_to(values, slices)
    if mask is not None:
        selected = np.broadcast_to(mask, shape)
        indices = tuple(np.broadcast_to(i, shape)[selected] for i in indices)
        chosen, shape = chosen[selected], (int(np.count_nonzero(selected)),)
    if 0 not in shape:
        for axis, index in enumerate(indices):
            checked_indices(index, array.shape[axis], axis, title)
    if len(indices) == array.ndim > 1 and array.flags.c_contiguous:
        # NumPy is faster with one index, the position in memory.
        array, indices = array.reshape(-1), (_position(array, indices),)
    full = [np.broadcast_to(np.asarray(i, np.intp), shape).reshape(-1) for i in indices]
    chosen = chosen.reshape(math.prod(shape), *chosen.shape[len(shape) :])
    if ufunc is None:
        array[tuple(full)] = chosen
    else:
        ufunc.at(array, tuple(full), chosen)


def store_at(out: Array, positions: Any, axis: int, value: Any) -> None:
    """Store `value` at one position along `axis`; a position may be out of bounds.

    Shapes:
        positions   as out without `axis`, or with size 1 there; or fewer, which are broadcast
    """
    shape = (*out.shape[:axis], 1, *out.shape[axis + 1 :])
    positions = np.broadcast_to(positions, shape)
    inside = np.logical_and(positions >= 0, positions < out.shape[axis])
    indices = list(np.nonzero(inside))
    indices[axis] = positions[inside]
    out[tuple(indices)] = value


# ---- argmax and argmin


def first_true(truths: Array, none: int, out: Array) -> None:
    """Write to `out` the position of the first True along the last axis, or `none`."""
    if not truths.shape[-1]:
        out[...] = none
        return
    position = truths.argmax(axis=-1)
    out[...] = position
    holds = np.take_along_axis(truths, np.expand_dims(position, -1), -1)[..., 0]
    if not holds.all():
        out[np.logical_not(holds)] = none


def first_extreme(
    search: Callable[..., Array], values: Array, axis: int, none: int, out: Array
) -> None:
    """Write `np.argmax` or `np.argmin` along `axis` to `out`, or `none` if the axis is empty."""
    if not values.shape[axis]:
        out[...] = none
    elif out.dtype == np.intp:
        search(values, axis=axis, out=out)
    else:
        out[...] = search(values, axis=axis)


def _arg_extreme(
    pick: Callable[..., Any],
    greater: Ufunc,
    not_less: Ufunc,
    values: Array,
    best: Array,
    arg: Array,
    first: int = 0,
    step: int = 1,
    last: bool = False,
    nan_wins: bool = False,
    by_position: bool = False,
) -> None:
    """Update `best` with the max or min along the last axis of `values`, and `arg` with its index.

    Both stay unchanged where no value is better than `best`. A NaN is never better, or always
    (`nan_wins`). Of equal values the first is chosen, or the `last`; with `by_position`, `best` is
    one of them.
    """
    if values.size == 0:
        return
    where = pick(values[..., ::-1] if last else values, axis=-1)
    if last:
        where = values.shape[-1] - 1 - where
    if values.ndim == 2:
        extreme = values[np.arange(len(values)), where]
    else:
        extreme = np.take_along_axis(values, where[..., None], -1)[..., 0]
    better = not_less if last and not by_position else greater
    # `pick` chooses a NaN if there is one, and a comparison with a NaN is false.
    if greater(extreme, best).all():
        arg[...] = where * step + first
        best[...] = extreme
        return
    candidates: Iterable[tuple[Any, Any]] = [(extreme, where)]
    unordered = values.dtype.kind not in "iub" and (np.isnan(extreme).any() or np.isnan(best).any())
    if unordered:
        candidates = ((values[..., k], k) for k in range(values.shape[-1]))
    for candidate, number in candidates:
        position = number * step + first
        wins = better(candidate, best)
        if by_position:
            preferred = position > arg if last else position < arg
            wins = wins | ((candidate == best) & preferred)
        if unordered and nan_wins:
            wins = wins | np.isnan(candidate) | np.isnan(best)
        np.copyto(arg, position, where=wins, casting="unsafe")
        np.copyto(best, candidate, where=wins)


argmax = partial(_arg_extreme, np.argmax, np.greater, np.greater_equal)
argmin = partial(_arg_extreme, np.argmin, np.less, np.less_equal)


# ---- scalar and elementwise functions that NumPy lacks


def where(condition: Any, yes: Any, no: Any, out: Array | None = None) -> Any:
    """`np.where` of two arrays or numbers of one datatype; conditions may be Python bools.

    For many elements, bits are selected, since NumPy does not vectorise its function.
    """
    count = max(map(np.size, (condition, yes, no))) if out is None else out.size
    if count < NumPy.MANY_CHOSEN:
        chosen = np.where(condition, yes, no)
        return chosen if out is None else _into(chosen, out)
    condition, yes, no = np.asarray(condition), np.asarray(yes), np.asarray(no)
    shape = np.broadcast_shapes(condition.shape, yes.shape, no.shape)
    if out is None:
        out = np.empty(shape, yes.dtype)
    bits = np.dtype(f"u{out.dtype.itemsize}")
    yes, no, result = yes.view(bits), no.view(bits), out.view(bits)
    if yes.ndim and not no.ndim and 2 * condition.size <= out.size:
        return _kept(condition, yes, no, result, out)
    operands = [condition, yes, no, result]
    if all(x.ndim == 0 or (x.shape == shape and x.flags.c_contiguous) for x in operands):
        operands = [x.reshape(-1) if x.ndim else x for x in operands]
        shape = (out.size,)
    step = max(1, NumPy.MANY_CHOSEN * shape[0] // max(out.size, 1))
    scratch = np.empty((min(step, shape[0]), *shape[1:]), bits)
    for start in range(0, shape[0], step):
        chunk = slice(start, start + step)
        test, a, b, chosen = (
            x[chunk] if x.ndim == len(shape) and len(x) > 1 else x for x in operands
        )
        differing = scratch[: len(chosen)]
        np.bitwise_xor(a, b, differing)
        np.multiply(differing, test, differing)
        np.bitwise_xor(differing, b, chosen)
    return out


def _kept(condition: Array, yes: Array, no: Array, result: Array, out: Array) -> Array:
    """`out`, with the bits of `yes` where a condition holds that applies to many elements each."""
    kept = np.negative(condition.astype(result.dtype))
    np.bitwise_and(yes, kept, result)
    if no:
        np.bitwise_or(result, no & ~kept, result)
    return out


def clip(x: Array, low: Any, high: Any, out: Array | None = None) -> Array:
    """x limited to numbers; NaN remains. NumPy vectorises this, but not minima with numbers."""
    return x.clip(low, high, out=out)


def at_least(x: Array, low: Any, out: Array | None = None) -> Any:
    """`np.maximum` of an array and a number."""
    if x.size < NumPy.LIMITED:
        return np.maximum(x, low, out=out)
    return x.clip(low, np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).max, out=out)


def at_most(x: Array, high: Any, out: Array | None = None) -> Any:
    """`np.minimum` of an array and a number."""
    if x.size < NumPy.LIMITED:
        return np.minimum(x, high, out=out)
    return x.clip(-np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min, high, out=out)


def int_floordiv(a: int, b: int) -> int:
    """a / b on Python integers, rounded down."""
    return a // divisor(b)


def int_floormod(a: int, b: int) -> int:
    """The remainder of `int_floordiv`."""
    return a % divisor(b)


def int_truncdiv(a: int, b: int) -> int:
    """a / b on Python integers, rounded toward zero."""
    return trunc_div(a, divisor(b))


def int_truncmod(a: int, b: int) -> int:
    """The remainder of `int_truncdiv`."""
    return a - b * int_truncdiv(a, b)


def _check_divisor(divisors: Any, where: Any) -> None:
    # For a single number, `bool` is fifty times as fast as `np.all`.
    are_true = divisors.all() if np.ndim(divisors) else divisors
    if not are_true and np.any(np.logical_and(where, divisors == 0)):
        divisor(0)


def floor_divide(a: Any, b: Any, where: Any = True, out: Array | None = None) -> Any:
    """a / b on integers, rounded down.

    Errors:
        RuntimeCheckError: b is 0 where `where` holds. Elsewhere the result is not used.
    """
    _check_divisor(b, where)
    return np.floor_divide(a, b, out=out)


def remainder(a: Any, b: Any, where: Any = True, out: Array | None = None) -> Any:
    """The remainder of `floor_divide`, with its errors."""
    _check_divisor(b, where)
    return np.remainder(a, b, out=out)


def truncdiv(a: Any, b: Any, where: Any = True, out: Array | None = None) -> Any:
    """As `floor_divide`, rounded toward zero."""
    _check_divisor(b, where)
    # The remainder has the sign of a, so the division of the difference is exact.
    return np.floor_divide(np.subtract(a, np.fmod(a, b)), b, out=out)


def truncmod(a: Any, b: Any, where: Any = True, out: Array | None = None) -> Any:
    """The remainder of `truncdiv`, with its errors."""
    _check_divisor(b, where)
    return np.fmod(a, b, out=out)


def bool_quotient(a: Any, b: Any, where: Any = True, out: Array | None = None) -> Any:
    """As `floor_divide` and `truncdiv`, on bools; NumPy would compute in int8."""
    _check_divisor(b, where)
    return np.logical_and(a, b, out=out)


def bool_remainder(a: Any, b: Any, where: Any = True, out: Array | None = None) -> Any:
    """The remainder of `bool_quotient`, with its errors."""
    _check_divisor(b, where)
    return np.logical_and(a, np.logical_not(b), out=out)


def popcount(x: Any, out: Array | None = None) -> Any:
    """The number of bits set, in the datatype of x."""
    bits, kind, _ = _unsigned(x)
    return _into(np.bitwise_count(bits).astype(kind), out)


def clz(x: Any, out: Array | None = None) -> Any:
    """The number of leading zero bits, as int32."""
    bits, _, width = _unsigned(x)
    bits = bits.astype(np.uint64)
    for shift in (1, 2, 4, 8, 16, 32):
        bits = bits | (bits >> np.uint64(shift))
    return _into(width - np.bitwise_count(bits).astype(np.int32), out)


def _unsigned(x: Any) -> tuple[Array, np.dtype[Any], int]:
    """The bits of integers as unsigned ones, with the datatype of x and its width."""
    array = np.asarray(x)
    kind = array.dtype
    width = DataType(kind).bits
    if kind.kind != "V":
        return array.view(kind.str.replace("i", "u")), kind, width
    return array.astype(np.int8).view(np.uint8) & np.uint8((1 << width) - 1), kind, width


def _into(value: Any, out: Array | None) -> Any:
    if out is None:
        return value[()]
    out[...] = value
    return out


def shift_left(a: Any, b: Any, out: Array | None = None) -> Any:
    """a << b, which is 0 if b is at least the width."""
    return _shifted(np.left_shift, a, b, out)


def shift_right(a: Any, b: Any, out: Array | None = None) -> Any:
    """a >> b, keeping the sign."""
    return _shifted(np.right_shift, a, b, out)


def _shifted(shift: np.ufunc, a: Any, b: Any, out: Array | None) -> Any:
    """A shift of integers, or of bools, which have one bit; NumPy would compute them in int8."""
    if np.asarray(a).dtype == np.bool_:
        return np.logical_and(a, np.logical_not(b), out=out)
    return shift(a, b, out=out)
