"""Diagnostics on the screen: coloured by rich on a terminal, plain text elsewhere."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from typing import Any

from relaxpy.errors import Diagnostic, RelaxpyError, RelaxpyWarning

_STYLES = {"note": "cyan", "hint": "green"}


def show_diagnostics(
    found: RelaxpyError | RelaxpyWarning | Diagnostic | Iterable[Diagnostic],
) -> None:
    """Print what is wrong with a program to standard error.

    `found` is an error, a warning, or what `check_well_formed` gives.
    """
    diagnostics = _all(found)
    if not sys.stderr.isatty():
        for diagnostic in diagnostics:
            print(diagnostic, file=sys.stderr)
        return
    # Only here is there a screen to colour, and rich takes long to load.
    console = importlib.import_module("rich.console").Console(stderr=True)
    for diagnostic in diagnostics:
        console.print(coloured(diagnostic), soft_wrap=True)


def _all(
    found: RelaxpyError | RelaxpyWarning | Diagnostic | Iterable[Diagnostic],
) -> list[Diagnostic]:
    match found:
        case RelaxpyError():
            return list(found.diagnostics)
        case RelaxpyWarning():
            return [found.diagnostic] if found.diagnostic else [Diagnostic(str(found))]
        case Diagnostic():
            return [found]
        case _:
            return list(found)


def coloured(diagnostic: Diagnostic) -> Any:
    """The text of `diagnostic` as a `rich.text.Text`."""
    text = importlib.import_module("rich.text").Text()
    if diagnostic.span is not None:
        text.append(f"{diagnostic.span}: ", "bold")
    text.append(diagnostic.message, "bold red")
    if diagnostic.rule:
        text.append(f" [{diagnostic.rule}]", "magenta")
    excerpt = diagnostic.excerpt()
    if excerpt is not None:
        line, carets = excerpt
        text.append(f"\n    {line}\n    ").append(carets, "bold red")
    for note in diagnostic.notes:
        text.append("\n  note: ", _STYLES["note"]).append(note)
    if diagnostic.hint:
        text.append("\n  hint: ", _STYLES["hint"]).append(diagnostic.hint)
    return text
