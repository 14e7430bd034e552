"""How often the loops of a kernel run."""

from __future__ import annotations

import math
from collections.abc import Sequence

from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.core.traverse import children
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Var
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import For, Stmt, While


def most_iterations(kernel: PrimFunc, shapes: Sequence[Sequence[PrimExpr | int]]) -> float:
    """An upper bound of the loop iterations of a kernel for arguments of these shapes.

    It is infinite if there is none, as for `while` and for extents that are elements of arguments.
    """
    analyzer = Analyzer()
    for buffer, shape in zip(kernel.buffer_map_items, shapes, strict=False):
        for size, value in zip(buffer.shape if buffer is not None else (), shape, strict=False):
            number = value.value if isinstance(value, IntImm) else value
            if isinstance(size, Var) and isinstance(number, int):
                analyzer.bind(size, IntImm(size.dtype, number), allow_override=True)

    def count(node: Stmt) -> float:
        match node:
            case For(loop_var=var, min=first, extent=extent, body=body):
                bound = analyzer.const_int_bound(extent)
                analyzer.bind(var, Range.from_min_extent(first, extent), allow_override=True)
                is_known = bound.max_value < 2 ** (extent.dtype.bits - 1) - 1
                return max(bound.max_value, 0) * count(body) if is_known else math.inf
            case While():
                return math.inf
            case _:
                inner = [count(child) for child in children(node) if isinstance(child, Stmt)]
                return max(sum(inner), 1.0)

    return count(kernel.body)
