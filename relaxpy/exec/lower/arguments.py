"""Decorates generated functions so that they check their arguments."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any

from relaxpy.exec import python_ast as py
from relaxpy.exec.kernel.text import load_text
from relaxpy.exec.runtime.settings import silent_context
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class CheckedFunction:
    """The quick check of the arguments of a function; the full check reports errors.

    The function has these `params`, and calls only kernels, so that NumPy's warnings can be
    suppressed. The `names` are those of the function itself and of a new context in the source of
    the check.
    """

    params: tuple[str, ...]
    checks: tuple[ast.stmt, ...]
    names: tuple[str, str]

    def checked(self, work: FunctionType) -> Callable[..., Any]:
        """The function `work` with the check of its arguments."""
        function, context = self.names
        run = py.call(py.attribute(py.call(context), "run"), function, *self.params)
        name = work.__name__
        checked = py.function(name, self.params, [*self.checks, ast.Return(run)])
        names = {**work.__globals__, function: work, context: silent_context}
        loaded: Callable[..., Any] = load_text([checked], f"arguments of {name}", names)[1][name]
        return wraps(work)(loaded)
