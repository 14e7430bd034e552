"""Queries before scheduling: blocks and loops by name, output blocks, the layout of loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relaxpy.errors import MisuseError
from relaxpy.ir.arith.tvm.iter_map import detect_iter_map
from relaxpy.ir.arith.tvm.iter_reader import IterSplitExpr, IterSumExpr, analyzer_of
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import ExprLike, IntImm, PrimExpr, Var
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.rewrite.state import child_blocks, domains_of
from relaxpy.ir.tir.stmt import For
from relaxpy.plugins.schedule import scheduled
from relaxpy.plugins.schedule.scheduled import ScheduledKernels, primitive
from relaxpy.plugins.schedule.trace import BlockRV, LoopRV
from relaxpy.support.entry import user_facing


class NamedParts(ScheduledKernels):
    """Kernels, whose blocks and loops have names for primitives."""

    @primitive
    def get_block(self, name: str, func_name: str | None = None) -> BlockRV:
        """The block with a name. Errors: ScheduleError for none or several."""
        state = self._state(func_name)
        return self._block_rv(state, scheduled.block_named(state, name))

    @primitive
    def get_sblock(self, name: str, func_name: str | None = None) -> BlockRV:
        """The block with a name; see `get_block`."""
        state = self._state(func_name)
        return self._block_rv(state, scheduled.block_named(state, name))

    @primitive
    def get_loops(self, block: BlockRV | str) -> list[LoopRV]:
        """The loops around a block inside of its scope, outermost first."""
        state, node = self._block(block)
        return [self._loop_rv(state, loop) for loop in state.loops(node)]

    @primitive
    def get_child_blocks(self, block_or_loop: BlockRV | LoopRV | str) -> list[BlockRV]:
        """The blocks directly inside of a block or loop."""
        state, node = self._either(block_or_loop)
        return [self._block_rv(state, realize.block) for realize in child_blocks(node)]

    @primitive
    def get_producers(self, block: BlockRV | str) -> list[BlockRV]:
        """The blocks of the same scope that write what the block reads."""
        state, node = self._block(block)
        return [self._block_rv(state, b) for b in scheduled.producers(state, node)]

    @primitive
    def get_consumers(self, block: BlockRV | str) -> list[BlockRV]:
        """The blocks of the same scope that read what the block writes."""
        state, node = self._block(block)
        return [self._block_rv(state, b) for b in scheduled.consumers(state, node)]

    @primitive
    def get_output_blocks(self, scope_block: BlockRV | str) -> list[BlockRV]:
        """The blocks in a scope, nested or not, that write a buffer not allocated in their own."""
        state, node = self._block(scope_block)
        return [
            self._block_rv(state, block)
            for block in state.blocks()
            if node in state.ancestors(block)
            and block in scheduled.outputs(state, state.scope(block))
        ]


@user_facing
def has_block(sch: ScheduledKernels, block_name: str) -> bool:
    """True if there is a block with a name."""
    return any(block.name_hint == block_name for block in sch._state(None).blocks())


@user_facing
def is_output_block(sch: ScheduledKernels, block: BlockRV | str) -> bool:
    """True if a block writes a buffer that is not allocated in its scope.

    Errors:
        ScheduleError: there is no such block, or it is the root.
    """
    state, node = sch._block(block)
    return node in scheduled.outputs(state, state.scope(node))


@user_facing
def suggest_index_map(
    buffer: Buffer, indices: Sequence[ExprLike], loops: Sequence[For], predicate: ExprLike = True
) -> IndexMap | None:
    """The map to a layout in which `loops`, outermost first, visit the elements one by one.

    The position of an element is read as digits, each of them digits of one loop variable. They
    are the axes of the new layout, in the order of the loops. None if the loops do not visit all
    elements, or a position is not made of digits.

    Errors:
        MisuseError (also ValueError): the number of indices is not the rank of the buffer.
    """
    values = ops.convert_all(indices)
    if len(values) != len(buffer.shape):
        raise MisuseError(
            f"{buffer.name} has {len(buffer.shape)} axes, found {len(values)} indices"
        )
    domains = domains_of(loops)
    digits = _digits(_position(values, buffer), domains, predicate)
    if digits is None:
        return None
    variables = [Var(f"i{axis}", value.dtype) for axis, value in enumerate(values)]
    sizes = zip(variables, buffer.shape, strict=True)
    analyzer = analyzer_of({var: Range(ops.cast_to(size, var.dtype)) for var, size in sizes})
    rest = _position(variables, buffer)
    axes: list[tuple[tuple[int, int], PrimExpr]] = []
    for var, lower_factor, extent in reversed(digits):
        key = list(domains).index(var), -lower_factor
        axes.append((key, analyzer.simplify(rest % extent)))
        rest = analyzer.simplify(rest // extent)
    axes.sort(key=lambda axis: axis[0])
    return IndexMap(tuple(variables), tuple(axis for _, axis in axes))


def _position(indices: Sequence[PrimExpr], buffer: Buffer) -> PrimExpr:
    """The number of an element in the order of its axes."""
    position: PrimExpr = IntImm("int32", 0)
    for index, size in zip(indices, buffer.shape, strict=True):
        position = position * ops.cast_to(size, index.dtype) + index
    return position


def _digits(
    position: PrimExpr, domains: Mapping[Var, Range], predicate: ExprLike
) -> list[tuple[Var, int, int]] | None:
    """The digits of a position, the most significant first: a loop variable, a factor, an extent.

    A digit is `variable // factor % extent`.
    """
    found = detect_iter_map([position], domains, predicate, simplify_trivial_iterators=False)
    if not found.indices:
        return None
    digits = []
    for split in _splits(found.indices[0]):
        match split:
            case IterSplitExpr(source, IntImm(value=factor), IntImm(value=extent)) if isinstance(
                source.source, Var
            ):
                digits.append((source.source, factor, extent))
            case _:
                return None
    return digits


def _splits(total: IterSumExpr) -> Sequence[IterSplitExpr]:
    """The splits of a sum, or of the sum that is its only iterator."""
    match total.args:
        case [IterSplitExpr(source=mark)] if isinstance(mark.source, IterSumExpr):
            return _splits(mark.source)
        case _:
            return total.args
