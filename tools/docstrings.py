"""From docstrings to Markdown: what the pages of operators and of passes have in common."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

SECTION = re.compile(r"^(Shapes|Units|Errors|Rule):$", re.MULTILINE)


def escaped(text: str) -> str:
    """Escape plain text for Markdown; code between backticks is kept."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(
        piece.replace("|", "\\|")
        if piece.startswith("`")
        else re.sub(r"([\\*_|<>\[\]])", r"\\\1", piece)
        for piece in pieces
    )


def sections(doc: str) -> dict[str, str]:
    """Split a docstring into its sections by name; the text before them has the empty name."""
    first, *rest = SECTION.split(inspect.cleandoc(doc))
    return {"": first.strip()} | {
        name: inspect.cleandoc(f"\n{text}")
        for name, text in zip(rest[::2], rest[1::2], strict=True)
    }


def sentence(doc: str) -> str:
    """Return the first line of a docstring."""
    return sections(doc)[""].partition("\n")[0]


def entries(text: str) -> Iterator[str]:
    """Yield the entries of a section; indented lines continue an entry."""
    entry: list[str] = []
    for line in text.splitlines():
        if entry and not line.startswith(" "):
            yield " ".join(entry)
            entry = []
        entry.append(line.strip() if entry else line.rstrip())
    if entry:
        yield " ".join(entry)
