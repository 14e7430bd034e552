"""Reads one `@R.function`: its statements, through the BlockBuilder."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from typing import Any

from relaxpy.errors import ParseError, RelaxpyError, WellFormedError
from relaxpy.ir.node import Attrs
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.builder import BlockBuilder
from relaxpy.ir.relax.normalize import is_leaf
from relaxpy.ir.relax.relations import is_base_of, struct_info_lca
from relaxpy.ir.tir.expr import PrimExpr, Var as SizeVar
from relaxpy.script.parser import forms
from relaxpy.script.parser.annotations import resolve
from relaxpy.script.parser.evaluator import as_parse_error, describe
from relaxpy.script.parser.graph_values import GraphEvaluator, is_plain
from relaxpy.script.parser.guard import OPEN, Guard
from relaxpy.script.parser.report import Report, Statements, bound_names, docstring_removed, refusal
from relaxpy.script.parser.scope import MISSING, Poisoned, Scope
from relaxpy.script.parser.signature import Signature, SignatureReader
from relaxpy.script.parser.text import Positioned, Program


class Dataflow:
    """A dataflow block being read: which names it hands on, and which of its bindings that are."""

    def __init__(self, outputs: Mapping[str, ast.stmt | None]) -> None:
        self.outputs = outputs
        self.done = False


class Body:
    """A function being read."""

    def __init__(self, node: ast.FunctionDef) -> None:
        self.node = node
        self.attrs: dict[str, object] = {}
        self.names: dict[str, object] = {}
        self.result: rx.Expr | None = None
        self.returned: ast.Return | None = None
        self.dataflow: Dataflow | None = None
        self.around: list[ast.stmt] = []
        self.depth = 0


class GraphReader:
    """Reads graph functions into `builder`."""

    def __init__(
        self,
        program: Program,
        scope: Scope,
        builder: BlockBuilder,
        *,
        guard: Guard = OPEN,
        report: Report | None = None,
    ) -> None:
        self.program = program
        self.scope = scope
        self.builder = builder
        self.report = report if report is not None else Report()
        self.values = GraphEvaluator(program, scope, guard)
        self.statements = Statements(program, scope, self.report)
        self.body: Body | None = None

    # --- functions

    def signature(self, node: ast.FunctionDef) -> Signature:
        """The signature of the function at `node`."""
        return SignatureReader(self.values, self.report).read(node)

    def function(
        self, node: ast.FunctionDef, found: Signature, *, pure: bool, private: bool
    ) -> rx.Function | None:
        """The function at `node`, or None where something in it is wrong and reported."""
        before = len(self.report.errors)
        outer, self.body = self.body, Body(node)
        body = self.body
        depth = len(self.scope.frames)
        self.builder.begin_scope(found.params)
        try:
            with self.scope.inner(found.names) as names:
                body.names = names
                self.statements.read(docstring_removed(node.body), self.statement)
            if body.returned is None and len(self.report.errors) == before:
                self.report.add(self.no_return(node))
            if len(self.report.errors) > before or body.result is None or not found.complete:
                self.builder.end_scope()
                return None
            return self.finished(node, found, body, pure=pure, private=private)
        except RelaxpyError as error:
            self.report.add(self.values.located(error, self.program.span(_name_of(node))))
            return None
        finally:
            self.body = outer
            del self.scope.frames[depth:]

    def finished(
        self, node: ast.FunctionDef, found: Signature, body: Body, *, pure: bool, private: bool
    ) -> rx.Function:
        """The function around what was read."""
        assert body.returned is not None
        where = self.program.span(body.returned.value or body.returned)
        try:
            result = self.builder.end_scope(body.result)
        except RelaxpyError as error:
            self.builder.end_scope()
            raise self.values.located(error, where) from None
        assert result is not None
        if not private:
            body.attrs.setdefault("global_symbol", node.name)
        elif "global_symbol" in body.attrs:
            raise self.error(_name_of(node), f"private function {node.name!r} has a global_symbol")
        func = rx.Function(
            found.params, result, found.ret, pure, Attrs(body.attrs), span=self.program.span(node)
        )
        try:
            return self.builder.normalize_function(func)
        except RelaxpyError as error:
            if error.about is result:  # what is wrong is the result, wherever it was bound
                error.diagnostics = tuple(replace(d, span=where) for d in error.diagnostics)
            raise as_parse_error(error, where) from None

    def no_return(self, node: ast.FunctionDef) -> ParseError:
        """The error for a function without a result."""
        return self.error(
            _name_of(node),
            f"function {node.name!r} returns nothing",
            rule="AST-11",
            hint="end it with `return value`; `return ()` gives unit",
        )

    # --- help

    def error(self, node: Positioned, message: str, **details: Any) -> ParseError:
        """The error `message` about what stands at `node`."""
        return self.program.error(node, message, **details)

    @property
    def now(self) -> Body:
        """The function being read."""
        assert self.body is not None
        return self.body

    @contextmanager
    def at(self, node: ast.expr | ast.stmt) -> Iterator[None]:
        """What the builder refuses is a mistake of the text, at the operand or else at `node`."""
        try:
            yield
        except RelaxpyError as error:
            raise self.values.located(error, self.program.span(node)) from None

    # --- statements

    def statement(self, node: ast.stmt) -> None:
        """Read one statement."""
        now = self.now
        self.values.forget()
        if now.returned is not None:
            raise self.after_return(node)
        if now.dataflow is not None and now.dataflow.done:
            raise self.error(node, "R.output ends its block: nothing may follow in it", rule="SC-7")
        now.around.append(node)
        try:
            self.dispatch(node)
        finally:
            now.around.pop()

    def after_return(self, node: ast.stmt) -> ParseError:
        """The error for a statement behind the result."""
        if isinstance(node, ast.Return):
            return self.error(node, "a function has one return, at its end", rule="AST-11")
        return self.error(node, "nothing follows the return of a function")

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
                self.with_dataflow(node)
            case ast.If():
                self.branch(node)
            case ast.Return():
                self.give_back(node)
            case ast.FunctionDef():
                self.local_function(node)
            case ast.Pass():
                return
            case _:
                raise refusal(self.program, node, "Relax")

    def assign(self, target: ast.expr, value: object, at: ast.expr) -> None:
        """Bind what `target` names to `value`."""
        match target:
            case ast.Name(id=name):
                self.bind(name, value, at, target)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                names = [part.id for part in parts if isinstance(part, ast.Name)]
                if len(set(names)) != len(names):
                    raise self.error(target, "a name is bound twice in one statement", rule="SC-9")
                for part, member in self.values.paired(target, self.members(value, at)):
                    self.assign(part, member, at)
            case _:
                raise self.error(
                    target,
                    "only names can be bound in Relax",
                    hint="values are not changed in place; bind the result to a new name",
                )

    def members(self, value: object, at: ast.expr) -> list[Any]:
        """What a value on the right of an unpacking gives."""
        if isinstance(value, rx.Tuple):
            return list(value.fields)
        if not isinstance(value, rx.Expr):
            return list(self.values.iterable(value, at))
        var = value
        if not isinstance(value, rx.Var):
            with self.at(at):
                var = self.builder.emit(value, span=self.program.span(at))
        info = self.builder.struct_info_of(var)
        if not isinstance(info, rx.TupleStructInfo):
            raise self.error(at, f"only a tuple can be taken apart, found {info}", rule="DER-32")
        span = self.program.span(at)
        return [rx.TupleGetItem(var, k, span=span) for k in range(len(info.fields))]

    def annotated(self, node: ast.AnnAssign) -> None:
        """Read `name: info = value`."""
        if not isinstance(node.target, ast.Name):
            raise self.error(node.target, "an annotation belongs to a name")
        if node.value is None:
            raise self.error(node, "a name is bound with a value: write name: info = value")
        annotation = self.info(self.values.value(node.annotation), node.annotation)
        value = self.values.value(node.value)
        self.bind(node.target.id, value, node.value, node.target, annotation)

    def info(self, value: object, at: ast.expr) -> rx.StructInfo:
        """The info that `value` stands for in a body, where strings are no dimensions."""
        try:
            return resolve(value)
        except RelaxpyError as error:
            place = None
            for part in ast.walk(at):
                if isinstance(part, ast.Constant) and part.value == error.about:
                    place = part
            raise as_parse_error(error, self.program.span(place or at)) from None

    def bind(
        self,
        name: str,
        value: object,
        at: ast.expr,
        target: ast.Name,
        annotation: rx.StructInfo | None = None,
    ) -> None:
        """Give `name` the meaning of `value`: Relax values are bound, Python's keep their names."""
        if isinstance(value, SizeVar) and not value.name:
            self.declare_size(name, value, at)
            return
        if isinstance(value, forms.EmitForm):
            value = value.value
        elif annotation is None and is_plain(value):
            self.scope.set(name, value)
            return
        var = self.new_var(name, target)
        span = self.program.span(target)
        found: rx.Var | None
        if isinstance(value, forms.MatchCastForm):
            expr = self.values.expression(value.value, at)
            info = self.cast_info(value, at)
            with self.at(at):
                found = self.builder.match_cast(
                    expr, info, annotation=annotation, var=var, span=span
                )
        else:
            expr = self.bindable(value, at)
            with self.at(at):
                found = self.builder.emit(expr, annotation=annotation, var=var, span=span)
        self.scope.set(name, found)

    def cast_info(self, form: forms.MatchCastForm, at: ast.expr) -> rx.StructInfo:
        """The info of a match_cast, located at its argument."""
        place = at
        if isinstance(at, ast.Call) and len(at.args) > 1:
            place = at.args[1]
        return self.info(form.annotation, place)

    def bindable(self, value: object, at: ast.expr) -> rx.Expr:
        """`value` as the right side of a binding: Python numbers are tensor literals there."""
        if isinstance(value, (bool, int, float)):
            return rx.const(value)
        return self.values.expression(value, at)

    def new_var(self, name: str, target: ast.expr) -> rx.Var:
        """A variable of this name, of the kind that the open block binds here."""
        flow = self.now.dataflow
        if flow is None or flow.outputs.get(name) in self.now.around:
            return rx.Var(name, None, self.program.span(target))
        return rx.DataflowVar(name, None, self.program.span(target))

    def declare_size(self, name: str, value: SizeVar, at: ast.expr) -> None:
        """Read `n = T.int64()`: the variable of the signature, or one for a match_cast to bind."""
        known = self.scope.find_bound(name)
        if isinstance(known, SizeVar):
            if known.dtype != value.dtype:
                raise self.error(
                    at,
                    f"{name!r} is {known.dtype} already, it cannot be {value.dtype}",
                    rule="PX-9",
                )
            return
        self.now.names[name] = value.renamed(name)

    def expression(self, node: ast.expr) -> None:
        """Read an expression on a line of its own."""
        if isinstance(node, ast.Constant) and node.value is ...:
            return
        value = self.values.value(node)
        match value:
            case None:
                return
            case forms.OutputForm():
                self.end_block(node)
            case forms.AttrsForm(of="function", attrs=attrs):
                self.func_attr(attrs, node)
            case forms.MatchCastForm(value=inner):
                expr = self.values.expression(inner, node)
                info = self.cast_info(value, node)
                with self.at(node):
                    self.builder.match_cast(expr, info, bind=False, span=self.program.span(node))
            case rx.Call() | forms.EmitForm():
                expr = self.values.expression(value, node)
                with self.at(node):
                    var = self.builder.emit(expr, "_", span=self.program.span(node))
                if self.builder.struct_info_of(var) != rx.TupleStructInfo(()):
                    raise self.error(
                        node,
                        "the value of this call is not used",
                        hint="bind it: _ = ...; only calls that give unit stand alone",
                    )
            case forms.DataflowForm():
                raise self.error(node, "a dataflow block is written with R.dataflow():")
            case _:
                raise self.error(node, f"{describe(value)} does nothing here")

    def func_attr(self, attrs: Mapping[str, object], node: ast.expr) -> None:
        """Read `R.func_attr({...})`."""
        if self.now.depth:
            raise self.error(node, "R.func_attr belongs to the top of the function")
        twice = sorted(set(attrs) & set(self.now.attrs))
        if twice:
            raise self.error(node, f"attribute {', '.join(twice)} is set twice")
        self.now.attrs.update(attrs)

    def give_back(self, node: ast.Return) -> None:
        """Read `return value`."""
        now = self.now
        if now.depth and now.dataflow is None:
            raise self.error(
                node,
                "return stands at the end of a function, not in a branch",
                rule="AST-11",
                hint="bind the same name in both branches and return that after the if",
            )
        if node.value is None:
            raise self.error(node, "return has a value", hint="`return ()` gives unit")
        now.returned = node
        expr = self.values.expression(self.values.value(node.value), node.value)
        with self.at(node.value):
            if now.dataflow is not None and not isinstance(expr, rx.Var):
                expr = self.builder.emit(expr, output=True, span=self.program.span(node.value))
            now.result = expr

    # --- blocks

    def with_dataflow(self, node: ast.With) -> None:
        """Read `with R.dataflow():`."""
        item = node.items[0]
        form = self.values.value(item.context_expr)
        if not isinstance(form, forms.DataflowForm):
            raise self.error(
                item.context_expr, f"with takes R.dataflow() in Relax, found {describe(form)}"
            )
        if len(node.items) > 1 or item.optional_vars is not None:
            extra = item.optional_vars or node.items[1].context_expr
            raise self.error(extra, "with R.dataflow() stands alone, without `as`")
        now = self.now
        if now.dataflow is not None:
            raise self.error(item.context_expr, "a dataflow block cannot stand inside another")
        flow = now.dataflow = Dataflow(self.outputs_of(node.body))
        now.depth += 1
        with self.at(item.context_expr):
            self.builder.begin_dataflow()
        with self.scope.inner() as names:
            self.statements.read(node.body, self.statement)
        now.dataflow = None
        now.depth -= 1
        self.builder.end_dataflow()
        self.hand_on(names, flow)

    def hand_on(self, names: Mapping[str, object], flow: Dataflow) -> None:
        """Leave a dataflow block: its outputs stay, what else it bound is remembered as gone."""
        for name, value in names.items():
            if name in flow.outputs or not isinstance(value, rx.DataflowVar):
                self.scope.set(name, value)
            elif self.scope.find(name) is MISSING:
                self.values.gone[name] = "it ends with its dataflow block"

    def outputs_of(self, nodes: Sequence[ast.stmt]) -> dict[str, ast.stmt | None]:
        """The names that a dataflow block hands on, each with the statement that binds it last."""
        names: dict[str, ast.stmt | None] = {}
        for node in nodes:
            match node:
                case ast.Expr(value=ast.Call(func=func, args=args)) if _ends_in(func, "output"):
                    given: Sequence[ast.expr] = args
                case ast.Return(value=ast.Name() as value):
                    given = [value]
                case ast.Return(value=ast.Tuple(elts=parts)):
                    given = parts
                case _:
                    continue
            names |= {part.id: None for part in given if isinstance(part, ast.Name)}
        for node in nodes:
            names |= dict.fromkeys((n for n in bound_names(node) if n in names), node)
        return names

    def end_block(self, node: ast.expr) -> None:
        """Read `R.output(...)`, whose names `outputs_of` has seen."""
        flow = self.now.dataflow
        assert isinstance(node, ast.Call)
        if flow is None:
            raise self.error(
                node, "R.output stands at the end of a dataflow block", hint="with R.dataflow():"
            )
        for part in node.args:
            if not isinstance(part, ast.Name):
                raise self.error(part, "R.output takes names of variables")
            if flow.outputs.get(part.id) is None:
                raise self.error(
                    part, f"{part.id!r} is not bound in this dataflow block", rule="SC-8"
                )
        flow.done = True

    # --- branches

    def branch(self, node: ast.If) -> None:
        """Read `if`: the name that both branches bind last is the result."""
        condition = self.values.value(node.test)
        if not isinstance(condition, (rx.Expr, PrimExpr)):
            chosen = node.body if self.values.truth(condition, node.test) else node.orelse
            self.statements.read(chosen, self.statement)
            return
        if self.now.dataflow is not None:
            raise WellFormedError(
                "an if cannot stand inside a dataflow block",
                rule="WF-7c",
                span=self.program.span(_first_word(node, 2)),
                hint="end the block before it and begin another one after it",
            )
        if not node.orelse:
            raise self.error(
                _first_word(node, 2),
                "an if in Relax has an else",
                rule="AST-13",
                hint="bind the same name in both branches",
            )
        name = self.result_name(node)
        test = self.values.expression(condition, node.test)
        annotations: list[rx.StructInfo] = []
        yes = self.arm(node.body, name, annotations)
        no = self.arm(node.orelse, name, annotations)
        if yes is None or no is None:
            raise Poisoned
        var = rx.Var(name, None, self.program.span(_first_word(node, 2)))
        self.values.forget()
        with self.at(node.test):
            span = self.program.span(node.test)
            found = self.builder.emit(
                rx.If(test, yes, no, span=span),
                var=var,
                annotation=reduce(struct_info_lca, annotations) if annotations else None,
                span=span,
            )
        self.scope.set(name, found)

    def result_name(self, node: ast.If) -> str:
        """The name that both branches bind last."""
        names = []
        for part in (node.body, node.orelse):
            last = part[-1]
            match last:
                case (
                    ast.Assign(targets=[ast.Name(id=name)])
                    | ast.AnnAssign(target=ast.Name(id=name))
                ):
                    names.append(name)
                case ast.If() if last.orelse:
                    names.append(self.result_name(last))
                case _:
                    if isinstance(last, ast.Return):
                        self.give_back_in_branch(last)
                    raise self.error(
                        last, "a branch ends by binding its result to a name", rule="AST-13"
                    )
        if names[0] != names[1]:
            raise self.error(
                node.orelse[-1],
                f"the branches bind {names[0]!r} and {names[1]!r} last, they must agree",
                rule="AST-13",
            )
        return names[0]

    def give_back_in_branch(self, node: ast.Return) -> None:
        """Refuse a return in a branch."""
        raise self.error(
            node,
            "return stands at the end of a function, not in a branch",
            rule="AST-11",
            hint="bind the same name in both branches and return that after the if",
        )

    def arm(
        self, nodes: Sequence[ast.stmt], name: str, annotations: list[rx.StructInfo]
    ) -> rx.SeqExpr | None:
        """One branch, its value being what `name` is bound to last; None if it is wrong."""
        *first, last = nodes
        now = self.now
        now.depth += 1
        before = len(self.report.errors)
        self.builder.begin_scope()
        try:
            with self.scope.inner():
                self.statements.read(first, self.statement)
                result: list[rx.Expr] = []

                def read_last(node: ast.stmt) -> None:
                    result.append(self.arm_value(node, name, annotations))

                self.statements.read([last], read_last)
                if len(self.report.errors) > before or not result:
                    return self.builder.end_scope()
                with self.at(last):
                    return self.builder.end_scope(result[0])
        finally:
            now.depth -= 1

    def arm_value(self, node: ast.stmt, name: str, annotations: list[rx.StructInfo]) -> rx.Expr:
        """The value that the last statement of a branch gives.

        A leaf is the value of the branch itself; its annotation is then one of the result.
        """
        self.values.forget()
        match node:
            case ast.Assign(targets=[target], value=value):
                found, info = self.values.value(value), None
            case ast.AnnAssign(target=target, annotation=annotation, value=ast.expr() as value):
                info = self.info(self.values.value(annotation), annotation)
                found = self.values.value(value)
            case _:
                self.dispatch(node)
                return self.bound(name)
        assert isinstance(target, ast.Name)
        if not isinstance(found, forms.Form):
            leaf = self.bindable(found, value)
            if is_leaf(leaf):
                with self.at(value):
                    known = self.builder.struct_info_of(leaf)
                if info is None or is_base_of(info, known):
                    annotations += [info] if info is not None else []
                    return leaf
            found = leaf
        self.bind(name, found, value, target, info)
        return self.bound(name)

    def bound(self, name: str) -> rx.Expr:
        """What `name` was just bound to."""
        found = self.scope.find(name)
        if not isinstance(found, rx.Expr):
            raise Poisoned
        return found

    # --- local functions

    def local_function(self, node: ast.FunctionDef) -> None:
        """Read a function inside a function."""
        decorator = None
        for part in node.decorator_list:
            value = self.values.value(part)
            if isinstance(value, forms.FunctionOptions):
                decorator = value
        if decorator is None or decorator.dialect != "relax":
            raise self.error(
                _name_of(node),
                "a function inside a function is decorated with @R.function",
                hint="kernels (@T.prim_func) belong into the module",
            )
        found = self.signature(node)
        recursive = any(
            isinstance(n, ast.Name) and n.id == node.name for s in node.body for n in ast.walk(s)
        )
        var = self.new_var(node.name, _name_of(node))
        if recursive:
            if isinstance(var, rx.DataflowVar):
                var = rx.Var(node.name, None, var.span)
            var = rx.Var(node.name, found.info(pure=decorator.pure), var.span)
            if node.returns is None:
                raise self.error(
                    _name_of(node),
                    f"{node.name!r} calls itself, so it needs a return annotation",
                    rule="WF-8a",
                )
            self.builder.declare(var)
            self.scope.set(node.name, var)
        func = self.function(node, found, pure=decorator.pure, private=True)
        if func is None:
            raise Poisoned
        with self.at(_name_of(node)):
            bound = self.builder.emit(func, var=var, span=self.program.span(_name_of(node)))
        self.scope.set(node.name, bound)


def _ends_in(node: ast.expr, name: str) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == name
    return isinstance(node, ast.Name) and node.id == name


def _first_word(node: ast.stmt, length: int) -> ast.expr:
    """A stand-in for the first word of a statement."""
    word = ast.Name("")
    word.lineno = word.end_lineno = node.lineno
    word.col_offset, word.end_col_offset = node.col_offset, node.col_offset + length
    return word


def _name_of(node: ast.FunctionDef) -> ast.expr:
    """A stand-in for the name in `def name(...)`."""
    word = ast.Name(node.name)
    word.lineno = word.end_lineno = node.lineno
    word.col_offset = node.col_offset + len("def ")
    word.end_col_offset = word.col_offset + len(node.name.encode())
    return word
