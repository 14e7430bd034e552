"""The result of a call, on the screen and in files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from relaxpy.plugins.cli.usage import UsageError


def print_value(value: object, name: str = "") -> None:
    """Print a value, an array below its datatype and shape; the fields of a tuple one by one."""
    for field, leaf in _leaves(value, name):
        title = f"{field}: " if field else ""
        if isinstance(leaf, np.ndarray):
            print(f"{title}{leaf.dtype.name} {leaf.shape}\n{leaf}")
        else:
            print(f"{title}{leaf!r}")


def save_value(value: object, path: str) -> None:
    """Write an array to a .npy file, or all arrays of a tuple to a .npz file.

    The names in it are `0`, `1`, and `1.0` for the first field of a tuple in a tuple.

    Errors:
        UsageError: the name of the file has another ending, or there are values without a file.
    """
    leaves: dict[str, Any] = dict(_leaves(value, ""))
    for name, leaf in leaves.items():
        if not isinstance(leaf, (np.ndarray, np.generic, int, float)):
            field = f"field {name} of the result" if name else "the result"
            raise UsageError(f"{field} is a {type(leaf).__name__}, for which there is no file")
    if path.endswith(".npz"):
        # A file object, since a path could not have every name of an array.
        with open(path, "wb") as file:
            np.savez(file, **{name or "0": leaf for name, leaf in leaves.items()})
    elif path.endswith(".npy") and leaves.keys() == {""}:
        with open(path, "wb") as file:
            np.save(file, leaves[""])
    else:
        expected = ".npy or .npz" if leaves.keys() == {""} else ".npz"
        raise UsageError(f"the result is written to a {expected} file, found {path!r:.60}")


def _leaves(value: object, name: str) -> Iterator[tuple[str, object]]:
    """The values in nested tuples, with the path of each."""
    if type(value) is tuple:
        for index, field in enumerate(value):
            yield from _leaves(field, f"{name}.{index}" if name else str(index))
    else:
        yield name, value
