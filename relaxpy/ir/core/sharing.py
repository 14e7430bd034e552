"""Limits on the size of a node when shared nodes are counted once per use."""

from __future__ import annotations

from typing import Final

from relaxpy.errors import MisuseError
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, walk

MANY: Final = 1 << 18
"""The number of visits that is always allowed."""
_MAX_USES: Final = 64
"""The number of uses that a node may have on average."""


class VisitBudget:
    """Counts the visits of a traversal of `root` that visits a shared node once per use."""

    __slots__ = ("_left", "_root")

    def __init__(self, root: Node) -> None:
        self._root = root
        self._left = MANY

    def spend(self, weight: int = 1) -> None:
        """Count one visit, or one that takes as long as `weight` visits.

        Errors:
            MisuseError (also TypeError): the traversal would not end in reasonable time.
        """
        if self._left > 0:
            self._left -= weight
            if self._left <= 0:
                check_unshared_size(self._root)


def unshared_size(root: Node) -> tuple[int, int]:
    """The number of nodes if shared ones were copied for each use, and the number of nodes."""
    sizes: dict[int, int] = {}
    for node in walk(root):
        sizes[id(node)] = 1 + sum(sizes.get(id(child), 1) for child in children(node))
    return sizes[id(root)], len(sizes)


def check_unshared_size(root: Node) -> None:
    """Refuse a node that would be too large if shared nodes were copied for each use.

    Errors:
        MisuseError (also TypeError): its nodes have more than 64 uses on average.
    """
    total, nodes = unshared_size(root)
    if total > max(MANY, _MAX_USES * nodes):
        raise MisuseError(
            f"a {type(root).__name__} of {nodes} nodes, many of them shared, has more than "
            f"2**{total.bit_length() - 1} uses, too many to visit",
            hint="bind what is used several times to a variable, as bb.emit and Normalize do",
            about=root,
        )
