"""Reductions of segments of an axis, and of the bits of elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import Select
from relaxpy.ir.tir.intrin import reinterpret
from relaxpy.plugins.importing import tensors
from relaxpy.plugins.importing.loops import Loops, kernel
from relaxpy.plugins.torch.context import Context
from relaxpy.plugins.torch.registry import converter

_FIRST = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": float("-inf"), "min": float("inf")}


@converter("segment_reduce", wide=True)
def segment_reduce(
    cx: Context,
    x: Expr,
    reduction: str,
    *,
    lengths: Expr | None = None,
    offsets: Expr | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Expr:
    at = cx.axis(axis, x)
    if offsets is None:
        assert lengths is not None
        sizes = [*tensors.shape_of(lengths)[:-1], 1]
        ends = R.cumsum(R.astype(lengths, "int64"), at)
        offsets = R.concat([R.zeros(tuple(sizes), "int64"), ends], at)
    sizes = tensors.shape_of(x)
    outer, inner = tensors.product(sizes[:at]), tensors.product(sizes[at + 1 :])
    edges = tensors.shape_of(cx.emit(offsets))[-1]
    count = cx.simplify(tensors.as_size(edges) - 1)
    data = cx.emit(tensors.reshaped(x, [outer, sizes[at], inner]))
    bounds = cx.emit(tensors.reshaped(cx.tensor(offsets, "int64"), [outer, edges]))
    first = _FIRST[reduction] if initial is None else float(initial)

    def write(k: Loops, x: Any, bounds: Any, out: Any) -> None:
        with k.every(out.shape) as (a, s, b):
            begin, end = k.local(bounds[a, s])[0], k.local(bounds[a, s + 1])[0]
            total = k.local(ops.const(first, x.dtype))
            with k.loop(end - begin, start=begin) as i:
                value = k.local(x[a, i, b])[0]
                match reduction:
                    case "sum" | "mean":
                        k.store(total, 0, total[0] + value)
                    case "prod":
                        k.store(total, 0, total[0] * value)
                    case _:
                        better = value > total[0] if reduction == "max" else value < total[0]
                        k.store(total, 0, Select(better | (value != value), value, total[0]))
            if reduction == "mean" and initial is None:
                k.store(total, 0, total[0] / ops.cast_to(end - begin, x.dtype))
            elif reduction == "mean":
                divisor = Select(end > begin, end - begin, ops.const(1, "int64"))
                k.store(total, 0, total[0] / ops.cast_to(divisor, x.dtype))
            k.store(out, (a, s, b), total[0])

    shape = [outer, count, inner]
    (out,) = kernel(cx, "segment_reduce", [(shape, tensors.dtype_of(x))], [data, bounds], write)
    return tensors.reshaped(out, cx.result_shape())


@converter("hash_tensor")
def hash_tensor(
    cx: Context, x: Expr, axes: Sequence[int] = (), *, keepdim: bool = False, mode: int = 0
) -> Expr:
    """Bits of the elements as float64 or int64, with exclusive or."""
    dtype = tensors.dtype_of(x)
    wide = cx.tensor(x, "float64" if "float" in dtype else "int64")
    among = cx.axes(axes, x)
    kept = [k for k in range(tensors.rank_of(x)) if k not in among]
    sizes = tensors.shape_of(x)
    turned = R.permute_dims(wide, [*kept, *among]) if tensors.rank_of(x) else wide
    shape = [tensors.product([sizes[k] for k in kept]), tensors.product([sizes[k] for k in among])]
    rows = cx.emit(tensors.reshaped(turned, shape))

    def write(k: Loops, x: Any, out: Any) -> None:
        with k.loop(x.shape[0]) as a:
            k.store(out, a, 0)
            with k.loop(x.shape[1]) as i:
                k.store(out, a, out[a] ^ reinterpret("uint64", x[a, i]))

    (out,) = kernel(cx, "hash_tensor", [(shape[:1], "uint64")], [rows], write)
    return tensors.reshaped(out, cx.result_shape())
