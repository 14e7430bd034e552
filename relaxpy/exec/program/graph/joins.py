"""The results of branches and loops, which have several ends with a value each."""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import reduce
from typing import TYPE_CHECKING, cast

from relaxpy.exec.native.values.datatypes import RefusedError
from relaxpy.exec.program.graph.largest import largest
from relaxpy.exec.program.graph.program import (
    Element,
    Finding,
    Passed,
    Region,
    Shape,
    Step,
    Tensor,
    Value,
    shape_text,
    sinfo_of,
)
from relaxpy.exec.program.memory import Memory
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.ops import maximum
from relaxpy.support.dataclass import replace

if TYPE_CHECKING:
    from relaxpy.exec.program.graph.read_function import GraphReader


class Join:
    """The results of a branch or a loop that `reader` is about to read.

    After its ends were read: `joined` is its value, `differing` are further results of each end,
    and all of them are stored in the `outputs`, after which `find_sizes` reads the sizes.

    Fields:
        in_place: the memory that a loop writes in place.
        results: the new tensors.
    """

    def __init__(self, reader: GraphReader) -> None:
        self._reader = reader
        self._known = {*reader.found, *reader.unbounded}
        """The sizes that depend on data and are known before it."""
        self.in_place: Set[Memory] = frozenset()
        self.results: list[Tensor] = []
        self._sizes: dict[tir.Var, Sequence[tir.PrimExpr]] = {}
        """The sizes of results that differ, with their values in all ends."""

    def joined(self, values: Sequence[Value]) -> Value:
        """The merge (phi) of values, with new tensors, which are added to the results.

        A state of a loop that is a result has its memory, if iterations write it in place.
        """
        first, *others = values
        if isinstance(first, tuple) and all(
            isinstance(other, tuple) and len(other) == len(first) for other in others
        ):
            fields = zip(*cast("Sequence[tuple[Value, ...]]", values), strict=True)
            return tuple(self.joined(each) for each in fields)
        if isinstance(first, Passed) and all(other == first for other in others):
            return first
        reader, in_place = self._reader, self.in_place
        if isinstance(first, Tensor) and all(
            isinstance(other, Tensor)
            and other.sinfo.dtype == first.sinfo.dtype
            and len(other.shape) == len(first.shape)
            and (other.memory is first.memory or in_place.isdisjoint({other.memory, first.memory}))
            for other in others
        ):
            tensors = cast("Sequence[Tensor]", values)
            memory = first.memory if first.memory in in_place else Memory("new")
            shapes = zip(*(tensor.shape for tensor in tensors), strict=True)
            sizes = rx.ShapeExpr([self._joined_size(each) for each in shapes])
            room = rx.ShapeExpr([reader.found[n] if n in self._sizes else n for n in sizes.values])  # type: ignore[index]
            self.results.append(Tensor(memory, replace(first.sinfo, shape=room)))
            for tensor in tensors:
                reader.share(memory, tensor.memory)
            reader.sizes.update(sizes.values)
            return Tensor(memory, replace(first.sinfo, shape=sizes))
        kinds = " or ".join(dict.fromkeys(str(sinfo_of(value)) for value in values))
        raise RefusedError(f"the kind of a result depends on a branch: it is {kinds}")

    def _joined_size(self, sizes: Sequence[tir.PrimExpr]) -> tir.PrimExpr:
        """The size that is one of these: a new variable if they differ or depend on data."""
        reader, first = self._reader, sizes[0]
        if all(prove_equal(first, size) is True for size in sizes) and not reader.mentions_found(
            sizes, self._known
        ):
            return first
        if not reader.runs_once or self.in_place:
            raise RefusedError(f"a size depends on a branch: it is {shape_text(sizes)}")
        var = tir.Var("size", INT64)
        reader.declare_largest({node for size in sizes for node in walk(size)} - self._known)
        most = (largest(size, reader.found) for size in sizes)
        reader.found[var] = reduce(maximum, most)
        self._sizes[var] = sizes
        return var

    def differing(self, end: int, steps: list[Step]) -> list[Tensor]:
        """The tensor, which steps of an end get, with its values of the sizes that differ."""
        if not self._sizes:
            return []
        with self._reader.adding_to(steps):
            return [self._reader.filling(Shape([sizes[end] for sizes in self._sizes.values()]))]

    def outputs(self) -> list[Tensor]:
        """The results, and a new tensor for the sizes that differ."""
        count = rx.ShapeExpr([len(self._sizes)])
        sizes = [self._reader.new(rx.TensorStructInfo(count, INT64))] if self._sizes else []
        return [*self.results, *sizes]

    def find_sizes(self, outputs: Sequence[Tensor]) -> None:
        """Add the step that reads the sizes that differ, which are in the last output."""
        if self._sizes:
            found = {var: Element(outputs[-1], n) for n, var in enumerate(self._sizes)}
            self._reader.steps.append(Finding(found, Region((), ())))
