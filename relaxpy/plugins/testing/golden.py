"""Golden files: a text, or arrays, looked at once, with which later ones are compared."""

from __future__ import annotations

import os
from difflib import unified_diff
from pathlib import Path
from typing import Any, Final

import numpy as np

from relaxpy.errors import counted, unexpected
from relaxpy.ir.core.node import Node
from relaxpy.support.entry import user_facing

VARIABLE: Final = "RELAXPY_UPDATE_GOLDEN"
"""The environment variable with which golden files are written, if it is not empty."""
_MAX_LINES: Final = 200


COMPARED: Final[set[Path]] = set()
"""The files that were compared or written, which the pytest plugin takes after each test."""


@user_facing
def assert_golden(
    value: object,
    path: str | os.PathLike[str],
    *,
    update: bool | None = None,
    hint: str = f"to accept it, run the tests with {VARIABLE}=1",
    rtol: float = 1e-5,
    atol: float = 0.0,
) -> None:
    """Assert that the text of a program, a string, or an array is that of the file `path`.

    Arrays, and tuples of them, are files of NumPy, and may differ by `rtol` and `atol` as
    `assert_allclose` lets them. The file is written instead, with its folders, if `update`, which
    the environment variable RELAXPY_UPDATE_GOLDEN decides unless it is passed.

    Errors:
        AssertionError: the values differ, or there is no file; it has a diff and the `hint`.
        MisuseError (also TypeError): `value` is neither a program, nor a string, nor an array.
    """
    __tracebackhide__ = True
    file = Path(path)
    COMPARED.add(file.absolute())
    updates = bool(os.environ.get(VARIABLE)) if update is None else update
    if not updates and not file.exists():
        raise AssertionError(f"there is no golden file {file}; {hint}")
    if updates:
        file.parent.mkdir(parents=True, exist_ok=True)
    if is_array(value):
        _assert_arrays(value, file, updates, hint, (rtol, atol))
        return
    if not isinstance(value, (str, Node)):
        raise unexpected(value, "expected a program, a string, or arrays")
    text = value if isinstance(value, str) else value.script()
    if updates:
        file.write_text(text.rstrip("\n") + "\n", encoding="utf-8", newline="\n")
        return
    expected = file.read_text(encoding="utf-8")
    if text.rstrip("\n") != expected.rstrip("\n"):
        names = (str(file), "what the test has")
        lines = [*unified_diff(expected.splitlines(), text.splitlines(), *names, lineterm="")]
        if rest := lines[_MAX_LINES:]:
            lines = [*lines[:_MAX_LINES], f"... and {len(rest)} more lines"]
        raise AssertionError("\n".join(["the text is not the golden one", *lines, hint]))


def is_array(value: object) -> bool:
    """True if a golden value is an array or a tuple of arrays."""
    if isinstance(value, (tuple, list)):
        return bool(value) and all(map(is_array, value))
    return isinstance(value, (np.ndarray, np.generic))


def _assert_arrays(
    value: object, file: Path, updates: bool, hint: str, tolerances: tuple[float, float]
) -> None:
    """Compare arrays with those of a file, or write it; what NumPy does not have is float32."""
    __tracebackhide__ = True
    arrays = [_saved(a) for a in (value if isinstance(value, (tuple, list)) else (value,))]
    if updates:
        with file.open("wb") as stream:
            np.savez(stream, *arrays)
        return
    try:
        with np.load(file, allow_pickle=False) as saved:
            expected = [saved[name] for name in saved.files]
    except (ValueError, OSError, AttributeError, TypeError):
        raise AssertionError(f"{file} has no arrays; {hint}") from None
    if len(arrays) != len(expected):
        found = f"found {counted(len(arrays), 'array')}, expected {len(expected)}"
        raise AssertionError(f"{found}; {hint}")
    for number, (array, golden) in enumerate(zip(arrays, expected, strict=True)):
        name = f"array {number} of the test"
        if array.dtype != golden.dtype:
            problem = f"{name} has datatype {array.dtype}, expected {golden.dtype}"
            raise AssertionError(f"{problem}; {hint}")
        try:
            np.testing.assert_allclose(array, golden, *tolerances, err_msg=name)
        except AssertionError as error:
            raise AssertionError(f"{str(error).strip()}\n{hint}") from None


def _saved(array: Any) -> Any:
    """An array in a datatype of NumPy itself."""
    array = np.asarray(array)
    return array.astype("float32") if array.dtype.kind == "V" else array
