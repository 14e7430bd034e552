"""Errors and warnings as the command line shows them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from relaxpy.errors import Diagnostic, RelaxpyError, RelaxpyWarning
from relaxpy.screen import coloured, takes_colour


def show_error(error: RelaxpyError, stream: TextIO, where: str) -> None:
    """Write the diagnostics of an error; `where` precedes those without a position."""
    for diagnostic in error.diagnostics:
        show(diagnostic, stream, diagnostic.where or f"{where}: ")


def show_os_error(error: OSError) -> None:
    """Write what the system says of a file to standard error."""
    where = f": {error.filename}" if error.filename else ""
    print(f"relaxpy{where}: {error.strerror or error}", file=sys.stderr)


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
