"""Golden files: a text that was looked at once, with which later ones are compared."""

from __future__ import annotations

import os
from difflib import unified_diff
from pathlib import Path
from typing import Final

from relaxpy.entry import user_facing
from relaxpy.errors import unexpected
from relaxpy.ir.core.node import Node

VARIABLE: Final = "RELAXPY_UPDATE_GOLDEN"
"""The environment variable with which golden files are written, if it is not empty."""
_MAX_LINES: Final = 200


@user_facing
def assert_golden(
    value: object,
    path: str | os.PathLike[str],
    *,
    update: bool | None = None,
    hint: str = f"to accept it, run the tests with {VARIABLE}=1",
) -> None:
    """Assert that the text of a program, or a string, is that of the file `path`.

    The file is written instead, with its folders, if `update`, which the environment variable
    RELAXPY_UPDATE_GOLDEN decides unless it is passed.

    Errors:
        AssertionError: the texts differ, or there is no file; it has a diff and the `hint`.
        MisuseError (also TypeError): `value` is neither a program nor a string.
    """
    __tracebackhide__ = True
    if not isinstance(value, (str, Node)):
        raise unexpected(value, "expected a program or a string")
    text = value if isinstance(value, str) else value.script()
    file = Path(path)
    if bool(os.environ.get(VARIABLE)) if update is None else update:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.rstrip("\n") + "\n", encoding="utf-8", newline="\n")
        return
    if not file.exists():
        raise AssertionError(f"there is no golden file {file}; {hint}")
    expected = file.read_text(encoding="utf-8")
    if text.rstrip("\n") != expected.rstrip("\n"):
        names = (str(file), "what the test has")
        lines = [*unified_diff(expected.splitlines(), text.splitlines(), *names, lineterm="")]
        if rest := lines[_MAX_LINES:]:
            lines = [*lines[:_MAX_LINES], f"... and {len(rest)} more lines"]
        raise AssertionError("\n".join(["the text is not the golden one", *lines, hint]))
