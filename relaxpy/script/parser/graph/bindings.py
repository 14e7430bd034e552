"""Statements of graph functions: bindings, expression statements, and the result."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, TypeVar

from relaxpy.errors import ParseError
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir.expr import Var as SizeVar
from relaxpy.script.language import records
from relaxpy.script.language.wording import describe
from relaxpy.script.parser.evaluate import displays
from relaxpy.script.parser.graph.expressions import is_plain
from relaxpy.script.parser.graph.state import GraphState, Pending
from relaxpy.script.parser.source import bound_names


def assign(state: GraphState, target: ast.expr, value: object, at: ast.expr) -> None:
    """Bind the names of `target` to `value`."""
    match target:
        case ast.Name(id=name):
            bind(state, name, value, at, target)
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            names = [element.id for element in elements if isinstance(element, ast.Name)]
            if len(set(names)) != len(names):
                raise state.error(target, "a name is bound twice in one statement", rule="SC-9")
            for element, member in displays.paired(
                state.values, target, tuple_members(state, value, at)
            ):
                assign(state, element, member, at)
        case _:
            copies = "R.slice_scatter and R.index_put return a changed copy"
            hint = copies if isinstance(target, ast.Subscript) else "bind the result to a new name"
            raise state.error(
                target,
                "only names can be bound in Relax",
                hint=f"values are not changed in place; {hint}",
            )


def tuple_members(state: GraphState, value: object, at: ast.expr) -> list[Any]:
    """The members of an unpacked value."""
    if isinstance(value, rx.Tuple):
        return list(value.fields)
    if not isinstance(value, rx.Expr):
        return list(state.values.iterable(value, at))
    var = value
    if not isinstance(value, rx.Var):
        var = state.emit(value, at)
    sinfo = state.builder.struct_info_of(var)
    if not isinstance(sinfo, rx.TupleStructInfo):
        raise state.error(at, f"only a tuple can be unpacked, found {sinfo}", rule="DER-32")
    span = state.span(at)
    return [rx.TupleGetItem(var, k, span=span) for k in range(len(sinfo.fields))]


def annotated_assign(state: GraphState, node: ast.AnnAssign) -> None:
    """Read `name: annotation = value`."""
    if not isinstance(node.target, ast.Name):
        raise state.error(node.target, "an annotation belongs to a name")
    if node.value is None:
        read_pending_annotation(state, node, node.target)
        return
    annotation = annotated_sinfo(state, node.annotation)
    value = state.values.value(node.value)
    bind(state, node.target.id, value, node.value, node.target, annotation)


def read_pending_annotation(state: GraphState, node: ast.AnnAssign, target: ast.Name) -> None:
    """Read `name: annotation` before the if or the function that binds the name."""
    match state.statements.following:
        case ast.If() as if_ if target.id in bound_names(if_):
            pass
        case ast.FunctionDef(name=target.id):
            pass
        case _:
            raise missing_value(state, node)
    state.now.pending.name = target.id
    state.now.pending.annotation = annotated_sinfo(state, node.annotation)


def missing_value(state: GraphState, node: ast.stmt | ast.expr) -> ParseError:
    """Create the error for an annotation that no binding follows."""
    return state.error(node, "a name is bound with a value: write name: sinfo = value")


def take_pending(state: GraphState) -> Pending:
    """Return, and clear, the annotation and the cast of the variable that this statement binds."""
    pending, state.now.pending = state.now.pending, Pending()
    return pending


def bind_compound(
    state: GraphState, value: rx.Expr, var: rx.Var, pending: Pending, at: ast.expr
) -> None:
    """Bind an if or a function to `var`, with the annotation and the cast that precede it."""
    if pending.annotation is not None and pending.name != var.name_hint:
        raise state.error(
            at, f"the annotation before it is of {pending.name!r}, this binds {var.name_hint!r}"
        )
    options: dict[str, Any] = {"annotation": pending.annotation, "var": var, "span": state.span(at)}
    bound: rx.Var | None
    with state.at(at):
        if pending.cast is None:
            bound = state.builder.emit(value, **options)
        else:
            options["bind"] = var.name_hint != "_"
            bound = state.builder.match_cast(value, pending.cast, **options)
    if bound is not None:
        state.scope.set(var.name_hint, bound)


def annotated_sinfo(state: GraphState, node: ast.expr) -> rx.StructInfo:
    """The struct info of an annotation in a body."""
    with state.values.in_annotation():
        value = state.values.value(node)
    return state.struct_info_at(value, node)


def bind(
    state: GraphState,
    name: str,
    value: object,
    at: ast.expr,
    target: ast.Name,
    annotation: rx.StructInfo | None = None,
) -> None:
    """Bind `name` to `value`: a Relax value gets a binding, a Python value keeps its name."""
    if isinstance(value, SizeVar) and value.name in ("", name):
        declare_shape_var(state, name, value, at)
        return
    if isinstance(value, records.UnknownShape):
        value = state.values.bind_casts(value, at)
    if isinstance(value, TypeVar):
        declare_shape_var(state, name, SizeVar("", INT64), at)
        return
    if isinstance(value, displays.Lambda):
        raise displays.lambda_named(state.program, at)
    if isinstance(value, records.EmitForm):
        annotation = value.annotation if annotation is None else annotation
        value = value.value
    elif annotation is None and is_plain(value):
        state.scope.set(name, value)
        return
    var = new_variable(state, name, target)
    bound: rx.Var | None = None
    if isinstance(value, rx.Expr) and annotation is None:
        bound = state.builder.name_evaluated(value, name, type(var))
    if isinstance(value, (records.MatchCastForm, records.MatchShapeForm)):
        bound = state.cast(value, at, annotation=annotation, var=var)
    elif bound is None:
        expr = state.bindable(value, at)
        bound = state.emit(expr, at, annotation=annotation, var=var, span=var.span)
    state.scope.set(name, bound)


def new_variable(state: GraphState, name: str, target: ast.expr) -> rx.Var:
    """Create a variable of this name, of the kind that the open block binds here."""
    flow = state.now.dataflow
    is_output = flow is None or flow.outputs.get(name) in state.now.enclosing
    kind = rx.Var if is_output else rx.DataflowVar
    return kind(name, None, state.span(target))


def declare_shape_var(state: GraphState, name: str, value: SizeVar, at: ast.expr) -> None:
    """Read `n = T.int64()`: the variable of the signature, or one for a match_cast to bind."""
    known = state.now.shape_vars.get(name, state.scope.find_bound(name))
    if isinstance(known, SizeVar):
        if known.dtype != value.dtype:
            raise state.error(
                at,
                f"{name!r} is {known.dtype} already, it cannot be {value.dtype}",
                rule="PX-9",
                hint=f"write {name} = T.{known.dtype}()",
            )
    else:
        known = state.now.shape_vars[name] = value if value.name else value.renamed(name)
    if state.scope.find_bound(name) is not known:
        state.scope.set(name, known)


def expression_statement(state: GraphState, node: ast.expr) -> None:
    """Read an expression statement."""
    if isinstance(node, ast.Constant) and node.value is ...:
        return
    value = state.values.value(node)
    match value:
        case None:
            return
        case records.OutputForm():
            output_statement(state, node)
        case records.AttrsForm(owner="function", attrs=attrs):
            func_attr(state, attrs, node)
        case records.MatchCastForm() | records.MatchShapeForm():
            state.cast(value, node, bind=False)
        case rx.Call() | records.EmitForm() | rx.Tuple(fields=()):
            emit_unit(state, value, node)
        case records.DataflowForm():
            raise state.error(node, "a dataflow block is written with R.dataflow():")
        case _:
            raise state.error(node, f"{describe(value)} does nothing here")


def emit_unit(state: GraphState, value: object, node: ast.expr) -> rx.Expr:
    """Bind a call in an expression statement, which returns unit."""
    expr = state.expression(value, node)
    is_bound = expr is not value and isinstance(expr, rx.Var)
    var = expr if is_bound else state.emit(expr, node, "_")
    if state.builder.struct_info_of(var) != rx.TupleStructInfo(()):
        raise state.error(
            node,
            "the value of this call is not used",
            hint="bind it: _ = ...; only calls that return unit are statements",
        )
    return var


def output_statement(state: GraphState, node: ast.expr) -> None:
    """Read `R.output(...)`, whose names `outputs_of` has collected."""
    flow = state.now.dataflow
    if flow is None or not isinstance(node, ast.Call):
        raise state.error(
            node, "R.output belongs at the end of a dataflow block", hint="with R.dataflow():"
        )
    for arg in node.args:
        if not isinstance(arg, ast.Name):
            raise state.error(arg, "R.output takes names of variables")
        if arg.id not in flow.outputs:
            raise state.error(
                node, "R.output belongs directly in its dataflow block, at its end", rule="SC-7"
            )
        if flow.outputs[arg.id] is None:
            raise state.error(arg, f"{arg.id!r} is not bound in this dataflow block", rule="SC-8")
        emit_output(state, arg)
    flow.done = True


def emit_output(state: GraphState, node: ast.Name) -> None:
    """Bind an output again if it was bound as a local variable, as in an unrolled loop."""
    value = state.scope.find(node.id)
    if isinstance(value, rx.DataflowVar):
        bound = state.emit(value, node, var=rx.Var(node.id, None, state.span(node)))
        state.scope.set(node.id, bound)


def func_attr(state: GraphState, attrs: Mapping[str, object], node: ast.expr) -> None:
    """Read `R.func_attr({...})`."""
    if state.now.depth:
        raise state.error(node, "R.func_attr belongs at the top of the function")
    with state.at(node):
        records.check_added_attributes(state.now.attrs, attrs)
    for key, value in attrs.items():
        if key == "pure":
            # LEG-15: purity was determined before the body was parsed, since callers rely on it.
            if value is not state.now.pure:
                raise state.error(node, "pure has to be the literal True or False", rule="LEG-15")
            continue
        state.now.attrs["relax.force_pure" if key == "force_pure" else key] = value


def return_in_branch(state: GraphState, node: ast.Return) -> ParseError:
    """Create the error for a return in a branch."""
    return state.error(
        node,
        "return belongs at the end of a function, not in a branch",
        rule="AST-11",
        hint="bind the same name in both branches and return that after the if",
    )


def return_statement(state: GraphState, node: ast.Return) -> None:
    """Read `return value`."""
    now = state.now
    if now.depth and now.dataflow is None:
        raise return_in_branch(state, node)
    if node.value is None:
        raise state.error(
            node, "return has a value", rule="AST-11", hint="`return ()` returns unit"
        )
    now.returned = node
    expr = state.expression(state.values.value(node.value), node.value)
    needs_output = isinstance(expr, rx.DataflowVar) or not isinstance(expr, rx.Var)
    if now.dataflow is not None and needs_output:
        expr = state.emit(expr, node.value, output=True)
    now.result = expr
