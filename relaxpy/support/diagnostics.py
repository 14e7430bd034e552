"""Positions in a program, and diagnostics at them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import field
from typing import Final

from typing_extensions import override

from relaxpy.support.dataclass import dataclass
from relaxpy.support.screen import StyledText

#: The maximal lengths of a message, of a word in it, and of the source line quoted below it.
MAX_MESSAGE: Final = 8_000
MAX_WORD: Final = 200
MAX_LINE: Final = 160
_LONG_WORD: Final = re.compile(rf"\S{{{MAX_WORD + 1},}}")


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """The text of a program; `first_line` is the number of its first line in the file."""

    name: str
    text: str = field(repr=False)
    first_line: int = 1
    _lines: list[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_lines", re.split(r"\r\n|\r|\n", self.text))

    def line(self, number: int) -> str:
        """Line `number` of the file without its line break; empty if it does not exist."""
        index = number - self.first_line
        return self._lines[index] if 0 <= index < len(self._lines) else ""


@dataclass(frozen=True, slots=True)
class Span:
    """A range of a source: lines and character columns from 1, `end_column` exclusive."""

    source: Source
    line: int
    column: int
    end_line: int
    end_column: int

    @property
    def file(self) -> str:
        """The name of the file, or of another source."""
        return self.source.name

    def covers(self, other: Span) -> bool:
        """True if this span contains `other`."""
        return (
            self.file == other.file
            and (self.line, self.column) <= (other.line, other.column)
            and (other.end_line, other.end_column) <= (self.end_line, self.end_column)
        )

    @override
    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


def _cells(text: str) -> str:
    """Blanks as wide as `text` is on a terminal; tabs stay, wide characters count as two."""
    out = []
    for char in text:
        if char == "\t":
            out.append("\t")
        elif unicodedata.category(char) in ("Mn", "Me", "Cf"):
            continue
        else:
            out.append("  " if unicodedata.east_asian_width(char) in "WF" else " ")
    return "".join(out)


def clipped(text: str) -> str:
    """Shorten long words of `text` in the middle, and cut a text that is too long."""
    if len(text) <= MAX_WORD:
        return text
    text = _LONG_WORD.sub(lambda word: f"{word[0][:80]}…{word[0][-20:]}", text)
    rest = len(text) - MAX_MESSAGE
    return text if rest <= 0 else f"{text[:MAX_MESSAGE]}… ({rest} more characters)"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One error in a program: the rule, the position, the message, and a hint for a correction.

    All texts are clipped, since the names, strings and numbers of a program that they quote may be
    megabytes long.
    """

    message: str
    rule: str | None = None
    span: Span | None = None
    hint: str | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", clipped(self.message))
        object.__setattr__(self, "hint", self.hint and clipped(self.hint))
        object.__setattr__(self, "notes", tuple(map(clipped, self.notes)))

    @property
    def where(self) -> str:
        """The prefix of the message with the position; empty if there is no position."""
        return "" if self.span is None else f"{self.span}: "

    def excerpt(self) -> tuple[str, str] | None:
        """The source line and the line of carets below it; None if there is no position.

        A long line is cut to the text around the first caret.
        """
        span = self.span
        if span is None:
            return None
        text = span.source.line(span.line)
        if not text.strip():
            return None
        start = span.column - 1
        end = span.end_column - 1 if span.end_line == span.line else len(text)
        if len(text) > MAX_LINE:
            first = max(0, min(start - MAX_LINE // 2, len(text) - MAX_LINE))
            last = first + MAX_LINE
            before, after = "…" if first else "", "…" if last < len(text) else ""
            text = before + text[first:last] + after
            moved = len(before) - first
            start, end = start + moved, min(end, last) + moved
        width = max(1, len(_cells(text[start:end].rstrip())))
        return text, _cells(text[:start]) + "^" * width

    @override
    def __str__(self) -> str:
        return self.text(self.where)

    def text(self, where: str) -> str:
        """The position `where`, the message, the excerpt, the notes and the hint."""
        return "".join(text for text, _ in self.styled_texts(where))

    def styled_texts(self, where: str) -> Iterator[StyledText]:
        """The consecutive sections of that text with their styles."""
        yield where, "bold"
        yield self.message, "bold red"
        if self.rule:
            yield f" [{self.rule}]", "magenta"
        excerpt = self.excerpt()
        if excerpt is not None:
            line, carets = excerpt
            yield f"\n    {line}\n    ", ""
            yield carets, "bold red"
        for note in self.notes:
            yield "\n  note: ", "cyan"
            yield note, ""
        if self.hint:
            yield "\n  hint: ", "green"
            yield self.hint, ""
