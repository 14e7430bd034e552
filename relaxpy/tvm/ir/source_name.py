"""Sources that have a name and no content."""

from __future__ import annotations

from dataclasses import field

from relaxpy.errors import Source
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class SourceName(Source):
    """The source of spans that are built by hand, without a program."""

    text: str = field(default="", repr=False)
