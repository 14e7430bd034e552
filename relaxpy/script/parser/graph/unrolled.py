"""Loops of Python and macros in graph functions: statements that are parsed once for each use."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.script.language import records
from relaxpy.script.language.eager import handling
from relaxpy.script.language.relax_directives import kernel_call
from relaxpy.script.language.wording import describe
from relaxpy.script.parser.evaluate import displays, user_calls
from relaxpy.script.parser.evaluate.macros import MAX_UNROLLED, Macro, macro_expansion
from relaxpy.script.parser.graph import bindings
from relaxpy.script.parser.graph.state import GraphState
from relaxpy.script.parser.source.scope import Poisoned


def for_statement(state: GraphState, node: ast.For) -> None:
    """Parse the body of a loop once for each member; the members are known at parse time."""
    if node.orelse:
        raise state.error(node.orelse[0], "a loop in Relax has no else")
    members = loop_members(state, node.iter)
    enclosing = state.now.enclosing
    for member, is_last in members:
        state.unrolling.add(len(node.body) or 1, node.iter, state.values)
        # Only what the last iteration binds can be the output of a dataflow block.
        state.now.enclosing = list(enclosing) if is_last else []
        try:
            displays.unpack(state.values, node.target, member, state.scope.set)
            state.statements.read(node.body, state.reader.statement)
        finally:
            state.now.enclosing = enclosing


def loop_members(state: GraphState, node: ast.expr) -> Iterator[tuple[Any, bool]]:
    """The members that a loop runs over, each with a flag for the last.

    A generator yields a value after the preceding statements have been parsed; in a dataflow block,
    which has no effects, it yields all values first.

    Errors:
        ParseError: the members are not known while the program is parsed, or are too many.
    """
    value = state.values.value(node)
    if isinstance(value, rx.Expr) and isinstance(value.struct_info, rx.TupleStructInfo):
        yield from _with_last_flag(bindings.tuple_members(state, value, node))
        return
    if isinstance(value, (rx.Expr, PrimExpr, records.Form)):
        raise state.error(
            node,
            f"a loop in Relax runs over what is known while it is parsed, found {describe(value)}",
            hint="use recursion, or a @T.prim_func with loops",
        )
    members = state.values.iterable(value, node)
    if isinstance(value, Iterator) and state.now.dataflow is None:
        yield from ((member, False) for member in members)
        return
    collected = []
    for member in members:
        collected.append(member)
        if len(collected) > MAX_UNROLLED:
            state.unrolling.add(len(collected), node, state.values)
    yield from _with_last_flag(collected)


class FunctionHost:
    """Evaluates casts, macros, helper functions and kernels for the expressions of a function.

    `module_names` are the names of the module to which kernels are added, None outside of one.
    """

    def __init__(self, state: GraphState, module_names: Container[str] | None) -> None:
        self.state = state
        self.module_names = module_names
        self.evaluate = state.evaluate
        self.evaluated = state.evaluated

    def cast(self, form: records.MatchCastForm | records.MatchShapeForm, node: ast.expr) -> rx.Expr:
        """Bind a cast inside an expression, and return its variable."""
        return bindings.bind_cast(self.state, form, node)

    def expand(
        self, macro: Macro, args: list[Any], kwargs: dict[str, Any], node: ast.Call
    ) -> object:
        """Parse the statements of a macro here, and return its value.

        Errors:
            ParseError: it is a macro of kernels, or does not end in its only return.
        """
        if macro.options.dialect != "relax":
            raise self.state.error(node.func, "a macro of kernels cannot be used in Relax")
        self.state.unrolling.add(len(macro.node.body), node, self.state.values)
        *statements, last = macro.body()
        early = next((n for s in statements for n in _returns(s)), None)
        if early is not None or not isinstance(last, ast.Return) or last.value is None:
            raise macro.program.error(
                early or last, "a macro of Relax ends in its only return, which has a value"
            )
        before = len(self.state.report.errors)
        with self.nested(), macro_expansion(self.state.values, macro, args, kwargs, node):
            self.state.statements.read(statements, self.state.reader.statement)
            if len(self.state.report.errors) > before:
                raise Poisoned
            result = self.state.values.value(last.value)
            if isinstance(result, (records.MatchCastForm, records.MatchShapeForm)):
                return self.cast(result, last.value)
            return result

    def call_helper(
        self, function: Any, args: list[Any], kwargs: dict[str, Any], node: ast.Call
    ) -> object:
        """The result of a user's function, in which the directives of R are eager."""
        with self.eager(node):
            return user_calls.call(function, args, kwargs)

    @contextmanager
    def eager(self, node: ast.expr) -> Iterator[None]:
        """Run Python code of the user, whose directives are eager until the context ends."""

        def handler(form: records.Form) -> object:
            match form:
                case records.EmitForm(value=value, annotation=annotation):
                    expr = bindings.bindable(self.state, value, node)
                    with self.state.at(node):
                        return self.state.builder.emit(expr, annotation=annotation)
                case records.MatchCastForm() | records.MatchShapeForm():
                    return self.cast(form, node)
                case records.TeForm():
                    return self.kernel_call(form, node)
                case _:
                    raise self.state.error(node, f"{describe(form)} belongs in the program itself")

        with handling(handler):
            yield

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Allow other statements to be parsed in the middle of one."""
        now, values = self.state.now, self.state.values
        enclosing, returned, positions = now.enclosing, now.returned, dict(values.positions)
        now.enclosing, now.returned = [], None
        now.depth += 1
        try:
            yield
        finally:
            now.enclosing, now.returned = enclosing, returned
            now.depth -= 1
            values.positions.update(positions)

    def kernel_call(self, form: records.TeForm, node: ast.expr) -> rx.Call:
        """Add the kernel of tensor expressions to the module, and return the call of it."""
        with self.state.at(node):
            return self.add_kernel(form, node)

    def add_kernel(self, form: records.TeForm, node: ast.expr) -> rx.Call:
        """Add the kernel of `form` to the module, and return the call of it."""
        if self.module_names is None:
            raise self.state.error(
                node,
                "R.emit_te adds a kernel to the enclosing module, and there is none",
                hint="put the function into the class of an @I.ir_module",
            )
        return kernel_call(form, self.state.builder, self.module_names)


def _with_last_flag(members: Sequence[Any]) -> Iterator[tuple[Any, bool]]:
    return ((member, k == len(members)) for k, member in enumerate(members, 1))


def _returns(node: ast.stmt) -> Iterator[ast.Return]:
    """The returns of a statement, except those of nested functions."""
    worklist: list[ast.AST] = [node]
    while worklist:
        child = worklist.pop()
        if isinstance(child, ast.Return):
            yield child
        elif not isinstance(child, (ast.FunctionDef, ast.Lambda)):
            worklist += ast.iter_child_nodes(child)
