"""Sources that have a name and no text."""

from __future__ import annotations

from dataclasses import field

from relaxpy.dataclass import dataclass
from relaxpy.errors import Source


@dataclass(frozen=True, slots=True, eq=False)
class SourceName(Source):
    """The source of spans that are built by hand, without a program text."""

    text: str = field(default="", repr=False)
