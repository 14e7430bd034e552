"""Emits the entry of a kernel: parameters, variables read from shapes, and checks of arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from relaxpy.errors import CompileError
from relaxpy.exec.kernel.emit.scope import KernelScope, dtype_name
from relaxpy.exec.kernel.nest.buffers import variables_of
from relaxpy.exec.kernel.plan.tree import Plan
from relaxpy.exec.python_ast import (
    assign,
    attribute,
    binary,
    both,
    call,
    code,
    do,
    item,
    path,
    text,
    when,
)
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.fork_lock import late_property
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import IntImm, Var
from relaxpy.ir.tir.ops import int_range


class Entry:
    """The parameters and checks of one kernel."""

    def __init__(self, plan: Plan, scope: KernelScope) -> None:
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
                # A handle without a buffer may be any object, so there is nothing to check.
                if param not in plan.nest.pointers and param.dtype.family != "handle":
                    self.scalars.append(param)
                self.params.append(scope.variable(param))

    @late_property
    def summary(self) -> str:
        """The signature in the terms of the program."""
        params = []
        for param, name in zip(self.plan.func.params, self.params, strict=True):
            buffer = self.plan.func.buffer_of(param)
            if buffer is None:
                params.append(f"{name}: {param.dtype}")
            else:
                sizes = [
                    str(s.value) if isinstance(s, IntImm) else ast.unparse(self.scope.index(s))
                    for s in buffer.shape
                ]
                params.append(f"{name}: {buffer.dtype}[{', '.join(sizes)}]")
        return f"{self.plan.name}({', '.join(params)})"

    def size_names(self) -> dict[Var, str] | None:
        """The names of variables read from shapes.

        None if strides, offsets or scalars that are not 64-bit integers are read, too.
        """
        names: dict[Var, str] = {}
        for buffer in self.buffers:
            if _has_layout(buffer):
                return None
            for size in buffer.shape:
                if isinstance(size, Var) and size not in self.scalars:
                    names[size] = self.scope.variable(size)
        is_wide = all(size.dtype.bits >= 32 for size in names)
        return names if is_wide and all(s.dtype == INT64 for s in self.scalars) else None

    def check(self) -> list[ast.stmt]:
        """Lines that read variables from the arguments and reject invalid arguments."""
        lines: list[ast.stmt] = []
        for scalar in self.scalars:
            name = self.scope.variable(scalar)
            kind = dtype_name(scalar.dtype)
            checked = call("rt.scalar", text(self.plan.name), text(name), name, kind)
            lines.append(assign(name, checked))
        if not self.buffers:
            return lines
        bound = set(self.scalars)
        reads: list[ast.stmt] = []
        for buffer in self.buffers:
            for axis, size in enumerate(buffer.shape):
                if isinstance(size, Var) and size not in bound:
                    bound.add(size)
                    value = item(attribute(self.scope.buffer(buffer), "shape"), axis)
                    reads.append(assign(self.scope.variable(size), value))
            for axis, stride in enumerate(buffer.strides):
                if isinstance(stride, Var) and stride not in bound:
                    bound.add(stride)
                    name = self.scope.buffer(buffer)
                    in_bytes = item(attribute(name, "strides"), axis)
                    elements = binary(in_bytes, ast.FloorDiv, attribute(name, "itemsize"))
                    reads.append(assign(self.scope.variable(stride), elements))
            offset = buffer.elem_offset
            if isinstance(offset, Var) and offset not in bound:
                bound.add(offset)
                reads.append(assign(self.scope.variable(offset), 0))
        self._check_bound(bound)
        name = self.scope.names.fresh("fits")
        fits = assign(name, both(self._tests()))
        # An object of another class may raise anything when it is asked for a shape.
        handler = ast.ExceptHandler(path("Exception"), None, [assign(name, False)])
        lines.append(ast.Try([*reads, fits], [handler], [], []))
        arrays = [self.scope.buffer(b) for b in self.buffers]
        shapes = tuple(map(self._shape, self.buffers))
        signature = text(self.summary)
        refusal = [
            do(call("rt.check_arrays", signature, *arrays)),
            do(call("rt.raise_shape_error", signature, tuple(arrays), shapes)),
        ]
        lines.append(when(ast.UnaryOp(ast.Not(), code(name)), refusal))
        lines += map(self._range_test, self._narrow())
        lines += map(self._layout, filter(_has_layout, self.buffers))
        return lines

    def _narrow(self) -> list[Var]:
        """The variables of less than 64 bits that are read from the arguments."""
        found = dict.fromkeys(v for b in self.buffers for v in variables_of(b))
        return [v for v in found if v.dtype.bits < 64 and v not in self.scalars]

    def _range_test(self, size: Var) -> ast.stmt:
        """A check that a variable read from an argument fits its datatype."""
        least, most = int_range(size.dtype)
        value = code(self.scope.variable(size))
        fits = ast.Compare(code(least), [ast.LtE(), ast.LtE()], [value, code(most)])
        message = f"the argument for {size.name} is outside the range of {size.dtype}"
        failure = call("rt.fail", text(self.plan.name), text(message))
        return when(ast.UnaryOp(ast.Not(), fits), [do(failure)])

    def _shape(self, buffer: Buffer) -> ast.expr:
        return code(tuple(self.scope.index(s) for s in buffer.shape))

    def _layout(self, buffer: Buffer) -> ast.stmt:
        """A check that an argument has the strides and offset of its buffer."""
        name = self.scope.buffer(buffer)
        strides = tuple(self.scope.index(s) for s in buffer.strides)
        title = text(f"{self.plan.name}: {name}")
        return do(
            call("rt.check_layout", title, name, strides, self.scope.index(buffer.elem_offset))
        )

    def _check_bound(self, bound: set[Var]) -> None:
        for size in (v for b in self.buffers for v in variables_of(b)):
            if size not in bound:
                raise CompileError(
                    f"{self.plan.name}: the variable {size.name} cannot be read from the arguments",
                    span=self.plan.func.span,
                    hint=f"declare a buffer with the dimension {size.name}",
                )

    def _tests(self) -> Iterator[ast.expr]:
        """Tests that the arguments have the shapes and datatypes of their buffers."""
        shapes: dict[object, tuple[ast.expr, list[ast.expr]]] = {}
        dtypes: dict[str, list[ast.expr]] = {}
        for buffer in self.buffers:
            name = self.scope.buffer(buffer)
            sizes = tuple(s.value if isinstance(s, IntImm) else s for s in buffer.shape)
            if sizes not in shapes:
                shapes[sizes] = self._shape(buffer), []
            shapes[sizes][1].append(attribute(name, "shape"))
            dtypes.setdefault(str(buffer.dtype), []).append(attribute(name, "dtype"))
        for shape, actual in shapes.values():
            yield _all_equal(*actual, shape)
        for dtype, actual in dtypes.items():
            yield _all_equal(*actual, attribute("rt.types", dtype))


def _has_layout(buffer: Buffer) -> bool:
    """Whether `buffer` declares strides or an offset."""
    return bool(buffer.strides) or getattr(buffer.elem_offset, "value", None) != 0


def _all_equal(first: ast.expr, *others: ast.expr) -> ast.expr:
    return ast.Compare(first, [ast.Eq() for _ in others], list(others))
