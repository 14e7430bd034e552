"""Padding by numbers, or by sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.te.tensor import compute
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.intrin import if_then_else
from relaxpy.plugins.importing.contents import number
from relaxpy.plugins.importing.place import Place
from relaxpy.plugins.importing.tensors import Size, as_size, is_size, rank_of, scalar, shape_of


def padded(cx: Place, x: Expr, pads: Sequence[Size], mode: str, value: Expr | float | None) -> Expr:
    """`x` with `pads` (befores, then afters); negative ones crop. Modes are those of `R.nn.pad`."""
    rank = rank_of(x)
    sizes = shape_of(x)
    begins, ends = list(pads[:rank]), list(pads[rank:])
    for k, size in enumerate(sizes):
        begins[k], ends[k] = _within(begins[k], ends[k], size)
    crop = [
        k
        for k in range(rank)
        if (_negative(begins[k]) or _negative(ends[k]))
        and (isinstance(sizes[k], int) or all(_crops(item) for item in (begins[k], ends[k])))
    ]
    if crop:
        first = [-begins[k] if _negative(begins[k]) else 0 for k in crop]
        last = [number(sizes[k] + ends[k]) if _negative(ends[k]) else sizes[k] for k in crop]
        x = R.strided_slice(x, crop, first, last)
        for k in crop:
            begins[k], ends[k] = (0 if _negative(item) else item for item in (begins[k], ends[k]))
    if all(is_size(item, 0) for item in (*begins, *ends)):
        return x
    is_known = all(isinstance(item, int) and item >= 0 for item in (*begins, *ends))
    if is_known and (mode != "constant" or not isinstance(value, Expr)):
        flat = [item for pair in zip(begins, ends, strict=True) for item in pair]
        number_added = 0.0 if isinstance(value, Expr) else float(value or 0)
        result: Expr = R.nn.pad(x, flat, mode, number_added)
        return result
    fill = value if isinstance(value, Expr) else scalar(value or 0, x)
    for axis, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        if not (is_size(begin, 0) and is_size(end, 0)):
            x = _padded_axis(cx, x, axis, begin, end, mode, R.reshape(fill, ()))
    return x


def _within(begin: Size, end: Size, size: Size) -> tuple[Size, Size]:
    """Clamp a crop to the size; its excess is deducted from the padding at the other end."""
    if isinstance(begin, int) and isinstance(end, int) and isinstance(size, int):
        if size + end < 0:
            return begin + size + end, -size
        if size + begin < 0:
            return -size, end + size + begin
    return begin, end


def _padded_axis(
    cx: Place, x: Expr, axis: int, begin: Size, end: Size, mode: str, fill: Expr
) -> Expr:
    """`x` with elements before and after along one axis, whose numbers are expressions."""
    size = cast(Any, shape_of(x)[axis])

    def kernel(t: Any, value: Any) -> Any:
        shape = [*t.shape]
        shape[axis] = shape[axis] + begin + end

        def element(*index: Any) -> Any:
            at = index[axis] - begin
            if mode == "replicate":
                inner: Any = tir.Max(tir.Min(at, size - 1), tir.IntImm("int64", 0))
            elif mode == "circular":
                inner = at % size
            elif mode == "reflect":
                period = tir.Max(as_size(2 * size - 2), tir.IntImm("int64", 1))
                turned = at % period
                inner = tir.Min(turned, period - turned)
            else:
                inside = tir.And(at >= 0, at < size)
                place = (*index[:axis], at, *index[axis + 1 :])
                return if_then_else(inside, t(*place), value())
            return t(*index[:axis], inner, *index[axis + 1 :])

        return compute(shape, element, "pad")

    return cx.te(kernel, x, fill, name=f"pad_{mode}")


def _negative(size: Size) -> bool:
    return isinstance(size, int) and size < 0


def _crops(size: Size) -> bool:
    """True if the padding is known to be 0."""
    return isinstance(size, int) and size <= 0
