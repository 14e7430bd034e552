"""Golden files: a text, or arrays, looked at once, with which later ones are compared."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from difflib import unified_diff
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np

from relaxpy.errors import unexpected
from relaxpy.ir.core.node import Node
from relaxpy.support.entry import user_facing

VARIABLE: Final = "RELAXPY_UPDATE_GOLDEN"
"""The environment variable with which golden files are written, if it is not empty."""
_MAX_LINES: Final = 200


COMPARED: Final[dict[Path, str]] = {}
"""The files that were compared, with the hash of what was written, if it was.

The pytest plugin takes them after each test.
"""
_EXACT: Final = "biumMUS"
"""The kinds of datatypes whose elements are compared exactly."""
_CLOSE: Final = "fcV"
"""Those that are compared with a tolerance; V are those that NumPy itself does not have."""


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

    Arrays, and tuples of them, are files of NumPy. They have the same shapes, datatypes and
    nesting; floats may differ by `rtol` and `atol` as `assert_allclose` lets them, and all else is
    equal. The file is written instead, with its folders, if `update`, which the environment
    variable RELAXPY_UPDATE_GOLDEN decides unless it is passed.

    Errors:
        AssertionError: the values differ, or there is no file; it has a diff and the `hint`.
        MisuseError (also TypeError): `value` is neither a program, nor a string, nor an array, or
            an array is of objects.
    """
    __tracebackhide__ = True
    file = Path(path)
    COMPARED[file.absolute()] = ""
    updates = bool(os.environ.get(VARIABLE)) if update is None else update
    if is_array(value):
        arrays, text = dict(_leaves(value, "arr")), ""
    elif isinstance(value, (str, Node)):
        arrays, text = {}, (value if isinstance(value, str) else value.script()).rstrip("\n")
    else:
        raise unexpected(value, "expected a program, a string, or arrays")
    if updates:
        content = _npz(arrays) if arrays else f"{text}\n".encode()
        COMPARED[file.absolute()] = hashlib.sha256(content).hexdigest()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        return
    if not file.exists():
        raise AssertionError(f"there is no golden file {file}; {hint}")
    if arrays:
        _compare_arrays(arrays, file, hint, (rtol, atol))
        return
    expected = (
        file.read_bytes().decode(errors="replace").rstrip("\n")
    )  # `read_text` changes carriage returns
    if text != expected:
        names = (str(file), "what the test has")
        old, new = (t.replace("\r", "\\r").split("\n") for t in (expected, text))
        lines = [*unified_diff(old, new, *names, lineterm="")]
        if rest := lines[_MAX_LINES:]:
            lines = [*lines[:_MAX_LINES], f"... and {len(rest)} more lines"]
        raise AssertionError("\n".join(["the text is not the golden one", *lines, hint]))


def is_array(value: object) -> bool:
    """True if a golden value is an array or a tuple of arrays."""
    if isinstance(value, (tuple, list)):
        return bool(value) and all(map(is_array, value))
    return isinstance(value, (np.ndarray, np.generic))


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The arrays in nested tuples, by names that say where each is, as NumPy saves them."""
    if isinstance(value, (tuple, list)):
        for k, item in enumerate(value):
            yield from _leaves(item, f"{name}_{k}")
        return
    array = np.asarray(value)
    if array.dtype.kind not in _EXACT + _CLOSE or issubclass(array.dtype.type, np.void):
        raise unexpected(value, f"expected numbers or strings, not an array of {array.dtype}")
    is_foreign = array.dtype.kind == "V"
    yield (f"{name}_{array.dtype}", array.astype("float32")) if is_foreign else (name, array)


def _npz(arrays: dict[str, Any]) -> bytes:
    """The content of a file of arrays."""
    stream = BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def _compare_arrays(
    arrays: dict[str, Any], file: Path, hint: str, tolerances: tuple[float, float]
) -> None:
    """Compare arrays with those of a file."""
    __tracebackhide__ = True
    try:
        with np.load(file, allow_pickle=False) as saved:
            golden = {name: saved[name] for name in saved.files}
    except (ValueError, OSError, AttributeError, TypeError):
        raise AssertionError(f"{file} has no arrays; {hint}") from None
    if [*arrays] != [*golden]:
        raise AssertionError(f"found {', '.join(arrays)}, expected {', '.join(golden)}; {hint}")
    for name, array in arrays.items():
        expected = golden[name]
        for what, mine, theirs in (
            ("datatype", _kind(array), _kind(expected)),
            ("shape", array.shape, expected.shape),
        ):
            if mine != theirs:
                problem = f"{name} of the test has {what} {mine}, expected {theirs}"
                raise AssertionError(f"{problem}; {hint}")
        try:
            if array.dtype.kind in _EXACT:
                np.testing.assert_array_equal(array, expected, err_msg=name)
            else:
                np.testing.assert_allclose(array, expected, *tolerances, err_msg=name)
        except AssertionError as error:
            raise AssertionError(f"{str(error).strip()}\n{hint}") from None


def _kind(array: Any) -> str:
    """The datatype of an array, where the longest of its strings does not count."""
    return "str" if array.dtype.kind == "U" else "bytes" if array.dtype.kind == "S" else array.dtype
