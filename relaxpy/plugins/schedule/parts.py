"""The blocks and loops of kernels, by names and by where they are."""

from __future__ import annotations

from relaxpy.ir.tir.rewrite.state import child_blocks
from relaxpy.plugins.schedule import relations
from relaxpy.plugins.schedule.scheduled import ScheduledKernels, primitive
from relaxpy.plugins.schedule.trace import BlockRV, LoopRV


class NamedParts(ScheduledKernels):
    """Kernels, whose blocks and loops have names for primitives."""

    @primitive
    def get_block(self, name: str, func_name: str | None = None) -> BlockRV:
        """Return the block with a name. Errors: ScheduleError for none or several."""
        state = self._state(func_name)
        return self._block_rv(state, relations.block_named(state, name))

    @primitive
    def get_sblock(self, name: str, func_name: str | None = None) -> BlockRV:
        """Return the block with a name; see `get_block`."""
        state = self._state(func_name)
        return self._block_rv(state, relations.block_named(state, name))

    @primitive
    def get_loops(self, block: BlockRV | str) -> list[LoopRV]:
        """Return the loops around a block inside of its scope, outermost first."""
        state, node = self._block(block)
        return [self._loop_rv(state, loop) for loop in state.loops(node)]

    @primitive
    def get_child_blocks(self, block_or_loop: BlockRV | LoopRV | str) -> list[BlockRV]:
        """Return the blocks directly inside of a block or loop."""
        state, node = self._either(block_or_loop)
        return [self._block_rv(state, realize.block) for realize in child_blocks(node)]

    @primitive
    def get_producers(self, block: BlockRV | str) -> list[BlockRV]:
        """Return the blocks of the same scope that write what the block reads."""
        state, node = self._block(block)
        return [self._block_rv(state, b) for b in relations.producers(state, node)]

    @primitive
    def get_consumers(self, block: BlockRV | str) -> list[BlockRV]:
        """Return the blocks of the same scope that read what the block writes."""
        state, node = self._block(block)
        return [self._block_rv(state, b) for b in relations.consumers(state, node)]

    @primitive
    def get_output_blocks(self, scope_block: BlockRV | str) -> list[BlockRV]:
        """Return the blocks in a scope that write a buffer which is not allocated in it."""
        state, node = self._block(scope_block)
        return [self._block_rv(state, b) for b in relations.outputs(state, node)]
