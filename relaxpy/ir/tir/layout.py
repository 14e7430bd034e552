"""Data layouts: the order of axes and their blocks, such as NCHW16c."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache

from typing_extensions import override

from relaxpy.errors import MisuseError, counted, unexpected
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import ExprLike, IntImm, IterVarKind, PrimExpr, Var
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing

_UNDEFINED = ("", "__undef__")
_AXIS = re.compile(r"(\d*)([A-Za-z])")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Layout:
    """A data layout, the axes of `name` in order: a capital is an axis, `16c` a block of 16 of C.

    The extent of each of the `axes` is the size of its block or a variable. The layouts "" and
    "__undef__" have no axes.
    """

    name: str
    axes: tuple[IterVar, ...]
    factors: Mapping[str, int] = field(repr=False)

    @staticmethod
    def of(name: str | Layout, dtype: str = "int32") -> Layout:
        """The layout with this name, whose axes have variables of `dtype`.

        Errors:
            MisuseError (also TypeError, ValueError): there is no such layout.
        """
        if isinstance(name, Layout):
            return name
        if not isinstance(name, str) or not isinstance(dtype, str):
            raise MisuseError(f"a layout is named by a string, found {name!r:.60}, {dtype!r:.60}")
        kind = DataType(dtype)
        if kind.family != "int" or kind.vector:
            raise unexpected(dtype, "axes run over signed integers")
        return _layout(name, kind)

    @property
    def names(self) -> tuple[str, ...]:
        """The letters of the axes."""
        return tuple(axis.var.name for axis in self.axes)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.axes)

    def __len__(self) -> int:
        return len(self.axes)

    def __contains__(self, axis: object) -> bool:
        return axis in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __getitem__(self, index: int) -> str:
        """The letter of an axis. Errors: MisuseError (also ValueError) if there is none."""
        try:
            return self.names[index]
        except (IndexError, TypeError):
            raise MisuseError(
                f"the layout {self.name!r} has {counted(len(self), 'axis', 'axes')}, "
                f"none at {index}",
                about=index,
            ) from None

    def index_of(self, axis: str) -> int:
        """The position of `axis`, or -1 if the layout does not have it."""
        return self.names.index(axis) if axis in self.names else -1

    def factor_of(self, axis: str) -> int:
        """The block size of `axis`, a capital or its small letter, or -1."""
        return self.factors.get(str(axis).lower(), -1) if str(axis) in self.names else -1

    @override
    def __str__(self) -> str:
        return self.name

    @override
    def __repr__(self) -> str:
        return f"Layout({self.name!r})"


@lru_cache(maxsize=1 << 6)
def _layout(name: str, dtype: DataType) -> Layout:
    """The layout with this name: inference reads those of each convolution repeatedly."""
    axes: list[IterVar] = []
    factors: dict[str, int] = {}
    for axis, factor in _parsed(name):
        size = Var(f"{axis}_size", dtype) if factor is None else ops.const(factor, dtype)
        domain = Range.from_min_extent(ops.const(0, dtype), size)
        axes.append(IterVar(domain, Var(axis, dtype), IterVarKind.DataPar))
        if factor is not None:
            factors[axis] = factor
    return Layout(name, tuple(axes), factors)


def _parsed(name: str) -> list[tuple[str, int | None]]:
    """Parse the axes of a layout, each with its block size or None."""
    if name in _UNDEFINED:
        return []
    parsed: list[tuple[str, int | None]] = []
    position = 0
    while position < len(name):
        match = _AXIS.match(name, position)
        if match is None:
            raise MisuseError(f"an axis of the layout {name!r:.60} is a letter", about=name)
        digits, axis = match.groups()
        position = match.end()
        if axis.isupper() == bool(digits) or (digits and int(digits) == 0):
            raise MisuseError(
                f"the layout {name!r:.60} has {match[0]!r}: a capital is an axis, a small letter "
                "after a positive number a block of one",
                about=name,
            )
        parsed.append((axis, int(digits) if digits else None))
    axes = [axis for axis, _ in parsed]
    for axis in axes:
        if axes.count(axis) > 1 or axis.upper() not in axes:
            reason = "twice" if axes.count(axis) > 1 else f"without {axis.upper()}"
            raise MisuseError(f"the layout {name!r:.60} has {axis} {reason}", about=name)
    return parsed


class BijectiveLayout:
    """The conversion between two layouts with the same capital axes, in both directions."""

    def __init__(self, src_layout: str | Layout, dst_layout: str | Layout) -> None:
        """Errors: MisuseError (also ValueError) if the layouts differ in their capital axes."""
        self.src_layout = Layout.of(src_layout)
        self.dst_layout = Layout.of(dst_layout)
        if not _convertible(self.src_layout, self.dst_layout):
            raise MisuseError(f"{self.src_layout!r} does not become {self.dst_layout!r}")

    @override
    def __repr__(self) -> str:
        return f"BijectiveLayout({self.src_layout.name!r}, {self.dst_layout.name!r})"

    @user_facing
    def forward_index(self, index: Sequence[ExprLike]) -> list[PrimExpr]:
        """Convert an index of the source layout to the destination layout.

        Errors:
            MisuseError (also ValueError): there are more or fewer indices than axes.
        """
        return _convert_index(index, self.src_layout, self.dst_layout)

    @user_facing
    def backward_index(self, index: Sequence[ExprLike]) -> list[PrimExpr]:
        """Convert an index of the destination layout to the source layout.

        Errors:
            MisuseError (also ValueError): there are more or fewer indices than axes.
        """
        return _convert_index(index, self.dst_layout, self.src_layout)

    @user_facing
    def forward_shape(self, shape: Sequence[ExprLike]) -> list[PrimExpr]:
        """Convert a shape to the destination layout; the last block may be padded.

        Errors:
            MisuseError (also ValueError): there are more or fewer dimensions than axes, or one
                differs from its block size.
        """
        return _convert_shape(shape, self.src_layout, self.dst_layout)

    @user_facing
    def backward_shape(self, shape: Sequence[ExprLike]) -> list[PrimExpr]:
        """Convert a shape of the destination layout to the source layout.

        Errors:
            MisuseError (also ValueError): there are more or fewer dimensions than axes, or one
                differs from its block size.
        """
        return _convert_shape(shape, self.dst_layout, self.src_layout)


def _convertible(src: Layout, dst: Layout) -> bool:
    capitals = [{axis for axis in layout.names if axis.isupper()} for layout in (src, dst)]
    return capitals[0] == capitals[1] != set()


def _by_axis(values: Sequence[ExprLike], layout: Layout, noun: str) -> dict[str, PrimExpr]:
    exprs = ops.convert_all(values)
    if len(exprs) != len(layout):
        raise MisuseError(
            f"{layout!r} has {counted(len(layout), 'axis', 'axes')}, found {len(exprs)} {noun}",
            about=values,
        )
    return dict(zip(layout.names, exprs, strict=True))


def _convert_index(values: Sequence[ExprLike], src: Layout, dst: Layout) -> list[PrimExpr]:
    by_axis = _by_axis(values, src, "indices")
    converted = []
    for axis in dst.names:
        position, offset = by_axis[axis.upper()], by_axis.get(axis.lower())
        if offset is not None:
            position = ops.mul(position, src.factors[axis.lower()]) + offset
        factor = dst.factors.get(axis.lower())
        if factor is None:
            converted.append(position)
        elif axis.isupper():
            converted.append(position // ops.const(factor, position.dtype))
        else:
            converted.append(position % ops.const(factor, position.dtype))
    return converted


def _convert_shape(values: Sequence[ExprLike], src: Layout, dst: Layout) -> list[PrimExpr]:
    by_axis = _by_axis(values, src, "sizes")
    for axis, factor in src.factors.items():
        size = by_axis[axis]
        if isinstance(size, IntImm) and size.value != factor:
            raise MisuseError(f"blocks of {axis} have size {factor}, found {size.value}")
    shape = []
    for axis in dst.names:
        dimension, block = by_axis[axis.upper()], dst.factors.get(axis.lower())
        dimension = dimension * src.factors.get(axis.lower(), 1)
        if block is not None:
            length = ops.const(block, dimension.dtype)
            dimension = ops.ceildiv(dimension, length) if axis.isupper() else length
        shape.append(dimension)
    return shape


@user_facing
def layout(layout_str: str, dtype: str = "int32") -> Layout:
    """The layout with a name such as "NCHW16c", whose axes have variables of `dtype`.

    Errors:
        MisuseError (also TypeError, ValueError): there is no such layout.
    """
    return Layout.of(layout_str, dtype)


@user_facing
def bijective_layout(src_layout: str | Layout, dst_layout: str | Layout) -> BijectiveLayout | None:
    """The conversion between two layouts, or None if their capital axes differ.

    Errors:
        MisuseError (also TypeError, ValueError): an argument is not a layout.
    """
    src, dst = Layout.of(src_layout), Layout.of(dst_layout)
    return BijectiveLayout(src, dst) if _convertible(src, dst) else None
