"""Dataflow blocks and branches of graph functions."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from relaxpy.errors import StructInfoTypeError
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.script.language import records
from relaxpy.script.language.graph_builder import Branch
from relaxpy.script.language.relax_directives import match_cast
from relaxpy.script.language.wording import describe, shown
from relaxpy.script.parser.evaluate.conditions import fold_condition
from relaxpy.script.parser.graph import bindings
from relaxpy.script.parser.graph.expressions import is_plain
from relaxpy.script.parser.graph.state import Dataflow, GraphState, Pending, ends_in, if_keyword
from relaxpy.script.parser.source import MISSING, POISON, Poisoned, bound_names
from relaxpy.support.dataclass import replace

if TYPE_CHECKING:
    from relaxpy.script.parser.graph.relax_function import GraphReader


def with_statement(state: GraphReader, node: ast.With) -> None:
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
        with state.scope.block():
            state.statements.read(node.body, state.statement)
        return
    now = state.now
    state.check_block(item.context_expr)
    flow = now.dataflow = Dataflow(outputs_of(state, node.body))
    now.depth += 1
    with state.at(item.context_expr):
        state.builder.begin_dataflow()
    with state.scope.block() as names:
        state.statements.read(node.body, state.statement)
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


def cast_block(state: GraphReader, node: ast.With, sinfo: rx.StructInfo) -> None:
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
    state.statements.read(node.body, state.statement)
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


def if_statement(state: GraphReader, node: ast.If) -> None:
    """Read `if`: the name that both branches bind last is the result."""
    pending = bindings.take_pending(state)
    condition = fold_condition(state.values.value(node.test))
    if isinstance(condition, PrimExpr):
        asked = ast.unparse(node.test) + ("" if condition.dtype.is_bool else " != 0")
        raise StructInfoTypeError(
            f"a condition is a Boolean tensor of rank 0, found {describe(condition)}",
            rule="DER-9",
            span=state.span(node.test),
            hint=f"write R.logical_and({asked}, R.const(True))",
        )
    is_tuple = isinstance(node.test, (ast.Tuple, ast.List)) and not is_plain(condition)
    if isinstance(node.test, ast.Constant) and isinstance(condition, bool) and node.orelse:
        # A literal keeps both branches; a branch is chosen at parse time by a variable of Python.
        condition = replace(rx.const(condition), span=state.span(node.test))
    if not (is_tuple or isinstance(condition, (rx.Expr, PrimExpr))):
        known_branch(state, node, pending, known=state.values.truth(condition, node.test))
        return
    state.check_if(if_keyword(node))
    if not node.orelse:
        refuse_if_without_else(state, node)
    name = result_name(state, node)
    test = state.expression(condition, node.test)
    then = read_branch(state, node.body, name)
    orelse = read_branch(state, node.orelse, name)
    if then is None or orelse is None:
        raise Poisoned
    var = rx.Var(name, None, state.span(if_keyword(node)))
    state.values.forget()
    annotation = state.annotation_of((then, orelse))
    if pending.annotation is None and annotation is not None:
        pending = Pending(name, annotation, pending.cast)
    value = rx.If(test, then.value, orelse.value, span=state.span(node.test))
    bindings.bind_compound(state, value, var, pending, node.test)


def known_branch(state: GraphReader, node: ast.If, pending: Pending, *, known: bool) -> None:
    """Read the branch that is taken as statements of the enclosing block."""
    state.now.pending = pending
    state.statements.read(node.body if known else node.orelse, state.statement)
    state.scope.hide(bound_names(node))  # those of the other branch
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
    return state.common_name(names, node.orelse[-1])


def refuse_if_without_else(state: GraphState, node: ast.If) -> NoReturn:
    """Report an if that has one branch."""
    raise state.error(
        if_keyword(node),
        "an if in Relax has an else",
        rule="AST-13",
        hint="bind the same name in both branches",
    )


def read_branch(state: GraphReader, nodes: Sequence[ast.stmt], name: str) -> Branch | None:
    """Parse a branch, whose value is the last value of `name`; None if it has errors."""
    *first, last = nodes
    now = state.now
    now.depth += 1
    before = len(state.report.errors)
    try:
        with state.builder.inner_scope(), state.scope.block():
            state.statements.read(first, state.statement, last)
            branch: list[Branch] = []
            state.statements.read([last], lambda node: branch.append(end_branch(state, node, name)))
            return branch[0] if branch and len(state.report.errors) == before else None
    finally:
        now.depth -= 1


def end_branch(state: GraphReader, node: ast.stmt, name: str) -> Branch:
    """End the branch whose last statement is `node`.

    A leaf is the value of the branch itself; its annotation then applies to the result.
    """
    state.values.forget()
    if isinstance(node, ast.Expr):
        unit = bindings.emit_unit(state, state.values.value(node.value), node.value)
        return state.end_branch(unit, node)
    state.dispatch(node)
    result = state.scope.find(name)
    if not isinstance(result, rx.Expr):
        if not isinstance(node, ast.Assign) or result is POISON:
            raise Poisoned
        result = state.bindable(result, node.value)
    return state.end_branch(result, node)
