"""The model of a picture: nested items with labels, the uses between them; and that of a kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final, Literal, TypeAlias

from relaxpy.errors import Span
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import occurrences, preorder
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.short_text.nodes import ShortText, short_text
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import IterVarKind
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Block
from relaxpy.support.dataclass import dataclass

Kind: TypeAlias = Literal[
    "parameter",
    "constant",
    "global",
    "unbound",
    "input",
    "operator",
    "kernel",
    "packed",
    "call",
    "tuple",
    "alias",
    "cast",
    "result",
    "fault",
    "module",
    "function",
    "local",
    "loop",
    "block",
    "if",
    "branch",
    "fused",
    "repeat",
    "instance",
    "bundle",
]
Change: TypeAlias = Literal["", "kept", "added", "removed"]
#: Items without operands, which are drawn near their uses.
SOURCES: Final = frozenset[Kind](("parameter", "constant", "global", "unbound", "input"))
#: Items that are closed at first.
FOLDED: Final = frozenset[Kind](("fused", "repeat", "instance", "bundle"))
MODULE: Final = 0
"""The number of the item that contains all others."""


@dataclass(slots=True)
class Item:
    """A value, an operation, or a group of items, by its `number` in the picture.

    Fields:
        detail: the second line, which is shorter than `about`.
        about: what is shown on hover.
        program: the text of a PrimFunc, which is shown when the item is unfolded.
        omitted: the number of items that it would contain, were it not too large to be drawn.
        fault: the rule that it violates, and the message.
        order: where the program has it; by default, after all items that are there already.
    """

    number: int
    kind: Kind
    label: str
    parent: int = MODULE
    detail: str = ""
    about: str = ""
    span: Span | None = None
    name: str = ""
    program: str = ""
    omitted: int = 0
    change: Change = ""
    fault: tuple[str, ...] = ()
    order: float = -1.0


@dataclass(slots=True)
class Picture:
    """The items by number, in the order of the program, and pairs of a value and its user.

    The user of a value may be a group, whose parameters or branches then use it.
    """

    items: list[Item] = field(default_factory=list)
    uses: dict[tuple[int, int], None] = field(default_factory=dict)

    def add(self, kind: Kind, label: str, parent: int = MODULE, **fields: object) -> Item:
        """Append an item to the group `parent`."""
        item = Item(len(self.items), kind, label, parent, **fields)  # type: ignore[arg-type]
        item.order = item.order if item.order >= 0 else float(item.number)
        self.items.append(item)
        return item

    def use(self, value: int, user: int) -> None:
        """Record that an item uses the value of another."""
        self.uses[value, user] = None

    def members(self) -> dict[int, list[int]]:
        """The numbers of the items in each group that is not empty, in the order of the program."""
        table: dict[int, list[int]] = {}
        for item in sorted(self.items[1:], key=lambda item: item.order):
            table.setdefault(item.parent, []).append(item.number)
        return table

    def groups(self) -> Iterator[int]:
        """The groups that are not empty, each before those inside it."""
        members = self.members()
        inside = preorder([MODULE], lambda group: members.get(group, ()))
        return (group for group in inside if group in members)

    def enclosing(self, number: int) -> list[int]:
        """The item and the groups that contain it, from the inside out."""
        found = [number]
        while found[-1] != MODULE:
            found.append(self.items[found[-1]].parent)
        return found


def projected(
    picture: Picture, shown: Mapping[int, int] | Sequence[int]
) -> Iterator[tuple[int, int]]:
    """The uses between items that are shown, each once; `shown` has what stands for each item."""
    found: dict[tuple[int, int], None] = {}
    for value, user in picture.uses:
        pair = shown[value], shown[user]
        if pair[0] != pair[1] and pair not in found:
            found[pair] = None
            yield pair


MAX_LABEL: Final = 44
MAX_ABOUT: Final = 600
#: Characters that XML excludes, and those that change the direction of text.
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def printable(text: str, limit: int = MAX_LABEL) -> str:
    """The text on one line, without control characters, and cut after `limit` characters."""
    if len(text) > limit:
        text = f"{text[: limit - 1]}…"
    return _UNPRINTABLE.sub("\ufffd", text.replace("\n", " ").replace("\t", " "))


def sinfo_text(sinfo: rx.StructInfo | None) -> str:
    """Struct info as a label has it: the shape and the datatype of a tensor."""
    match sinfo:
        case None:
            return ""
        case rx.TensorStructInfo(shape=rx.ShapeExpr(values=sizes)):
            dims = ", ".join(ShortText().prim(size, INT64) for size in sizes)
            return f"({dims}{',' if len(sizes) == 1 else ''}) {sinfo.dtype or ''}".strip()
        case rx.TensorStructInfo():
            rank = "?" if sinfo.ndim < 0 else f"rank {sinfo.ndim}"
            return f"({rank}) {sinfo.dtype or ''}".strip()
        case rx.TupleStructInfo(fields=fields):
            return f"({', '.join(map(sinfo_text, fields[:8]))}{', …' if fields[8:] else ''})"
        case _:
            return short_text(sinfo).removeprefix("R.")


def operator_text(op: Node) -> str:
    """The name of a callee, without the dialect."""
    match op:
        case Op():
            return op.name.removeprefix("relax.")
        case rx.GlobalVar() | rx.Var():
            return op.name_hint
        case rx.ExternFunc():
            return op.global_symbol
        case _:
            return type(op).__name__


def literal_text(expr: Node) -> str | None:
    """The text of an operand that a label contains; None for a value with an item of its own."""
    match expr:
        case rx.Constant() if expr.size == 1:
            return str(expr.data.item())
        case rx.PrimValue():
            return ShortText().prim(expr.value, INT64)
        case rx.ShapeExpr(values=sizes):
            return f"({', '.join(ShortText().prim(size, INT64) for size in sizes)})"
        case rx.StringImm():
            return repr(expr.value[:MAX_LABEL])
        case rx.DataTypeImm():
            return str(expr.value)
        case _:
            return None


def attributes_text(call: rx.Call) -> str:
    """The attributes of a call that have a value."""
    found = []
    for name, value in call.attrs.items():
        if value is not None:
            text = short_text(value) if isinstance(value, Node) else f"{value!r:.80}"
            found.append(f"{name}={text}")
    return ", ".join(found)


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
