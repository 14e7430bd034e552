"""What convolutions and pools share: layouts, counts of windows, and sums where windows overlap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from relaxpy.errors import MisuseError
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.layout import BijectiveLayout, Layout
from relaxpy.ir.tir.stmt import BufferStore, For, ForKind, SeqStmt, Stmt

Numbers: TypeAlias = int | Sequence[int]
Index: TypeAlias = Sequence[PrimExpr]
#: Windows of so many elements are written out; larger ones are reductions.
WRITTEN_OUT = 64
#: The names of the axes of results, and of the reductions over windows.
AXIS_NAMES = {"N": "nn", "C": "ff", "D": "zz", "H": "yy", "W": "xx"}
WINDOW_NAMES = {"N": "rn", "C": "rc", "D": "rz", "H": "ry", "W": "rx"}


def spatial_axes(count: int) -> str:
    """The letters of the spatial axes, in the order in which attributes list them."""
    return "DHW"[3 - count :]


def per_axis(value: Numbers, count: int) -> tuple[int, ...]:
    """A number for each of `count` axes: one for all, or as many as there are.

    Errors:
        MisuseError: they are neither one nor so many.
    """
    found = (value,) if isinstance(value, int) else tuple(value)
    if len(found) not in (1, count):
        raise MisuseError(f"expected 1 or {count} numbers, found {list(found)}", about=value)
    return found * count if len(found) == 1 else found


def both_sides(padding: Numbers, count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The padding before and after each of `count` axes: all those before are listed first.

    Errors:
        MisuseError: it is neither one number, nor one for each axis or each side.
    """
    found = (padding,) if isinstance(padding, int) else tuple(padding)
    if len(found) == 2 * count:
        return found[:count], found[count:]
    widths = per_axis(found, count)
    return widths, widths


def number(value: int) -> PrimExpr:
    """An integer beside indices and dimensions."""
    return ops.const(value, INT64)


def extent(kernel: PrimExpr, dilation: int) -> PrimExpr:
    """How many elements of an axis a window spans."""
    return ops.add(ops.mul(ops.sub(kernel, number(1)), number(dilation)), number(1))


def window_count(
    size: PrimExpr,
    padding: int,
    kernel: PrimExpr,
    stride: int,
    dilation: int,
    *,
    ceil_mode: bool = False,
) -> PrimExpr:
    """How many windows an axis has, which is padded by so many elements in all.

    Under `ceil_mode` the last one may leave the padded axis.
    """
    more = stride - 1 if ceil_mode else 0
    room = ops.sub(ops.add(size, number(padding + more)), extent(kernel, dilation))
    return simplify(ops.add(ops.floordiv(room, number(stride)), number(1)))


def window_span(
    count: PrimExpr, kernel: PrimExpr, stride: int, dilation: int, more: int
) -> PrimExpr:
    """How many elements so many windows span together, and `more` or fewer."""
    last = ops.mul(ops.sub(count, number(1)), number(stride))
    return simplify(ops.add(ops.add(last, extent(kernel, dilation)), number(more)))


def whole_axes(x: Tensor, layout: Layout) -> tuple[Tensor, str]:
    """x without blocks of axes, and the letters of its axes."""
    order = "".join(axis for axis in layout.names if axis.isupper())
    if not layout.factors:
        return x, order
    change = BijectiveLayout(layout, order)
    made: Tensor = te.compute(
        change.forward_shape(x.shape), lambda *i: x(*change.backward_index(i)), name="T_unblock"
    )
    return made, order


def whole_shape(sizes: Sequence[PrimExpr], layout: Layout) -> list[PrimExpr]:
    """The shape without blocks of axes."""
    if not layout.factors:
        return list(sizes)
    order = "".join(axis for axis in layout.names if axis.isupper())
    return BijectiveLayout(layout, order).forward_shape(sizes)


def in_layout(x: Tensor, order: str, layout: Layout) -> Tensor:
    """x, whose axes have these letters, in another layout."""
    if layout.name == order:
        return x
    change = BijectiveLayout(order, layout)
    made: Tensor = te.compute(
        change.forward_shape(x.shape), lambda *i: x(*change.backward_index(i)), name="T_layout"
    )
    return made


def between_layouts(x: Tensor, source: str, target: str) -> Tensor:
    """x, which is in one layout, in another."""
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
    place: Callable[[Index, Index], tuple[PrimExpr, ...]],
    term: Callable[[Sequence[Buffer], Index, Index, Index], PrimExpr],
    name: str,
) -> Tensor:
    """Zeros, to which `count` windows are added at places that `place` returns.

    Element `k` of window `j` is the sum of `term(buffers, k, j, i)` over the indices i of `summed`.
    The same element of different windows belongs to different places, so that the windows are
    added one element at a time, by way of an array of as many elements as there are windows.
    """

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        out, one = outs
        everywhere = _variables("i", shape)
        zero = ops.const(0, dtype)
        inside, which, inner = (
            _variables("k", window),
            _variables("j", count),
            _variables("r", summed),
        )
        value = term(ins, inside, which, inner)
        if inner:
            value = ops.add(BufferLoad(one, which), value)
        element = _nest(inner, summed, BufferStore(one, value, which))
        if inner:
            element = SeqStmt((BufferStore(one, zero, which), element))
        other = _variables("j", count)
        target = place(inside, other)
        total = ops.add(BufferLoad(out, target), BufferLoad(one, other))
        added = _nest(other, count, BufferStore(out, total, target))
        step = SeqStmt((_nest(which, count, element), added))
        cleared = _nest(everywhere, shape, BufferStore(out, zero, everywhere))
        return SeqStmt((cleared, _nest(inside, window, step)))

    kind = str(dtype)
    found: Sequence[Tensor] = te.extern(
        [tuple(shape), tuple(count)], list(inputs), body, name=name, dtype=[kind, kind]
    )
    return found[0]


def _variables(letter: str, extents: Sequence[PrimExpr]) -> tuple[Var, ...]:
    return tuple(Var(f"{letter}{k}", size.dtype) for k, size in enumerate(extents))


def _nest(variables: Sequence[Var], extents: Sequence[PrimExpr], body: Stmt) -> Stmt:
    for var, size in zip(variables[::-1], extents[::-1], strict=True):
        body = For(var, ops.const(0, var.dtype), size, ForKind.SERIAL, body)
    return body
