"""Dataflow blocks and branches of graph functions."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

from relaxpy.errors import StructInfoTypeError, WellFormedError
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.normalize import is_leaf
from relaxpy.ir.relax.relations import is_base_of, struct_info_lca
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.script.language import records as forms
from relaxpy.script.language.relax_directives import match_cast
from relaxpy.script.language.wording import describe, shown
from relaxpy.script.parser.evaluate.comparisons import decided
from relaxpy.script.parser.graph.bindings import GraphBindings
from relaxpy.script.parser.graph.state import Dataflow, Said, ends_in, first_word
from relaxpy.script.parser.graph.values import is_plain
from relaxpy.script.parser.source.report import bound_names
from relaxpy.script.parser.source.scope import MISSING, Poisoned


class GraphBlocks(GraphBindings):
    """Reads statements that hold statements."""

    # --- blocks

    def with_block(self, node: ast.With) -> None:
        """Read `with R.dataflow():`, or `with R.SeqExpr():`, whose bindings stand here (NF-14)."""
        item = node.items[0]
        match item.context_expr:
            case ast.Call(func, [ast.Constant(value=first), info]) if first is ...:
                if self.values.value(func) is match_cast:
                    self.check_alone(node, "R.match_cast(..., info)")
                    self.cast_block(node, self.annotation(info))
                    return
        form = self.values.value(item.context_expr)
        if not isinstance(form, (forms.DataflowForm, forms.SeqForm)):
            raise self.error(
                item.context_expr,
                f"with takes R.dataflow() in Relax, found {describe(form)}",
                hint=f"call it: {shown(item.context_expr)}()" if callable(form) else None,
            )
        self.check_alone(node, f"{form.spoken}()")
        if isinstance(form, forms.SeqForm):
            with self.scope.inner():
                self.statements.read(node.body, self.statement)
            return
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

    def check_alone(self, node: ast.With, spoken: str) -> None:
        """Errors: ParseError if there is more behind `with` than one thing, which has no name."""
        first, *others = node.items
        if others or first.optional_vars is not None:
            extra = first.optional_vars or others[0].context_expr
            raise self.error(extra, f"with {spoken} stands alone, without `as`")

    def cast_block(self, node: ast.With, info: rx.StructInfo) -> None:
        """Read `with R.match_cast(..., info):`, which casts what the if or function in it gives."""
        item = node.items[0]
        match node.body:
            case [ast.If() | ast.FunctionDef()]:
                pass
            case [ast.AnnAssign(value=None), ast.If() | ast.FunctionDef()]:
                pass
            case _:
                raise self.error(
                    item.context_expr,
                    "with R.match_cast(..., info) holds one if or one function",
                    hint="other values stand in the place of the dots",
                )
        said = self.now.said = Said(cast=info)
        self.statements.read(node.body, self.statement)
        if self.now.said is said:
            self.now.said = Said()
            raise self.error(item.context_expr, "an if known ahead gives no value to be cast")

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
                case ast.Expr(value=ast.Call(func=func, args=args)) if ends_in(func, "output"):
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

    def branch(self, node: ast.If) -> None:
        """Read `if`: the name that both branches bind last is the result."""
        said = self.said()
        condition = decided(self.values.value(node.test))
        if isinstance(condition, PrimExpr):
            raise StructInfoTypeError(
                f"a condition is a Boolean tensor of rank 0, found {describe(condition)}",
                rule="DER-9",
                span=self.program.span(node.test),
                hint="what depends on sizes is chosen inside kernels, in a @T.prim_func",
            )
        written = isinstance(node.test, (ast.Tuple, ast.List)) and not is_plain(condition)
        if isinstance(node.test, ast.Constant) and isinstance(condition, bool) and node.orelse:
            # Both branches are meant: what is chosen while reading is chosen by a name of Python's.
            condition = replace(rx.const(condition), span=self.program.span(node.test))
        if not (written or isinstance(condition, (rx.Expr, PrimExpr))):
            self.known_branch(node, said, known=self.values.truth(condition, node.test))
            return
        now = self.now
        if now.dataflow is not None:
            raise WellFormedError(
                "an if cannot stand inside a dataflow block",
                rule="WF-7c",
                span=self.program.span(first_word(node, 2)),
                hint="end the block before it and begin another one after it",
            )
        if not node.orelse:
            raise self.error(
                first_word(node, 2),
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
        var = rx.Var(name, None, self.program.span(first_word(node, 2)))
        self.values.forget()
        if said.annotation is None and annotations:
            said = Said(name, reduce(struct_info_lca, annotations), said.cast)
        found = rx.If(test, yes, no, span=self.program.span(node.test))
        self.bind_statement(found, var, said, node.test)

    def known_branch(self, node: ast.If, said: Said, *, known: bool) -> None:
        """Read the branch that is taken: statements of the block around."""
        self.now.said = said
        self.statements.read(node.body if known else node.orelse, self.statement)
        if self.now.said is said and said.annotation is not None:
            self.now.said = Said()
            raise self.without_value(node.test)

    def result_name(self, node: ast.If) -> str:
        """The name that both branches bind last."""
        names = []
        for part in (node.body, node.orelse):
            last = part[-1]
            match last:
                case (
                    ast.Assign(targets=[ast.Name(id=name)])
                    | ast.AnnAssign(target=ast.Name(id=name))
                    | ast.FunctionDef(name=name)
                ):
                    names.append(name)
                case ast.If() if last.orelse:
                    names.append(self.result_name(last))
                case ast.Expr(value=ast.Call()):
                    names.append("_")
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
                self.statements.read(first, self.statement, last)
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
                info = self.annotation(annotation)
                found = self.values.value(value)
            case ast.Expr(value=call):
                return self.emit_unit(self.values.value(call), call)
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
