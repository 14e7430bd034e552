"""Iterators split and fused: the expressions that affine maps of iterators consist of."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import ClassVar, Self

from typing_extensions import override

from relaxpy.errors import MisuseError, check_type
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.orders import postorder
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import ExprLike, PrimExpr
from relaxpy.ir.tir.ops import is_const


class IterMapLevel(IntEnum):
    """The requirement on a map of iterators: bijective, surjective, or none."""

    Bijective = 0
    Surjective = 1
    NoCheck = 3

    @staticmethod
    def from_str(name: str) -> IterMapLevel:
        """The level `name`, in any case. Errors: MisuseError (also ValueError) if there is none."""
        levels = {level.name.lower(): level for level in IterMapLevel}
        result = levels.get(str(name).lower())
        if result is None:
            raise MisuseError(f"expected a level, found {name!r}; there are {', '.join(levels)}")
        return result


class IterMapExpr(PrimExpr):
    """Base of iterators, and of their splits and fusions."""

    __slots__ = ()


class IterMark(IterMapExpr):
    """An iterator: `source`, an expression or a sum of other iterators, runs from 0 to `extent`."""

    __slots__ = ("extent", "source")
    __match_args__ = ("source", "extent")
    _fields: ClassVar[tuple[str, ...]] = ("source", "extent")
    source: PrimExpr
    extent: PrimExpr

    def __new__(cls, source: PrimExpr, extent: ExprLike) -> Self:
        """An iterator over `source`."""
        start = ops.convert(source)
        return cls._make(start.dtype, start, ops.cast_to(ops.convert(extent), start.dtype))

    @override
    def __str__(self) -> str:
        return f"IterMark({self.source}, extent={self.extent})"


class IterSplitExpr(IterMapExpr):
    """`floormod(floordiv(source, lower_factor), extent) * scale`: some digits of an iterator."""

    __slots__ = ("extent", "lower_factor", "scale", "source")
    __match_args__ = ("source", "lower_factor", "extent", "scale")
    _fields: ClassVar[tuple[str, ...]] = ("source", "lower_factor", "extent", "scale")
    source: IterMark
    lower_factor: PrimExpr
    extent: PrimExpr
    scale: PrimExpr

    def __new__(
        cls,
        source: IterMark,
        lower_factor: ExprLike = 1,
        extent: ExprLike | None = None,
        scale: ExprLike = 1,
    ) -> Self:
        """Errors: MisuseError (also TypeError) if `source` is not an IterMark."""
        check_type(source, IterMark, "expected an IterMark to split")
        numbers = (lower_factor, source.extent if extent is None else extent, scale)
        fields = (ops.cast_to(ops.convert(n), source.dtype) for n in numbers)
        return cls._make(source.dtype, source, *fields)

    @override
    def __str__(self) -> str:
        return (
            f"IterSplitExpr({self.source}, lower_factor={self.lower_factor}, "
            f"extent={self.extent}, scale={self.scale})"
        )


class IterSumExpr(IterMapExpr):
    """The sum of the `args` and of `base`, in which no iterator occurs."""

    __slots__ = ("args", "base")
    __match_args__ = ("args", "base")
    _fields: ClassVar[tuple[str, ...]] = ("args", "base")
    args: tuple[IterSplitExpr, ...]
    base: PrimExpr

    def __new__(cls, args: Sequence[IterSplitExpr], base: ExprLike = 0) -> Self:
        """Errors: MisuseError (also TypeError) if an arg is not an IterSplitExpr."""
        check_type(args, (list, tuple), "expected a list of splits")
        for arg in args:
            check_type(arg, IterSplitExpr, "expected an IterSplitExpr to add")
        addend = ops.convert(base)
        if args:
            addend = ops.cast_to(addend, args[0].dtype)
        return cls._make(addend.dtype, tuple(args), addend)

    @override
    def __str__(self) -> str:
        return f"IterSumExpr([{', '.join(map(str, self.args))}], {self.base})"


def normalize_iter_map_to_expr(expr: PrimExpr) -> PrimExpr:
    """An iterator, a split or a sum of them in ordinary arithmetic."""
    match expr:
        case IterMark(source=source):
            return normalize_iter_map_to_expr(source)
        case IterSplitExpr(source=mark, lower_factor=factor, extent=extent, scale=scale):
            if is_const(extent, 1) and not is_const(mark.extent, 1):
                return ops.const(0, expr.dtype)
            value = normalize_iter_map_to_expr(mark)
            if not is_const(factor, 1):
                value = ops.floordiv(value, factor)
            if not prove_equal(ops.mul(factor, extent), mark.extent):
                value = ops.floormod(value, extent)
            return ops.mul(value, scale)
        case IterSumExpr(args=args, base=base):
            total: PrimExpr | None = None
            for arg in args:
                value = normalize_iter_map_to_expr(arg)
                total = value if total is None else ops.add(total, value)
            return base if total is None else ops.add(total, base)
        case _:
            return expr


def marks_of(indices: Sequence[IterSumExpr]) -> list[IterMark]:
    """All iterators in these sums, each before the operands that it fuses."""

    def fused(mark: IterMark) -> list[IterMark]:
        parts = mark.source.args if isinstance(mark.source, IterSumExpr) else ()
        return [arg.source for arg in parts][::-1]

    roots = [arg.source for index in indices for arg in index.args]
    return [*postorder(roots[::-1], fused)][::-1]
