"""From docstrings to pages: what the tools that write documents have in common."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

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
    """The first line of a docstring."""
    return sections(doc)[""].partition("\n")[0]


def entries(text: str) -> Iterator[str]:
    """The entries of a section; indented lines continue an entry."""
    entry: list[str] = []
    for line in text.splitlines():
        if entry and not line.startswith(" "):
            yield " ".join(entry)
            entry = []
        entry.append(line.strip() if entry else line.rstrip())
    if entry:
        yield " ".join(entry)


def restructured(doc: str) -> str:
    """A docstring as reStructuredText; its sections become lists."""
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
    """Plain text as reStructuredText; indented paragraphs are shown as they are."""
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
    """Text as reStructuredText, with code between backticks as code."""
    pieces = re.split(r"`([^`]*)`", text)
    for k, piece in enumerate(pieces):
        if k % 2:
            pieces[k] = f"``{piece}``\\ " if piece.strip() else piece
        else:
            pieces[k] = re.sub(r"([\\*_|<>])", r"\\\1", piece)
    return "".join(pieces)


def toctree(pages: list[str]) -> str:
    """The directive that puts pages of the site below the one that has it."""
    return "\n```{toctree}\n:hidden:\n\n" + "\n".join(pages) + "\n```\n"


def written_or_checked(
    page: Path, text: Callable[[], str], pages: Callable[[], Iterator[tuple[str, str]]]
) -> int:
    """Write the page of a tool; with `--check`, return whether it is outdated instead.

    With `--pages FOLDER`, write the pages of the site.
    """
    match sys.argv[1:]:
        case ["--check"]:
            return int(not page.exists() or page.read_text(encoding="utf-8") != text())
        case ["--pages", folder]:
            for name, content in pages():
                file = Path(folder) / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(content, encoding="utf-8")
            return 0
    page.write_text(text(), encoding="utf-8")
    return 0
