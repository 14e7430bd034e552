"""The emitted statements of a kernel, assembled as one function or as two."""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import TYPE_CHECKING

from relaxpy.exec.python_ast import call, docstring, function, nodes_in
from relaxpy.ir.tir.expr import Var
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from relaxpy.exec.kernel.emit.entry import Entry


@dataclass(frozen=True, slots=True, eq=False)
class Unchecked:
    """The work of a kernel as a function with its sizes as extra parameters.

    `tree` takes the parameters and then `sizes`; these and scalar parameters are 64-bit integers.
    `entry` takes the parameters and calls it. The caller suppresses NumPy's warnings.
    """

    name: str
    sizes: tuple[Var, ...]
    tree: ast.FunctionDef
    entry: ast.FunctionDef


@dataclass(frozen=True, slots=True, eq=False)
class NativeUnchecked:
    """The same for native code: the kernel itself, as its argument checks cost almost nothing."""

    name: str
    sizes: tuple[Var, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Emitted:
    """The statements of a kernel for valid arguments.

    Buffers that it writes must not alias other arguments. The function is called `name` and
    documented by `summary`. If it `calls_functions`, it runs user code.
    """

    name: str
    summary: str
    entry: Entry
    work: list[ast.stmt]
    calls_functions: bool = False

    def whole(self) -> ast.FunctionDef:
        """One function of the parameters."""
        return self._function([*self.entry.reads(self._used()), *self.work])

    def unchecked(self, name: str) -> Unchecked | None:
        """The work as a separate function `name`, if possible."""
        names = self.entry.size_names()
        if names is None or self.calls_functions:
            return None
        used = self._used()
        sizes = {var: size for var, size in names.items() if size in used}
        params = [*self.entry.params, *sizes.values()]
        tree = function(name, params, [docstring(self.summary), *self.work], [])
        values = map(self.entry.value_of, sizes)
        entry = self._function([ast.Return(call(name, *self.entry.params, *values))])
        return Unchecked(name, tuple(sizes), tree, entry)

    def _used(self) -> Collection[str]:
        return {node.id for node in nodes_in(self.work) if isinstance(node, ast.Name)}

    def _function(self, body: list[ast.stmt]) -> ast.FunctionDef:
        return function(self.name, self.entry.params, [docstring(self.summary), *body], [])
