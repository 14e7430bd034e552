"""Kernels for the threads of other devices, without the copies that these threads share."""

from __future__ import annotations

from relaxpy.errors import ScheduleError
from relaxpy.ir.core.traverse import occurrences
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Block


def inline_shared(func: PrimFunc) -> PrimFunc:
    """`func` without blocks that compute, per thread, values that all threads read.

    Where threads run one after the other, none gains by that, so each computes what it reads.
    """
    scopes = {b.scope() for block in occurrences(func.body, Block) for b in block.alloc_buffers}
    if not any(scope.startswith(("shared", "warp")) for scope in scopes):
        return func
    from relaxpy.ir.tir.rewrite.inline import compute_inline  # with all of scheduling
    from relaxpy.ir.tir.rewrite.stages import stage_in_scope
    from relaxpy.ir.tir.rewrite.state import State, is_shared

    state = State(func)
    for old in list(state.blocks()):
        block = state.current(old)
        if block is None or block is state.root:
            continue
        try:
            stages, stage = stage_in_scope(state, block)
            users = [s for s in stages if not stage.writes.keys().isdisjoint({*s.reads, *s.writes})]
            if any(
                is_shared(buffer, loop) and all(loop in user.loops for user in users)
                for buffer in stage.writes
                for loop in stage.loops
            ):
                compute_inline(state, block)
        except ScheduleError:
            continue  # the block stays, which is slower
    return state.func
