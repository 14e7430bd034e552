"""Where a text is shown: in a notebook, on a terminal that takes colours, or plainly."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO, TypeAlias

#: A part of a text and its style, in the words of rich.
Piece: TypeAlias = tuple[str, str]


def ipython() -> Any:
    """The shell of IPython or of a notebook that runs this program, or None."""
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def takes_colour(stream: TextIO | None) -> bool:
    """Whether `stream` is a terminal, and nobody asked for no colours on it."""
    if stream is None or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # what stands in for a stream, or a closed one
        return False


def coloured(text: str, marked: Iterable[Sequence[Piece]], stream: TextIO) -> str:
    """`text` as the terminal `stream` shows it: its stretches that `marked` has are in colour."""
    # Only here is there a screen to colour, and rich takes long to load.
    from rich.console import Console
    from rich.text import Text

    shown = Text()
    rest = text
    for pieces in marked:
        wanted = "".join(part for part, _ in pieces)
        before, found, after = rest.partition(wanted) if wanted else (rest, "", "")
        if found:
            shown.append(before)
            for part, style in pieces:
                shown.append(part, style)
            rest = after
    console = Console(file=stream)
    with console.capture() as capture:
        console.print(shown.append(rest), soft_wrap=True, end="")
    return capture.get()
