"""The emitted statements of a kernel, assembled as one function or as two."""

from __future__ import annotations

import ast
from collections.abc import Collection, Container, Iterator

from relaxpy.errors import CompileError
from relaxpy.exec.loops.nest.buffers import variables_of
from relaxpy.exec.loops.plan.memory import reads_sizes_only, scalars_of
from relaxpy.exec.loops.plan.tree import Plan
from relaxpy.exec.numpy import python_ast as py
from relaxpy.exec.numpy.emit.scope import KernelScope
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import Var
from relaxpy.support.dataclass import dataclass


class Entry:
    """The parameters of one kernel in its scope, and the values of variables of their shapes."""

    def __init__(self, plan: Plan, scope: KernelScope) -> None:
        self.scope, self._plan = scope, plan
        self.params: list[str] = []
        self._buffers: list[Buffer] = []
        self._scalars = scalars_of(plan)
        for param in plan.func.params:
            buffer = plan.func.buffer_of(param)
            if buffer is not None:
                self._buffers.append(buffer)
                self.params.append(scope.buffer(buffer))
            else:
                self.params.append(scope.variable(param))
        self._values = dict(self._variables())
        for size in self._values:
            scope.variable(size)  # a view may need it first
        for size in (v for buffer in self._buffers for v in variables_of(buffer)):
            if size not in self._values and size not in self._scalars:
                raise CompileError(
                    f"{plan.name}: the variable {size.name} cannot be read from the arguments",
                    span=plan.func.span,
                    hint=f"declare a buffer with the dimension {size.name}",
                )

    def _variables(self) -> Iterator[tuple[Var, ast.expr]]:
        """The variables that are dimensions, strides and offsets, the first use of each last."""
        for buffer in reversed(self._buffers):
            name = self.scope.buffer(buffer)
            if isinstance(buffer.elem_offset, Var) and buffer.elem_offset not in self._scalars:
                yield buffer.elem_offset, ast.Constant(0)
            for axis, stride in enumerate(buffer.strides):
                if isinstance(stride, Var) and stride not in self._scalars:
                    in_bytes = py.item(py.attribute(name, "strides"), axis)
                    yield stride, py.binary(in_bytes, ast.FloorDiv, py.attribute(name, "itemsize"))
            for axis, size in enumerate(buffer.shape):
                if isinstance(size, Var) and size not in self._scalars:
                    yield size, py.item(py.attribute(name, "shape"), axis)

    def reads(self, used: Container[str]) -> list[ast.stmt]:
        """Lines that read the variables with names in `used` from the arguments."""
        named = ((self.scope.variable(var), value) for var, value in self._values.items())
        return [py.assign(name, value) for name, value in named if name in used]

    def size_names(self) -> dict[Var, str] | None:
        """The names of variables read from shapes, if the work reads nothing else."""
        if not reads_sizes_only(self._plan):
            return None
        return {var: self.scope.variable(var) for var in self._values}

    def value_of(self, var: Var) -> ast.expr:
        """The expression that reads a variable from the arguments."""
        return self._values[var]


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
        tree = py.function(name, params, [py.docstring(self.summary), *self.work], [])
        values = map(self.entry.value_of, sizes)
        entry = self._function([ast.Return(py.call(name, *self.entry.params, *values))])
        return Unchecked(name, tuple(sizes), tree, entry)

    def _used(self) -> Collection[str]:
        return {node.id for node in py.nodes_in(self.work) if isinstance(node, ast.Name)}

    def _function(self, body: list[ast.stmt]) -> ast.FunctionDef:
        return py.function(self.name, self.entry.params, [py.docstring(self.summary), *body], [])
