"""Kernels that only read their input in row-major order into another shape."""

from __future__ import annotations

import operator
from functools import reduce

from relaxpy.entry import user_facing
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.arith.tvm.iter_map import detect_iter_map
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.relax.expect import expect
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, Range
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.ir.tir.stmt import BlockRealize, BufferStore, For, Stmt
from relaxpy.ir.tir.substitution import substitute

_ONE = ops.const(1, "int64")


@user_facing
def has_reshape_pattern(func: PrimFunc) -> bool:
    """Whether a kernel does nothing but copy its first buffer to its last one in row-major order.

    Errors:
        MisuseError (also TypeError): `func` is no PrimFunc.

    Rule:
        One nest of loops and spatial blocks around one store of one load, which writes every
        element once; both have the same place in the flattened buffers for all values of the
        block's variables, and the two buffers hold equally many elements. What cannot be proved
        does not count.
    """
    expect(func, PrimFunc)
    buffers = [buffer for buffer in func.buffer_map_items if buffer is not None]
    if len(buffers) < 2:
        return False
    source, target = buffers[0], buffers[-1]
    nest = _Nest()
    stmt: Stmt = func.body
    while True:
        match stmt:
            case For(body=body):
                if not isinstance(body, (For, BlockRealize)):
                    return False
                nest.enter_loop(stmt)
                stmt = body
            case BlockRealize(block=block):
                if not nest.enter_block(stmt):
                    return False
                stmt = block.body
            case BufferStore(value=BufferLoad() as load):
                same = nest.analyzer.can_prove_equal
                return (
                    load.buffer is source
                    and stmt.buffer is target
                    and same(_count(source), _count(target))
                    and same(_place(source, load.indices), _place(target, stmt.indices))
                    and nest.fills(target, stmt.indices)
                )
            case _:
                return False


class _Nest:
    """The loops and blocks around a statement."""

    def __init__(self) -> None:
        self.analyzer = Analyzer()
        self.loops: dict[tir.Var, Range] = {}
        self.values: dict[tir.Var, tir.PrimExpr] = {}

    def enter_loop(self, loop: For) -> None:
        self.loops[loop.loop_var] = Range.from_min_extent(loop.min, loop.extent)
        self.analyzer.bind(loop.loop_var, self.loops[loop.loop_var])

    def enter_block(self, realize: BlockRealize) -> bool:
        """Note what a block's variables are; whether they are independent of each other."""
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
        """Whether the loops provably reach each element of a buffer once."""
        rounds = reduce(operator.mul, (r.extent for r in self.loops.values()), _ONE)
        if not self.analyzer.can_prove_equal(ops.cast_to(rounds, INT64), _count(buffer)):
            return False
        place = self.analyzer.simplify(substitute(_place(buffer, indices), self.values))
        return not detect_iter_map([place], self.loops, check_level="bijective").errors


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
    return reduce(operator.mul, buffer.shape, _ONE)
