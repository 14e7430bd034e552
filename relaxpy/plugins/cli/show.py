"""Errors and warnings as the command line shows them."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, TextIO

from relaxpy.errors import Diagnostic, MisuseError, RelaxpyError, RelaxpyWarning
from relaxpy.support.screen import coloured, takes_colour


class UsageError(MisuseError):
    """An option, a file or a name on the command line is wrong: exit code 2."""


def show_error(error: RelaxpyError, stream: TextIO, where: str) -> None:
    """Write the diagnostics of an error; `where` precedes those without a position, once.

    `error:` after the position is what editors and services find errors by, as those of gcc.
    """
    for found in error.diagnostics:
        diagnostic = replace(found, message=found.message.removeprefix(f"{where}: "))
        show(diagnostic, stream, f"{diagnostic.where or f'{where}: '}error: ")


def _as_json(found: Sequence[tuple[str, Diagnostic]]) -> str:
    """The diagnostics as a JSON list of objects; each has the file in which it was found."""
    return json.dumps([{"file": file, **_fields(d)} for file, d in found], indent=2)


def _fields(diagnostic: Diagnostic) -> dict[str, object]:
    span = diagnostic.span
    position: dict[str, object] = {}
    if span is not None:
        position = {"file": span.file, "line": span.line, "column": span.column}
        position |= {"end_line": span.end_line, "end_column": span.end_column}
    return position | {
        "rule": diagnostic.rule,
        "message": diagnostic.message,
        "notes": diagnostic.notes,
        "hint": diagnostic.hint,
    }


def _as_github(found: Sequence[tuple[str, Diagnostic]]) -> str:
    """The diagnostics as commands of GitHub's workflows, which annotate the lines of a change."""
    lines = []
    for file, diagnostic in found:
        fields = {"file": file}
        if diagnostic.span is not None:
            span = diagnostic.span
            fields = {"file": span.file, "line": str(span.line), "col": str(span.column)}
            fields |= {"endLine": str(span.end_line), "endColumn": str(span.end_column - 1)}
        if diagnostic.rule:
            fields["title"] = diagnostic.rule
        named = ",".join(f"{key}={_escaped(value, ',:')}" for key, value in fields.items())
        hint = f"\nhint: {diagnostic.hint}" if diagnostic.hint else ""
        lines.append(f"::error {named}::{_escaped(diagnostic.message + hint)}")
    return "\n".join(lines)


def _escaped(text: str, more: str = "") -> str:
    """The text with the characters escaped that have a meaning in such commands."""
    return "".join(f"%{ord(c):02X}" if c in f"%\r\n{more}" else c for c in text)


FORMATS: Final[Mapping[str, Callable[[Sequence[tuple[str, Diagnostic]]], str]]] = {
    "json": _as_json,
    "github": _as_github,
}
"""The formats of `check` for machines: from pairs of files and diagnostics to a text."""


def show_os_error(error: OSError) -> None:
    """Write the system's error about a file to standard error."""
    where = f"{error.filename}: " if error.filename else ""
    print(f"relaxpy: error: {where}{error.strerror or error}", file=sys.stderr)


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Name the file in errors of the system that name none, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = path
        raise


def show(diagnostic: Diagnostic, stream: TextIO, where: str) -> None:
    """Write a diagnostic after its position, in colour on a terminal."""
    text = diagnostic.text(where)
    if takes_colour(stream):
        text = coloured(text, [list(diagnostic.styled_texts(where))], stream)
    print(text, file=stream)


@contextmanager
def shown_warnings(stream: TextIO) -> Iterator[None]:
    """Write warnings about programs to `stream` like errors, each with its position."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", RelaxpyWarning)
        ordinary = warnings.showwarning

        def showwarning(message, category, filename, lineno, file=None, line=None):  # type: ignore[no-untyped-def]
            diagnostic = getattr(message, "diagnostic", None)
            if diagnostic is None:
                ordinary(message, category, filename, lineno, file, line)
            else:
                show(diagnostic, stream, f"{diagnostic.where}warning: ")

        warnings.showwarning = showwarning
        yield
