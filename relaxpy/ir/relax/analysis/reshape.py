"""Recognition of kernels that only reshape their input."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce

from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.arith.tvm.iter_map import detect_iter_map
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.relax.expect import expect
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import BlockRealize, BufferStore, For, Stmt
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.entry import user_facing

_ONE = ops.const(1, "int64")


@user_facing
def has_reshape_pattern(func: PrimFunc) -> bool:
    """Return whether a kernel only copies its first buffer to its last one in row-major order.

    Errors:
        MisuseError (also TypeError): `func` is not a PrimFunc.

    Rule:
        The kernel is one nest of loops and spatial blocks with one store of one load, which writes
        every element once. Load and store have the same index in the flattened buffers, for all
        values of the block variables, and the buffers have equally many elements. All of this has
        to be provable.
    """
    expect(func, PrimFunc)
    buffers = [buffer for buffer in func.buffer_map_items if buffer is not None]
    if len(buffers) < 2:
        return False
    source, target = buffers[0], buffers[-1]
    outside: list[For | BlockRealize] = []
    stmt: Stmt = func.body
    while True:
        match stmt:
            case For(body=For() | BlockRealize() as body):
                outside.append(stmt)
                stmt = body
            case BlockRealize(block=block):
                outside.append(stmt)
                stmt = block.body
            case BufferStore(buffer=written, indices=indices, value=BufferLoad() as load):
                if load.buffer is not source or written is not target:
                    return False
                return _copies(outside, source, load.indices, target, indices)
            case _:
                return False


def _copies(
    outside: Sequence[For | BlockRealize],
    source: Buffer,
    read: tuple[tir.PrimExpr, ...],
    target: Buffer,
    written: tuple[tir.PrimExpr, ...],
) -> bool:
    """True if a store inside these loops and blocks copies all elements in row-major order."""
    nest = _Nest()
    for stmt in outside:
        if isinstance(stmt, For):
            nest.enter_loop(stmt)
        elif not nest.enter_block(stmt):
            return False
    same = nest.analyzer.can_prove_equal
    return (
        same(_count(source), _count(target))
        and same(_flat_index(source, read), _flat_index(target, written))
        and nest.fills(target, written)
    )


class _Nest:
    """The loops and blocks that contain a statement."""

    def __init__(self) -> None:
        self.analyzer = Analyzer()
        self.loops: dict[tir.Var, Range] = {}
        self.values: dict[tir.Var, tir.PrimExpr] = {}

    def enter_loop(self, loop: For) -> None:
        self.loops[loop.loop_var] = Range.from_min_extent(loop.min, loop.extent)
        self.analyzer.bind(loop.loop_var, self.loops[loop.loop_var])

    def enter_block(self, realize: BlockRealize) -> bool:
        """Bind the variables of a block; returns whether they are independent of each other."""
        block = realize.block
        always = isinstance(realize.predicate, tir.IntImm) and bool(realize.predicate.value)
        if not always or block.init is not None or block.match_buffers:
            return False
        for axis, value in zip(block.iter_vars, realize.iter_values, strict=True):
            if axis.iter_type is not tir.IterVarKind.DataPar:
                return False
            if axis.dom is not None:
                self.analyzer.bind(axis.var, axis.dom)
            self.values[axis.var] = substitute(value, self.values)
        return True

    def fills(self, buffer: Buffer, indices: tuple[tir.PrimExpr, ...]) -> bool:
        """Return whether the loops provably reach each element of a buffer once."""
        iterations = reduce(operator.mul, (r.extent for r in self.loops.values()), _ONE)
        if not self.analyzer.can_prove_equal(ops.cast_to(iterations, INT64), _count(buffer)):
            return False
        index = self.analyzer.simplify(substitute(_flat_index(buffer, indices), self.values))
        return not detect_iter_map([index], self.loops, check_level="bijective").errors


def _flat_index(buffer: Buffer, indices: tuple[tir.PrimExpr, ...]) -> tir.PrimExpr:
    """The index of an element in the flattened buffer."""
    if not indices:
        return ops.const(0, "int64")
    flat = indices[0]
    for extent, index in zip(buffer.shape[1:], indices[1:], strict=True):
        flat = flat * extent + index
    return flat


def _count(buffer: Buffer) -> tir.PrimExpr:
    return reduce(operator.mul, buffer.shape, _ONE)
