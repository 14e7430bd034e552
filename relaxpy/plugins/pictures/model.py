"""The model of a picture: nested items, and the uses of values between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final, Literal, TypeAlias

from relaxpy.errors import Span
from relaxpy.ir.core.traverse import preorder
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
