"""Where a text is shown, in a notebook, on a terminal that takes colours, or plainly; tables."""

from __future__ import annotations

import html
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO, TypeAlias

from typing_extensions import override

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


@dataclass(frozen=True, slots=True)
class Table:
    """A table as plain text and as HTML; the columns after the first `words` are numbers.

    The last `totals` rows stand below a rule.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int
    totals: int = 0

    @override
    def __str__(self) -> str:
        cells = [self.header, *self.rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [self._line(row, widths) for row in cells]
        rule = "  ".join("-" * width for width in widths)
        lines.insert(1, rule)
        if self.totals:
            lines.insert(-self.totals, rule)
        return "\n".join(lines)

    def _line(self, row: Sequence[str], widths: Sequence[int]) -> str:
        padded = [
            cell.ljust(width) if column < self.words else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return "  ".join(padded).rstrip()

    def html(self) -> str:
        """The table as HTML, complete in itself and in the colours of the page."""
        head = self._html_row(self.header, "th")
        body = "".join(self._html_row(row, "td") for row in self.rows[: self._shown])
        foot = "".join(self._html_row(row, "th") for row in self.rows[self._shown :])
        tail = f"<tfoot>{foot}</tfoot>" if foot else ""
        return f"<table><thead>{head}</thead><tbody>{body}</tbody>{tail}</table>"

    @property
    def _shown(self) -> int:
        return len(self.rows) - self.totals

    def _html_row(self, row: Sequence[str], tag: str) -> str:
        sides = ("left" if column < self.words else "right" for column in range(len(row)))
        cells = (
            f'<{tag} style="text-align: {side}">{html.escape(cell)}</{tag}>'
            for side, cell in zip(sides, row, strict=True)
        )
        return f"<tr>{''.join(cells)}</tr>"
