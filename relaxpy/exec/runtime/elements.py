"""The check of the elements of a tensor, which importers call."""

from __future__ import annotations

from typing import Final

import numpy as np

from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.runtime.registry import provided
from relaxpy.exec.runtime.values import Array

CHECK: Final = "relaxpy.check_elements"
"""The packed function that checks the elements of a tensor."""


@provided(CHECK, pure=True)
def check_elements(name: str, x: Array, least: float, most: float) -> Array:
    """The tensor, all of whose elements are from `least` to `most`.

    Errors:
        RuntimeCheckError: one is not.
    """
    problem = outside(name, x, least, most)
    if problem:
        raise RuntimeCheckError(problem)
    return x


def outside(name: str, x: Array, least: float, most: float) -> str:
    """The error of an element that is not in [`least`, `most`]; "" if all are."""
    array = np.asarray(x)
    wrong = array[~((array >= least) & (array <= most))]
    if not wrong.size:
        return ""
    expected = f"at least {least}" if most == np.iinfo(np.int64).max else f"{least} to {most}"
    return f"{name} is {wrong.flat[0]}, expected {expected}"
