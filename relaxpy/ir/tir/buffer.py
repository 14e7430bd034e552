"""Buffers, regions of buffers and loads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from types import EllipsisType
from typing import TYPE_CHECKING, ClassVar, Self, TypeAlias

from typing_extensions import TypeIs, override

from relaxpy.errors import MisuseError, check_type, counted, unexpected
from relaxpy.ir import hooks
from relaxpy.ir.core.dtype import BOOL, FLOAT32, HANDLE, INT32, DataType
from relaxpy.ir.core.node import Copied, Node
from relaxpy.ir.core.traverse import children, reached
from relaxpy.ir.core.types import PointerType, pointer_type
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import ExprLike, IntImm, PrimExpr, Ramp, Var
from relaxpy.ir.tir.iteration import IterVar, Range, check_integer, extent_between
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.entry import user_constructed, user_facing

if TYPE_CHECKING:
    from relaxpy.errors import Span
    from relaxpy.ir.tir.expr import Call
    from relaxpy.ir.tir.stmt import BufferStore


#: The hint for a buffer that is used as a value.
BY_ELEMENT = "kernels compute by element: index buffers, inside loops"


def _check_pointer(data: object, name: object) -> None:
    """Errors: MisuseError (also TypeError) if `name` is not a string or `data` not a pointer."""
    check_type(name, str, "a buffer is named by a string")
    if not isinstance(data, Var) or data.dtype != HANDLE:
        raise unexpected(data, f"data of buffer {name} is a pointer variable")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Buffer(Copied):
    """A named array in memory, compared by identity; its shape may contain variables.

    Shapes:
        shape    any rank; dimensions are integer expressions
        strides  one per dimension, or empty for the compact layout
    """

    READ: ClassVar[int] = 1
    WRITE: ClassVar[int] = 2
    _fields = (
        "dtype",
        "data",
        "shape",
        "strides",
        "elem_offset",
        "data_alignment",
        "offset_factor",
        "buffer_type",
        "axis_separators",
    )
    _binds_shape_vars = frozenset(("data", "shape", "strides", "elem_offset"))
    _variable = True
    _defines_itself = True
    data: Var
    dtype: DataType
    shape: tuple[PrimExpr, ...]
    strides: tuple[PrimExpr, ...] = ()
    elem_offset: PrimExpr = field(default_factory=lambda: ops.const(0, INT32))
    name: str = "buffer"
    data_alignment: int = 64
    offset_factor: int = 1
    buffer_type: int = 1
    axis_separators: tuple[int, ...] = ()
    span: Span | None = None

    if TYPE_CHECKING:  # what is converted

        def __init__(
            self,
            data: Var,
            dtype: str,
            shape: Sequence[ExprLike],
            strides: Sequence[ExprLike] = ...,
            elem_offset: ExprLike = ...,
            name: str = ...,
            data_alignment: int = ...,
            offset_factor: int = ...,
            buffer_type: int = ...,
            axis_separators: Sequence[int] = ...,
            span: Span | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        _check_pointer(self.data, self.name)
        set_field = object.__setattr__
        for name in ("data_alignment", "offset_factor", "buffer_type"):
            if type(number := getattr(self, name)) is not int:
                set_field(self, name, ops.as_int(number))
        set_field(self, "dtype", DataType(self.dtype))
        set_field(self, "shape", ops.convert_all(self.shape))
        set_field(self, "strides", ops.convert_all(self.strides))
        for sizes, noun in ((self.shape, "a dimension"), (self.strides, "a stride")):
            for size in sizes:
                check_integer(size, noun, self.name)
        set_field(self, "elem_offset", ops.convert(self.elem_offset))
        check_integer(self.elem_offset, "the offset", self.name)
        if self.strides and len(self.strides) != len(self.shape):
            raise MisuseError(
                f"buffer {self.name} has {len(self.shape)} dimensions and {len(self.strides)} "
                "strides"
            )
        separators = [ops.as_int(s) for s in self.axis_separators]
        set_field(self, "axis_separators", tuple(separators))
        if separators != sorted(s for s in set(separators) if 0 <= s <= len(self.shape)):
            raise MisuseError(
                f"axis separators increase from 0 to {len(self.shape)}, found {separators}",
                about=self.axis_separators,
            )

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def scope(self) -> str:
        """The memory scope of the buffer."""
        kind = self.data.type_annotation
        return (kind.storage_scope if isinstance(kind, PointerType) else "") or "global"

    def __getitem__(self, index: Index | tuple[Index, ...]) -> BufferLoad | BufferRegion:
        """A load, a region for slices without step, or a vector load for a stepped slice.

        Errors:
            MisuseError: the number of indices differs from the rank, or a slice is not constant.
        """
        indices = index if isinstance(index, tuple) else (index,)
        indices = _expand(indices, self.ndim)
        if len(indices) != self.ndim:
            raise _wrong_count(self, indices)
        slices = [i for i in indices if isinstance(i, slice)]
        if slices and all(i.step is None for i in slices):
            return BufferRegion(self, _region(self, indices))
        points = [
            vector_index(i, size) if isinstance(i, slice) else i
            for i, size in zip(indices, self.shape, strict=True)
        ]
        return BufferLoad(self, [i for i in points if not isinstance(i, EllipsisType)])

    def __iter__(self) -> None:
        raise MisuseError(f"buffer {self.name} cannot be iterated over; loop over its indices")

    def __setitem__(self, index: object, value: object) -> None:
        raise MisuseError(
            f"Python cannot assign to elements of buffer {self.name}: it is not an array",
            hint=f"write T.buffer_store({self.name}, value, [index]), or assign in a kernel's text",
        )

    def __prim_expr__(self) -> PrimExpr:
        raise MisuseError(
            f"expected a scalar expression, found buffer {self.name}", about=self, hint=BY_ELEMENT
        )

    def vload(
        self, begin: Sequence[ExprLike], dtype: str | None = None, predicate: PrimExpr | None = None
    ) -> BufferLoad:
        """A load at `begin` with the lanes of `dtype`.

        Errors:
            MisuseError (also TypeError): the elements have another datatype.
        """
        kind = self.dtype if dtype is None else DataType(dtype)
        if kind.element != self.dtype.element or kind.lanes % self.dtype.lanes:
            raise MisuseError(f"buffer {self.name} holds {self.dtype}, not {kind}", about=dtype)
        return BufferLoad(self, self.lanes_at(begin, kind), predicate)

    def vstore(
        self, begin: Sequence[ExprLike], value: ExprLike, predicate: PrimExpr | None = None
    ) -> BufferStore:
        """A store at `begin` with the lanes of `value`.

        Errors:
            MisuseError (also TypeError): the datatype of the elements differs from that of `value`.
        """
        from relaxpy.ir.tir.stmt import store_at

        return store_at(self, begin, value, predicate)

    def offset_of(self, indices: Sequence[ExprLike]) -> list[PrimExpr]:
        """The element offset of `indices` along each physical axis.

        Errors:
            MisuseError (also TypeError): the number of indices differs from the rank.
        """
        result: list[PrimExpr] = hooks.call("buffer_offsets", self, indices)
        return result

    def get_flattened_buffer(self) -> Buffer:
        """The buffer with one dimension per physical axis (one without separators)."""
        result: Buffer = hooks.call("flattened_buffer", self)
        return result

    def access_ptr(
        self,
        access_mask: str | int,
        ptr_type: str = "handle",
        content_lanes: int = 1,
        offset: ExprLike = 0,
        extent: ExprLike | None = None,
    ) -> Call:
        """A pointer into this buffer for a function that reads ("r") or writes ("w").

        Errors:
            MisuseError (also TypeError): the mask is not valid.
        """
        arguments = access_mask, ptr_type, content_lanes, offset, extent
        result: Call = hooks.call("access_ptr", self, *arguments)
        return result

    def lanes_at(self, begin: Sequence[ExprLike] | ExprLike, dtype: DataType) -> Indices:
        """The indices of a value of `dtype` at `begin`; the last of a vector is a Ramp."""
        values = begin if isinstance(begin, (tuple, list)) else (begin,)
        indices, times = ops.convert_all(values), dtype.lanes // self.dtype.lanes
        lanes = ops.lanes_of(times) if dtype.is_scalable else times
        if lanes != 1 and not indices:
            raise MisuseError(f"buffer {self.name} of rank 0 has no lanes")
        if lanes != 1 and not indices[-1].dtype.vector:
            indices = (*indices[:-1], Ramp(indices[-1], 1, lanes))
        return indices

    def with_name(self, name: str) -> Buffer:
        """Rename this buffer and its data variable."""
        return replace(self, name=name, data=self.data.renamed(name))

    @override
    def __str__(self) -> str:
        return self.name


Indices: TypeAlias = tuple[PrimExpr, ...]
Index: TypeAlias = ExprLike | slice | EllipsisType | IterVar


def index_count(buffer: Buffer, indices: Sequence[object]) -> str:
    """The message for too few or too many indices."""
    dimensions = counted(buffer.ndim, "dimension")
    return (
        f"buffer {buffer.name} has {dimensions}, found {counted(len(indices), 'index', 'indices')}"
    )


def _wrong_count(buffer: Buffer, indices: Sequence[object]) -> MisuseError:
    names = ", ".join("ijklmn"[: buffer.ndim])
    is_nested = 0 < len(indices) < buffer.ndim <= 6
    hint = f"one pair of brackets has all indices: {buffer.name}[{names}]" if is_nested else None
    return MisuseError(index_count(buffer, indices), hint=hint)


def _expand(indices: tuple[Index, ...], ndim: int) -> tuple[Index, ...]:
    at = next((k for k, i in enumerate(indices) if isinstance(i, EllipsisType)), None)
    if at is None:
        return indices
    missing = ndim - (len(indices) - 1)
    return (*indices[:at], *([slice(None)] * missing), *indices[at + 1 :])


def _region(buffer: Buffer, indices: tuple[Index, ...]) -> tuple[Range, ...]:
    ranges = []
    for index, size in zip(indices, buffer.shape, strict=True):
        if isinstance(index, slice):
            start = 0 if index.start is None else index.start
            ranges.append(Range(start, size if index.stop is None else index.stop))
        else:
            ranges.append(Range.point(ops.convert(index)))
    return tuple(ranges)


def vector_index(index: slice, size: PrimExpr) -> PrimExpr:
    """The index for a slice of a dimension: a Ramp, or its start if it has one element.

    Errors:
        MisuseError: the number of its elements is not constant, or the step is not positive.
    """
    end, step = size if index.stop is None else index.stop, 1 if index.step is None else index.step
    start, stop = ops.match_dtypes(0 if index.start is None else index.start, end)
    step_expr = ops.convert(step)
    if isinstance(step_expr, IntImm) and step_expr.value <= 0:
        raise MisuseError(f"the step of a slice is positive, found {step_expr}", about=step)
    lanes = _constant(ops.ceildiv(extent_between(start, stop), step))
    if not _is_length(lanes):
        raise MisuseError(f"a slice that is a vector has a constant length, found `{lanes}`")
    if isinstance(lanes, IntImm) and lanes.value < 1:
        raise MisuseError("a slice that is a vector has at least one element")
    return start if ops.is_const(lanes, 1) else Ramp(start, step, lanes)


def _is_length(lanes: PrimExpr | None) -> TypeIs[PrimExpr]:
    """True if a vector can have this length: a constant, or a multiple of vscale."""
    return isinstance(lanes, IntImm) or ops.scalable_lanes(lanes) is not None


def _constant(value: PrimExpr) -> PrimExpr:
    """`value`, simplified if it is not a constant already."""
    if isinstance(value, IntImm):
        return value
    result: PrimExpr = hooks.call("simplify", value)
    return result


@user_constructed
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class BufferRegion(Copied):
    """A rectangular region of a buffer: one Range per dimension."""

    _fields = ("buffer", "region")
    buffer: Buffer
    region: tuple[Range, ...]

    def __post_init__(self) -> None:
        check_type(self.buffer, Buffer, "expected a Buffer")
        object.__setattr__(self, "region", tuple(self.region))
        for rng in self.region:
            if type(rng) is not Range:
                check_type(rng, Range, "a region consists of Ranges")
        if len(self.region) != self.buffer.ndim:
            raise MisuseError(f"a region of {self.buffer.name} has {self.buffer.ndim} ranges")

    @property
    @override
    def _bits_inside(self) -> int:  # type: ignore[override]
        bits = 0
        for rng in self.region:
            bits |= rng._bits_inside
        return bits or -1

    def __prim_expr__(self) -> PrimExpr:
        """The elements as a vector load, if they are contiguous and constant in number."""
        extents = [rng.extent for rng in self.region]
        lanes = _constant(extents[-1]) if extents else None
        if _is_length(lanes) and all(ops.is_const(n, 1) for n in extents[:-1]):
            *indices, start = [rng.min for rng in self.region]
            last = start if ops.is_const(lanes, 1) else Ramp(start, 1, lanes)
            return BufferLoad(self.buffer, [*indices, last])
        raise MisuseError(
            f"a slice of buffer {self.buffer.name} is a region, not a value",
            hint="give every dimension an index, and the last slice a constant length",
            about=self,
        )


class BufferLoad(PrimExpr):
    """The element of `buffer` at `indices`; a vector if the last index is a vector."""

    __slots__ = ("buffer", "indices", "predicate")
    __match_args__ = ("buffer", "indices", "predicate")
    _fields = ("buffer", "indices", "predicate")
    buffer: Buffer
    indices: tuple[PrimExpr, ...]
    predicate: PrimExpr | None

    def __new__(
        cls,
        buffer: Buffer,
        indices: Sequence[ExprLike | IterVar],
        predicate: PrimExpr | None = None,
        span: Span | None = None,
    ) -> Self:
        """Errors: MisuseError if the number of indices differs from the rank."""
        dtype, buffer, values = check_access(buffer, indices)
        ops.check_predicate(predicate, values[-1].dtype if values else INT32)
        return cls._make(dtype, buffer, values, predicate)

    @override
    def _may_stop(self) -> bool:
        return True


def check_access(
    buffer: Buffer, indices: Sequence[ExprLike | IterVar]
) -> tuple[DataType, Buffer, tuple[PrimExpr, ...]]:
    """Check an access to a buffer; return its datatype, the buffer and the converted indices."""
    check_type(buffer, Buffer, "a Buffer is accessed")
    values = ops.convert_all(indices)
    if len(values) != buffer.ndim:
        raise _wrong_count(buffer, values)
    vector = False
    for value in values:
        kind = value.dtype
        if not kind.is_int or kind.is_bool:
            text = f"an index of {buffer.name} is an integer, found `{value}` of {kind}"
            raise MisuseError(text, about=value)
        if vector:
            text = f"only the last index of {buffer.name} may be a vector"
            raise MisuseError(text, hint="write a loop for each index that runs")
        vector = kind.vector != ""
    return buffer.dtype.spread(values[-1].dtype) if vector else buffer.dtype, buffer, values


@user_facing
def decl_buffer(
    shape: Sequence[ExprLike] | ExprLike,
    dtype: str | None = None,
    name: str = "buffer",
    data: Var | None = None,
    strides: Sequence[ExprLike] | None = None,
    elem_offset: ExprLike | None = None,
    scope: str = "",
    data_alignment: int = -1,
    offset_factor: int = 0,
    buffer_type: str | int = "",
    axis_separators: Sequence[int] | None = None,
) -> Buffer:
    """Declare a buffer, of float32 by default; a scalar shape means one dimension.

    Units:
        data_alignment  bytes
    Errors:
        MisuseError: `data` is not a pointer variable.
    """
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    kind = DataType(dtype) if dtype else FLOAT32
    if data is None:
        element = DataType("int8") if kind == BOOL else kind
        data = Var(name, pointer_type(element, scope))
    elif not isinstance(getattr(data, "type_annotation", None), PointerType):
        raise unexpected(data, f"data of buffer {name} is a pointer variable")
    if buffer_type not in ("", "auto", "default", "auto_broadcast", 1, 2):
        raise unexpected(buffer_type, 'a buffer is of type "default" or "auto_broadcast"')
    dims = ops.convert_all(sizes)
    offset_type = dims[0].dtype if dims else INT32
    if elem_offset is None:
        has_offset_variable = offset_factor != 0
        elem_offset = (
            Var(f"{name}_elem_offset", offset_type)
            if has_offset_variable
            else ops.const(0, offset_type)
        )
    return Buffer(
        data,
        kind,
        dims,
        () if strides is None else strides,  # which are converted
        elem_offset,
        name,
        64 if ops.as_int(data_alignment) <= 0 else data_alignment,
        offset_factor or 1,
        2 if buffer_type in ("auto_broadcast", 2) else 1,
        tuple(axis_separators or ()),
    )


def outside_indices(expr: Node) -> Iterator[Node]:
    """The nodes in an expression, each once, except for those in the indices of loads."""
    return reached([expr], lambda node: () if isinstance(node, BufferLoad) else children(node))
