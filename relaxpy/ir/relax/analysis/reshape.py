"""Kernels that only read their input in row-major order into another shape."""

from __future__ import annotations

import operator
from functools import reduce

from relaxpy.ir.arith.analyzer import Analyzer
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, Range
from relaxpy.ir.tir.function import PrimFunc
from relaxpy.ir.tir.stmt import Block, BlockRealize, BufferStore, For, Stmt


def has_reshape_pattern(func: PrimFunc) -> bool:
    """Whether a kernel does nothing but copy its first buffer to its last one in row-major order.

    Rule:
        One nest of loops and spatial blocks around one store of one load; both have the same place
        in the flattened buffers for all values of the block's variables, and the two buffers
        hold equally many elements. What cannot be proved does not count.
    """
    buffers = [buffer for buffer in func.buffer_map_items if buffer is not None]
    if len(buffers) < 2:
        return False
    source, target = buffers[0], buffers[-1]
    analyzer = Analyzer()
    stmt: Stmt = func.body
    while True:
        match stmt:
            case For(loop_var=var, min=low, extent=extent, body=body):
                if not isinstance(body, (For, BlockRealize)):
                    return False
                analyzer.bind(var, Range.from_min_extent(low, extent))
                stmt = body
            case BlockRealize(block=block):
                if not _is_spatial(block, analyzer):
                    return False
                stmt = block.body
            case BufferStore(value=BufferLoad() as load):
                return (
                    load.buffer is source
                    and stmt.buffer is target
                    and analyzer.can_prove_equal(_count(source), _count(target))
                    and analyzer.can_prove_equal(
                        _place(source, load.indices), _place(target, stmt.indices)
                    )
                )
            case _:
                return False


def _is_spatial(block: Block, analyzer: Analyzer) -> bool:
    """Whether a block's variables are independent of each other; their ranges are noted."""
    if block.init is not None or block.match_buffers:
        return False
    for axis in block.iter_vars:
        if axis.iter_type is not tir.IterVarKind.DataPar:
            return False
        if axis.dom is not None:
            analyzer.bind(axis.var, axis.dom)
    return True


def _place(buffer: Buffer, indices: tuple[tir.PrimExpr, ...]) -> tir.PrimExpr:
    """The place of an element among all of the buffer's in row-major order."""
    pairs = list(zip(buffer.shape, indices, strict=True))
    if not pairs:
        return ops.const(0, "int64")
    place = pairs[0][1]
    for size, index in pairs[1:]:
        place = place * size + index
    return place


def _count(buffer: Buffer) -> tir.PrimExpr:
    return reduce(operator.mul, buffer.shape, ops.const(1, "int64"))
