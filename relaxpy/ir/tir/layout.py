"""Layouts of data: which axis is where, and which axes are split into blocks, as in NCHW16c."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from typing_extensions import override

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError, counted
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import IterVar, Range
from relaxpy.ir.tir.expr import ExprLike, IntImm, IterVarKind, PrimExpr, Var

_UNDEFINED = ("", "__undef__")
_AXIS = re.compile(r"(\d*)([A-Za-z])")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Layout:
    """The axes of `name` in order: a capital is an axis, `16c` a block of 16 out of axis C.

    Each of the `axes` runs through its block, or through a size of its own. The layouts of "" and
    "__undef__" have none.
    """

    name: str
    axes: tuple[IterVar, ...]
    factors: Mapping[str, int] = field(repr=False)

    @staticmethod
    def of(name: str | Layout, dtype: str = "int32") -> Layout:
        """The layout of that name, its axes over variables of `dtype`.

        Errors:
            MisuseError (also TypeError, ValueError): there is no such layout.
        """
        if isinstance(name, Layout):
            return name
        if not isinstance(name, str) or not isinstance(dtype, str):
            raise MisuseError(f"a layout is named by a string, found {name!r:.60}, {dtype!r:.60}")
        kind = DataType(dtype)
        if kind.family != "int" or kind.vector:
            raise MisuseError(f"axes run over signed integers, found {dtype!r:.60}", about=dtype)
        axes: list[IterVar] = []
        factors: dict[str, int] = {}
        for axis, factor in _parsed(name):
            size = Var(f"{axis}_size", kind) if factor is None else ops.const(factor, kind)
            domain = Range.from_min_extent(ops.const(0, kind), size)
            axes.append(IterVar(domain, Var(axis, kind), IterVarKind.DataPar))
            if factor is not None:
                factors[axis] = factor
        return Layout(name, tuple(axes), factors)

    @property
    def names(self) -> tuple[str, ...]:
        """The letters of the axes."""
        return tuple(axis.var.name for axis in self.axes)

    @property
    def ndim(self) -> int:
        """Number of axes."""
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
        """Where `axis` stands, -1 if it does not."""
        return self.names.index(axis) if axis in self.names else -1

    def factor_of(self, axis: str) -> int:
        """How long the blocks of `axis`, a capital or its small letter, are; -1 if it has none."""
        return self.factors.get(str(axis).lower(), -1) if str(axis) in self.names else -1

    @override
    def __str__(self) -> str:
        return self.name

    @override
    def __repr__(self) -> str:
        return f"Layout({self.name!r})"


def _parsed(name: str) -> list[tuple[str, int | None]]:
    """The axes of a layout, each with how long its blocks are."""
    if name in _UNDEFINED:
        return []
    found: list[tuple[str, int | None]] = []
    place = 0
    while place < len(name):
        part = _AXIS.match(name, place)
        if part is None:
            raise MisuseError(f"an axis of the layout {name!r:.60} is a letter", about=name)
        digits, axis = part.groups()
        place = part.end()
        if axis.isupper() == bool(digits) or (digits and int(digits) == 0):
            raise MisuseError(
                f"the layout {name!r:.60} has {part[0]!r}: a capital is an axis, a small letter "
                "after a positive number a block of one",
                about=name,
            )
        found.append((axis, int(digits) if digits else None))
    axes = [axis for axis, _ in found]
    for axis in axes:
        if axes.count(axis) > 1 or axis.upper() not in axes:
            why = "twice" if axes.count(axis) > 1 else f"without {axis.upper()}"
            raise MisuseError(f"the layout {name!r:.60} has {axis} {why}", about=name)
    return found


class BijectiveLayout:
    """A change of layout, and back, as two layouts of the same capitals allow it."""

    def __init__(self, src_layout: str | Layout, dst_layout: str | Layout) -> None:
        """Errors: MisuseError (also ValueError) if the layouts have not the same axes."""
        self.src_layout = Layout.of(src_layout)
        self.dst_layout = Layout.of(dst_layout)
        if not _convertible(self.src_layout, self.dst_layout):
            raise MisuseError(f"{self.src_layout!r} does not become {self.dst_layout!r}")

    @override
    def __repr__(self) -> str:
        return f"BijectiveLayout({self.src_layout.name!r}, {self.dst_layout.name!r})"

    @user_facing
    def forward_index(self, index: Sequence[ExprLike]) -> list[PrimExpr]:
        """Where the element at `index` of the source layout is.

        Errors:
            MisuseError (also ValueError): there are more or fewer indices than axes.
        """
        return _moved(index, self.src_layout, self.dst_layout)

    @user_facing
    def backward_index(self, index: Sequence[ExprLike]) -> list[PrimExpr]:
        """Where the element at `index` of the other layout is in the source layout.

        Errors:
            MisuseError (also ValueError): there are more or fewer indices than axes.
        """
        return _moved(index, self.dst_layout, self.src_layout)

    @user_facing
    def forward_shape(self, shape: Sequence[ExprLike]) -> list[PrimExpr]:
        """The sizes that hold an array of this shape; the last block may be filled in part.

        Errors:
            MisuseError (also ValueError): there are more or fewer sizes than axes, or one is
                another than that of its blocks.
        """
        return _reshaped(shape, self.src_layout, self.dst_layout)

    @user_facing
    def backward_shape(self, shape: Sequence[ExprLike]) -> list[PrimExpr]:
        """The sizes in the source layout of an array of this shape in the other.

        Errors:
            MisuseError (also ValueError): there are more or fewer sizes than axes, or one is
                another than that of its blocks.
        """
        return _reshaped(shape, self.dst_layout, self.src_layout)


def _convertible(src: Layout, dst: Layout) -> bool:
    capitals = [{axis for axis in layout.names if axis.isupper()} for layout in (src, dst)]
    return capitals[0] == capitals[1] != set()


def _given(values: Sequence[ExprLike], layout: Layout, what: str) -> dict[str, PrimExpr]:
    found = ops.convert_all(values)
    if len(found) != len(layout):
        raise MisuseError(
            f"{layout!r} has {counted(len(layout), 'axis', 'axes')}, found {len(found)} {what}",
            about=values,
        )
    return dict(zip(layout.names, found, strict=True))


def _moved(
    values: Sequence[ExprLike],
    src: Layout,
    dst: Layout,
) -> list[PrimExpr]:
    given = _given(values, src, "indices")
    moved = []
    for axis in dst.names:
        whole, inside = given[axis.upper()], given.get(axis.lower())
        if inside is not None:
            whole = ops.add(ops.mul(whole, src.factors[axis.lower()]), inside)
        size = dst.factors.get(axis.lower())
        if size is None:
            moved.append(whole)
        elif axis.isupper():
            moved.append(ops.floordiv(whole, ops.const(size, whole.dtype)))
        else:
            moved.append(ops.floormod(whole, ops.const(size, whole.dtype)))
    return moved


def _reshaped(values: Sequence[ExprLike], src: Layout, dst: Layout) -> list[PrimExpr]:
    given = _given(values, src, "sizes")
    for axis, factor in src.factors.items():
        size = given[axis]
        if isinstance(size, IntImm) and size.value != factor:
            raise MisuseError(f"blocks of {axis} have size {factor}, found {size.value}")
    shape = []
    for axis in dst.names:
        whole, blocks = given[axis.upper()], dst.factors.get(axis.lower())
        whole = ops.mul(whole, src.factors.get(axis.lower(), 1))
        if blocks is not None:
            length = ops.const(blocks, whole.dtype)
            whole = ops.ceildiv(whole, length) if axis.isupper() else length
        shape.append(whole)
    return shape


@user_facing
def layout(layout_str: str, dtype: str = "int32") -> Layout:
    """The layout that a text such as "NCHW16c" names, its axes over variables of `dtype`.

    Errors:
        MisuseError (also TypeError, ValueError): there is no such layout.
    """
    return Layout.of(layout_str, dtype)


@user_facing
def bijective_layout(src_layout: str | Layout, dst_layout: str | Layout) -> BijectiveLayout | None:
    """The change from one layout to another; None if they have not the same axes.

    Errors:
        MisuseError (also TypeError, ValueError): one of them is no layout.
    """
    src, dst = Layout.of(src_layout), Layout.of(dst_layout)
    return BijectiveLayout(src, dst) if _convertible(src, dst) else None
