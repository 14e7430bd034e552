"""The workers on which collective operators run, as one of them sees the others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextvars import ContextVar
from typing import Any, Literal, TypeAlias

import numpy as np
from typing_extensions import override

from relaxpy.errors import RuntimeCheckError, show_uncaught_errors
from relaxpy.ir import hooks
from relaxpy.support.launched import end_all, is_one_of_several, tell_that_it_ends

Array = np.ndarray[Any, Any]
Combination: TypeAlias = Literal["sum", "prod", "min", "max", "avg"]


class Workers(ABC):
    """`size` workers that run the same program; this process is the one with the number `rank`.

    All workers call the same methods in the same order. No method changes its operands or returns
    memory that it keeps.
    """

    rank: int
    size: int

    @property
    def group(self) -> Workers:
        """The workers that `in_group` means: all, unless they have been divided into groups."""
        return self

    @abstractmethod
    def among(self, size: int, stride: int) -> Workers:
        """The `size` workers, this one among them, whose numbers are `stride` apart.

        They are those along one axis of a mesh whose devices are numbered in row-major order. The
        number of all workers is a multiple of `size * stride`.
        """

    @abstractmethod
    def combined(self, x: Array, how: Combination) -> Array:
        """The tensors of all workers combined element by element."""

    @abstractmethod
    def combined_on_first(self, x: Array) -> Array | None:
        """On the first worker, the sum of the tensors of all."""

    @abstractmethod
    def combined_parts(self, parts: Array) -> Array:
        """The sum over all workers of their slices for this worker along the first axis."""

    @abstractmethod
    def collected(self, x: Array) -> Array:
        """The tensors of all workers along a new first axis."""

    @abstractmethod
    def collected_on_first(self, x: Array) -> Array | None:
        """On the first worker, the tensors of all along a new first axis."""

    @abstractmethod
    def of_first(self, x: Array) -> Array:
        """The tensor of the first worker."""

    @abstractmethod
    def part_of_first(self, parts: Array) -> Array:
        """The slice for this worker along the first axis of the first worker's tensor."""

    def tell_failure(self, error: BaseException) -> None:  # noqa: B027
        """Tell the others that this worker ends with an error, so that they need not wait."""

    def close(self) -> None:  # noqa: B027
        """Release the resources of these workers, which are not used again."""


class Alone(Workers):
    """The only worker of a program that no other process runs."""

    rank, size = 0, 1

    @override
    def among(self, size: int, stride: int) -> Workers:
        return self

    @override
    def combined(self, x: Array, how: Combination) -> Array:
        return x.copy()

    @override
    def combined_on_first(self, x: Array) -> Array:
        return x.copy()

    @override
    def combined_parts(self, parts: Array) -> Array:
        own: Array = parts[0].copy()
        return own

    @override
    def collected(self, x: Array) -> Array:
        return x[np.newaxis].copy()

    @override
    def collected_on_first(self, x: Array) -> Array:
        return x[np.newaxis].copy()

    @override
    def of_first(self, x: Array) -> Array:
        return x.copy()

    @override
    def part_of_first(self, parts: Array) -> Array:
        own: Array = parts[0].copy()
        return own


chosen_workers: ContextVar[Workers | None] = ContextVar("relaxpy_workers", default=None)
"""The workers that the program chose; by default those that started together with it."""


started: list[Workers] = []
"""The workers that started together with this one, as soon as they are known to be several."""


def current_workers() -> Workers:
    """The workers on which collective operators run now."""
    workers: Workers = chosen_workers.get() or (
        started[0] if started else hooks.call("started_workers")
    )
    return workers


Among: TypeAlias = tuple[int, int]
"""The number of participating workers, and the stride of their ranks."""


def members(
    num_workers: int | None = None, in_group: bool = False, among: Among | None = None
) -> Workers:
    """The current workers, or those of them that take part in an operator.

    Errors:
        RuntimeCheckError: there are not `num_workers` of them.
    """
    workers = current_workers()
    if among is not None:
        size, stride = among
        if workers.size % (size * stride):
            raise _wrong_number(size * stride, workers)
        if size != workers.size:
            workers = workers.among(size, stride)
    elif in_group:
        workers = workers.group
    if num_workers is not None and num_workers != workers.size:
        raise _wrong_number(num_workers, workers)
    return workers


def _wrong_number(num_workers: int | None, workers: Workers) -> RuntimeCheckError:
    found = "this is the only one" if workers.size == 1 else f"there are {workers.size}"
    return RuntimeCheckError(
        f"the program is for {num_workers} workers, but {found}",
        hint=f"start it by mpiexec -n {num_workers} python ..., "
        "or choose the workers by relaxpy.distributed.use",
    )


def split(x: Array, count: int, axis: int) -> Array:
    """The equal parts of a tensor along an axis, one for each worker along a new first axis.

    Errors:
        RuntimeCheckError: the size is not a multiple of the number of workers.
    """
    size = x.shape[axis]
    if size % count:
        raise RuntimeCheckError(
            f"axis {axis} of a tensor of shape {x.shape} is split among {count} workers, "
            f"but its size {size} is not a multiple of that"
        )
    axis %= x.ndim
    parts = x.reshape(*x.shape[:axis], count, size // count, *x.shape[axis + 1 :])
    return parts.transpose(axis, *range(axis), *range(axis + 1, parts.ndim))


def joined(parts: Array, axis: int) -> Array:
    """The slices along the first axis, concatenated along another axis."""
    axis %= parts.ndim - 1
    count, *whole = parts.shape
    whole[axis] *= count
    if axis:
        parts = parts.transpose(*range(1, axis + 1), 0, *range(axis + 1, parts.ndim))
    return parts.reshape(whole)


if is_one_of_several():  # also an error before the first collective operator
    show_uncaught_errors()
    end_all()
    tell_that_it_ends()
