"""Primitives that say how a loop runs, and annotations of loops and blocks."""

from __future__ import annotations

from relaxpy.errors import close_names, unexpected
from relaxpy.ir.core.node import Attr, as_attrs
from relaxpy.ir.tir.expr import IterVarKind, Var
from relaxpy.ir.tir.iteration import IterVar
from relaxpy.ir.tir.rewrite.state import State, refused
from relaxpy.ir.tir.stmt import Block, For, ForKind
from relaxpy.plugins.schedule.conditions import check_parallel
from relaxpy.support.dataclass import replace

_THREAD_AXES = frozenset(
    f"{unit}.{axis}" for unit in ("blockIdx", "threadIdx", "vthread") for axis in "xyz"
) | {"vthread", "cthread"}


def run_as(state: State, loop: For, kind: ForKind) -> None:
    """Make `loop` parallel, vectorized or unrolled, if its iterations may run in any order."""
    if loop.kind != ForKind.SERIAL:
        raise refused(f"loop {loop.loop_var.name} is {loop.kind.name.lower()} already", loop)
    if kind != ForKind.UNROLLED:
        check_parallel(state, loop)
    state.replace({loop: replace(loop, kind=kind)})


def bind(state: State, loop: For, thread_axis: str) -> None:
    """Bind `loop` to an index of threads; reductions may run over a threadIdx."""
    if thread_axis not in _THREAD_AXES:
        hint = close_names(str(thread_axis), _THREAD_AXES)
        raise unexpected(thread_axis, "expected a thread axis such as 'threadIdx.x'", hint=hint)
    if loop.kind != ForKind.SERIAL:
        raise refused(f"loop {loop.loop_var.name} is {loop.kind.name.lower()} already", loop)
    check_parallel(state, loop, reductions=thread_axis.startswith("threadIdx"))
    kind = loop.loop_var.dtype
    index = IterVar(None, Var("", kind), IterVarKind.ThreadIndex, thread_axis)
    state.replace({loop: replace(loop, kind=ForKind.THREAD_BINDING, thread_binding=index)})


def annotate(state: State, node: For | Block, key: str, value: Attr | None) -> None:
    """Set the annotation `key` of a loop or block, or remove it if `value` is None."""
    table = dict(node.annotations)
    if value is None:
        if key not in table:
            raise refused(f"there is no annotation {key!r:.40} to remove", node)
        del table[key]
    else:
        if key in table:
            raise refused(f"there is an annotation {key!r:.40} already", node)
        table[key] = value
    new = replace(node, annotations=as_attrs(table))
    state.replace({node: new}, {node: new} if isinstance(node, Block) else {})  # type: ignore[dict-item]


def storage_align(
    state: State, block: Block, which: int, axis: int, factor: int, offset: int
) -> None:
    """Add an alignment of an axis of a buffer that `block` writes to its annotations."""
    written = [region.buffer for region in block.writes]
    if not 0 <= which < len(written):
        raise refused(f"block {block.name_hint} writes {len(written)} buffers, not {which}", block)
    rank = len(written[which].shape)
    if not -rank <= axis < rank:
        raise refused(f"{written[which].name} has no axis {axis}", block)
    if factor <= 0:
        raise refused(f"a factor is positive, found {factor}", block)
    table = dict(block.annotations)
    aligned = (*table.get(_ALIGNED, ()), (which, axis % rank, factor, offset))  # type: ignore[misc]
    state.renew(block, replace(block, annotations=as_attrs(table | {_ALIGNED: aligned})))


_ALIGNED = "buffer_dim_align"
