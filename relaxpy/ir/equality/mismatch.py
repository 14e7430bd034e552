"""What the first difference between two programs is, and where."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

import numpy as np
from typing_extensions import override

from relaxpy.errors import RelaxpyError
from relaxpy.ir.equality.access_path import AccessPath


class Key(NamedTuple):
    """A step into a table, by the text of the key."""

    name: str


# A field by its name, a member by its place, or what a table has under a key.
Step: TypeAlias = "str | int | Key"
Path: TypeAlias = "tuple[Path, Step] | None"
Place: TypeAlias = tuple[Path, object]


def access_path(path: Path) -> AccessPath:
    """The steps of `path`, first to last."""
    steps: list[Step] = []
    while path is not None:
        path, step = path
        steps.append(step)
    found = AccessPath.root()
    for step in reversed(steps):
        if isinstance(step, Key):
            found = found.map_item(step.name)
        else:
            found = found.attr(step) if isinstance(step, str) else found.array_item(step)
    return found


class _Absent(Enum):
    """What stands where a side has nothing."""

    NOTHING = "nothing"

    @override
    def __str__(self) -> str:
        return self.value


ABSENT = _Absent.NOTHING


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Where two nodes first differ, and what stands there on either side.

    The places are the same unless one side has nothing there.
    """

    place: AccessPath
    other_place: AccessPath
    lhs: object
    rhs: object

    @property
    def path(self) -> str:
        """The way from the two nodes to the difference: `.body.blocks[0]`."""
        return str(self._present).removeprefix("<root>")

    @property
    def _present(self) -> AccessPath:
        return self.other_place if self.lhs is ABSENT else self.place

    @override
    def __str__(self) -> str:
        texts = [_snippet(self.lhs), _snippet(self.rhs)]
        kinds = [type(self.lhs).__name__, type(self.rhs).__name__]
        if texts[0] == texts[1] and kinds[0] != kinds[1]:
            texts = [f"{text} ({kind})" for text, kind in zip(texts, kinds, strict=True)]
        return f"the two differ at {self._present}\n  left:  {texts[0]}\n  right: {texts[1]}"


def _snippet(subject: object, limit: int = 300) -> str:
    text = (
        str(subject)
        if not isinstance(subject, np.ndarray)
        else np.array2string(subject, threshold=8)
    )
    text = "\n         ".join(text.splitlines()[:8])
    return text if len(text) <= limit else text[:limit] + " ..."


class StructuralMismatch(RelaxpyError, ValueError, AssertionError):  # noqa: N818
    """Two nodes that were to be equal are not; the text shows the first difference."""
