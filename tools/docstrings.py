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


def restructured(doc: str) -> str:
    """Return a docstring as reStructuredText; its sections become lists."""
    parsed = sections(doc)
    out = [_paragraphs(parsed.pop(""))]
    for name, text in parsed.items():
        if name == "Rule":
            out.append(f"Rule: {_inline(text)}")
        else:
            out.append(f"{name}:")
            out.append("\n".join(f"- {_inline(' '.join(e.split()))}" for e in entries(text)))
    return "\n\n".join(out) + "\n"


def _paragraphs(text: str) -> str:
    """Return plain text as reStructuredText; indented paragraphs are shown as they are."""
    out: list[str] = []
    for paragraph in re.split(r"\n{2,}", text):
        if paragraph.startswith(">>> "):
            out.append(paragraph)
        elif paragraph.startswith(" "):
            out.append(f"::\n\n{paragraph}")
        else:
            out.append(_inline(paragraph))
    return "\n\n".join(out)


def _inline(text: str) -> str:
    """Return text as reStructuredText, with code between backticks as code."""
    pieces = re.split(r"`([^`]*)`", text)
    for k, piece in enumerate(pieces):
        if k % 2:
            pieces[k] = f"``{piece}``\\ " if piece.strip() else piece
        else:
            pieces[k] = re.sub(r"([\\*_|<>])", r"\\\1", piece)
    return "".join(pieces)
