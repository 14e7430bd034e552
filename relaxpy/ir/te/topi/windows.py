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


def overlap_add(
    shape: Sequence[PrimExpr],
    dtype: DataType,
    inputs: Sequence[Tensor],
    outer: Sequence[PrimExpr],
    inner: Sequence[PrimExpr],
    term: Callable[[Sequence[Buffer], Index, Index], tuple[tuple[PrimExpr, ...], PrimExpr]],
    name: str,
) -> Tensor:
    """Zeros, to which values are added where `term` places them.

    It returns the place and the value for one iteration of the loops over `outer` and, inside, over
    `inner`; no two iterations of the inner loops that it sums to one place may differ in others.
    """

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        [out] = outs
        everywhere = _variables("i", shape)
        cleared = _nest(everywhere, shape, BufferStore(out, ops.const(0, dtype), everywhere))
        first, second = _variables("k", outer), _variables("j", inner)
        place, value = term(ins, first, second)
        added = BufferStore(out, ops.add(BufferLoad(out, place), value), place)
        return SeqStmt((cleared, _nest((*first, *second), (*outer, *inner), added)))

    made: Tensor = te.extern([tuple(shape)], list(inputs), body, name=name, dtype=str(dtype))
    return made


def _variables(letter: str, extents: Sequence[PrimExpr]) -> tuple[Var, ...]:
    return tuple(Var(f"{letter}{k}", size.dtype) for k, size in enumerate(extents))


def _nest(variables: Sequence[Var], extents: Sequence[PrimExpr], body: Stmt) -> Stmt:
    for var, size in zip(variables[::-1], extents[::-1], strict=True):
        body = For(var, ops.const(0, var.dtype), size, ForKind.SERIAL, body)
    return body
