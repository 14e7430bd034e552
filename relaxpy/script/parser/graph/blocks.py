"""Dataflow blocks and branches of graph functions."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NoReturn

from relaxpy.errors import StructInfoTypeError, WellFormedError
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.normalize import is_leaf
from relaxpy.ir.relax.relations import is_base_of, struct_info_lca
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.script.language import records
from relaxpy.script.language.relax_directives import match_cast
from relaxpy.script.language.wording import describe, shown
from relaxpy.script.parser.evaluate.conditions import fold_condition
from relaxpy.script.parser.graph import bindings
from relaxpy.script.parser.graph.expressions import is_plain
from relaxpy.script.parser.graph.state import Dataflow, GraphState, Pending, ends_in, if_keyword
from relaxpy.script.parser.source import MISSING, Poisoned, bound_names
from relaxpy.support.dataclass import replace


def with_statement(state: GraphState, node: ast.With) -> None:
    """Read `with R.dataflow():`, or `with R.SeqExpr():`, whose bindings are added here (NF-14)."""
    item = node.items[0]
    match item.context_expr:
        case ast.Call(func, [ast.Constant(value=first), sinfo]) if first is ...:
            if state.values.value(func) is match_cast:
                check_alone(state, node, "R.match_cast(..., sinfo)")
                cast_block(state, node, bindings.annotated_sinfo(state, sinfo))
                return
    form = state.values.value(item.context_expr)
    if not isinstance(form, (records.DataflowForm, records.SeqForm)):
        raise state.error(
            item.context_expr,
            f"with takes R.dataflow() in Relax, found {describe(form)}",
            hint=f"call it: {shown(item.context_expr)}()" if inspect.isroutine(form) else None,
        )
    check_alone(state, node, f"{form.display_name}()")
    if isinstance(form, records.SeqForm):
        with state.scope.inner():
            state.statements.read(node.body, state.reader.statement)
        return
    now = state.now
    if now.dataflow is not None:
        raise state.error(item.context_expr, "a dataflow block cannot be inside another one")
    flow = now.dataflow = Dataflow(outputs_of(state, node.body))
    now.depth += 1
    with state.at(item.context_expr):
        state.builder.begin_dataflow()
    with state.scope.inner() as names:
        state.statements.read(node.body, state.reader.statement)
    now.dataflow = None
    now.depth -= 1
    state.builder.end_dataflow()
    leave_block(state, names, flow)


def check_alone(state: GraphState, node: ast.With, display_name: str) -> None:
    """Errors: ParseError if `with` has several items, or an `as`."""
    first, *others = node.items
    if others or first.optional_vars is not None:
        extra = first.optional_vars or others[0].context_expr
        raise state.error(extra, f"with {display_name} is used alone, without `as`")


def cast_block(state: GraphState, node: ast.With, sinfo: rx.StructInfo) -> None:
    """Read `with R.match_cast(..., sinfo):`, which casts the value of the if or function in it."""
    item = node.items[0]
    match node.body:
        case [ast.If() | ast.FunctionDef()]:
            pass
        case [ast.AnnAssign(value=None), ast.If() | ast.FunctionDef()]:
            pass
        case _:
            raise state.error(
                item.context_expr,
                "with R.match_cast(..., sinfo) contains one if or one function",
                hint="other values replace the dots",
            )
    pending = state.now.pending = Pending(cast=sinfo)
    state.statements.read(node.body, state.reader.statement)
    if state.now.pending is pending:
        state.now.pending = Pending()
        raise state.error(
            item.context_expr, "an if that is decided at parse time has no value to cast"
        )


def leave_block(state: GraphState, names: Mapping[str, object], flow: Dataflow) -> None:
    """Leave a dataflow block: keep its outputs, and record which names are no longer visible."""
    for name, value in names.items():
        if name in flow.outputs or not isinstance(value, rx.DataflowVar):
            state.scope.set(name, value)
        elif state.scope.find(name) is MISSING:
            state.values.ended[name] = "it ends with its dataflow block"


def outputs_of(state: GraphState, nodes: Sequence[ast.stmt]) -> dict[str, ast.stmt | None]:
    """The outputs of a dataflow block, each with the statement that binds it last."""
    names: dict[str, ast.stmt | None] = {}
    for node in nodes:
        match node:
            case ast.Expr(value=ast.Call(func=func, args=args)) if ends_in(func, "output"):
                outputs: Sequence[ast.expr] = args
            case ast.Return(value=ast.Name() as value):
                outputs = [value]
            case ast.Return(value=ast.Tuple(elts=elements)):
                outputs = elements
            case _:
                continue
        names |= {output.id: None for output in outputs if isinstance(output, ast.Name)}
    for node in nodes:
        names |= dict.fromkeys((n for n in bound_names(node) if n in names), node)
    return names


def if_statement(state: GraphState, node: ast.If) -> None:
    """Read `if`: the name that both branches bind last is the result."""
    pending = bindings.take_pending(state)
    condition = fold_condition(state.values.value(node.test))
    if isinstance(condition, PrimExpr):
        raise StructInfoTypeError(
            f"a condition is a Boolean tensor of rank 0, found {describe(condition)}",
            rule="DER-9",
            span=state.program.span(node.test),
            hint=f"write R.logical_and({ast.unparse(node.test)}, R.const(True))",
        )
    is_tuple = isinstance(node.test, (ast.Tuple, ast.List)) and not is_plain(condition)
    if isinstance(node.test, ast.Constant) and isinstance(condition, bool) and node.orelse:
        # A literal keeps both branches; a branch is chosen at parse time by a variable of Python.
        condition = replace(rx.const(condition), span=state.program.span(node.test))
    if not (is_tuple or isinstance(condition, (rx.Expr, PrimExpr))):
        known_branch(state, node, pending, known=state.values.truth(condition, node.test))
        return
    now = state.now
    if now.dataflow is not None:
        raise WellFormedError(
            "an if cannot be inside a dataflow block",
            rule="WF-7c",
            span=state.program.span(if_keyword(node)),
            hint="end the block before it and begin another one after it",
        )
    if not node.orelse:
        refuse_if_without_else(state, node)
    name = result_name(state, node)
    test = state.values.expression(condition, node.test)
    annotations: list[rx.StructInfo] = []
    then = read_branch(state, node.body, name, annotations)
    orelse = read_branch(state, node.orelse, name, annotations)
    if then is None or orelse is None:
        raise Poisoned
    var = rx.Var(name, None, state.program.span(if_keyword(node)))
    state.values.forget()
    if pending.annotation is None and annotations:
        pending = Pending(name, reduce(struct_info_lca, annotations), pending.cast)
    value = rx.If(test, then, orelse, span=state.program.span(node.test))
    bindings.bind_compound(state, value, var, pending, node.test)


def known_branch(state: GraphState, node: ast.If, pending: Pending, *, known: bool) -> None:
    """Read the branch that is taken as statements of the enclosing block."""
    state.now.pending = pending
    state.statements.read(node.body if known else node.orelse, state.reader.statement)
    if state.now.pending is pending and pending.annotation is not None:
        state.now.pending = Pending()
        raise bindings.missing_value(state, node.test)


def result_name(state: GraphState, node: ast.If) -> str:
    """The name that both branches bind last."""
    names = []
    for branch in (node.body, node.orelse):
        last = branch[-1]
        match last:
            case (
                ast.Assign(targets=[ast.Name(id=name)])
                | ast.AnnAssign(target=ast.Name(id=name))
                | ast.FunctionDef(name=name)
            ):
                names.append(name)
            case ast.If() if last.orelse:
                names.append(result_name(state, last))
            case ast.Expr(value=ast.Call()):
                names.append("_")
            case ast.With(
                body=[
                    *_,
                    ast.Expr(
                        value=ast.Call(
                            func=ast.Attribute(attr="output"), args=[ast.Name(id=name)], keywords=[]
                        )
                    ),
                ]
            ):
                names.append(name)
            case _:
                if isinstance(last, ast.Return):
                    raise bindings.return_in_branch(state, last)
                if isinstance(last, ast.If):
                    refuse_if_without_else(state, last)
                raise state.error(
                    last, "a branch ends by binding its result to a name", rule="AST-13"
                )
    if names[0] != names[1]:
        raise state.error(
            node.orelse[-1],
            f"the branches bind {names[0]!r} and {names[1]!r} last, they must agree",
            rule="AST-13",
            hint="bind the same name last in both branches",
        )
    return names[0]


def refuse_if_without_else(state: GraphState, node: ast.If) -> NoReturn:
    """Report an if that has one branch."""
    raise state.error(
        if_keyword(node),
        "an if in Relax has an else",
        rule="AST-13",
        hint="bind the same name in both branches",
    )


def read_branch(
    state: GraphState, nodes: Sequence[ast.stmt], name: str, annotations: list[rx.StructInfo]
) -> rx.SeqExpr | None:
    """Parse a branch, whose value is the last value of `name`; None if it has errors."""
    *first, last = nodes
    now = state.now
    now.depth += 1
    before = len(state.report.errors)
    state.builder.begin_scope()
    try:
        with state.scope.inner():
            state.statements.read(first, state.reader.statement, last)
            result: list[rx.Expr] = []

            def read_last(node: ast.stmt) -> None:
                result.append(branch_value(state, node, name, annotations))

            state.statements.read([last], read_last)
            if len(state.report.errors) > before or not result:
                return state.builder.end_scope()
            with state.at(last):
                return state.builder.end_scope(result[0])
    finally:
        now.depth -= 1


def branch_value(
    state: GraphState, node: ast.stmt, name: str, annotations: list[rx.StructInfo]
) -> rx.Expr:
    """The value of the last statement of a branch.

    A leaf is the value of the branch itself; its annotation then applies to the result.
    """
    state.values.forget()
    match node:
        case ast.Assign(targets=[target], value=value):
            result, sinfo = state.values.value(value), None
        case ast.AnnAssign(target=target, annotation=annotation, value=ast.expr() as value):
            sinfo = bindings.annotated_sinfo(state, annotation)
            result = state.values.value(value)
        case ast.Expr(value=call):
            return bindings.emit_unit(state, state.values.value(call), call)
        case _:
            state.reader.dispatch(node)
            return bound_value(state, name)
    assert isinstance(target, ast.Name)
    if not isinstance(result, records.Form):
        leaf = bindings.bindable(state, result, value)
        if is_leaf(leaf):
            with state.at(value):
                known = state.builder.struct_info_of(leaf)
            if sinfo is None or is_base_of(sinfo, known):
                annotations += [sinfo] if sinfo is not None else []
                return leaf
        result = leaf
    bindings.bind(state, name, result, value, target, sinfo)
    return bound_value(state, name)


def bound_value(state: GraphState, name: str) -> rx.Expr:
    """The value to which `name` was just bound."""
    value = state.scope.find(name)
    if not isinstance(value, rx.Expr):
        raise Poisoned
    return value
