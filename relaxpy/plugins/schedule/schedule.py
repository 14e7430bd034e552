"""Schedule: a module of kernels that primitives transform step by step, keeping the values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relaxpy.errors import unexpected
from relaxpy.ir.core.node import Attr
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.ir.module import IRModule
from relaxpy.ir.tir.analysis.index_map import IndexMap
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import ExprLike, PrimExpr
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.rewrite import inline
from relaxpy.ir.tir.rewrite.state import refused
from relaxpy.ir.tir.stmt import For, ForKind
from relaxpy.plugins.schedule import (
    cache,
    change_layout,
    loops,
    move,
    partition,
    partition as padding_module,
    reindex,
)
from relaxpy.plugins.schedule.queries import NamedParts
from relaxpy.plugins.schedule.sampling import Location, SamplingKernels
from relaxpy.plugins.schedule.scheduled import primitive
from relaxpy.plugins.schedule.trace import BlockRV, LoopRV, Trace
from relaxpy.support.entry import user_facing


class Schedule(NamedParts, SamplingKernels):
    """Kernels, and primitives that transform them without a change of their values.

    A primitive whose conditions do not hold raises a ScheduleError and leaves the kernels
    unchanged. Names of blocks and loops stay valid until the block or loop is gone.
    """

    @primitive
    def split(
        self,
        loop: LoopRV,
        factors: Sequence[ExprLike | None],
        preserve_unit_iters: bool = True,
        disable_predication: bool = False,
    ) -> list[LoopRV]:
        """Replace a loop by one loop per factor, outermost first; one factor may be None.

        Errors:
            ScheduleError: the loop is annotated, not serial or does not begin at 0, a factor is not
                positive, or their product is not known to reach the extent.
        """
        state, node = self._loop(loop)
        new = loops.split(
            state,
            node,
            factors,
            preserve_unit_iters=preserve_unit_iters,
            disable_predication=disable_predication,
        )
        return [self._loop_rv(state, inner) for inner in new]

    @primitive
    def loop_partition(
        self, loop: LoopRV, factors: Sequence[ExprLike | None], preserve_unit_iters: bool = True
    ) -> list[LoopRV]:
        """Replace a loop by one loop per factor, after each other; one factor may be None.

        Each is in a block of its own, and there is one for the rest.

        Errors:
            ScheduleError: the loop is annotated, not serial or does not begin at 0, or the factors
                are more than its extent.
        """
        state, node = self._loop(loop)
        return [self._loop_rv(state, new) for new in partition.loop_partition(state, node, factors)]

    @primitive
    def merge(self, *loops_to_merge: LoopRV) -> LoopRV:
        """Replace consecutive loops, with their enclosing loops, by one nest.

        Errors:
            ScheduleError: they are not at the same level of nests next to each other, extents
                differ, or an iteration may depend on another one.
        """
        state, nodes = self._loops(loops_to_merge)
        return self._loop_rv(state, partition.merge(state, nodes))

    @primitive
    def fuse(self, *loops_to_fuse: LoopRV, preserve_unit_iters: bool = True) -> LoopRV:
        """Replace loops, each the only content of the one before, by one loop.

        Errors:
            ScheduleError: other statements are between them, or the bounds of one need another.
        """
        state, nodes = self._loops(loops_to_fuse)
        new = loops.fuse(state, nodes, preserve_unit_iters=preserve_unit_iters)
        return self._loop_rv(state, new)

    @primitive
    def reorder(self, *ordered_loops: LoopRV) -> None:
        """Permute loops that are inside each other, so that they are in this order.

        Errors:
            ScheduleError: they are not in one chain, or an iteration may depend on another one.
        """
        state, nodes = self._loops(ordered_loops)
        loops.reorder(state, nodes)

    @primitive
    def add_unit_loop(self, block_or_loop: BlockRV | LoopRV | str) -> LoopRV:
        """Put a loop of extent 1 around a block or loop."""
        state, node = self._either(block_or_loop)
        return self._loop_rv(state, loops.add_unit_loop(state, node))

    @primitive
    def parallel(self, loop: LoopRV) -> None:
        """Run the iterations of a loop in parallel.

        Errors:
            ScheduleError: they may depend on each other.
        """
        loops.run_as(*self._loop(loop), ForKind.PARALLEL)

    @primitive
    def vectorize(self, loop: LoopRV) -> None:
        """Run the iterations of a loop as lanes of a vector.

        Errors:
            ScheduleError: they may depend on each other.
        """
        loops.run_as(*self._loop(loop), ForKind.VECTORIZED)

    @primitive
    def unroll(self, loop: LoopRV) -> None:
        """Write the iterations of a loop one after another."""
        loops.run_as(*self._loop(loop), ForKind.UNROLLED)

    @primitive
    def bind(self, loop: LoopRV, thread_axis: str) -> None:
        """Bind a loop to an index of threads such as "threadIdx.x".

        Errors:
            ScheduleError: iterations may depend on each other.
            MisuseError: there is no such index.
        """
        loops.bind(*self._loop(loop), thread_axis)

    @primitive
    def annotate(self, block_or_loop: BlockRV | LoopRV | str, ann_key: str, ann_val: Attr) -> None:
        """Set an annotation of a block or loop that has none of that name."""
        loops.annotate(*self._either(block_or_loop), ann_key, ann_val)

    @primitive
    def unannotate(self, block_or_loop: BlockRV | LoopRV | str, ann_key: str) -> None:
        """Remove an annotation of a block or loop."""
        loops.annotate(*self._either(block_or_loop), ann_key, None)

    @primitive
    def storage_align(
        self, block: BlockRV | str, buffer_index: int, axis: int, factor: int, offset: int
    ) -> None:
        """Ask for a stride of an axis, `factor` times a number plus `offset`, by an annotation.

        Errors:
            ScheduleError: the block writes no such buffer, or the buffer has no such axis.
        """
        loops.storage_align(*self._block(block), buffer_index, axis, factor, offset)

    @primitive
    def cache_read(
        self,
        block: BlockRV | str,
        read_buffer_index: int | str | Buffer,
        storage_scope: str,
        consumer_blocks: list[BlockRV | str] | None = None,
    ) -> BlockRV:
        """Copy a buffer that a block reads to a new one; return the block of the copy.

        The readers in the scope, or only `consumer_blocks`, read the copy.

        Errors:
            ScheduleError: no position comes after all writes and before these reads.
        """
        state, node = self._block(block)
        consumers = [self._block(consumer)[1] for consumer in consumer_blocks or ()]
        copied = cache.cache_read(state, node, read_buffer_index, storage_scope, consumers)
        return self._block_rv(state, copied)

    @primitive
    def cache_write(
        self,
        block: BlockRV | str,
        write_buffer_index: int | str | Buffer,
        storage_scope: str,
        consumer_blocks: list[BlockRV | str] | None = None,
    ) -> BlockRV:
        """Let a block write to a new buffer, and copy it after that; return the block of the copy.

        The `consumer_blocks` read the new buffer, other readers the copy.

        Errors:
            ScheduleError: another block writes the buffer, or the block does not write all elements
                of a region.
        """
        state, node = self._block(block)
        consumers = [self._block(consumer)[1] for consumer in consumer_blocks or ()]
        copied = cache.cache_write(state, node, write_buffer_index, storage_scope, consumers)
        return self._block_rv(state, copied)

    @primitive
    def set_scope(
        self, block: BlockRV | str, buffer_index: int | str | Buffer, storage_scope: str
    ) -> None:
        """Keep a buffer that a block writes in another memory scope.

        Errors:
            ScheduleError: the buffer is a parameter.
        """
        cache.set_scope(*self._block(block), buffer_index, storage_scope)

    @primitive
    def unsafe_set_dtype(self, block: BlockRV | str, buffer_index: int, dtype: str) -> None:
        """Keep a buffer that a block writes in another datatype, to which its values are cast.

        Errors:
            ScheduleError: the buffer is a parameter.
        """
        change_layout.unsafe_set_dtype(*self._block(block), buffer_index, dtype)

    @primitive
    def set_axis_separator(
        self,
        block: BlockRV | str,
        buffer: tuple[str, int] | str | Buffer,
        axis_separators: Sequence[int] | None,
    ) -> None:
        """Divide the axes of a buffer into physical ones; values do not change.

        `buffer` is ("read", number), ("write", number), a name, or the buffer.
        """
        change_layout.set_axis_separator(*self._block(block), buffer, axis_separators or ())

    @primitive
    def annotate_buffer_access(
        self,
        block: BlockRV | str,
        buffer_index: int,
        buf_type: str,
        gen_new_ranges: Callable[..., Any],
    ) -> None:
        """Declare which elements of a buffer a block reads or writes.

        `gen_new_ranges` maps the variables of the block to a value, or a begin and an end, for each
        axis; `buf_type` is "read" or "write".
        """
        state, node = self._block(block)
        ranges = change_layout.region_of(gen_new_ranges, node)
        self._maps[gen_new_ranges] = change_layout.as_index_map(node, ranges)
        change_layout.annotate_buffer_access(state, node, buffer_index, buf_type, ranges)

    @primitive
    def reorder_block_iter_var(self, block: BlockRV | str, new_order: Sequence[int]) -> None:
        """Put the variables of a block into another order.

        Errors:
            ScheduleError: `new_order` does not have the number of each variable once.
        """
        change_layout.reorder_block_iter_var(*self._block(block), new_order)

    @primitive
    def decompose_reduction(self, block: BlockRV | str, loop: LoopRV) -> BlockRV:
        """Let the init of a reduction run before a loop, in a block of its own, which is returned.

        Errors:
            ScheduleError: the block is not a reduction, or a loop around `loop` is one of those
                over which it reduces.
        """
        state, node = self._block(block)
        return self._block_rv(state, loops.decompose(state, node, self._loop(loop)[1]))

    @primitive
    def rfactor(self, loop: LoopRV, factor_axis: int) -> BlockRV:
        """Reduce for each iteration of a reduction loop by itself, and then over the loop.

        The first of the two blocks is returned. Its buffer has a new axis at `factor_axis`. A
        reduction of pairs, such as argmax, is none that commutes: the order of its elements decides
        which of equal values it finds.

        Errors:
            ScheduleError: there is not one block inside of the loop, or it is not a known
                commutative reduction.
        """
        state, node = self._loop(loop)
        return self._block_rv(state, loops.rfactor(state, node, factor_axis))

    @primitive
    def compute_at(
        self,
        block: BlockRV | str,
        loop: LoopRV,
        preserve_unit_loops: bool = False,
        index: int = move.LAST,
    ) -> None:
        """Move a producer under a loop: each iteration computes the region that its consumers read.

        `index` is the position among the statements of the loop, -1 the last possible one, -2 the
        first one. `loop` is also a location that was drawn.

        Errors:
            ScheduleError: a reader is not inside of the loop, or what the block reads is not there
                yet.
        """
        state, node = self._block(block)
        place = self._place(loop)
        if isinstance(place, For):
            move.compute_at(state, node, place, index, preserve_unit_loops=preserve_unit_loops)
        elif place == Location.INLINE:
            inline.compute_inline(state, node)

    @primitive
    def reverse_compute_at(
        self,
        block: BlockRV | str,
        loop: LoopRV,
        preserve_unit_loops: bool = False,
        index: int = move.LAST,
    ) -> None:
        """Move a consumer under a loop: each iteration consumes the region that was written there.

        Errors:
            ScheduleError: not one block inside of the loop writes what the block reads, that is
                not complete there, or the block reads what other iterations write.
        """
        state, node = self._block(block)
        place = self._place(loop)
        if isinstance(place, For):
            move.reverse_compute_at(
                state, node, place, index, preserve_unit_loops=preserve_unit_loops
            )
        elif place == Location.INLINE:
            inline.reverse_compute_inline(state, node)

    @primitive
    def compute_inline(self, block: BlockRV | str) -> None:
        """Compute the elements of a block where they are read, and remove the block.

        Errors:
            ScheduleError: the block is not one store to a local buffer at distinct variables, or
                what it reads is written later.
        """
        inline.compute_inline(*self._block(block))

    @primitive
    def reverse_compute_inline(self, block: BlockRV | str) -> None:
        """Inline a block into its producer, and remove the block.

        Errors:
            ScheduleError: the block is not the only one that reads a local buffer, element by
                element.
        """
        inline.reverse_compute_inline(*self._block(block))

    @primitive
    def fuse_reduction_epilogue(
        self, reduction_block: BlockRV | str, epilogue_block: BlockRV | str
    ) -> None:
        """Fuse an epilogue into the init of a reduction, and remove the epilogue's block.

        Where a block adds a bias to a sum, the sum begins with the bias; floats are added in
        another order.

        Errors:
            ScheduleError: the block does more than combining, as one that bounds a sum; other
                blocks read what the reduction writes; or the elements do not correspond.
        """
        state, reduction = self._block(reduction_block)
        inline.fuse_reduction_epilogue(state, reduction, self._block(epilogue_block)[1])

    @primitive
    def blockize(
        self, target: LoopRV | Sequence[BlockRV], preserve_unit_iters: bool = True
    ) -> BlockRV:
        """Make a block of a loop and what is in it, with variables for the loops around it.

        The init of a reduction becomes that of the new block.

        Errors:
            ScheduleError: there is not one block in the loop, or its variables or its condition
                cannot be divided into loops outside and inside.
            MisuseError: `target` is not a loop.
        """
        if not isinstance(target, LoopRV):
            raise unexpected(target, "blockize takes the loop around one block")
        state, node = self._loop(target)
        new = loops.blockize(state, node, preserve_unit_iters=preserve_unit_iters)
        return self._block_rv(state, new)

    @primitive
    def tensorize(
        self,
        block_or_loop: BlockRV | LoopRV | str,
        tensor_intrin: str,
        preserve_unit_iters: bool = True,
    ) -> None:
        """Refuse: there are no tensor intrinsics, `compile` finds matmuls by itself.

        Errors:
            ScheduleError: always.
        """
        _, node = self._either(block_or_loop)
        raise refused(
            f"there is no tensor intrinsic {tensor_intrin!r:.40}: compile finds products in the "
            "loops by itself",
            node,
        )

    @user_facing
    def transform_layout(
        self,
        block: BlockRV | str,
        buffer: tuple[str, int] | str | Buffer,
        index_map: IndexMap | Callable[..., Any],
        pad_value: int | float | PrimExpr | IndexMap | Callable[..., Any] | None = None,
        *,
        assume_injective_transform: bool = False,
    ) -> None:
        """Store the elements of a buffer at the indices of a map, everywhere in the kernel.

        A parameter has the new shape, so callers pass an array in the new layout. `buffer` is
        ("read", number), ("write", number), a name, or the buffer. Elements that the map does not
        reach are `pad_value`, a value or a function of their indices, if it is not None: the caller
        has stored it if no block writes the buffer; a block that alone stores every element stores
        it, too; after any other blocks, one named after the buffer, as in "A_padding", does. Axis
        separators among the results of `index_map` are set by `set_axis_separator`.

        Errors:
            ScheduleError: the map is not known to be injective, or the buffer is used as a pointer
                or through a view.
        """
        self._separators.clear()
        self._transform_layout(
            block,
            buffer,
            index_map,
            pad_value,
            assume_injective_transform=assume_injective_transform,
        )
        if self._separators:
            buffer = buffer.name if isinstance(buffer, Buffer) else buffer
            self.set_axis_separator(block, buffer, self._separators)

    @primitive
    def _transform_layout(
        self,
        block: BlockRV | str,
        buffer: tuple[str, int] | str | Buffer,
        index_map: IndexMap | Callable[..., Any],
        pad_value: int | float | PrimExpr | IndexMap | Callable[..., Any] | None = None,
        *,
        assume_injective_transform: bool = False,
    ) -> None:
        state, node = self._block(block)
        change_layout.transform_layout(
            state,
            node,
            buffer,
            index_map,
            pad_value,
            self._map,
            assume_injective=assume_injective_transform,
        )

    @primitive
    def transform_block_layout(
        self, block: BlockRV | str, index_map: IndexMap | Callable[..., Any]
    ) -> None:
        """Let a block run through loops whose variables are those of a map of its own.

        Errors:
            ScheduleError: the block is not alone in one loop for each of its variables, the map is
                not bijective, or it mixes spatial and reduction variables.
        """
        state, node = self._block(block)
        change_layout.transform_block_layout(state, node, index_map, self._map)

    @primitive
    def reindex(self, block: BlockRV | str, buffer: tuple[str, int] | str | Buffer) -> BlockRV:
        """Let a block use a copy of a buffer whose indices are the variables of the block.

        The block of the copy is returned: it is before the block if that reads the buffer, and
        after it if it writes it.

        Errors:
            ScheduleError: the block uses the buffer at several indices, its loops do not cover its
                variables, or an index may be outside of the buffer.
        """
        state, node = self._block(block)
        return self._block_rv(state, reindex.reindex(state, node, buffer))

    @primitive
    def reindex_cache_read(
        self,
        block: BlockRV | str,
        read_buffer_index: int,
        storage_scope: str,
        index_map: IndexMap | Callable[..., Any],
    ) -> BlockRV:
        """Copy what a block reads to indices by a map of its variables; return the copy's block.

        Errors:
            ScheduleError: the block reads at several indices, the map is not of the variables in
                them, or not known to be injective, or a write follows.
        """
        state, node = self._block(block)
        at = "read", read_buffer_index
        copied = reindex.reindex_cache(state, node, at, storage_scope, index_map, self._map)
        return self._block_rv(state, copied)

    @primitive
    def reindex_cache_write(
        self,
        block: BlockRV | str,
        write_buffer_index: int,
        storage_scope: str,
        index_map: IndexMap | Callable[..., Any],
    ) -> BlockRV:
        """Let a block write at the indices of a map, and copy that after it; return that block.

        Errors:
            ScheduleError: as for `reindex_cache_read`, or another block writes the buffer.
        """
        state, node = self._block(block)
        at = "write", write_buffer_index
        copied = reindex.reindex_cache(state, node, at, storage_scope, index_map, self._map)
        return self._block_rv(state, copied)

    @primitive
    def rolling_buffer(self, block: BlockRV | str, write_buffer_index: int) -> None:
        """Write elements that iterations share once, to a buffer with those of one iteration.

        Errors:
            ScheduleError: the block and its readers share no loop whose iterations overlap.
        """
        reindex.rolling_buffer(*self._block(block), write_buffer_index)

    @primitive
    def pad_einsum(self, block: BlockRV | str, padding: Sequence[int]) -> None:
        """Let the extents of a block be multiples of `padding`, with a number for each variable.

        Operands are copied to larger buffers with zeros, and the result is copied back.

        Errors:
            ScheduleError: the block is not a store of products and sums at its own variables, or
                zeros would change what it computes.
        """
        state, node = self._block(block)
        padding_module.pad_einsum(state, node, padding)

    @primitive
    def decompose_padding(self, block: BlockRV | str, loop: LoopRV) -> BlockRV:
        """Store padding before a loop, in a block of its own, which is returned.

        The block stores `T.if_then_else(condition, value, padding)`, and then only `value` where
        the condition holds.

        Errors:
            ScheduleError: the block is not such a store, or another one uses what it writes in
                other iterations of the loop.
        """
        state, node = self._block(block)
        new = padding_module.decompose_padding(state, node, self._loop(loop)[1])
        return self._block_rv(state, new)

    @primitive
    def enter_postproc(self) -> None:
        """Mark the start of the instructions that `Trace.simplified` can omit."""


def verify_trace_roundtrip(
    sch: Schedule,
    mod: PrimFunc | IRModule,
    *,
    debug_mask: str | int = "all",
    text_format: str | Sequence[str] = ("python", "json"),
) -> Schedule:
    """The schedule of `mod` to which the trace of `sch` has been applied.

    The format "json" applies the trace that `as_json` writes, "python" the trace itself.

    Errors:
        StructuralMismatch (also AssertionError): its kernels are not those of `sch`.
        AssertionError: the text of its trace is not that of `sch`.
        MisuseError (also ValueError): there is no such format.
    """
    again = Schedule(mod, debug_mask=debug_mask)
    for form in [text_format] if isinstance(text_format, str) else text_format:
        again = Schedule(mod, debug_mask=debug_mask)
        if form == "json":
            Trace.apply_json_to_schedule(sch.trace.as_json(), again)
        elif form == "python":
            sch.trace.apply_to_schedule(again)
        else:
            raise unexpected(form, "the format of a trace is 'python' or 'json'")
        assert_structural_equal(again.mod, sch.mod)
        if again.trace.as_python() != sch.trace.as_python():
            raise AssertionError(f"the trace becomes another one:\n{sch.trace}\n\n{again.trace}")
    return again
