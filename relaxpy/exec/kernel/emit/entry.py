"""How a kernel's function begins: parameters, sizes read from shapes, one check of all of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from relaxpy.errors import CompileError
from relaxpy.exec.kernel.emit.scope import Scope, dtype_name
from relaxpy.exec.kernel.nest.declared import variables_of
from relaxpy.exec.kernel.plan.steps import Plan
from relaxpy.exec.python_ast import (
    assign,
    attribute,
    binary,
    both,
    call,
    code,
    do,
    item,
    text,
    when,
)
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import Var


class Entry:
    """The beginning of the function of one kernel."""

    def __init__(self, plan: Plan, scope: Scope) -> None:
        self.plan = plan
        self.scope = scope
        self.buffers: list[Buffer] = []
        self.scalars: list[Var] = []
        self.params: list[str] = []
        for param in plan.func.params:
            buffer = plan.func.buffer_of(param)
            if buffer is not None:
                self.buffers.append(buffer)
                self.params.append(scope.buffer(buffer))
            else:
                # A handle without a buffer is anything at all: there is nothing to check.
                if param not in plan.nest.pointers and param.dtype.family != "handle":
                    self.scalars.append(param)
                self.params.append(scope.variable(param))

    def summary(self) -> str:
        """The signature in the program's terms."""
        parts = []
        for param, name in zip(self.plan.func.params, self.params, strict=True):
            buffer = self.plan.func.buffer_of(param)
            if buffer is None:
                parts.append(f"{name}: {param.dtype}")
            else:
                sizes = [ast.unparse(self.scope.index(s)) for s in buffer.shape]
                parts.append(f"{name}: {buffer.dtype}[{', '.join(sizes)}]")
        return f"{self.plan.name}({', '.join(parts)})"

    def size_names(self) -> dict[Var, str] | None:
        """The variables read from shapes; None where strides, offsets or small scalars are, too."""
        found: dict[Var, str] = {}
        for buffer in self.buffers:
            if _has_layout(buffer):
                return None
            for size in buffer.shape:
                if isinstance(size, Var) and size not in self.scalars:
                    found[size] = self.scope.variable(size)
        return found if all(scalar.dtype == INT64 for scalar in self.scalars) else None

    def check(self) -> list[ast.stmt]:
        """Sizes read from the arguments, and the refusal of arguments that do not fit."""
        lines: list[ast.stmt] = []
        for scalar in self.scalars:
            name = self.scope.variable(scalar)
            made = call(
                "rt.scalar", text(self.plan.name), text(name), name, dtype_name(scalar.dtype)
            )
            lines.append(assign(name, made))
        if not self.buffers:
            return lines
        known = set(self.scalars)
        reads: list[ast.stmt] = []
        for buffer in self.buffers:
            for axis, size in enumerate(buffer.shape):
                if isinstance(size, Var) and size not in known:
                    known.add(size)
                    found = item(attribute(self.scope.buffer(buffer), "shape"), axis)
                    reads.append(assign(self.scope.variable(size), found))
            for axis, stride in enumerate(buffer.strides):
                if isinstance(stride, Var) and stride not in known:
                    known.add(stride)
                    name = self.scope.buffer(buffer)
                    step = item(attribute(name, "strides"), axis)
                    found_step = binary(step, ast.FloorDiv, attribute(name, "itemsize"))
                    reads.append(assign(self.scope.variable(stride), found_step))
            offset = buffer.elem_offset
            if isinstance(offset, Var) and offset not in known:
                known.add(offset)
                reads.append(assign(self.scope.variable(offset), 0))
        self._all_known(known)
        name = self.scope.names.fresh("fits")
        fits = assign(name, both(self._tests()))
        handler = ast.ExceptHandler(
            code(("AttributeError", "IndexError")), None, [assign(name, False)]
        )
        lines.append(ast.Try([*reads, fits], [handler], [], []))
        arrays = [self.scope.buffer(b) for b in self.buffers]
        shapes = tuple(map(self._shape, self.buffers))
        signature = text(self.summary())
        refusal = [
            do(call("rt.refuse", signature, *arrays)),
            do(call("rt.refuse_shapes", signature, tuple(arrays), shapes)),
        ]
        lines.append(when(ast.UnaryOp(ast.Not(), code(name)), refusal))
        lines += map(self._layout, filter(_has_layout, self.buffers))
        return lines

    def _shape(self, buffer: Buffer) -> ast.expr:
        return code(tuple(self.scope.index(s) for s in buffer.shape))

    def _layout(self, buffer: Buffer) -> ast.stmt:
        """The refusal of an argument that lies otherwise in memory than its buffer says."""
        name = self.scope.buffer(buffer)
        strides = tuple(self.scope.index(s) for s in buffer.strides)
        title = text(f"{self.plan.name}: {name}")
        return do(
            call("rt.check_layout", title, name, strides, self.scope.index(buffer.elem_offset))
        )

    def _all_known(self, known: set[Var]) -> None:
        for size in (v for b in self.buffers for v in variables_of(b)):
            if size not in known:
                raise CompileError(
                    f"{self.plan.name}: the size {size.name} cannot be read from the arguments",
                    span=self.plan.func.span,
                    hint=f"give some buffer a dimension that is {size.name} alone",
                )

    def _tests(self) -> Iterator[ast.expr]:
        """That the arguments have the shapes and datatypes of their buffers."""
        shapes: dict[str, tuple[ast.expr, list[ast.expr]]] = {}
        kinds: dict[str, list[ast.expr]] = {}
        for buffer in self.buffers:
            name = self.scope.buffer(buffer)
            shape = self._shape(buffer)
            shapes.setdefault(ast.dump(shape), (shape, []))[1].append(attribute(name, "shape"))
            kinds.setdefault(str(buffer.dtype), []).append(attribute(name, "dtype"))
        for shape, found in shapes.values():
            yield _alike(ast.Eq, *found, shape)
        for kind, found in kinds.items():
            yield _alike(ast.Eq, *found, attribute("rt.types", kind))


def _has_layout(buffer: Buffer) -> bool:
    """Whether `buffer` says more than its shape about how it lies in memory."""
    return bool(buffer.strides) or getattr(buffer.elem_offset, "value", None) != 0


def _alike(operator: type[ast.cmpop], first: ast.expr, *others: ast.expr) -> ast.expr:
    return ast.Compare(first, [operator() for _ in others], list(others))
