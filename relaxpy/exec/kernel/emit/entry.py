"""Emits the parameters of a kernel, and the variables read from its arguments."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator

from relaxpy.errors import CompileError
from relaxpy.exec.kernel.emit.scope import KernelScope
from relaxpy.exec.kernel.nest.buffers import variables_of
from relaxpy.exec.kernel.plan.tree import Plan
from relaxpy.exec.python_ast import assign, attribute, binary, item
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import Var


class Entry:
    """The parameters of one kernel in its scope, and the values of variables of their shapes."""

    def __init__(self, plan: Plan, scope: KernelScope) -> None:
        self.scope, self._plan = scope, plan
        self.params: list[str] = []
        self._buffers: list[Buffer] = []
        self._scalars = _scalars(plan)
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
                    in_bytes = item(attribute(name, "strides"), axis)
                    yield stride, binary(in_bytes, ast.FloorDiv, attribute(name, "itemsize"))
            for axis, size in enumerate(buffer.shape):
                if isinstance(size, Var) and size not in self._scalars:
                    yield size, item(attribute(name, "shape"), axis)

    def reads(self, used: Container[str]) -> list[ast.stmt]:
        """Lines that read the variables with names in `used` from the arguments."""
        named = ((self.scope.variable(var), value) for var, value in self._values.items())
        return [assign(name, value) for name, value in named if name in used]

    def size_names(self) -> dict[Var, str] | None:
        """The names of variables read from shapes, if the work reads nothing else."""
        if not reads_sizes_only(self._plan):
            return None
        return {var: self.scope.variable(var) for var in self._values}

    def value_of(self, var: Var) -> ast.expr:
        """The expression that reads a variable from the arguments."""
        return self._values[var]


def reads_sizes_only(plan: Plan) -> bool:
    """True if no strides or offsets are read, and no scalars but 64-bit integers.

    Sizes have 32 bits at least.
    """
    func = plan.func
    buffers = [buffer for buffer in map(func.buffer_of, func.params) if buffer is not None]
    sizes = {size for buffer in buffers for size in buffer.shape if isinstance(size, Var)}
    return (
        not any(map(_has_layout, buffers))
        and all(scalar.dtype == INT64 for scalar in _scalars(plan))
        and all(size.dtype.bits >= 32 for size in sizes.difference(func.params))
    )


def _scalars(plan: Plan) -> list[Var]:
    """The scalar parameters; a handle without a buffer may be any object."""
    func, pointers = plan.func, plan.nest.pointers
    others = (param for param in func.params if func.buffer_of(param) is None)
    return [p for p in others if p not in pointers and p.dtype.family != "handle"]


def _has_layout(buffer: Buffer) -> bool:
    """True if `buffer` declares strides or an offset."""
    return bool(buffer.strides) or getattr(buffer.elem_offset, "value", None) != 0
