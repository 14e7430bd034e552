"""Straight programs: the calls of native kernels that a Relax function makes, and its result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from relaxpy.dataclass import dataclass
from relaxpy.exec.native.calls.entry import Array, Param
from relaxpy.exec.native.values.packing import Packing
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir.expr import PrimExpr, Var


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """The memory of tensors that have the same elements: that of parameter or constant `index`.

    New memory is what a call of a kernel fills.
    """

    origin: Literal["parameter", "constant", "new"]
    index: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A tensor of the program, with its shape and its datatype."""

    memory: Memory
    sinfo: rx.TensorStructInfo

    @property
    def shape(self) -> tuple[PrimExpr, ...]:
        """The dimensions."""
        assert isinstance(self.sinfo.shape, rx.ShapeExpr)
        return self.sinfo.shape.values

    @property
    def itemsize(self) -> int:
        """The size of an element in bytes."""
        return self.sinfo.dtype.numpy().itemsize


Value: TypeAlias = "Tensor | tuple[Value, ...]"


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A constant of the program, packed for the kernel that reads it if `packing` is not None."""

    literal: rx.Constant
    packing: Packing | None = None


@dataclass(frozen=True, slots=True, eq=False)
class KernelCall:
    """A call of a kernel, whose Python name is `kernel`.

    The `arguments` are those of its signature; then follow the values of its `sizes`.
    """

    kernel: str
    arguments: Sequence[Tensor | PrimExpr]
    sizes: Sequence[PrimExpr]
    outputs: Sequence[Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A Relax function without branches, all of whose kernels are native.

    Fields:
        params: as its entry checks them; a size has the name of its variable in `variables`.
        variables: the names of the shape variables.
        declared: the names of other dimensions of parameters, and what they have to be equal to.
        limit: what the absolute values of variables have to be less than.
        tensors: the parameters that are arrays, with their positions.
        constants: the constants, each with the order of its elements in memory, if not its own.
    """

    params: Sequence[Param]
    variables: Mapping[Var, str]
    declared: Mapping[str, PrimExpr]
    limit: int
    tensors: Mapping[int, Tensor]
    constants: Sequence[Constant]
    calls: Sequence[KernelCall]
    result: Value

    def new_tensors(self) -> list[Tensor]:
        """What the calls return, in their order."""
        return [output for call in self.calls for output in call.outputs]

    @property
    def is_small(self) -> bool:
        """Whether it takes so little time that other threads of Python may wait."""
        arguments = [a for call in self.calls for a in call.arguments if isinstance(a, Tensor)]
        count = 0
        for tensor in {t.memory: t for t in (*self.tensors.values(), *arguments)}.values():
            number = 1
            for dim in tensor.shape:
                number *= getattr(dim, "value", _MANY)
            count += number
        return count < _MANY and all(isinstance(p, Array) for p in self.params)


_MANY = 1 << 13


def leaves(value: Value) -> Iterator[Tensor]:
    """The tensors of a value, from left to right."""
    if isinstance(value, Tensor):
        yield value
    else:
        for field in value:
            yield from leaves(field)
