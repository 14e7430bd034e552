"""Parses one `@R.function`: its statements, into a BlockBuilder."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from relaxpy.errors import ParseError, RelaxpyError, WellFormedError
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import recursive_without_annotation
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.nodes.expr import evaluating
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.script.language import records
from relaxpy.script.language.annotations import Devices
from relaxpy.script.language.records import handling
from relaxpy.script.language.relax_directives import kernel_call
from relaxpy.script.language.wording import as_parse_error, describe
from relaxpy.script.parser.evaluate import displays, user_calls
from relaxpy.script.parser.evaluate.guard import OPEN, Guard
from relaxpy.script.parser.evaluate.macros import MAX_UNROLLED, Macro, macro_expansion
from relaxpy.script.parser.graph import bindings, blocks
from relaxpy.script.parser.graph.signature_reader import Signature, SignatureReader
from relaxpy.script.parser.graph.state import Body, Capture, GraphState, declared_pure, name_of
from relaxpy.script.parser.source import (
    Poisoned,
    Program,
    Report,
    Scope,
    docstring_removed,
    refusal,
)
from relaxpy.support.dataclass import replace


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


class GraphReader:
    """Parses graph functions into a builder; `capture` adds their callees to its module."""

    def __init__(
        self,
        program: Program,
        scope: Scope,
        builder: BlockBuilder,
        *,
        guard: Guard = OPEN,
        report: Report | None = None,
        devices: Devices | None = None,
        capture: Capture | None = None,
        module_names: Container[str] | None = None,
    ) -> None:
        self.state = state = GraphState(program, scope, builder, guard=guard, report=report)
        state.reader = self
        state.capture = capture
        state.values.host = FunctionHost(state, module_names)
        if devices is not None:
            state.values.devices = devices

    def signature(self, node: ast.FunctionDef) -> Signature:
        """Parse the signature of the function at `node`."""
        state = self.state
        return SignatureReader(state.values, state.report).read(node)

    def function(
        self, node: ast.FunctionDef, signature: Signature, *, pure: bool, symbol: str | None = None
    ) -> rx.Function | None:
        """Parse the function at `node`; None if it has errors, which are reported.

        A public function has a `symbol`, under which others call it.
        """
        state = self.state
        before = len(state.report.errors)
        outer, state.body = state.body, Body()
        body = state.body
        body.pure = pure
        depth = len(state.scope.frames)
        state.builder.begin_scope(signature.params)
        try:
            with (
                evaluating(state.values.evaluate_here),
                state.scope.inner(signature.shape_vars) as shape_vars,
                state.scope.inner(signature.names),
            ):
                body.shape_vars = shape_vars
                state.statements.read(docstring_removed(node.body), self.statement)
            if body.returned is None and len(state.report.errors) == before:
                state.report.add(self.no_return(node))
            if len(state.report.errors) > before or body.result is None or not signature.complete:
                state.builder.end_scope()
                return None
            return self.create_function(node, signature, body, pure=pure, symbol=symbol)
        except RelaxpyError as error:
            state.report.add(state.values.located(error, state.program.span(name_of(node))))
            return None
        finally:
            state.body = outer
            del state.scope.frames[depth:]

    def create_function(
        self,
        node: ast.FunctionDef,
        signature: Signature,
        body: Body,
        *,
        pure: bool,
        symbol: str | None,
    ) -> rx.Function:
        """Create the function from its body."""
        state = self.state
        assert body.returned is not None
        returned = body.returned.value or body.returned
        result_span = state.program.span(returned)
        name_span = state.program.span(name_of(node))
        try:
            result = state.builder.end_scope(body.result)
        except RelaxpyError as error:
            state.builder.end_scope()
            raise state.values.located(error, result_span) from None
        assert result is not None
        if symbol is not None:
            body.attrs.setdefault("global_symbol", symbol)
        elif "global_symbol" in body.attrs:
            raise state.error(name_of(node), f"private function {node.name!r} has a global_symbol")
        ret = signature.ret
        if signature.returns_tuple and not isinstance(result.struct_info, rx.TupleStructInfo):
            ret = rx.TupleStructInfo(())
        func = rx.Function(signature.params, result, ret, pure, Attrs(body.attrs), span=name_span)
        state.values.positions[id(result)] = state.program, returned
        try:
            return state.builder.normalize_function(func)
        except RelaxpyError as error:
            if error.about is result:  # reported at the return, wherever the result was bound
                error.diagnostics = tuple(replace(d, span=result_span) for d in error.diagnostics)
            raise as_parse_error(error, result_span) from None

    def no_return(self, node: ast.FunctionDef) -> ParseError:
        """Create the error for a function without a result."""
        return self.state.error(
            name_of(node),
            f"function {node.name!r} returns nothing",
            rule="AST-11",
            hint="end it with `return value`; `return ()` returns unit",
        )

    def statement(self, node: ast.stmt) -> None:
        """Read one statement."""
        state = self.state
        now = state.now
        state.values.forget()
        if now.returned is not None:
            raise self.after_return(node)
        if now.dataflow is not None and now.dataflow.done:
            raise state.error(
                node,
                "R.output ends its block: nothing may follow in it",
                rule="SC-7",
                hint="let one R.output be the last statement of the block",
            )
        now.enclosing.append(node)
        try:
            self.dispatch(node)
            if now.returned is None:
                state.builder.flush()
        finally:
            now.enclosing.pop()
            if now.returned is None:  # nothing remains, unless the statement has an error
                state.builder.discard()

    def after_return(self, node: ast.stmt) -> ParseError:
        """Create the error for a statement after the result."""
        state = self.state
        if isinstance(node, ast.Return):
            return state.error(node, "a function has one return, at its end", rule="AST-11")
        return state.error(node, "nothing follows the return of a function")

    def dispatch(self, node: ast.stmt) -> None:
        """Read one statement by its kind."""
        state = self.state
        match node:
            case ast.Assign(targets=[target], value=value):
                bindings.assign(state, target, state.values.value(value), value)
            case ast.Assign(targets=[_, second, *_]):
                raise state.error(second, "bind one target in a statement")
            case ast.AnnAssign():
                bindings.annotated_assign(state, node)
            case ast.Expr(value=value):
                bindings.expression_statement(state, value)
            case ast.With():
                blocks.with_statement(state, node)
            case ast.If():
                blocks.if_statement(state, node)
            case ast.Return():
                bindings.return_statement(state, node)
            case ast.FunctionDef():
                self.local_function(node)
            case ast.For():
                for_statement(state, node)
            case ast.Pass() | ast.Nonlocal():  # names of enclosing functions are visible anyway
                return
            case _:
                raise refusal(state.program, node, "Relax")

    def local_function(self, node: ast.FunctionDef) -> None:
        """Read a function inside a function."""
        state = self.state
        pending = bindings.take_pending(state)
        decorator = None
        for expr in node.decorator_list:
            value = state.values.value(expr)
            if isinstance(value, records.FunctionOptions):
                decorator = value
        if decorator is None or decorator.dialect != "relax":
            raise state.error(
                name_of(node),
                "a function inside a function is decorated with @R.function",
                hint="kernels (@T.prim_func) belong in the module",
            )
        if decorator.name is not None:
            raise state.error(name_of(node), "a function inside a function has no option name")
        declared = declared_pure(node)
        pure = decorator.pure if declared is None else declared
        signature = self.signature(node)
        recursive = _reads_own_name(node)
        var = bindings.new_variable(state, node.name, name_of(node))
        if recursive:
            known = pending.annotation or pending.cast or signature.func_struct_info(pure=pure)
            var = type(var)(node.name, known, var.span)
            if node.returns is None:
                span = state.program.span(name_of(node))
                raise WellFormedError(recursive_without_annotation(node.name, span))
            state.builder.declare(var)
            state.scope.set(node.name, var)
        func = self.function(node, signature, pure=pure)
        if func is None:
            raise Poisoned
        bindings.bind_compound(state, func, var, pending, name_of(node))


def _reads_own_name(node: ast.FunctionDef) -> bool:
    """True if a function refers to itself: not by a parameter or variable of its name."""
    if any(arg.arg == node.name for arg in (*node.args.posonlyargs, *node.args.args)):
        return False
    for statement in node.body:
        names = [n for n in ast.walk(statement) if isinstance(n, ast.Name) and n.id == node.name]
        if any(isinstance(name.ctx, ast.Load) for name in names):
            return True
        if names and isinstance(statement, (ast.Assign, ast.AnnAssign)):
            return False
    return False
