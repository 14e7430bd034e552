"""Where in a node something stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from typing_extensions import override

from relaxpy.errors import MisuseError

How: TypeAlias = Literal["attr", "item", "key", "missing attr", "missing item", "missing key"]


@dataclass(frozen=True, slots=True)
class AccessPath:
    """The steps from a node to a part of it, `<root>.body.blocks[0]`; equal if the steps are.

    The last step may lead to what is not there.
    """

    steps: tuple[tuple[How, object], ...] = ()

    @staticmethod
    def root() -> AccessPath:
        """The path to the node itself."""
        return AccessPath()

    def _then(self, how: How, step: object) -> AccessPath:
        if self.steps and self.steps[-1][0].startswith("missing"):
            raise MisuseError(f"{self} is not there, so that nothing is in it", about=step)
        return AccessPath((*self.steps, (how, step)))

    def attr(self, name: str) -> AccessPath:
        """The path to field `name`."""
        return self._then("attr", name)

    def array_item(self, index: int) -> AccessPath:
        """The path to member `index` of a list."""
        return self._then("item", index)

    def map_item(self, key: object) -> AccessPath:
        """The path to what a table has under `key`."""
        return self._then("key", key)

    def attr_missing(self, name: str) -> AccessPath:
        """The path to a field that is not there."""
        return self._then("missing attr", name)

    def array_item_missing(self, index: int) -> AccessPath:
        """The path to a member that a list is too short for."""
        return self._then("missing item", index)

    def map_item_missing(self, key: object) -> AccessPath:
        """The path to a key that a table does not have."""
        return self._then("missing key", key)

    def join(self, inner: AccessPath) -> AccessPath:
        """The path to what `inner` leads to from where this one leads."""
        if not isinstance(inner, AccessPath):
            raise MisuseError(f"expected an AccessPath, found {inner!r:.60}", about=inner)
        found = self
        for how, step in inner.steps:
            found = found._then(how, step)
        return found

    @property
    def parent(self) -> AccessPath | None:
        """The path to what this is a part of; None for the root."""
        return AccessPath(self.steps[:-1]) if self.steps else None

    @override
    def __str__(self) -> str:
        return "<root>" + "".join(_text(how, step) for how, step in self.steps)

    @override
    def __repr__(self) -> str:
        return str(self)


def _text(how: How, step: object) -> str:
    missing = "<missing>" if how.startswith("missing") else ""
    return f".{step}{missing}" if how.endswith("attr") else f"[{step!r}]{missing}"
