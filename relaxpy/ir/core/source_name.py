"""Sources that only have a name."""

from __future__ import annotations

from dataclasses import dataclass, field

from relaxpy.errors import Source


@dataclass(frozen=True, slots=True, eq=False)
class SourceName(Source):
    """The source of positions that are made by hand: a name without the text behind it."""

    text: str = field(default="", repr=False)
