"""The buffers in scope while a kernel is read: their memory, and the resolution of accesses."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from relaxpy.errors import CompileError, MisuseError
from relaxpy.exec.loops.nest.bounds import is_injective, is_inside
from relaxpy.exec.loops.nest.nodes import Alloc, Axis, Layout, Local, PassedMemory, loads
from relaxpy.ir.arith.algebra.affine import Affine, IndexPoly, as_poly
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.traverse import occurrences, walk
from relaxpy.ir.core.types import PointerType
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, BufferRegion
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.intrin import if_then_else
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.stmt import Allocate, BufferStore, MatchBufferRegion, Stmt

if TYPE_CHECKING:
    from relaxpy.ir.tir.prim_func import PrimFunc

Indices = tuple[PrimExpr, ...]


class BufferTable:
    """The buffers of `func` that have been declared so far.

    Errors:
        CompileError: NumPy lacks the datatype of one of them.
    """

    def __init__(self, func: PrimFunc) -> None:
        self.local: list[Local] = []
        self.views: dict[Buffer, Buffer] = {}
        self.constants: dict[Buffer, object] = {}
        self.pointers: dict[Var, Buffer] = {}
        self._regions: dict[Buffer, BufferRegion] = {}
        self._flat: dict[tuple[Buffer, DataType], Buffer] = {}
        self._dynamic: set[Buffer] = set()
        self._memory: dict[Var, Buffer] = {}
        self._arguments = frozenset(func.buffer_map.values())
        self._known: set[Buffer] = set()
        self._fixed: set[Var] = set(func.params)
        self._stored = {buffer.data for buffer in written_buffers(func.body)}
        for param, buffer in func.buffer_map.items():
            self._declare(buffer)
            self._memory[param] = buffer
            self._fixed |= variables_of(buffer)
        for param in func.params:
            if param not in func.buffer_map and isinstance(param.type_annotation, PointerType):
                memory = Buffer(param, DataType("uint8"), (Var(f"{param.name}_size", "int64"),))
                self.pointers[param] = self._memory[param] = memory

    # ---- declarations

    def _declare(self, buffer: Buffer) -> None:
        """Errors: CompileError at the buffer if NumPy lacks its datatype (DT-8)."""
        try:
            buffer.dtype.numpy()
        except MisuseError as error:
            raise CompileError(error.diagnostic).located(buffer.span) from None
        self._known.add(buffer)
        self._memory[buffer.data] = buffer

    def add_local(self, buffer: Buffer, body: Stmt, axes: Sequence[Axis]) -> Iterator[Alloc]:
        """Declare `buffer`, which is allocated in each iteration of `axes` and used in `body`."""
        self._declare(buffer)
        # In an empty loop or a branch that is not taken, the shape is not evaluated.
        divides = any(ops.may_divide_by_zero(p) for size in buffer.shape for p in walk(size))
        if self._is_fixed(buffer) and not divides:
            self.local.append(Local(buffer, tuple(axes)))
        else:
            self._dynamic.add(buffer)
            yield Alloc(buffer)
            # In source order, so that generated code is deterministic.
            views = (b for b in _over(buffer.data, body) if b is not buffer)
            for dtype in dict.fromkeys(view.dtype for view in views):
                yield Alloc(self._flattened(buffer, dtype), buffer)

    def add_allocation(self, stmt: Allocate, axes: Sequence[Axis]) -> Iterator[Alloc]:
        """Declare the memory of `stmt`, as the buffer over it that has its layout, if any."""
        var, dtype, extents = stmt.buffer_var, stmt.dtype, stmt.extents
        alike = (b for b in _over(var, stmt.body) if b.dtype == dtype and _is_compact(b, extents))
        allocated = next(alike, None) or Buffer(var, dtype, extents, name=var.name)
        yield from self.add_local(allocated, stmt.body, axes)

    def add_constant(self, buffer: Buffer, data: object) -> None:
        """Declare `buffer` as a constant with the elements `data`."""
        self._declare(buffer)
        self.constants[buffer] = data

    def add_match(self, match: MatchBufferRegion) -> None:
        """Declare a matched region."""
        self._declare(match.buffer)
        self._regions[match.buffer] = match.source

    def layout_of(self, match: MatchBufferRegion) -> dict[Var, PrimExpr]:
        """The values of the variables in the shape, strides and offset of a matched region."""
        buffer, source = match.buffer, match.source
        dropped = source.buffer.ndim - buffer.ndim
        strides = strides_of(source.buffer)
        offset: PrimExpr = ops.const(0, "int64")
        for dom, stride in zip(source.region, strides, strict=True):
            offset = ops.add(*ops.match_dtypes(offset, ops.mul(*ops.match_dtypes(dom.min, stride))))
        bindings = [
            *zip(buffer.shape, (r.extent for r in source.region[dropped:]), strict=True),
            *zip(buffer.strides, strides[dropped:], strict=False),
            (buffer.elem_offset, offset),
        ]
        return {
            var: ops.cast_to(value, var.dtype)
            for var, value in bindings
            if isinstance(var, Var) and var not in self._fixed
        }

    def _is_fixed(self, buffer: Buffer) -> bool:
        """True if the layout of `buffer` is known when the kernel begins."""
        layout = (*buffer.shape, *buffer.strides, buffer.elem_offset)
        return variables_of(buffer) <= self._fixed and not any(
            True for e in layout for _ in loads(e)
        )

    def _is_disjoint(self, buffer: Buffer) -> bool:
        """True if different indices of `buffer` provably have different addresses."""
        every = zip(buffer.shape, buffer.strides, strict=False)
        dims = {Var("i", "int64"): (n, s) for n, s in every if getattr(n, "value", 0) != 1}
        position = Affine({v: as_poly(stride) for v, (_, stride) in dims.items()}, as_poly(0))
        axes = [Axis(v, ops.const(0, "int64"), size) for v, (size, _) in dims.items()]
        shape_vars = {s for b in self._arguments for s in b.shape if isinstance(s, Var)}
        return is_injective(position, axes, shape_vars)

    # ---- accesses

    def resolve(
        self,
        buffer: Buffer,
        indices: Indices,
        axes: Sequence[Axis] = (),
        shape_vars: Container[Var] = (),
    ) -> tuple[Buffer, Indices]:
        """The access as one of an underlying buffer, through matched regions and dynamic views.

        An index outside a matched region becomes -1. In flattened memory the position is -1 if an
        index is outside the view, or the view outside its memory.

        Errors:
            CompileError: the buffer has no memory.
        """
        while (source := self._regions.get(buffer)) is not None:
            dropped = source.buffer.ndim - len(indices)
            mins = [r.min for r in source.region]
            absolute = []
            for low, index, size in zip(mins[dropped:], indices, buffer.shape, strict=True):
                shifted = low + index
                if not is_inside(index, size, axes, shape_vars):
                    test = ops.all_of(ops.convert(index >= 0), ops.convert(index < size))
                    shifted = if_then_else(test, shifted, ops.const(-1, shifted.dtype))
                absolute.append(shifted)
            indices = (*mins[:dropped], *absolute)
            buffer = source.buffer
        if buffer in self._known:
            return buffer, indices
        root = self._root(buffer)
        distinct = buffer.data not in self._stored or self._is_disjoint(buffer)
        if root not in self._dynamic and self._is_fixed(buffer) and distinct:
            self._known.add(buffer)
            self.views[buffer] = root
            return buffer, indices
        bounded = [*zip(indices, buffer.shape, strict=True), *self._ends(buffer, root)]
        tests = [
            ops.convert(test)
            for index, size in bounded
            if not is_inside(index, size, axes, shape_vars)
            for test in (index >= 0, index < size)
        ]
        position = _position(buffer, indices)
        if tests:
            position = if_then_else(ops.all_of(*tests), position, ops.const(-1, position.dtype))
        return self._flattened(root, buffer.dtype), (position,)

    def _ends(self, buffer: Buffer, root: Buffer) -> Iterator[tuple[PrimExpr, PrimExpr]]:
        """The first and the last position of `buffer` in `root`, each with the size of `root`.

        Empty if that size is not known when the kernel begins.
        """
        if not self._is_fixed(root):
            return
        count: PrimExpr = ops.const(root.dtype.itemsize, "int64")
        for size in root.shape:
            count = count * ops.cast_to(size, "int64")
        count = count // buffer.dtype.itemsize
        reach = [(n - 1) * s for n, s in zip(buffer.shape, strides_of(buffer), strict=True)]
        for extreme in (ops.minimum, ops.maximum):
            end: PrimExpr = buffer.elem_offset
            for far in reach:
                end = end + extreme(far, 0)
            yield end, count

    def is_argument(self, root: Buffer) -> bool:
        """True if `root` is the memory of an argument."""
        return root in self._arguments or root in self.pointers.values()

    def root(self, buffer: Buffer) -> Buffer:
        """The buffer that owns the memory of `buffer`, or `buffer` if that is not known."""
        while (source := self._regions.get(buffer)) is not None:
            buffer = source.buffer
        return self._memory.get(buffer.data, buffer)

    def _root(self, buffer: Buffer) -> Buffer:
        root = self._memory.get(buffer.data)
        if root is None:
            raise CompileError(f"the memory of buffer {buffer.name} is not declared")
        return root

    def _flattened(self, root: Buffer, dtype: DataType) -> Buffer:
        """The memory of `root` as a buffer of `dtype` with one dimension."""
        key = root, dtype
        if key not in self._flat:
            size = Var(f"{root.name}_size", "int64")
            flat = Buffer(root.data, dtype, (size,), name=f"{root.name}_flat")
            self._flat[key] = flat
            self._known.add(flat)
            if root not in self._dynamic:
                self.views[flat] = root
        return self._flat[key]

    def passed_memory(self, pointer: Var) -> PassedMemory | None:
        """The argument of a call for `pointer`, if that points to memory."""
        buffer = self._memory.get(pointer)
        return None if buffer is None else self.passed_buffer(buffer)

    def passed_buffer(self, buffer: Buffer) -> PassedMemory:
        """`buffer` as an argument of a call.

        Errors:
            CompileError: it has no memory.
        """
        region: tuple[Range, ...] = ()
        ndim = buffer.ndim
        while (source := self._regions.get(buffer)) is not None:
            sub_region = region or tuple(Range(0, s) for s in buffer.shape)
            dropped = source.buffer.ndim - len(sub_region)
            shifted = (
                Range.from_min_extent(ops.add(*ops.match_dtypes(r.min, i.min)), i.extent)
                for r, i in zip(source.region[dropped:], sub_region, strict=True)
            )
            region = (*source.region[:dropped], *shifted)
            buffer = source.buffer
        zeros: Indices = tuple(ops.const(0, s.dtype) for s in buffer.shape)
        memory, _ = self.resolve(buffer, zeros)
        layout = None
        if memory is not buffer:
            layout = Layout(buffer.name, buffer.shape, buffer.strides, buffer.elem_offset)
        return PassedMemory(memory, region, buffer.ndim - ndim, layout)


def _over(memory: Var, stmt: Stmt) -> Iterator[Buffer]:
    """The buffers in `stmt` whose memory is `memory`."""
    return (b for b in walk(stmt) if isinstance(b, Buffer) and b.data is memory)


def written_buffers(stmt: Stmt) -> Iterator[Buffer]:
    """The buffers in `stmt` that it writes or makes views of."""
    nodes: Iterator[BufferStore | MatchBufferRegion]
    nodes = occurrences(stmt, BufferStore, MatchBufferRegion)
    return (n.buffer if isinstance(n, BufferStore) else n.source.buffer for n in nodes)


def variables_of(buffer: Buffer) -> set[Var]:
    """The variables in the shape, strides and offset of `buffer`."""
    layout = (*buffer.shape, *buffer.strides, buffer.elem_offset)
    return {node for expr in layout for node in occurrences(expr, Var)}


def _position(buffer: Buffer, indices: Indices) -> PrimExpr:
    """The position in memory of an element of `buffer`, in elements."""
    position: PrimExpr = buffer.elem_offset
    for index, stride in zip(indices, strides_of(buffer), strict=True):
        position = position + index * stride
    return position


@lru_cache(maxsize=1 << 8)
def strides_of(buffer: Buffer) -> Sequence[PrimExpr]:
    """The strides of `buffer`; those of the compact layout if it declares none."""
    if buffer.strides:
        return buffer.strides
    strides: list[PrimExpr] = []
    stride: PrimExpr = ops.const(1, "int64")
    for size in reversed(buffer.shape):
        strides.insert(0, stride)
        stride = stride * ops.cast_to(size, "int64")
    return tuple(strides)


@lru_cache(maxsize=1 << 8)
def position_of(buffer: Buffer, indices: tuple[PrimExpr, ...]) -> IndexPoly:
    """The position of an element in the memory of `buffer`, in elements from the first one."""
    position = as_poly(0)
    for index, stride in zip(indices, strides_of(buffer), strict=True):
        position = position + as_poly(index) * as_poly(stride)
    return position


def _is_compact(buffer: Buffer, extents: Sequence[PrimExpr]) -> bool:
    same = len(extents) == buffer.ndim and not buffer.strides
    zero = getattr(buffer.elem_offset, "value", None) == 0
    return same and zero and all(a is b for a, b in zip(extents, buffer.shape, strict=True))
