"""What was written for a kernel, put together as one function or as two."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from relaxpy.exec.python_ast import call, docstring, function, path, text
from relaxpy.ir.tir.expr import Var


@dataclass(frozen=True, slots=True, eq=False)
class Unchecked:
    """The work of a kernel by itself, for callers that know that the arguments fit.

    `tree` takes the parameters, and then `sizes`: 64-bit integers, as its scalar parameters are.
    What it writes must share memory with no other argument. Where it `may_warn`, the caller
    suppresses NumPy's warnings. `entry` checks the arguments and calls it.
    """

    name: str
    sizes: tuple[Var, ...]
    may_warn: bool
    tree: ast.FunctionDef
    entry: ast.FunctionDef


@dataclass(frozen=True, slots=True, eq=False)
class Emitted:
    """The statements of a kernel: the checks of its arguments, and the work that follows them.

    `sizes` are read from the shapes of arguments, under the names in `size_names`; None where the
    work needs more than these. A kernel that `calls_out` runs code of users.
    """

    name: str
    summary: str
    params: list[str]
    checks: list[ast.stmt]
    work: list[ast.stmt]
    may_warn: bool
    size_names: dict[Var, str] | None
    calls_out: bool = False

    def whole(self) -> ast.FunctionDef:
        """One function that checks and works."""
        return self._entry(self.work)

    def unchecked(self, name: str) -> Unchecked | None:
        """The work as a function `name` of its own, where that is possible."""
        if self.size_names is None or self.calls_out:
            return None
        used = {n.id for line in self.work for n in ast.walk(line) if isinstance(n, ast.Name)}
        sizes = {var: found for var, found in self.size_names.items() if found in used}
        params = [*self.params, *sizes.values()]
        summary = docstring(f"{self.summary} of arguments that are known to fit")
        tree = function(name, params, [summary, *self.work], [])
        entry = self._entry([ast.Return(call(name, *params))])
        return Unchecked(name, tuple(sizes), self.may_warn, tree, entry)

    def _entry(self, work: list[ast.stmt]) -> ast.FunctionDef:
        # Overflow, division by zero and NaN are values of the program, not warnings.
        silent = (
            call("np.errstate", all=text("ignore"))
            if self.calls_out
            else path("rt.without_warnings")
        )
        without_warnings = [silent] if self.may_warn else []
        body = [docstring(self.summary), *self.checks, *work]
        return function(self.name, self.params, body, without_warnings)
