"""Parses one `@R.function`: its statements, into a BlockBuilder."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from relaxpy.errors import ParseError, RelaxpyError, WellFormedError
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import recursive_without_annotation
from relaxpy.ir.relax.nodes.expr import evaluating
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.script.language import records
from relaxpy.script.language.records import handling
from relaxpy.script.language.wording import as_parse_error, describe
from relaxpy.script.parser.evaluate import displays, user_calls
from relaxpy.script.parser.evaluate.macros import MAX_UNROLLED, Macro, macro_expansion
from relaxpy.script.parser.graph import bindings, blocks
from relaxpy.script.parser.graph.signature_reader import Signature, SignatureReader
from relaxpy.script.parser.graph.state import Body, GraphState, declared_pure, name_of
from relaxpy.script.parser.source import Poisoned, bound_names, docstring_removed, refusal
from relaxpy.support.dataclass import replace


def for_statement(state: GraphReader, node: ast.For) -> None:
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
            state.statements.read(node.body, state.statement)
        finally:
            state.now.enclosing = enclosing
    state.scope.hide(bound_names(node))  # those of a loop without members


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


class GraphReader(GraphState):
    """Parses graph functions into a builder; `capture` adds their callees to its module.

    It evaluates casts, macros, helper functions and kernels for the expressions of a function.
    """

    def signature(self, node: ast.FunctionDef) -> Signature:
        """Parse the signature of the function at `node`."""
        return SignatureReader(self.values, self.report).read(node)

    def function(
        self, node: ast.FunctionDef, signature: Signature, *, pure: bool, symbol: str | None = None
    ) -> rx.Function | None:
        """Parse the function at `node`; None if it has errors, which are reported.

        A public function has a `symbol`, under which others call it.
        """
        before = len(self.report.errors)
        outer, self.body = self.body, Body()
        body = self.body
        body.pure = pure
        depth = len(self.scope.frames)
        try:
            with self.builder.inner_scope(signature.params):
                with (
                    evaluating(self.values.evaluate_here),
                    self.scope.inner(signature.shape_vars) as shape_vars,
                    self.scope.inner(signature.names),
                ):
                    body.shape_vars = shape_vars
                    self.statements.read(docstring_removed(node.body), self.statement)
                if body.returned is None and len(self.report.errors) == before:
                    self.report.add(self.no_return(node))
                failed = len(self.report.errors) > before or not signature.complete
                if failed or body.result is None:
                    return None
                return self.create_function(node, signature, body, symbol)
        except RelaxpyError as error:
            self.report.add(self.values.located(error, self.span(name_of(node))))
            return None
        finally:
            self.body = outer
            del self.scope.frames[depth:]

    def create_function(
        self, node: ast.FunctionDef, signature: Signature, body: Body, symbol: str | None
    ) -> rx.Function:
        """Create the function from its body."""
        assert body.returned is not None
        returned = body.returned.value or body.returned
        try:
            result = self.builder.end_scope(body.result)
        except RelaxpyError as error:
            raise self.values.located(error, self.span(returned)) from None
        assert result is not None
        ret = signature.ret
        if signature.returns_tuple and not isinstance(result.struct_info, rx.TupleStructInfo):
            ret = rx.TupleStructInfo(())
        self.values.positions[id(result)] = self.program, returned
        try:
            return self.finish(
                signature.params,
                result,
                ret,
                pure=body.pure,
                attrs=body.attrs,
                name=node.name if symbol is None else symbol,
                private=symbol is None,
                at=name_of(node),
            )
        except RelaxpyError as error:
            span = self.span(returned)
            if error.about is result:  # reported at the return, wherever the result was bound
                error.diagnostics = tuple(replace(d, span=span) for d in error.diagnostics)
            raise as_parse_error(error, span) from None

    def no_return(self, node: ast.FunctionDef) -> ParseError:
        """Create the error for a function without a result."""
        return self.error(
            name_of(node),
            f"function {node.name!r} returns nothing",
            rule="AST-11",
            hint="end it with `return value`; `return ()` returns unit",
        )

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
        now.enclosing.append(node)
        try:
            self.dispatch(node)
            if now.returned is None:
                self.builder.flush()
        finally:
            now.enclosing.pop()
            if now.returned is None:  # nothing remains, unless the statement has an error
                self.builder.discard()

    def after_return(self, node: ast.stmt) -> ParseError:
        """Create the error for a statement after the result."""
        if isinstance(node, ast.Return):
            return self.error(node, "a function has one return, at its end", rule="AST-11")
        return self.error(node, "nothing follows the return of a function")

    def dispatch(self, node: ast.stmt) -> None:
        """Read one statement by its kind."""
        match node:
            case ast.Assign(targets=[target], value=value):
                bindings.assign(self, target, self.values.value(value), value)
            case ast.AugAssign(target=ast.Subscript() | ast.Attribute() as target, value=value):
                bindings.assign(self, target, None, value)  # refuses the target, as for `=`
            case ast.Assign(targets=[_, second, *_]):
                raise self.error(second, "bind one target in a statement")
            case ast.AnnAssign():
                bindings.annotated_assign(self, node)
            case ast.Expr(value=value):
                bindings.expression_statement(self, value)
            case ast.With():
                blocks.with_statement(self, node)
            case ast.If():
                blocks.if_statement(self, node)
            case ast.Return():
                bindings.return_statement(self, node)
            case ast.FunctionDef():
                self.local_function(node)
            case ast.For():
                for_statement(self, node)
            case ast.Pass() | ast.Nonlocal():  # names of enclosing functions are visible anyway
                return
            case _:
                raise refusal(self.program, node, "Relax")

    def local_function(self, node: ast.FunctionDef) -> None:
        """Read a function inside a function."""
        pending = bindings.take_pending(self)
        decorator = None
        for expr in node.decorator_list:
            value = self.values.value(expr)
            if isinstance(value, records.FunctionOptions):
                decorator = value
        if decorator is None or decorator.dialect != "relax":
            raise self.error(
                name_of(node),
                "a function inside a function is decorated with @R.function",
                hint="kernels (@T.prim_func) belong in the module"
                if node.decorator_list
                else "decorate it, or define it outside, where it may be a helper of Python",
            )
        if decorator.name is not None:
            raise self.error(name_of(node), "a function inside a function has no option name")
        declared = declared_pure(node)
        pure = decorator.pure if declared is None else declared
        signature = self.signature(node)
        recursive = _reads_own_name(node)
        var = bindings.new_variable(self, node.name, name_of(node))
        if recursive:
            known = pending.annotation or pending.cast or signature.func_struct_info(pure=pure)
            var = type(var)(node.name, known, var.span)
            if node.returns is None:
                span = self.span(name_of(node))
                raise WellFormedError(recursive_without_annotation(node.name, span))
            self.builder.declare(var)
            self.scope.set(node.name, var)
        func = self.function(node, signature, pure=pure)
        if func is None:
            raise Poisoned
        bindings.bind_compound(self, func, var, pending, name_of(node))

    # --- for expressions

    def expand(
        self, macro: Macro, args: list[Any], kwargs: dict[str, Any], node: ast.Call
    ) -> object:
        """Parse the statements of a macro here, and return its value.

        Errors:
            ParseError: it is a macro of kernels, or does not end in its only return.
        """
        if macro.options.dialect != "relax":
            raise self.error(node.func, "a macro of kernels cannot be used in Relax")
        self.unrolling.add(len(macro.node.body), node, self.values)
        *statements, last = macro.body()
        early = next((n for s in statements for n in _returns(s)), None)
        if early is not None or not isinstance(last, ast.Return) or last.value is None:
            raise macro.program.error(
                early or last, "a macro of Relax ends in its only return, which has a value"
            )
        before = len(self.report.errors)
        with self.nested(), macro_expansion(self.values, macro, args, kwargs, node):
            self.statements.read(statements, self.statement)
            if len(self.report.errors) > before:
                raise Poisoned
            result = self.values.value(last.value)
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
        with handling(lambda form: self.apply(form, node)):
            yield

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Allow other statements to be parsed in the middle of one."""
        now, values = self.now, self.values
        enclosing, returned, positions = now.enclosing, now.returned, dict(values.positions)
        now.enclosing, now.returned = [], None
        now.depth += 1
        try:
            yield
        finally:
            now.enclosing, now.returned = enclosing, returned
            now.depth -= 1
            values.positions.update(positions)


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
