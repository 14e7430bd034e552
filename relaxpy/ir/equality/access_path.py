"""Paths from a node to its components."""

from __future__ import annotations

from typing import Literal, TypeAlias

from typing_extensions import override

from relaxpy.errors import MisuseError, check_type
from relaxpy.support.dataclass import dataclass

StepKind: TypeAlias = Literal["attr", "item", "key", "missing attr", "missing item", "missing key"]


@dataclass(frozen=True, slots=True)
class AccessPath:
    """The path from a node to one of its components, such as `<root>.body.blocks[0]`.

    Paths compare by value. The last step may lead to a component that does not exist.
    """

    steps: tuple[tuple[StepKind, object], ...] = ()

    @staticmethod
    def root() -> AccessPath:
        """Return the path to the node itself."""
        return AccessPath()

    def _append(self, kind: StepKind, step: object) -> AccessPath:
        if self.steps and self.steps[-1][0].startswith("missing"):
            raise MisuseError(f"{self} does not exist, so it has no components", about=step)
        return AccessPath((*self.steps, (kind, step)))

    def attr(self, name: str) -> AccessPath:
        """Return the path to the field `name`."""
        return self._append("attr", name)

    def array_item(self, index: int) -> AccessPath:
        """Return the path to element `index` of a list."""
        return self._append("item", index)

    def map_item(self, key: object) -> AccessPath:
        """Return the path to the value of `key` in a mapping."""
        return self._append("key", key)

    def attr_missing(self, name: str) -> AccessPath:
        """Return the path to a field that does not exist."""
        return self._append("missing attr", name)

    def array_item_missing(self, index: int) -> AccessPath:
        """Return the path to an element after the end of a list."""
        return self._append("missing item", index)

    def map_item_missing(self, key: object) -> AccessPath:
        """Return the path to a key that a mapping does not have."""
        return self._append("missing key", key)

    def join(self, inner: AccessPath) -> AccessPath:
        """Append the steps of `inner` to this path."""
        check_type(inner, AccessPath, "expected an AccessPath")
        path = self
        for kind, step in inner.steps:
            path = path._append(kind, step)
        return path

    @property
    def parent(self) -> AccessPath | None:
        """The path to the enclosing node, list or mapping; None for the root."""
        return AccessPath(self.steps[:-1]) if self.steps else None

    @override
    def __str__(self) -> str:
        return "<root>" + "".join(_text(kind, step) for kind, step in self.steps)

    @override
    def __repr__(self) -> str:
        return str(self)


def _text(kind: StepKind, step: object) -> str:
    missing = "<missing>" if kind.startswith("missing") else ""
    return f".{step}{missing}" if kind.endswith("attr") else f"[{step!r}]{missing}"
