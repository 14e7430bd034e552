"""How much there is in a node when what is shared counts at each of its places."""

from __future__ import annotations

from typing import Final

from relaxpy.errors import MisuseError
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, walk

MANY: Final = 1 << 18
"""So many places are gone through in any case."""
_TIMES: Final = 64
"""How many places a node may have on average."""


class Places:
    """Counts the places below `root` that are gone through one by one."""

    __slots__ = ("_left", "_root")

    def __init__(self, root: Node) -> None:
        self._root = root
        self._left = MANY

    def pass_by(self, weight: int = 1) -> None:
        """Count one more place, or one that takes as long as some.

        Errors:
            MisuseError (also TypeError): there are so many that the end would never be reached.
        """
        if self._left > 0:
            self._left -= weight
            if self._left <= 0:
                refuse_if_vast(self._root)


def refuse_if_vast(root: Node) -> None:
    """Refuse a node in which much is shared over and over, whose places are therefore too many.

    Errors:
        MisuseError (also TypeError): it has more than 64 places for each of its nodes.
    """
    places: dict[int, int] = {}
    for node in walk(root):
        places[id(node)] = 1 + sum(places.get(id(child), 1) for child in children(node))
    total = places[id(root)]
    if total > max(MANY, _TIMES * len(places)):
        raise MisuseError(
            f"a {type(root).__name__} of {len(places)} nodes, many of them shared, has more than "
            f"2**{total.bit_length() - 1} places, too many to go through",
            hint="bind to a variable what stands in several places; bb.emit and Normalize do so "
            "with calls",
            about=root,
        )
