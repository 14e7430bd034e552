"""The picture of a PrimFunc: its blocks, and the buffers by which they pass values on."""

from __future__ import annotations

from typing import Final

from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.traverse import occurrences
from relaxpy.ir.short_text.nodes import ShortText
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import IterVarKind
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Block
from relaxpy.plugins.pictures.labels import printable
from relaxpy.plugins.pictures.model import Item, Kind, Picture

_KINDS: Final = {IterVarKind.DataPar: "spatial", IterVarKind.CommReduce: "reduce"}


def innermost_blocks(func: PrimFunc) -> list[Block]:
    """The blocks without blocks inside, in the order of the program."""
    blocks = list(occurrences(func.body, Block))
    return [block for block in blocks if sum(1 for _ in occurrences(block, Block)) == 1]


def add_blocks(picture: Picture, group: int, func: PrimFunc, blocks: list[Block]) -> None:
    """Add the parameters, blocks and outputs of a kernel to a group."""
    writers: dict[Buffer, list[int]] = {}
    sources: dict[Buffer, int] = {}
    read = {region.buffer for block in blocks for region in block.reads}
    written = {region.buffer for block in blocks for region in block.writes}
    for param in func.params:
        buffer = func.buffer_map.get(param)
        if buffer is None:
            _add(picture, "parameter", param.name, group).detail = str(param.dtype)
        elif buffer in read or buffer not in written:
            sources[buffer] = _buffer(picture, "parameter", buffer, group).number
    for block in blocks:
        item = _add(picture, "operator", block.name_hint, group)
        item.span, item.name = block.span, block.name_hint
        kinds = (_KINDS.get(v.iter_type, v.iter_type.name.lower()) for v in block.iter_vars)
        names = (v.var.name for v in block.iter_vars)
        item.detail = printable(", ".join(map(": ".join, zip(names, kinds, strict=True))))
        item.about = printable(item.detail)
        for region in block.reads:
            first = [sources[region.buffer]] if region.buffer in sources else []
            for source in writers.get(region.buffer, first):
                picture.use(source, item.number)
        for region in block.writes:
            writers.setdefault(region.buffer, []).append(item.number)
    for buffer, users in writers.items():
        if buffer in func.buffer_map.values():
            result = _buffer(picture, "result", buffer, group)
            for user in users:
                picture.use(user, result.number)


def _add(picture: Picture, kind: Kind, label: str, group: int) -> Item:
    return picture.add(kind, printable(label), group)


def _buffer(picture: Picture, kind: Kind, buffer: Buffer, group: int) -> Item:
    item = _add(picture, kind, buffer.name, group)
    sizes = ", ".join(ShortText().prim(size, INT64) for size in buffer.shape)
    item.detail = printable(f"({sizes}) {buffer.dtype}")
    item.name, item.about = buffer.name, printable(f"{buffer.name}: {item.detail}", 200)
    return item
