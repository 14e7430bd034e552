"""Blocks on their own: what is bound between opening and closing one, whatever is around it."""

from __future__ import annotations

from relaxpy.errors import BuilderStateError
from relaxpy.ir.relax.block_builder.emitter import Block, Emitter, Scope
from relaxpy.ir.relax.nodes import BindingBlock, DataflowBlock


def open_block(out: Emitter, *, dataflow: bool, origin: BindingBlock | None = None) -> None:
    """Begin a block; `origin` is the one it is read from, given back if nothing changes."""
    out.scopes.append(Scope(dataflow=dataflow, blocks=[Block(dataflow, origin)]))


def close_block(out: Emitter) -> list[BindingBlock]:
    """The block that was begun last, behind those that its bindings broke off from it (NF-16).

    What it binds stays visible in the scope around it, its DataflowVars excepted (SC-7, SC-8).

    Errors:
        BuilderStateError: no block is open.
    """
    if not out.scopes or not out.scopes[-1].blocks:
        raise BuilderStateError("there is no block to end")
    frame = out.scopes.pop()
    out.ctx.variables.difference_update(frame.local)
    if out.scopes:
        around = out.scopes[-1]
        local = set(frame.local)
        around.variables += (var for var in frame.variables if var not in local)
        around.sizes += frame.sizes
    blocks = [block.finish() for block in frame.blocks if block.bindings]
    if blocks and isinstance(blocks[-1], DataflowBlock) is frame.dataflow:
        return blocks
    return [*blocks, DataflowBlock(()) if frame.dataflow else BindingBlock(())]
