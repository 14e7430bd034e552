"""The blocks of a kernel, and which read what others write."""

from __future__ import annotations

from relaxpy.errors import close_names
from relaxpy.ir.tir.rewrite.stages import Stage, listed_stages
from relaxpy.ir.tir.rewrite.state import State, refused
from relaxpy.ir.tir.stmt import Block


def block_named(state: State, name: str) -> Block:
    """Return the block with a name. Errors: ScheduleError if there is none, or several."""
    found = [block for block in state.blocks() if block.name_hint == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise refused(f"there are {len(found)} blocks with the name {name!r:.40}", found[1])
    known = [block.name_hint for block in state.blocks()]
    hint = close_names(str(name), known) or f"there are {', '.join(known)}"
    raise refused(f"there is no block {name!r:.40}").hinted(hint)


def _with_others(state: State, block: Block) -> tuple[Stage, list[Stage]]:
    stages = listed_stages(state, state.scope(block))
    own = next(stage for stage in stages if stage.block is block)
    return own, [stage for stage in stages if stage is not own]


def producers(state: State, block: Block) -> list[Block]:
    """Return the other blocks of the scope that write what `block` reads."""
    own, others = _with_others(state, block)
    return [other.block for other in others if _shared(other.writes, own.reads)]


def consumers(state: State, block: Block) -> list[Block]:
    """Return the other blocks of the scope that read what `block` writes."""
    own, others = _with_others(state, block)
    return [other.block for other in others if _shared(own.writes, other.reads)]


def _shared(a: object, b: object) -> bool:
    return not frozenset(a).isdisjoint(b)  # type: ignore[call-overload]


def outputs(state: State, scope: Block) -> list[Block]:
    """Return the blocks of a scope that write a buffer which is not allocated in it."""
    return [
        stage.block
        for stage in listed_stages(state, scope)
        if any(buffer not in scope.alloc_buffers for buffer in stage.writes)
    ]
