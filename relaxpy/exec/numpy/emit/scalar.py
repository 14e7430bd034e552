"""Emits items and single stores as plain Python over NumPy scalars, one element at a time."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING, assert_never

from relaxpy.errors import CompileError
from relaxpy.exec.loops.nest import nodes as nest
from relaxpy.exec.loops.nest.bounds import is_inside
from relaxpy.exec.loops.plan.statements import Assignment
from relaxpy.exec.numpy import python_ast as py
from relaxpy.exec.numpy.emit.allocation import fresh
from relaxpy.exec.numpy.emit.scope import (
    BOOLEAN,
    COMPARISONS,
    ELEMENTWISE,
    FLOAT_DIVISION,
    KernelScope,
    converted,
    division,
    dtype_name,
    intrinsic_name,
    literal,
    numpy_function,
    title,
)
from relaxpy.exec.runtime.scalar import shared_nodes
from relaxpy.ir.core.dtype import HANDLE
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relax.nodes import GlobalVar
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.intrinsics import is_external
from relaxpy.support.pysource import set_span

if TYPE_CHECKING:
    from relaxpy.errors import Span

_OPERATORS: dict[type[tir.PrimExpr], type[ast.operator]] = {
    tir.Add: ast.Add,
    tir.Sub: ast.Sub,
    tir.Mul: ast.Mult,
}


class ScalarEmitter:
    """Emits scalar code in `scope`; an integer variable not in `typed` is a plain Python int.

    `axes` are the enclosing loops; indices that are provably in bounds are not checked.
    """

    def __init__(self, scope: KernelScope, name: str, axes: Iterable[nest.Axis] = ()) -> None:
        self.scope = scope
        self.name = name
        self.axes = list(axes)
        self.typed: set[tir.Var] = set()
        self.span: Span | None = None
        #: In a large expression, the nodes that several others have, and names of those evaluated.
        self._shared: frozenset[int] | None = None
        self._named: dict[int, str] = {}

    def items(self, items: Iterable[nest.Item]) -> list[ast.stmt]:
        """The Python statements that execute `items` in order."""
        statements = []
        for item in items:
            lines = self._item(item)
            set_span(lines, getattr(item, "span", None))
            statements += lines
        return statements

    def _item(self, item: nest.Item) -> list[ast.stmt]:
        match item:
            case nest.Loop(axis=axis, body=body):
                start, stop = self.index(axis.start), self.index(axis.stop)
                self.axes.append(axis)
                inner = self.items(body)
                self.axes.pop()
                statement = py.loop(self.scope.variable(axis.var), start, stop, inner)
                self.scope.forget(axis.var)
                return [statement]
            case nest.Branch(condition=condition, body=body, orelse=orelse):
                return [py.when(self.value(condition), self.items(body), self.items(orelse))]
            case nest.WhileLoop(condition=condition, body=body):
                return [ast.While(self.value(condition), self.items(body) or [ast.Pass()], [])]
            case nest.Store():
                return [self.store(item)]
            case nest.Bind(var=var, value=value):
                self.typed.add(var)
                return [py.assign(self.scope.variable(var), self.value(value))]
            case nest.Check(condition=condition, message=message):
                failed = py.do(py.call("rt.fail", py.text(self.name), py.text(message)))
                return [py.when(ast.UnaryOp(ast.Not(), self.value(condition)), [failed])]
            case nest.Return(value=value):
                return [ast.Return(self.value(value, typed=True))]
            case nest.Invoke(call=invoked):
                return [py.do(self._called(invoked))]
            case nest.Alloc(buffer=buffer, root=root):
                return [py.assign(self.scope.buffer(buffer), self._memory(buffer, root))]
            case nest.Jump(kind=kind):
                return [ast.Break() if kind == "break" else ast.Continue()]
            case _:
                assert_never(item)

    def statement(self, statement: Assignment, conditions: list[ast.expr]) -> list[ast.stmt]:
        """One iteration of `statement`, if the `conditions` and its guards hold."""
        store = nest.Store(
            statement.target, statement.indices, statement.value, statement.block, statement.span
        )
        tests = [*conditions, *map(self.value, statement.guards)]
        body = [self.store(store)]
        return [py.when(py.both(tests), body)] if tests else body

    def store(self, store: nest.Store) -> ast.stmt:
        """One store."""
        self.span = store.span
        return py.assign(self.element(store.buffer, store.indices), self.value(store.value))

    def element(self, buffer: Buffer, indices: Iterable[tir.PrimExpr]) -> ast.Subscript:
        """One element of a buffer; an index that may be out of bounds is checked."""
        pairs = enumerate(zip(indices, buffer.shape, strict=True))
        checked = [self._checked_index(index, size, axis, buffer) for axis, (index, size) in pairs]
        return py.item(self.scope.buffer(buffer), *checked)

    def _checked_index(
        self, index: tir.PrimExpr, size: tir.PrimExpr, axis: int, buffer: Buffer
    ) -> ast.expr:
        value = self.index(index)
        if is_inside(index, size, self.axes, self.scope.shape_vars):
            return value
        extent = py.item(py.attribute(self.scope.buffer(buffer), "shape"), axis)
        return py.call("rt.checked_index", value, extent, axis, title(self.name, buffer))

    def index(self, value: tir.PrimExpr) -> ast.expr:
        """An index as a Python int."""
        outer, self.scope.compute = self.scope.compute, self.value
        result = self.scope.index(value)
        self.scope.compute = outer
        return result

    def _memory(self, buffer: Buffer, root: Buffer | None) -> ast.expr:
        """Memory for `buffer`: new, or that of `root`."""
        if root is not None:
            kind = dtype_name(buffer.dtype)
            return py.call("rt.overlay", self.scope.buffer(root), kind, None, py.text(buffer.name))
        outer, self.scope.compute = self.scope.compute, self.value
        result = fresh(self.scope, buffer)
        self.scope.compute = outer
        return result

    def value(self, expr: tir.PrimExpr, *, typed: bool = False) -> ast.expr:
        """`expr` as a NumPy scalar, rounded or wrapped to its datatype after each operation.

        Unless `typed`, a literal may be a plain number.

        Errors:
            CompileError: an intrinsic cannot run on NumPy.
        """
        if self._shared is None:
            self._shared = shared_nodes(expr)
            try:
                return self.value(expr, typed=typed)
            finally:
                for known in self._named.values():
                    self.scope.names.free(known)
                self._shared, self._named = None, {}
        if id(expr) not in self._shared:
            return self._value(expr, typed=typed)
        name = self._named.get(id(expr))
        if name is not None:
            return py.path(name)
        value = self._value(expr, typed=True)
        name = self._named[id(expr)] = self.scope.names.fresh("shared")
        return ast.NamedExpr(ast.Name(name, ast.Store()), value)

    def _sometimes(self, expr: tir.PrimExpr, *, typed: bool = False) -> ast.expr:
        """The value of an operand that may not be evaluated: its names are not used later."""
        named = dict(self._named)
        value = self.value(expr, typed=typed)
        self._named = named
        return value

    def _value(self, expr: tir.PrimExpr, *, typed: bool) -> ast.expr:
        match expr:
            case tir.IntImm() | tir.FloatImm():
                return literal(expr, typed=typed)
            case tir.Var():
                return self._variable(expr)
            case BufferLoad(buffer=buffer, indices=indices):
                return self.element(buffer, indices)
            case tir.Or(a=a, b=b):
                return py.either([self.value(a), self._sometimes(b)])
            case tir.And(a=a, b=b):
                return py.both([self.value(a), self._sometimes(b)])
            case tir.Not(a=a):
                return ast.UnaryOp(ast.Not(), self.value(a))
            case tir.Select(condition=test, true_value=yes, false_value=no):
                return self._choice(test, yes, no)
            case tir.Cast(dtype=dtype, value=inner) if inner.dtype.is_bool:
                value = self.value(inner)
                exact = dtype.numpy().isbuiltin == 1
                return py.call(dtype_name(dtype), value if exact else py.call("int", value))
            case tir.Cast(dtype=dtype, value=inner):
                return converted(self.value(inner, typed=True), inner.dtype, dtype)
            case tir.BinaryOpExpr():
                return self._binary(expr)
            case tir.Call():
                return self._call(expr)
            case _:
                raise CompileError(f"{self.name}: `{expr}` has no scalar form", span=self.span)

    def _variable(self, var: tir.Var) -> ast.expr:
        name = py.path(self.scope.variable(var))
        if var in self.typed or var.dtype == "handle":
            return name
        return py.call(dtype_name(var.dtype), name)

    def _is_index(self, expr: tir.PrimExpr) -> bool:
        """True if `expr` only depends on loop and shape variables: it cannot overflow."""
        return not any(
            isinstance(node, (BufferLoad, tir.Call))
            or node in self.typed
            or (
                isinstance(node, tir.PrimExpr)
                and not (node.dtype.family == "int" or node.dtype.is_bool)
            )
            for node in walk(expr)
        )

    def _choice(self, test: tir.PrimExpr, yes: tir.PrimExpr, no: tir.PrimExpr) -> ast.expr:
        condition = self.value(test)
        arms = (self._sometimes(arm, typed=True) for arm in (yes, no))
        return ast.IfExp(condition, *arms)

    def _binary(self, expr: tir.BinaryOpExpr) -> ast.expr:
        if isinstance(expr, tir.CmpExpr) and expr.a.dtype.is_int and self._is_index(expr):
            return self.scope.truth(expr)
        a = self.value(expr.a, typed=isinstance(expr.b, (tir.IntImm, tir.FloatImm)))
        b = self.value(expr.b, typed=False)
        node, dtype = type(expr), expr.a.dtype
        if isinstance(expr, tir.CmpExpr):
            return py.compare(a, COMPARISONS[node], b)
        if node in _OPERATORS and not dtype.is_bool:
            return py.binary(a, _OPERATORS[node], b)
        operations = BOOLEAN if dtype.is_bool else ELEMENTWISE
        if node in operations:
            return py.call(operations[node], a, b)
        if dtype.is_int:
            return py.call(f"rt.{division(node, dtype)}", a, b)
        return py.binary(a, ast.Div, b) if node is tir.Div else py.call(FLOAT_DIVISION[node], a, b)

    def _called(self, expr: tir.Call) -> ast.expr:
        """A call of an external function."""
        kind = dtype_name(expr.dtype) if expr.dtype.lanes and expr.dtype != HANDLE else None
        if isinstance(expr.op, GlobalVar):
            function: py.Code = self.scope.function(expr.op)
            args = expr.args
        else:
            function, args = py.text(nest.callee_name(expr)), expr.args[1:]
        return py.call(
            "rt.call_external", py.text(self.name), function, kind, *map(self._argument, args)
        )

    def _argument(self, arg: Node) -> ast.expr:
        match arg:
            case tir.StringImm(value=value):
                return py.text(value)
            case nest.PassedMemory(buffer=buffer, region=region, drop=drop, layout=layout):
                array = py.path(self.scope.buffer(buffer))
                if layout is not None:
                    array = self._laid_out(array, buffer, layout)
                indices: list[ast.expr] = []
                for axis, dom in enumerate(region):
                    start, stop = self.index(dom.min), self.index(dom.stop)
                    indices.append(start if axis < drop else ast.Slice(start, stop))
                return py.item(array, *indices) if indices else array
            case _:
                assert isinstance(arg, tir.PrimExpr)
                return self.value(arg, typed=True)

    def _laid_out(self, memory: ast.expr, buffer: Buffer, layout: nest.Layout) -> ast.expr:
        """The view of the memory of `buffer` that has this layout now."""
        sizes, strides = (tuple(map(self.index, exprs)) for exprs in (layout.shape, layout.strides))
        kind, offset = dtype_name(buffer.dtype), self.index(layout.offset)
        view = py.call("rt.reinterpreted", memory, kind, sizes, py.text(layout.name), offset)
        if strides:
            view.args.append(py.code(strides))
        return view

    def _call(self, expr: tir.Call) -> ast.expr:
        if is_external(expr):
            return self._called(expr)
        name = intrinsic_name(expr)
        if name == "if_then_else":
            test, yes, no = expr.args
            return self._choice(test, yes, no)
        if name == "reinterpret":
            [value] = expr.args
            if value.dtype == expr.dtype:
                return self.value(value, typed=True)
            return py.call(
                py.attribute(self.value(value, typed=True), "view"), dtype_name(expr.dtype)
            )
        function = numpy_function(expr)
        if not function:
            raise unsupported(self.name, expr, self.span)
        return py.call(function, *(self.value(a, typed=True) for a in expr.args))


def unsupported(name: str, expr: tir.Call, span: Span | None) -> CompileError:
    """The error for an intrinsic that NumPy cannot perform."""
    return CompileError(
        f"{name}: the intrinsic {intrinsic_name(expr)} cannot run on NumPy",
        span=span,
        hint="it needs hardware, or a pass that lowers it",
    )
