"""NumPy's floating-point warnings, suppressed while kernels run."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from functools import wraps
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

_silent = Context()
_silent.run(np.seterr, all="ignore")
silent_context = _silent.copy
"""A new context with NumPy's warnings suppressed."""


def without_warnings(function: Callable[..., T]) -> Callable[..., T]:
    """Decorate `function` so that NumPy does not warn of overflow, division by zero and NaN.

    It takes positional arguments only. It must not call users' code, which would not see its
    context variables. Entering a copy of a context takes a third of the time of entering
    `numpy.errstate`.
    """

    @wraps(function)
    def silent(*args: Any) -> T:
        return silent_context().run(function, *args)

    return silent
