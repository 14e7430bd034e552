"""Names of other systems as names of Relax variables."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable

_NOT_IN_NAMES = re.compile(r"\W+", re.ASCII)


def identifier(name: str, prefix: str = "v") -> str:
    """`name` as an identifier of Python: other characters become underscores."""
    text = _NOT_IN_NAMES.sub("_", name).strip("_") or prefix
    if text[0].isdigit() or keyword.iskeyword(text):
        text = f"{prefix}_{text}"
    return text


class Names:
    """Distinct names: each name that is asked for again has a number."""

    def __init__(self, make: Callable[[str], str]) -> None:
        self._make = make
        self._taken: set[str] = set()

    def new(self, name: str) -> str:
        """A name that was not given out before, made of `name`."""
        base = made = self._make(name)
        count = 0
        while made in self._taken:
            count += 1
            made = f"{base}_{count}"
        self._taken.add(made)
        return made
