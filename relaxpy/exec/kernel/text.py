"""The source of generated definitions, and their functions."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from relaxpy.errors import CompileError
from relaxpy.support.pysource import load, render, spans_by_line


def load_text(
    definitions: Sequence[ast.stmt], stem: str, names: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """The source of generated definitions, and `names` with those that it defines.

    Errors:
        CompileError: blocks nest deeper than in Python.
    """
    tree = ast.Module([*definitions], [])
    text = render(tree)
    try:
        return text, load(text, stem, dict(names), spans_by_line(tree, text))
    except IndentationError:
        raise CompileError(
            "branches and local functions nest deeper than Python's 100 levels of indentation",
            hint="move inner functions or branches to functions of the module",
        ) from None
    except SyntaxError as error:  # Python limits the nesting of blocks
        raise CompileError(
            f"the loops of a kernel nest deeper than Python does: {error.msg}",
            hint='fuse loops, or use target="reference"',
        ) from None
