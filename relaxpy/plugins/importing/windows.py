"""The windows of convolutions and pools: what their attributes mean, padding that is computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.te.topi.padding import pad
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing.contents import number
from relaxpy.plugins.importing.place import Place
from relaxpy.plugins.importing.tensors import Size, rank_of, require_count, scalar, shape_of
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.support.dataclass import dataclass

#: The letters of the axes of images, by the number of spatial axes.
LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def spatial(x: Expr) -> int:
    """The number of spatial axes of images.

    Errors:
        UnsupportedError: there is none, or more than three.
    """
    count = rank_of(x) - 2
    if count not in LAYOUTS:
        raise UnsupportedError(f"images have 1 to 3 spatial axes, found {count}")
    return count


def whole(size: Size) -> int:
    """A size that is known to be a number."""
    assert isinstance(size, int)
    return size


def at_least(value: Size, other: int) -> Size:
    """The greater one of a size and a number."""
    if isinstance(value, int):
        return max(value, other)
    return simple(ops.maximum(value, ops.const(other, value.dtype)))


def simple(value: Any) -> Size:
    """A size in its simplest form: an int if it is a number."""
    result = number(value)
    return result if isinstance(result, PrimExpr) else int(result)


def rounded_up(value: Size, divisor: int) -> Size:
    """The quotient of sizes, rounded up."""
    return (
        -(-value // divisor) if isinstance(value, int) else simple((value + divisor - 1) // divisor)
    )


class WindowAttributes(TypedDict, total=False):
    """How windows move, in the words of ONNX; `Windows.of` has the defaults."""

    auto_pad: str
    dilations: Sequence[int] | None
    pads: Sequence[Size] | None
    strides: Sequence[int] | None


class FilterAttributes(WindowAttributes, total=False):
    """The attributes of convolutions: also the groups of channels, and the sizes of the filter."""

    group: int
    kernel_shape: Sequence[int] | None


@dataclass(frozen=True)
class Windows:
    """The windows along the spatial axes of an operand; padding may depend on its sizes."""

    sizes: tuple[Size, ...]
    members: tuple[Size, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[Size, ...]
    after: tuple[Size, ...]

    @staticmethod
    def of(
        x: Expr,
        kernel: Sequence[Size],
        strides: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        pads: Sequence[Size] | None = None,
        auto_pad: str = "NOTSET",
    ) -> Windows:
        """The windows that attributes describe.

        Errors:
            UnsupportedError: an attribute has too many or too few numbers, or is unknown.
        """
        sizes = shape_of(x)[2:]
        count = len(sizes)
        steps, holes = list(strides or [1] * count), list(dilations or [1] * count)
        widths = list(pads or [0] * 2 * count)
        for name, values, expected in (
            ("kernel_shape", kernel, count),
            ("strides", steps, count),
            ("dilations", holes, count),
            ("pads", widths, 2 * count),
        ):
            require_count(name, values, expected)
        if min([*steps, *holes, *(n for n in kernel if isinstance(n, int))], default=1) < 1:
            raise UnsupportedError("kernel_shape, strides and dilations are positive")
        before: list[Size] = [*widths[:count]]
        after: list[Size] = [*widths[count:]]
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            for k, size in enumerate(sizes):
                span = simple((kernel[k] - 1) * holes[k] + 1)
                before[k], after[k] = _same(size, span, steps[k], upper=auto_pad == "SAME_UPPER")
        elif auto_pad == "VALID":
            before, after = [0] * count, [0] * count
        elif auto_pad != "NOTSET":
            raise UnsupportedError(f"auto_pad is {auto_pad!r}")
        return Windows(*map(tuple, (sizes, kernel, steps, holes, before, after)))  # type: ignore[arg-type]

    @property
    def count(self) -> int:
        """The number of spatial axes."""
        return len(self.sizes)

    @property
    def kernel(self) -> tuple[int, ...]:
        """The sizes of a window, which are known."""
        return tuple(whole(size) for size in self.members)

    @property
    def is_fixed(self) -> bool:
        """True if all padding is known."""
        return all(isinstance(width, int) for width in (*self.before, *self.after))

    @property
    def pads(self) -> tuple[int, ...]:
        """The padding before all axes, then after them, which is known."""
        return tuple(whole(width) for width in (*self.before, *self.after))

    def span(self, k: int) -> Size:
        """The elements of the axis from the first to the last one of a window."""
        return simple((self.members[k] - 1) * self.dilations[k] + 1)

    def outputs(self, k: int) -> Size:
        """The windows along an axis, the last one of which may exceed the padding behind."""
        room = self.sizes[k] + self.before[k] + self.after[k] - self.span(k)
        total = rounded_up(simple(room), self.strides[k]) + 1
        begun = rounded_up(simple(self.sizes[k] + self.before[k]), self.strides[k])
        if isinstance(total, int) and isinstance(begun, int):
            return min(total, begun)
        behind = simple(self.after[k] + self.strides[k] - self.span(k))
        if isinstance(behind, int) and behind <= 0:
            return simple(total)
        return simple(ops.minimum(total, begun))

    def padded(
        self, cx: Place, x: Expr, fill: float, *, ceil: bool = False
    ) -> tuple[Expr, Windows]:
        """The operand with its padding, and windows that need none any more."""
        none = (0,) * self.count
        before, after = [0, 0, *self.before], [0, 0, *self.after]
        if ceil:
            for k in range(self.count):
                last = (self.outputs(k) - 1) * self.strides[k] + self.span(k)
                after[k + 2] = at_least(simple(last - self.sizes[k] - self.before[k]), 0)
        if all(isinstance(width, int) and width == 0 for width in (*before, *after)):
            return x, self
        value = scalar(fill, x).data.item()
        if all(isinstance(width, int) for width in (*before, *after)):
            pairs = [w for pair in zip(before, after, strict=True) for w in pair]
            result: Expr = R.nn.pad(x, pairs, "constant", value)
        else:
            result = cx.te(lambda t: pad(t, before, after, value), x, name="pad")
        return result, Windows(
            tuple(shape_of(result)[2:]), self.members, self.strides, self.dilations, none, none
        )


def _same(size: Size, span: Size, stride: int, *, upper: bool) -> tuple[Size, Size]:
    """The padding before and after an axis that has a window for each `stride` elements."""
    if stride == 1:
        total = simple(span - 1)
    else:
        needed = (rounded_up(size, stride) - 1) * stride + span
        total = simple(needed - size)
        overlap = isinstance(span, int) and span >= stride
        total = total if not isinstance(total, int) and overlap else at_least(total, 0)
    half = total // 2 if isinstance(total, int) else simple(total // 2)
    rest = simple(total - half)
    return (half, rest) if upper else (rest, half)
