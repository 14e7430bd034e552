"""Loops of Python and macros in graph functions: statements that are read once for each use."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.script.language import records as forms
from relaxpy.script.language.eager import acting
from relaxpy.script.language.emit import kernel_call
from relaxpy.script.language.wording import describe
from relaxpy.script.parser.evaluate import door
from relaxpy.script.parser.evaluate.macros import MAX_UNROLLED, Macro, Unrolling, expanded
from relaxpy.script.parser.graph.blocks import GraphBlocks
from relaxpy.script.parser.source.scope import Poisoned


class GraphUnrolled(GraphBlocks):
    """Reads statements again and again."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        GraphBlocks.__init__(self, *args, **kwargs)
        self.unrolling = Unrolling()
        self.values.host = self
        self.values.size_of = self.size
        self.module_names: Container[str] | None = None

    def unroll(self, node: ast.For) -> None:
        """Read a loop over what is known while the program is read, once for each member."""
        if node.orelse:
            raise self.error(node.orelse[0], "a loop in Relax has no else")
        members = self.known_members(node.iter)
        around = self.now.around
        for member, is_last in members:
            self.unrolling.add(len(node.body) or 1, node.iter, self.values)
            # Only what the last iteration binds can be the output of a dataflow block.
            self.now.around = list(around) if is_last else []
            try:
                self.values.unpack(node.target, member, self.scope.set)
                self.statements.read(node.body, self.statement)
            finally:
                self.now.around = around

    def known_members(self, node: ast.expr) -> Iterator[tuple[Any, bool]]:
        """What a loop runs over, each with whether it is the last one.

        A generator yields a value when the statements before have been read; in a dataflow block,
        without effects, all its values come first.

        Errors:
            ParseError: that is not known while the program is read, or is too much.
        """
        value = self.values.value(node)
        if isinstance(value, rx.Expr) and isinstance(value.struct_info, rx.TupleStructInfo):
            yield from _with_end(self.members(value, node))
            return
        if isinstance(value, (rx.Expr, PrimExpr, forms.Form)):
            raise self.error(
                node,
                f"a loop in Relax runs over what is known while it is read, found "
                f"{describe(value)}",
                hint="use recursion, or a @T.prim_func with loops",
            )
        members = self.values.iterable(value, node)
        if isinstance(value, Iterator) and self.now.dataflow is None:
            yield from ((member, False) for member in members)
            return
        found = []
        for member in members:
            found.append(member)
            if len(found) > MAX_UNROLLED:
                self.unrolling.add(len(found), node, self.values)
        yield from _with_end(found)

    def expand(
        self, macro: Macro, args: list[Any], kwargs: dict[str, Any], node: ast.Call
    ) -> object:
        """What a macro gives, its statements being read here.

        Errors:
            ParseError: it is a macro of kernels, or returns not just once, at its end.
        """
        if macro.options.dialect != "relax":
            raise self.error(node.func, "a macro of kernels cannot be used in Relax")
        self.unrolling.add(len(macro.node.body), node, self.values)
        *statements, last = macro.body()
        early = next((n for s in statements for n in _returns(s)), None)
        if early is not None or not isinstance(last, ast.Return) or last.value is None:
            raise macro.program.error(
                early or last, "a macro of Relax ends in its one return, which has a value"
            )
        before = len(self.report.errors)
        with self.apart(), expanded(self.values, macro, args, kwargs, node):
            self.statements.read(statements, self.statement)
            if len(self.report.errors) > before:
                raise Poisoned
            found = self.values.value(last.value)
            if isinstance(found, (forms.MatchCastForm, forms.MatchShapeForm)):
                return self.cast(found, last.value)
            return found

    def help(
        self, function: Any, args: list[Any], kwargs: dict[str, Any], node: ast.Call
    ) -> object:
        """What a function of the user's gives, whose words of R act here."""
        with self.eager(node):
            return door.call(function, args, kwargs)

    @contextmanager
    def eager(self, node: ast.expr) -> Iterator[None]:
        """The time in which Python code of the user runs, whose directives take effect at once."""

        def act(form: forms.Form) -> object:
            match form:
                case forms.EmitForm(value=value, annotation=annotation):
                    expr = self.bindable(value, node)
                    with self.at(node):
                        return self.builder.emit(expr, annotation=annotation)
                case forms.MatchCastForm() | forms.MatchShapeForm():
                    return self.cast(form, node)
                case forms.TeForm():
                    return self.kernel_call(form, node)
                case _:
                    raise self.error(node, f"{describe(form)} belongs into the text itself")

        with acting(act):
            yield

    @contextmanager
    def apart(self) -> Iterator[None]:
        """The reading of other statements in the middle of one."""
        now, values = self.now, self.values
        around, returned, places = now.around, now.returned, dict(values.places)
        now.around, now.returned = [], None
        now.depth += 1
        try:
            yield
        finally:
            now.around, now.returned = around, returned
            now.depth -= 1
            values.places.update(places)

    def kernel_call(self, form: forms.TeForm, node: ast.expr) -> rx.Call:
        """The call of a kernel that tensor expressions give; the kernel joins the module."""
        with self.at(node):
            return self.add_kernel(form, node)

    def add_kernel(self, form: forms.TeForm, node: ast.expr) -> rx.Call:
        """The call of the kernel for `form`, entered into the module."""
        if self.module_names is None:
            raise self.error(
                node,
                "R.emit_te adds a kernel to the module, and there is none around",
                hint="put the function into the class of an @I.ir_module",
            )
        return kernel_call(form, self.builder, self.module_names)

    def size(self, name: str) -> object:
        """The shape variable that a TypeVar of this name stands for."""
        return self.now.sizes.setdefault(name, tir.Var(name, INT64))


def _with_end(members: Sequence[Any]) -> Iterator[tuple[Any, bool]]:
    return ((member, k == len(members)) for k, member in enumerate(members, 1))


def _returns(node: ast.stmt) -> Iterator[ast.Return]:
    """The returns of a statement, less those of functions in it."""
    waiting: list[ast.AST] = [node]
    while waiting:
        found = waiting.pop()
        if isinstance(found, ast.Return):
            yield found
        elif not isinstance(found, (ast.FunctionDef, ast.Lambda)):
            waiting += ast.iter_child_nodes(found)
