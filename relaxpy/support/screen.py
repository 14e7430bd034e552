"""Output on a terminal or in a notebook: detection of colours, coloured text, tables."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, TextIO, TypeAlias

from typing_extensions import override

from relaxpy.support.dataclass import dataclass

_ESCAPES = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"}
)  # as `html.escape` has them, whose module takes a millisecond to import
#: A section of a text and its style, as rich names styles.
StyledText: TypeAlias = tuple[str, str]


def ipython() -> Any:
    """The IPython or notebook shell that runs this program, or None."""
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def takes_colour(stream: TextIO | None) -> bool:
    """True if `stream` is a terminal on which colours are not disabled."""
    if stream is None or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # an object without `isatty`, or a closed stream
        return False


def coloured(text: str, styled: Iterable[Sequence[StyledText]], stream: TextIO) -> str:
    """`text` with the escape codes of a terminal for the sections in `styled`."""
    # Imported here, since rich takes long to load and is needed on a terminal only.
    from rich.console import Console
    from rich.text import Text

    styled_text = Text()
    rest = text
    for sections in styled:
        plain = "".join(section for section, _ in sections)
        before, match, after = rest.partition(plain) if plain else (rest, "", "")
        if match:
            styled_text.append(before)
            for section, style in sections:
                styled_text.append(section, style)
            rest = after
    # A notebook reads the codes of terminals in errors.
    console = Console(file=stream, force_terminal=True, force_jupyter=False)
    with console.capture() as capture:
        console.print(styled_text.append(rest), soft_wrap=True, end="")
    return capture.get()


@dataclass(frozen=True, slots=True)
class Table:
    """A table as plain text and HTML; the first `text_columns` are text, the others numbers.

    A rule separates the last `totals` rows.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text_columns: int
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
            cell.ljust(width) if column < self.text_columns else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return "  ".join(padded).rstrip()

    def html(self) -> str:
        """The table as HTML without style sheets of its own."""
        head = self._html_row(self.header, "th")
        body_length = len(self.rows) - self.totals
        body = "".join(self._html_row(row, "td") for row in self.rows[:body_length])
        foot = "".join(self._html_row(row, "th") for row in self.rows[body_length:])
        tail = f"<tfoot>{foot}</tfoot>" if foot else ""
        return f"<table><thead>{head}</thead><tbody>{body}</tbody>{tail}</table>"

    def _html_row(self, row: Sequence[str], tag: str) -> str:
        sides = ("left" if column < self.text_columns else "right" for column in range(len(row)))
        cells = (
            f'<{tag} style="text-align: {side}">{_html_cell(cell)}</{tag}>'
            for side, cell in zip(sides, row, strict=True)
        )
        return f"<tr>{''.join(cells)}</tr>"


def _html_cell(cell: str) -> str:
    """A cell whose indentation browsers keep."""
    text = cell.lstrip(" ")
    return "&nbsp;" * (len(cell) - len(text)) + text.translate(_ESCAPES)


def program_html(code: str) -> str:
    """Lines of a program, which are HTML already, in a monospaced font.

    The style sheets of exported notebooks give outputs a proportional one.
    """
    return f'<pre style="font-family: monospace; line-height: 1.3">{code}</pre>'


class ShownAsTable(ABC):
    """An object that `str`, an interactive prompt and a notebook show as its `_table`."""

    __slots__ = ()

    @property
    @abstractmethod
    def _table(self) -> Table: ...

    @override
    def __str__(self) -> str:
        return str(self._table)

    @override
    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return self._table.html()
