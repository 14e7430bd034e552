"""Diagnostics on the screen: coloured by rich on a terminal, plain text elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from relaxpy.errors import Diagnostic, RelaxpyError, RelaxpyWarning
from relaxpy.screen import coloured, takes_colour


def show_diagnostics(
    found: RelaxpyError | RelaxpyWarning | Diagnostic | Iterable[Diagnostic],
) -> None:
    """Print what is wrong with a program to standard error.

    `found` is an error, a warning, or what `check_well_formed` gives.
    """
    in_colour = takes_colour(sys.stderr)
    for diagnostic in _all(found):
        text = str(diagnostic)
        if in_colour:
            text = coloured(text, [list(diagnostic.styled_texts(diagnostic.where))], sys.stderr)
        print(text, file=sys.stderr)


def _all(
    found: RelaxpyError | RelaxpyWarning | Diagnostic | Iterable[Diagnostic],
) -> Iterable[Diagnostic]:
    match found:
        case RelaxpyError():
            return found.diagnostics
        case RelaxpyWarning():
            return [found.diagnostic or Diagnostic(str(found))]
        case Diagnostic():
            return [found]
        case _:
            return found
