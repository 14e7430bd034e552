"""Reads one `@R.function`: its statements, through the BlockBuilder."""

from __future__ import annotations

import ast
from dataclasses import replace

from typing_extensions import override

from relaxpy.errors import ParseError, RelaxpyError
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.evaluation import evaluating
from relaxpy.script.language import records as forms
from relaxpy.script.language.wording import as_parse_error
from relaxpy.script.parser.graph.signature import Signature, SignatureReader
from relaxpy.script.parser.graph.state import Body, declared_pure, name_of
from relaxpy.script.parser.graph.unrolled import GraphUnrolled
from relaxpy.script.parser.source.report import docstring_removed, refusal
from relaxpy.script.parser.source.scope import Poisoned


class GraphReader(GraphUnrolled):
    """Reads graph functions into a builder."""

    # --- functions

    def signature(self, node: ast.FunctionDef) -> Signature:
        """The signature of the function at `node`."""
        return SignatureReader(self.values, self.report).read(node)

    def function(
        self, node: ast.FunctionDef, found: Signature, *, pure: bool, symbol: str | None = None
    ) -> rx.Function | None:
        """The function at `node`, or None where something in it is wrong and reported.

        A public one has a `symbol`, its name for the outside.
        """
        before = len(self.report.errors)
        outer, self.body = self.body, Body()
        body = self.body
        body.pure = pure
        depth = len(self.scope.frames)
        self.builder.begin_scope(found.params)
        try:
            with (
                evaluating(self.values.evaluate_here),
                self.scope.inner(found.sizes) as sizes,
                self.scope.inner(found.names),
            ):
                body.sizes = sizes
                self.statements.read(docstring_removed(node.body), self.statement)
            if body.returned is None and len(self.report.errors) == before:
                self.report.add(self.no_return(node))
            if len(self.report.errors) > before or body.result is None or not found.complete:
                self.builder.end_scope()
                return None
            return self.finished(node, found, body, pure=pure, symbol=symbol)
        except RelaxpyError as error:
            self.report.add(self.values.located(error, self.program.span(name_of(node))))
            return None
        finally:
            self.body = outer
            del self.scope.frames[depth:]

    def finished(
        self, node: ast.FunctionDef, found: Signature, body: Body, *, pure: bool, symbol: str | None
    ) -> rx.Function:
        """The function around what was read."""
        assert body.returned is not None
        returned = body.returned.value or body.returned
        where = self.program.span(returned)
        name = self.program.span(name_of(node))
        try:
            result = self.builder.end_scope(body.result)
        except RelaxpyError as error:
            self.builder.end_scope()
            raise self.values.located(error, where) from None
        assert result is not None
        if symbol is not None:
            body.attrs.setdefault("global_symbol", symbol)
        elif "global_symbol" in body.attrs:
            raise self.error(name_of(node), f"private function {node.name!r} has a global_symbol")
        func = rx.Function(found.params, result, found.ret, pure, Attrs(body.attrs), span=name)
        self.values.places[id(result)] = self.program, returned
        try:
            return self.builder.normalize_function(func)
        except RelaxpyError as error:
            if error.about is result:  # what is wrong is the result, wherever it was bound
                error.diagnostics = tuple(replace(d, span=where) for d in error.diagnostics)
            raise as_parse_error(error, where) from None

    def no_return(self, node: ast.FunctionDef) -> ParseError:
        """The error for a function without a result."""
        return self.error(
            name_of(node),
            f"function {node.name!r} returns nothing",
            rule="AST-11",
            hint="end it with `return value`; `return ()` gives unit",
        )

    # --- statements

    @override
    def statement(self, node: ast.stmt) -> None:
        """Read one statement."""
        now = self.now
        self.values.forget()
        if now.returned is not None:
            raise self.after_return(node)
        if now.dataflow is not None and now.dataflow.done:
            raise self.error(
                node,
                "R.output ends its block: nothing may follow in it",
                rule="SC-7",
                hint="let one R.output be the last statement of the block",
            )
        now.around.append(node)
        try:
            self.dispatch(node)
            if now.returned is None:
                self.builder.flush()
        finally:
            now.around.pop()
            if now.returned is None:  # nothing is left, unless the statement is wrong
                self.builder.discard()

    def after_return(self, node: ast.stmt) -> ParseError:
        """The error for a statement behind the result."""
        if isinstance(node, ast.Return):
            return self.error(node, "a function has one return, at its end", rule="AST-11")
        return self.error(node, "nothing follows the return of a function")

    @override
    def dispatch(self, node: ast.stmt) -> None:
        """Read one statement by its kind."""
        match node:
            case ast.Assign(targets=[target], value=value):
                self.assign(target, self.values.value(value), value)
            case ast.Assign(targets=[_, second, *_]):
                raise self.error(second, "bind one target in a statement")
            case ast.AnnAssign():
                self.annotated(node)
            case ast.Expr(value=value):
                self.expression(value)
            case ast.With():
                self.with_block(node)
            case ast.If():
                self.branch(node)
            case ast.Return():
                self.give_back(node)
            case ast.FunctionDef():
                self.local_function(node)
            case ast.For():
                self.unroll(node)
            case ast.Pass() | ast.Nonlocal():  # whose names are looked up outside anyway
                return
            case _:
                raise refusal(self.program, node, "Relax")

    # --- local functions

    def local_function(self, node: ast.FunctionDef) -> None:
        """Read a function inside a function."""
        said = self.said()
        decorator = None
        for part in node.decorator_list:
            value = self.values.value(part)
            if isinstance(value, forms.FunctionOptions):
                decorator = value
        if decorator is None or decorator.dialect != "relax":
            raise self.error(
                name_of(node),
                "a function inside a function is decorated with @R.function",
                hint="kernels (@T.prim_func) belong into the module",
            )
        if decorator.name is not None:
            raise self.error(name_of(node), "a function inside a function goes by its own name")
        declared = declared_pure(node)
        pure = decorator.pure if declared is None else declared
        found = self.signature(node)
        recursive = any(
            isinstance(n, ast.Name) and n.id == node.name for s in node.body for n in ast.walk(s)
        )
        var = self.new_var(node.name, name_of(node))
        if recursive:
            if isinstance(var, rx.DataflowVar):
                var = rx.Var(node.name, None, var.span)
            known = said.annotation or said.cast or found.info(pure=pure)
            var = rx.Var(node.name, known, var.span)
            if node.returns is None:
                raise self.error(
                    name_of(node),
                    f"{node.name!r} calls itself, so it needs a return annotation",
                    rule="WF-8a",
                )
            self.builder.declare(var)
            self.scope.set(node.name, var)
        func = self.function(node, found, pure=pure)
        if func is None:
            raise Poisoned
        self.bind_statement(func, var, said, name_of(node))
