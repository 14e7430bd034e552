"""The tree of a model: what contains parameters, effects and other parts, under names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class Branch:
    """A part of a model whose items are its attributes, or the elements of a collection."""

    def items_by_name(self) -> Iterable[tuple[str, Any]]:
        """The items with the last component of their paths."""
        return list(vars(self).items())

    def replace_item(self, name: str, item: Any) -> None:
        """Replace the item with this name."""
        setattr(self, name, item)


def named_items(root: Branch, kind: type[T], prefix: str = "") -> Iterator[tuple[str, T]]:
    """The items of a class below `root`, with their paths, such as `layers.0.weight`."""
    for name, item in root.items_by_name():
        if isinstance(item, kind):
            yield f"{prefix}{name}", item
        elif isinstance(item, Branch):
            yield from named_items(item, kind, f"{prefix}{name}.")
