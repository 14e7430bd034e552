"""Diagnostics on the screen: coloured by rich on a terminal, plain text elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from relaxpy.errors import Diagnostic, RelaxpyError, RelaxpyWarning, unexpected
from relaxpy.support.entry import user_facing
from relaxpy.support.screen import coloured, takes_colour


@user_facing
def show_diagnostics(
    problem: RelaxpyError | RelaxpyWarning | Diagnostic | Iterable[Diagnostic],
) -> None:
    """Print what is wrong with a program to standard error.

    `problem` is an error, a warning, or the result of `check_well_formed`.
    """
    in_colour = takes_colour(sys.stderr)
    for diagnostic in _diagnostics_of(problem):
        text = str(diagnostic)
        if in_colour:
            text = coloured(text, [list(diagnostic.styled_texts(diagnostic.where))], sys.stderr)
        print(text, file=sys.stderr)


def _diagnostics_of(problem: object) -> Sequence[Diagnostic]:
    match problem:
        case RelaxpyError():
            return problem.diagnostics
        case RelaxpyWarning():
            return [problem.diagnostic or Diagnostic(str(problem))]
        case Diagnostic():
            return [problem]
        case Iterable():
            diagnostics = list(problem)
            if all(isinstance(item, Diagnostic) for item in diagnostics):
                return diagnostics
        case _:
            pass
    raise unexpected(problem, "expected an error or diagnostics")
