"""The buffers of a kernel while it is read: whose memory each is, what accesses mean there."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import TYPE_CHECKING

from relaxpy.errors import CompileError
from relaxpy.exec.kernel.nest.bounds import is_injective, is_inside, may_divide_by_zero
from relaxpy.exec.kernel.nest.nodes import Axis, Local, Make, Memory, loads
from relaxpy.ir.arith.algebra.affine import Affine, as_poly
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.core.types import PointerType
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, BufferRegion, Range
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.intrin import if_then_else
from relaxpy.ir.tir.stmt import Allocate, BufferStore, MatchBufferRegion

if TYPE_CHECKING:
    from relaxpy.ir.tir.prim_func.function import PrimFunc

Indices = tuple[PrimExpr, ...]


class Declared:
    """What is known of the buffers of `func` at the place that is read."""

    def __init__(self, func: PrimFunc) -> None:
        self.local: list[Local] = []
        self.views: dict[Buffer, Buffer] = {}
        self.constants: dict[Buffer, object] = {}
        self.pointers: dict[Var, Buffer] = {}
        self._regions: dict[Buffer, BufferRegion] = {}
        self._flat: dict[tuple[Buffer, DataType], Buffer] = {}
        self._late: set[Buffer] = set()
        self._memory: dict[Var, Buffer] = {}
        self._arguments = frozenset(func.buffer_map.values())
        self._known: set[Buffer] = set(self._arguments)
        self._fixed: set[Var] = set(func.params)
        self._stored = {
            part.buffer.data if isinstance(part, BufferStore) else part.source.buffer.data
            for part in walk(func.body)
            if isinstance(part, (BufferStore, MatchBufferRegion))
        }
        for param, buffer in func.buffer_map.items():
            self._memory[param] = self._memory[buffer.data] = buffer
            self._fixed |= variables_of(buffer)
        for param in func.params:
            if param not in func.buffer_map and isinstance(param.type_annotation, PointerType):
                whole = Buffer(param, DataType("uint8"), (Var(f"{param.name}_size", "int64"),))
                self.pointers[param] = self._memory[param] = whole

    # ---- declarations

    def make(self, buffer: Buffer, axes: Sequence[Axis]) -> Iterator[Make]:
        """Enter `buffer` with memory of its own, made anew in each round of `axes`."""
        self._known.add(buffer)
        self._memory[buffer.data] = buffer
        # Where a loop has no iteration its sizes are not evaluated.
        divides = axes and any(may_divide_by_zero(p) for size in buffer.shape for p in walk(size))
        if self._is_fixed(buffer) and not divides:
            self.local.append(Local(buffer, tuple(axes)))
        else:
            self._late.add(buffer)
            yield Make(buffer)

    def allocate(self, stmt: Allocate, axes: Sequence[Axis]) -> Iterator[Make]:
        """Enter the memory of `stmt`, as a buffer that is declared over it if one is alike."""
        var, dtype, extents = stmt.buffer_var, stmt.dtype, stmt.extents
        over = [b for b in walk(stmt.body) if isinstance(b, Buffer) and b.data is var]
        alike = (b for b in over if b.dtype == dtype and _is_compact(b, extents))
        whole = next(alike, None) or Buffer(var, dtype, extents, name=var.name)
        yield from self.make(whole, axes)
        if whole in self._late:
            for dtype in {b.dtype for b in over if b is not whole}:
                yield Make(self._laid_flat(whole, dtype), whole)

    def constant(self, buffer: Buffer, data: object) -> None:
        """Enter `buffer` as the memory that holds `data`."""
        self._known.add(buffer)
        self._memory[buffer.data] = buffer
        self.constants[buffer] = data

    def match(self, match: MatchBufferRegion) -> None:
        """Enter a matched region."""
        self._known.add(match.buffer)
        self._memory[match.buffer.data] = match.buffer
        self._regions[match.buffer] = match.source

    def layout_of(self, match: MatchBufferRegion) -> dict[Var, PrimExpr]:
        """What the variables are that the shape, strides and offset of a matched region bind."""
        buffer, source = match.buffer, match.source
        spare = source.buffer.ndim - buffer.ndim
        steps = strides_of(source.buffer)
        offset: PrimExpr = ops.const(0, "int64")
        for part, step in zip(source.region, steps, strict=True):
            offset = ops.add(*ops.match_dtypes(offset, ops.mul(*ops.match_dtypes(part.min, step))))
        facts = [
            *zip(buffer.shape, (r.extent for r in source.region[spare:]), strict=True),
            *zip(buffer.strides, steps[spare:], strict=False),
            (buffer.elem_offset, offset),
        ]
        return {
            found: ops.cast_to(value, found.dtype)
            for found, value in facts
            if isinstance(found, Var) and found not in self._fixed
        }

    def _is_fixed(self, buffer: Buffer) -> bool:
        """Whether the layout of `buffer` is known where the kernel begins."""
        layout = (*buffer.shape, *buffer.strides, buffer.elem_offset)
        return variables_of(buffer) <= self._fixed and not any(
            True for e in layout for _ in loads(e)
        )

    def _is_disjoint(self, buffer: Buffer) -> bool:
        """Whether strides are proved to lead to another element at each place."""
        every = zip(buffer.shape, buffer.strides, strict=False)
        steps = {Var("i", "int64"): (n, s) for n, s in every if getattr(n, "value", 0) != 1}
        place = Affine({v: as_poly(step) for v, (_, step) in steps.items()}, as_poly(0))
        axes = [Axis(v, ops.const(0, "int64"), size) for v, (size, _) in steps.items()]
        sizes = {s for b in self._arguments for s in b.shape if isinstance(s, Var)}
        return is_injective(place, axes, sizes)

    # ---- accesses

    def resolve(
        self,
        buffer: Buffer,
        indices: Indices,
        axes: Sequence[Axis] = (),
        sizes: Container[Var] = (),
    ) -> tuple[Buffer, Indices]:
        """The access through matched regions and moving views: the buffer underneath.

        In memory laid flat the place is -1 where an index leaves the view, or the view its memory.

        Errors:
            CompileError: the buffer has no memory.
        """
        while (source := self._regions.get(buffer)) is not None:
            spare = source.buffer.ndim - len(indices)
            mins = [r.min for r in source.region]
            indices = (
                *mins[:spare],
                *(ops.add(m, i) for m, i in zip(mins[spare:], indices, strict=True)),
            )
            buffer = source.buffer
        if buffer in self._known:
            return buffer, indices
        root = self._root(buffer)
        apart = buffer.data not in self._stored or self._is_disjoint(buffer)
        if root not in self._late and self._is_fixed(buffer) and apart:
            self._known.add(buffer)
            self.views[buffer] = root
            return buffer, indices
        inside = [*zip(indices, buffer.shape, strict=True), *self._ends(buffer, root)]
        tests = [
            ops.convert(test)
            for index, size in inside
            if not is_inside(index, size, axes, sizes)
            for test in (index >= 0, index < size)
        ]
        place = _place(buffer, indices)
        if tests:
            place = if_then_else(ops.all_of(*tests), place, ops.const(-1, place.dtype))
        return self._laid_flat(root, buffer.dtype), (place,)

    def _ends(self, buffer: Buffer, root: Buffer) -> Iterator[tuple[PrimExpr, PrimExpr]]:
        """The first and the last place of `buffer` in `root`, each with the number of places.

        Nothing where that number is not known when the kernel begins.
        """
        if not self._is_fixed(root):
            return
        count: PrimExpr = ops.const(root.dtype.itemsize, "int64")
        for size in root.shape:
            count = ops.mul(count, ops.cast_to(size, "int64"))
        count = ops.floordiv(count, buffer.dtype.itemsize)
        reach = [
            ops.mul(ops.sub(n, 1), s) for n, s in zip(buffer.shape, strides_of(buffer), strict=True)
        ]
        for extreme in (ops.minimum, ops.maximum):
            end: PrimExpr = buffer.elem_offset
            for far in reach:
                end = ops.add(end, extreme(far, 0))
            yield end, count

    def is_argument(self, root: Buffer) -> bool:
        """Whether the caller brings the memory of `root`."""
        return root in self._arguments or root in self.pointers.values()

    def root(self, buffer: Buffer) -> Buffer:
        """The buffer whose memory `buffer` is part of, as far as that is known."""
        while (source := self._regions.get(buffer)) is not None:
            buffer = source.buffer
        return self._memory.get(buffer.data, buffer)

    def _root(self, buffer: Buffer) -> Buffer:
        root = self._memory.get(buffer.data)
        if root is None:
            raise CompileError(f"the memory of buffer {buffer.name} is not declared")
        return root

    def _laid_flat(self, root: Buffer, dtype: DataType) -> Buffer:
        """All memory of `root` as one dimension of `dtype`."""
        key = root, dtype
        if key not in self._flat:
            size = Var(f"{root.name}_size", "int64")
            flat = Buffer(root.data, dtype, (size,), name=f"{root.name}_flat")
            self._flat[key] = flat
            self._known.add(flat)
            if root not in self._late:
                self.views[flat] = root
        return self._flat[key]

    def passed_memory(self, pointer: Var) -> Memory | None:
        """What a call is handed under `pointer`, if that is memory."""
        buffer = self._memory.get(pointer)
        return None if buffer is None else self.passed_buffer(buffer)

    def passed_buffer(self, buffer: Buffer) -> Memory:
        """`buffer` as a call is handed it.

        Errors:
            CompileError: it moves while the kernel runs, or has no memory.
        """
        region: tuple[Range, ...] = ()
        ndim = buffer.ndim
        while (source := self._regions.get(buffer)) is not None:
            inner = region or tuple(Range(0, s) for s in buffer.shape)
            spare = source.buffer.ndim - len(inner)
            moved = (
                Range.from_min_extent(ops.add(*ops.match_dtypes(r.min, i.min)), i.extent)
                for r, i in zip(source.region[spare:], inner, strict=True)
            )
            region = (*source.region[:spare], *moved)
            buffer = source.buffer
        zeros: Indices = tuple(ops.const(0, s.dtype) for s in buffer.shape)
        found, _ = self.resolve(buffer, zeros)
        if found is not buffer:
            raise CompileError(f"the view {buffer.name} cannot be handed on while it moves")
        return Memory(buffer, region, buffer.ndim - ndim)


def variables_of(buffer: Buffer) -> set[Var]:
    """The variables in the shape, strides and offset of `buffer`."""
    layout = (*buffer.shape, *buffer.strides, buffer.elem_offset)
    return {part for expr in layout for part in walk(expr) if isinstance(part, Var)}


def _place(buffer: Buffer, indices: Indices) -> PrimExpr:
    """How many elements after the beginning of its memory the element of `buffer` lies."""
    place: PrimExpr = buffer.elem_offset
    for index, step in zip(indices, strides_of(buffer), strict=True):
        place = ops.add(place, ops.mul(index, step))
    return place


def strides_of(buffer: Buffer) -> list[PrimExpr]:
    """The elements from one place to the next along each dimension, of the compact layout too."""
    if buffer.strides:
        return list(buffer.strides)
    steps: list[PrimExpr] = []
    step: PrimExpr = ops.const(1, "int64")
    for size in reversed(buffer.shape):
        steps.insert(0, step)
        step = ops.mul(step, ops.cast_to(size, "int64"))
    return steps


def _is_compact(buffer: Buffer, extents: Sequence[PrimExpr]) -> bool:
    same = len(extents) == buffer.ndim and not buffer.strides
    zero = getattr(buffer.elem_offset, "value", None) == 0
    return same and zero and all(a is b for a, b in zip(extents, buffer.shape, strict=True))
