"""The first difference between two programs, and its path from the root."""

from __future__ import annotations

from enum import Enum
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError, RelaxpyError, check_type
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
        """The path to the node itself."""
        return AccessPath()

    def _append(self, kind: StepKind, step: object) -> AccessPath:
        if self.steps and self.steps[-1][0].startswith("missing"):
            raise MisuseError(f"{self} does not exist, so it has no components", about=step)
        return AccessPath((*self.steps, (kind, step)))

    def attr(self, name: str) -> AccessPath:
        """The path to the field `name`."""
        return self._append("attr", name)

    def array_item(self, index: int) -> AccessPath:
        """The path to element `index` of a list."""
        return self._append("item", index)

    def map_item(self, key: object) -> AccessPath:
        """The path to the value of `key` in a mapping."""
        return self._append("key", key)

    def attr_missing(self, name: str) -> AccessPath:
        """The path to a field that does not exist."""
        return self._append("missing attr", name)

    def array_item_missing(self, index: int) -> AccessPath:
        """The path to an element after the end of a list."""
        return self._append("missing item", index)

    def map_item_missing(self, key: object) -> AccessPath:
        """The path to a key that a mapping does not have."""
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


class Key(NamedTuple):
    """A step into a mapping, by the text of the key."""

    name: str


# A field by its name, an element by its index, or a value in a mapping by its key.
Step: TypeAlias = "str | int | Key"
Path: TypeAlias = "tuple[Path, Step] | None"
Located: TypeAlias = tuple[Path, object]


def access_path(path: Path) -> AccessPath:
    """Convert a linked `path`, whose last step comes first, to an AccessPath."""
    steps: list[Step] = []
    while path is not None:
        path, step = path
        steps.append(step)
    result = AccessPath.root()
    for step in reversed(steps):
        if isinstance(step, Key):
            result = result.map_item(step.name)
        else:
            result = result.attr(step) if isinstance(step, str) else result.array_item(step)
    return result


class _Absent(Enum):
    """Marks a component that only the other operand has."""

    NOTHING = "nothing"

    @override
    def __str__(self) -> str:
        return self.value


ABSENT = _Absent.NOTHING


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first difference of two nodes: the paths to it and the components on both sides.

    The paths are the same unless one side lacks the component.
    """

    lhs_path: AccessPath
    rhs_path: AccessPath
    lhs: object
    rhs: object

    @property
    def path(self) -> str:
        """The path from the two nodes to the difference, such as `.body.blocks[0]`."""
        return str(self._present).removeprefix("<root>")

    @property
    def _present(self) -> AccessPath:
        return self.rhs_path if self.lhs is ABSENT else self.lhs_path

    @override
    def __str__(self) -> str:
        texts = [_snippet(self.lhs), _snippet(self.rhs)]
        kinds = [type(self.lhs).__name__, type(self.rhs).__name__]
        if texts[0] == texts[1] and kinds[0] != kinds[1]:
            texts = [f"{text} ({kind})" for text, kind in zip(texts, kinds, strict=True)]
        return f"the two differ at {self._present}\n  left:  {texts[0]}\n  right: {texts[1]}"


def _snippet(subject: object) -> str:
    text = (
        str(subject)
        if not isinstance(subject, np.ndarray)
        else np.array2string(subject, threshold=8)
    )
    text = "\n         ".join(text.splitlines()[:8])
    return text if len(text) <= 300 else text[:300] + " ..."


class StructuralMismatch(RelaxpyError, ValueError, AssertionError):  # noqa: N818
    """Two nodes are not structurally equal; the text shows the first difference."""
