"""Shared parts of convolutions and pools: layouts, counts of windows, sums of overlaps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.arith.algebra import poly
from relaxpy.ir.arith.algebra.affine import as_poly
from relaxpy.ir.arith.algebra.terms import expression, quotient_atom
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import computed
from relaxpy.ir.te.topi.shapes import shape_text
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.layout import BijectiveLayout, Layout
from relaxpy.ir.tir.stmt import BufferStore, SeqStmt, Stmt, serial_loops
from relaxpy.support.dataclass import dataclass

Numbers: TypeAlias = int | Sequence[int]
Padding: TypeAlias = Numbers | str
"""Numbers of elements, "VALID" for none, or "SAME" for as many results as elements."""
Index: TypeAlias = Sequence[PrimExpr]
#: The maximum number of elements of an unrolled window; larger ones are reductions.
WRITTEN_OUT = 64
#: The names of the axes of results, and of the reductions over windows.
AXIS_NAMES = {"N": "nn", "C": "ff", "D": "zz", "H": "yy", "W": "xx"}
WINDOW_NAMES = {"N": "rn", "C": "rc", "D": "rz", "H": "ry", "W": "rx"}


def spatial_axes(count: int) -> str:
    """The letters of the spatial axes, in the order in which attributes list them."""
    return "DHW"[3 - count :]


def per_axis(value: Numbers, count: int) -> tuple[int, ...]:
    """A number for each of `count` axes, from one for all or one for each.

    Errors:
        MisuseError: there are neither 1 nor `count` numbers.
    """
    numbers = (value,) if isinstance(value, int) else tuple(value)
    if len(numbers) not in (1, count):
        raise MisuseError(f"expected 1 or {count} numbers, found {list(numbers)}", about=value)
    return numbers * count if len(numbers) == 1 else numbers


def both_sides(padding: Numbers, count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The padding before and after each of `count` axes; a full list has all those before first.

    Errors:
        MisuseError: it is neither one number, nor one for each axis or each side.
    """
    widths = (padding,) if isinstance(padding, int) else tuple(padding)
    if len(widths) == 2 * count:
        return widths[:count], widths[count:]
    per_side = per_axis(widths, count)
    return per_side, per_side


