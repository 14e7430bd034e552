"""The emitted statements of a kernel, assembled as one function or as two."""

from __future__ import annotations

import ast

from relaxpy.dataclass import dataclass
from relaxpy.exec.python_ast import call, docstring, function, nodes_in, path, text
from relaxpy.ir.tir.expr import Var


@dataclass(frozen=True, slots=True, eq=False)
class Unchecked:
    """The work of a kernel without checks, for callers that know that the arguments are valid.

    `tree` takes the parameters and then `sizes`; these and scalar parameters are 64-bit integers.
    Buffers that it writes must not share memory with other arguments. Unless it `is_native`, the
    caller suppresses NumPy's warnings. `entry` checks the arguments and calls it.
    """

    name: str
    sizes: tuple[Var, ...]
    tree: ast.FunctionDef
    entry: ast.FunctionDef
    is_native: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Emitted:
    """The statements of a kernel: the checks of its arguments, and the work that follows them.

    `size_names` has the names of the variables read from the shapes of arguments; it is None if the
    work needs other values, too. A kernel that `calls_external` runs code of users.
    """

    name: str
    summary: str
    params: list[str]
    checks: list[ast.stmt]
    work: list[ast.stmt]
    size_names: dict[Var, str] | None
    calls_external: bool = False

    def whole(self) -> ast.FunctionDef:
        """One function with the checks and the work."""
        return self._entry(self.work)

    def unchecked(self, name: str) -> Unchecked | None:
        """The work as a separate function `name`, if possible."""
        if self.size_names is None or self.calls_external:
            return None
        used = {node.id for node in nodes_in(self.work) if isinstance(node, ast.Name)}
        sizes = {var: size for var, size in self.size_names.items() if size in used}
        params = [*self.params, *sizes.values()]
        summary = docstring(f"{self.summary} of arguments that are known to fit")
        tree = function(name, params, [summary, *self.work], [])
        entry = self._entry([ast.Return(call(name, *params))])
        return Unchecked(name, tuple(sizes), tree, entry)

    def _entry(self, work: list[ast.stmt]) -> ast.FunctionDef:
        # The results of overflow and division by zero are correct values, so NumPy must not warn.
        silent = (
            call("np.errstate", all=text("ignore"))
            if self.calls_external
            else path("rt.without_warnings")
        )
        body = [docstring(self.summary), *self.checks, *work]
        return function(self.name, self.params, body, [silent])
