"""Statements of graph functions that bind names, stand alone, or give the result."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from relaxpy.errors import ParseError, RelaxpyError, Span
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir.expr import Var as SizeVar
from relaxpy.script.language import records as forms
from relaxpy.script.language.annotations import resolve
from relaxpy.script.language.legacy import matched_info
from relaxpy.script.language.wording import as_parse_error, describe
from relaxpy.script.parser.evaluate.displays import Lambda, lambda_named
from relaxpy.script.parser.graph.state import GraphState, Said
from relaxpy.script.parser.graph.values import is_plain
from relaxpy.script.parser.source.report import bound_names


class GraphBindings(GraphState):
    """Reads bindings."""

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
            self.annotated_before(node, node.target)
            return
        annotation = self.annotation(node.annotation)
        value = self.values.value(node.value)
        self.bind(node.target.id, value, node.value, node.target, annotation)

    def annotated_before(self, node: ast.AnnAssign, target: ast.Name) -> None:
        """Read `name: info` before the if or the function that the name is bound to."""
        match self.statements.following:
            case ast.If() as branches if target.id in bound_names(branches):
                pass
            case ast.FunctionDef(name=target.id):
                pass
            case _:
                raise self.without_value(node)
        self.now.said.name = target.id
        self.now.said.annotation = self.annotation(node.annotation)

    def without_value(self, node: ast.stmt | ast.expr) -> ParseError:
        """The error for an annotation that no binding follows."""
        return self.error(node, "a name is bound with a value: write name: info = value")

    def said(self) -> Said:
        """What was said of the variable that this statement is to bind."""
        found, self.now.said = self.now.said, Said()
        return found

    def bind_statement(self, value: rx.Expr, var: rx.Var, said: Said, at: ast.expr) -> None:
        """Bind an if or a function as is said of it before and around it."""
        if said.annotation is not None and said.name != var.name_hint:
            raise self.error(at, f"{said.name!r} is annotated before, this binds {var.name_hint!r}")
        span = self.program.span(at)
        found: rx.Var | None
        with self.at(at):
            if said.cast is None:
                found = self.builder.emit(value, annotation=said.annotation, var=var, span=span)
            else:
                found = self.builder.match_cast(
                    value,
                    said.cast,
                    annotation=said.annotation,
                    var=var,
                    bind=var.name_hint != "_",
                    span=span,
                )
        if found is not None:
            self.scope.set(var.name_hint, found)

    def annotation(self, node: ast.expr) -> rx.StructInfo:
        """The info that an annotation in a body gives."""
        with self.values.in_annotation():
            value = self.values.value(node)
        return self.info(value, node)

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
        if isinstance(value, SizeVar) and value.name in ("", name):
            self.declare_size(name, value, at)
            return
        if isinstance(value, forms.UnknownShape):
            value = self.values.settled(value, at)
        if isinstance(value, TypeVar):
            self.declare_size(name, SizeVar("", INT64), at)
            return
        if isinstance(value, Lambda):
            raise lambda_named(self.program, at)
        if isinstance(value, forms.EmitForm):
            annotation = value.annotation if annotation is None else annotation
            value = value.value
        elif annotation is None and is_plain(value):
            self.scope.set(name, value)
            return
        var = self.new_var(name, target)
        found: rx.Var | None
        if isinstance(value, rx.Expr) and annotation is None:
            named = self.builder.name_evaluated(value, name, type(var))
            if named is not None:
                self.scope.set(name, named)
                return
        if isinstance(value, (forms.MatchCastForm, forms.MatchShapeForm)):
            expr, info = self.cast_parts(value, at)
            with self.at(at):
                found = self.builder.match_cast(
                    expr, info, annotation=annotation, var=var, span=self.span_of_cast(at)
                )
        else:
            expr = self.bindable(value, at)
            with self.at(at):
                found = self.builder.emit(expr, annotation=annotation, var=var, span=var.span)
        self.scope.set(name, found)

    def cast(self, form: forms.MatchCastForm | forms.MatchShapeForm, node: ast.expr) -> rx.Expr:
        """The variable to which a cast inside an expression is bound."""
        expr, info = self.cast_parts(form, node)
        with self.at(node):
            found = self.builder.match_cast(expr, info, span=self.span_of_cast(node))
        assert found is not None
        return found

    def span_of_cast(self, node: ast.expr) -> Span:
        """Where the value stands that a cast checks when the program runs."""
        return self.program.span(_cast_value(node))

    def cast_parts(
        self, form: forms.MatchCastForm | forms.MatchShapeForm, at: ast.expr
    ) -> tuple[rx.Expr, rx.StructInfo]:
        """What a cast checks, and against which info, which is located at its argument."""
        expr = self.values.expression(form.value, _cast_value(at))
        if isinstance(form, forms.MatchShapeForm):
            with self.at(at):
                expr = self.builder.normalize(expr)
                return expr, matched_info(form, self.builder.struct_info_of(expr))
        place = at
        if isinstance(at, ast.Call) and len(at.args) > 1:
            place = at.args[1]
        info = self.info(form.annotation, place)
        if isinstance(info, rx.AnyStructInfo):
            info = replace(info, span=self.program.span(place))
        return expr, info

    def bindable(self, value: object, at: ast.expr) -> rx.Expr:
        """`value` as the right side of a binding: Python numbers are tensor literals there."""
        if isinstance(value, (bool, int, float)):
            return self.values.number(value, at) or rx.const(value)
        return self.values.expression(value, at)

    def new_var(self, name: str, target: ast.expr) -> rx.Var:
        """A variable of this name, of the kind that the open block binds here."""
        flow = self.now.dataflow
        outlasts = flow is None or flow.outputs.get(name) in self.now.around
        kind = rx.Var if outlasts else rx.DataflowVar
        return kind(name, None, self.program.span(target))

    def declare_size(self, name: str, value: SizeVar, at: ast.expr) -> None:
        """Read `n = T.int64()`: the variable of the signature, or one for a match_cast to bind."""
        known = self.now.sizes.get(name, self.scope.find_bound(name))
        if isinstance(known, SizeVar):
            if known.dtype != value.dtype:
                raise self.error(
                    at,
                    f"{name!r} is {known.dtype} already, it cannot be {value.dtype}",
                    rule="PX-9",
                )
        else:
            known = self.now.sizes[name] = value if value.name else value.renamed(name)
        if self.scope.find_bound(name) is not known:
            self.scope.set(name, known)

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
            case forms.MatchCastForm() | forms.MatchShapeForm():
                expr, info = self.cast_parts(value, node)
                with self.at(node):
                    self.builder.match_cast(expr, info, bind=False, span=self.span_of_cast(node))
            case rx.Call() | forms.EmitForm():
                self.emit_unit(value, node)
            case forms.DataflowForm():
                raise self.error(node, "a dataflow block is written with R.dataflow():")
            case _:
                raise self.error(node, f"{describe(value)} does nothing here")

    def emit_unit(self, value: object, node: ast.expr) -> rx.Var:
        """The variable of a call on a line of its own, which gives unit."""
        expr = self.values.expression(value, node)
        with self.at(node):
            if isinstance(expr, rx.Var) and expr is not value:
                var = expr
            else:
                var = self.builder.emit(expr, "_", span=self.program.span(node))
        if self.builder.struct_info_of(var) != rx.TupleStructInfo(()):
            raise self.error(
                node,
                "the value of this call is not used",
                hint="bind it: _ = ...; only calls that give unit stand alone",
            )
        return var

    def end_block(self, node: ast.expr) -> None:
        """Read `R.output(...)`, whose names `outputs_of` has seen."""
        flow = self.now.dataflow
        if flow is None or not isinstance(node, ast.Call):
            raise self.error(
                node, "R.output stands at the end of a dataflow block", hint="with R.dataflow():"
            )
        for part in node.args:
            if not isinstance(part, ast.Name):
                raise self.error(part, "R.output takes names of variables")
            if part.id not in flow.outputs:
                raise self.error(
                    node, "R.output stands directly in its dataflow block, at its end", rule="SC-7"
                )
            if flow.outputs[part.id] is None:
                raise self.error(
                    part, f"{part.id!r} is not bound in this dataflow block", rule="SC-8"
                )
            self.hand_out(part)
        flow.done = True

    def hand_out(self, node: ast.Name) -> None:
        """Make an output of what was bound where only reading showed which binding is the last."""
        found = self.scope.find(node.id)
        if isinstance(found, rx.DataflowVar):
            span = self.program.span(node)
            with self.at(node):
                bound = self.builder.emit(found, var=rx.Var(node.id, None, span), span=span)
            self.scope.set(node.id, bound)

    # --- the function as a whole

    def func_attr(self, attrs: Mapping[str, object], node: ast.expr) -> None:
        """Read `R.func_attr({...})`."""
        if self.now.depth:
            raise self.error(node, "R.func_attr belongs to the top of the function")
        with self.at(node):
            forms.added_attributes(self.now.attrs, attrs)
        for key, value in attrs.items():
            if key == "pure":
                # LEG-15: what callers rely on is found before the body is read.
                if value is not self.now.pure:
                    raise self.error(node, "pure is written out, as True or False", rule="LEG-15")
                continue
            self.now.attrs["relax.force_pure" if key == "force_pure" else key] = value

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
            inside = isinstance(expr, rx.DataflowVar) or not isinstance(expr, rx.Var)
            if now.dataflow is not None and inside:
                expr = self.builder.emit(expr, output=True, span=self.program.span(node.value))
            now.result = expr


def _cast_value(node: ast.expr) -> ast.expr:
    """What is cast in the call of a cast."""
    return node.args[0] if isinstance(node, ast.Call) and node.args else node