def named_padding(padding: Padding, window: Mapping[str, PrimExpr], dilation: Numbers) -> Numbers:
    """The elements before all axes and then after them, where "SAME" or "VALID" names them.

    Errors:
        MisuseError: the padding has another name, or "SAME" meets a window of unknown size.
    """
    if not isinstance(padding, str):
        return padding
    if padding == "VALID":
        return 0
    if padding != "SAME":
        raise unexpected(padding, "padding is 'VALID', 'SAME' or numbers")
    missing = []
    for size, step in zip(window.values(), per_axis(dilation, len(window)), strict=True):
        if not isinstance(size, tir.IntImm):
            raise MisuseError(
                "padding 'SAME' needs a kernel of known size, found "
                f"{shape_text(list(window.values()))}"
            )
        missing.append((size.value - 1) * step)
    return [(m + 1) // 2 for m in missing] + [m // 2 for m in missing]


def number(value: int) -> PrimExpr:
    """An integer of the datatype of indices and dimensions."""
    return ops.const(value, INT64)


def extent(kernel: PrimExpr, dilation: int) -> PrimExpr:
    """The number of elements of an axis that a window spans."""
    return (kernel - number(1)) * number(dilation) + number(1)


def window_count(
    size: PrimExpr,
    padding: int,
    kernel: PrimExpr,
    stride: int,
    dilation: int,
    *,
    ceil_mode: bool = False,
) -> PrimExpr:
    """The number of windows along an axis with `padding` elements of padding in total.

    With `ceil_mode`, the last one may exceed the padded axis. A symbolic number is written as in
    TVM, where only multiples of the stride are divided by themselves: (n - 3) // 2 + 1.
    """
    extra = stride - 1 if ceil_mode else 0
    span = simplify(size + number(padding + extra) - extent(kernel, dilation))
    total = span // number(stride) + number(1)
    if isinstance(total, tir.IntImm):
        return total
    terms = as_poly(span).terms
    divided = {m: c // stride for m, c in terms.items() if not c % stride}
    rest = {m: c for m, c in terms.items() if c % stride}
    if span.dtype != INT64 or all(not monomial for monomial in rest):
        return simplify(total)
    quotient = poly.atom(quotient_atom(rest, poly.constant(stride), floor=True))
    written = expression(poly.add(poly.add(quotient, divided), poly.constant(1)), INT64)
    return simplify(total) if written is None else written


@dataclass(frozen=True, slots=True)
class Windows:
    """The attributes of windows along spatial axes, by the letters of the axes."""

    strides: Mapping[str, int]
    before: Mapping[str, int]
    after: Mapping[str, int]
    dilation: Mapping[str, int]

    @staticmethod
    def of(count: int, strides: Numbers, padding: Numbers, dilation: Numbers) -> Windows:
        """The attributes of windows along `count` axes.

        Errors:
            MisuseError: there are too many or too few numbers.
        """
        axes = spatial_axes(count)
        sides = both_sides(padding, count)
        values = per_axis(strides, count), *sides, per_axis(dilation, count)
        return Windows(*(dict(zip(axes, numbers, strict=True)) for numbers in values))

    def padding(self, axis: str) -> int:
        """The padding on both sides of an axis."""
        return self.before[axis] + self.after[axis]

    def position(self, axis: str, w: PrimExpr, k: PrimExpr) -> PrimExpr:
        """The position along a padded axis of element k of window w."""
        return window_position(w, k, self.strides[axis], self.dilation[axis])

    def count(
        self, axis: str, size: PrimExpr, kernel: PrimExpr, *, ceil_mode: bool = False
    ) -> PrimExpr:
        """The number of windows along an axis."""
        step, dilation = self.strides[axis], self.dilation[axis]
        return window_count(size, self.padding(axis), kernel, step, dilation, ceil_mode=ceil_mode)

    def elements_of_padding(self, axis: str, size: PrimExpr, kernel: PrimExpr) -> tuple[int, int]:
        """The numbers of elements at both ends of a window that read only padding in all windows.

        (0, 0) for an axis or a window of unknown size.
        """
        if not isinstance(size, tir.IntImm) or not isinstance(kernel, tir.IntImm):
            return 0, 0
        before, after = self.before[axis], self.after[axis]
        step, dilation = self.strides[axis], self.dilation[axis]
        last = size.value + before + after - (kernel.value - 1) * dilation - 1
        starts = range(-before, last - before + 1, step)

        def reads_data(element: int) -> bool:
            offset = element * dilation
            within = starts[max(0, -((offset - before) // step)) :]
            return bool(within) and within[0] + offset < size.value

        elements = range(kernel.value)
        first = next(filter(reads_data, elements), 0)
        rest = kernel.value - 1 - next(filter(reads_data, reversed(elements)), kernel.value - 1)
        fits = first * dilation <= before and rest * dilation <= after
        return (first, rest) if fits else (0, 0)

    def without(self, ends: Mapping[str, tuple[int, int]]) -> Windows:
        """Windows that have fewer elements at both ends of axes, and the same results."""
        before = {a: n - ends[a][0] * self.dilation[a] for a, n in self.before.items()}
        after = {a: n - ends[a][1] * self.dilation[a] for a, n in self.after.items()}
        return Windows(self.strides, before, after, self.dilation)

    def span(self, axis: str, count: PrimExpr, kernel: PrimExpr, extra: int) -> PrimExpr:
        """The number of elements of the unpadded axis that windows span, plus `extra`."""
        last = (count - number(1)) * number(self.strides[axis])
        padded = last + extent(kernel, self.dilation[axis])
        return simplify(padded + number(extra - self.padding(axis)))


def window_position(w: PrimExpr, k: PrimExpr, stride: int, dilation: int) -> PrimExpr:
    """The position along a padded axis of element k of window w."""
    return w * number(stride) + k * number(dilation)


def whole_axes(x: Tensor, layout: Layout) -> tuple[Tensor, str]:
    """Convert x to whole axes without blocks; return it with the letters of its axes."""
    order = "".join(axis for axis in layout.names if axis.isupper())
    if not layout.factors:
        return x, order
    return _converted(x, BijectiveLayout(layout, order), "T_unblock"), order


def whole_shape(sizes: Sequence[PrimExpr], layout: Layout) -> list[PrimExpr]:
    """The shape with whole axes, without blocks."""
    if not layout.factors:
        return list(sizes)
    order = "".join(axis for axis in layout.names if axis.isupper())
    return BijectiveLayout(layout, order).forward_shape(sizes)


def in_layout(x: Tensor, order: str, layout: Layout) -> Tensor:
    """Convert x, whose axes have the letters `order`, to another layout."""
    if layout.name == order:
        return x
    return _converted(x, BijectiveLayout(order, layout), "T_layout")


def _converted(x: Tensor, layouts: BijectiveLayout, name: str) -> Tensor:
    shape = layouts.forward_shape(x.shape)
    return computed(shape, lambda *index: x(*layouts.backward_index(index)), name)


def between_layouts(x: Tensor, source: str, target: str) -> Tensor:
    """Convert x from one layout to another."""
    if source == target:
        return x
    return in_layout(*whole_axes(x, Layout.of(source)), Layout.of(target))


def overlap_add(
    shape: Sequence[PrimExpr],
    dtype: DataType,
    inputs: Sequence[Tensor],
    window: Sequence[PrimExpr],
    count: Sequence[PrimExpr],
    summed: Sequence[PrimExpr],
    position_of: Callable[[Index, Index], tuple[PrimExpr, ...]],
    term: Callable[[Sequence[Buffer], Index, Index, Index], PrimExpr],
    name: str,
) -> Tensor:
    """Zeros, to which `count` windows are added at the positions that `position_of` returns.

    Element `k` of window `j` is the sum of `term(buffers, k, j, i)` over the indices i of `summed`.
    The same element of different windows has different positions, so that all windows are added
    one element at a time, through a temporary array with one element per window.
    """

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        out, partial = outs
        cleared_index = _variables("i", shape)
        zero = ops.const(0, dtype)
        element_index, window_index, summation = (
            _variables("k", window),
            _variables("j", count),
            _variables("r", summed),
        )
        value = term(ins, element_index, window_index, summation)
        if summation:
            value = BufferLoad(partial, window_index) + value
        element = serial_loops(summation, summed, BufferStore(partial, value, window_index))
        if summation:
            element = SeqStmt((BufferStore(partial, zero, window_index), element))
        added_index = _variables("j", count)
        target = position_of(element_index, added_index)
        total = BufferLoad(out, target) + BufferLoad(partial, added_index)
        added = serial_loops(added_index, count, BufferStore(out, total, target))
        step = SeqStmt((serial_loops(window_index, count, element), added))
        cleared = serial_loops(cleared_index, shape, BufferStore(out, zero, cleared_index))
        return SeqStmt((cleared, serial_loops(element_index, window, step)))

    kind = str(dtype)
    outputs: Sequence[Tensor] = te.extern(
        [tuple(shape), tuple(count)], list(inputs), body, name=name, dtype=[kind, kind]
    )
    return outputs[0]


def _variables(letter: str, extents: Sequence[PrimExpr]) -> tuple[Var, ...]:
    return tuple(Var(f"{letter}{k}", size.dtype) for k, size in enumerate(extents))
