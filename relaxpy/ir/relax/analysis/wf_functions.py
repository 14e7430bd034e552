"""Well-formedness of functions: recursion, dataflow, symbols, purity."""

from __future__ import annotations

from collections.abc import Iterator

from relaxpy.errors import Diagnostic, Span
from relaxpy.ir.core.traverse import strongly_connected
from relaxpy.ir.op import Op
from relaxpy.ir.relax.analysis.survey import CallSite, FunctionSite, Survey
from relaxpy.ir.relax.nodes import GlobalVar, Var


def return_sizes(survey: Survey) -> Iterator[Diagnostic]:
    """WF-4: a return annotation uses shape variables of the parameters or the enclosing scope."""
    for use in survey.shape_var_faults:
        if use.role == "return":
            yield Diagnostic(
                f"shape variable {use.var.name} of the return annotation is bound by no parameter",
                "WF-4",
                use.span,
                f"add a parameter with a dimension {use.var.name}, or state only ndim",
            )


def signature_sizes(survey: Survey) -> Iterator[Diagnostic]:
    """WF-6a: each shape variable of a signature is a dimension by itself in some parameter."""
    for use in survey.shape_var_faults:
        if use.role == "param":
            yield Diagnostic(
                f"shape variable {use.var.name} is not a whole dimension of any parameter",
                "WF-6a",
                use.span,
                f"nothing binds it: add a parameter with a dimension {use.var.name}",
            )


def _is_self_call(site: CallSite) -> bool:
    """Return whether a function calls itself."""
    callee, function = site.call.op, site.function
    if isinstance(callee, GlobalVar):
        return function.parent is None and callee.name_hint == function.name
    return callee is function.var


def self_call_in_dataflow(survey: Survey) -> Iterator[Diagnostic]:
    """WF-7a: a dataflow block does not call the enclosing function."""
    for site in survey.calls:
        if site.dataflow and _is_self_call(site):
            yield Diagnostic(
                f"{site.function.name} calls itself inside a dataflow block",
                "WF-7a",
                site.span,
                "move the call out of the dataflow block",
            )


def cyclic_call_in_dataflow(survey: Survey) -> Iterator[Diagnostic]:
    """WF-7b: a dataflow block does not call a function that calls the enclosing one (WF-25)."""
    groups = strongly_connected(_called_globals(survey))
    group_of = {name: group for group in groups for name in group}
    for site in survey.calls:
        callee = site.call.op
        if not site.dataflow or not isinstance(callee, GlobalVar) or _is_self_call(site):
            continue
        outer = site.function.outermost.name
        if callee.name_hint in group_of.get(outer, ()):
            yield Diagnostic(
                f"{callee.name_hint}, which calls {outer}, is called inside a dataflow block",
                "WF-7b",
                site.span,
                "move the call out of the dataflow block",
            )


def if_in_dataflow(survey: Survey) -> Iterator[Diagnostic]:
    """WF-7c: a dataflow block has no If."""
    for node in survey.dataflow_ifs:
        yield Diagnostic(
            "an if is inside a dataflow block",
            "WF-7c",
            node.span,
            "end the dataflow block before it",
        )


def _called_globals(survey: Survey) -> dict[str, dict[str, None]]:
    """WF-25: the functions that each global function calls, also in nested functions."""
    graph: dict[str, dict[str, None]] = {
        site.name: {} for site in survey.functions if site.parent is None
    }
    for call in survey.calls:
        if isinstance(call.call.op, GlobalVar):
            graph[call.function.outermost.name][call.call.op.name_hint] = None
    return graph


def recursive_without_annotation(name: str, span: Span | None) -> Diagnostic:
    """WF-8a: the error that the function `name` calls itself without a return annotation."""
    return _without_result(name, span, "WF-8a", "calls itself")


def _without_result(name: str, span: Span | None, rule: str, why: str) -> Diagnostic:
    message = f"{name} {why} and so needs a return annotation"
    return Diagnostic(message, rule, span, "annotate the result, as in -> R.Tensor(...)")


def recursion_without_annotation(survey: Survey) -> Iterator[Diagnostic]:
    """WF-8a: a function that calls itself has a return annotation."""
    graph = _called_globals(survey)
    local = {site.var: site for site in survey.functions if site.var is not None}
    recursive = {
        site: None
        for site in survey.functions
        if site.parent is None and site.name in graph[site.name]
    }
    for call in survey.calls:
        callee = call.call.op
        target = local.get(callee) if isinstance(callee, Var) else None
        if target is not None and target in call.function.enclosing:
            recursive[target] = None
    for site in recursive:
        if site.func.ret_struct_info is None:
            yield recursive_without_annotation(site.name, site.func.span)


def _in_cycles(survey: Survey) -> Iterator[FunctionSite]:
    """The global functions that call each other in cycles of two or more."""
    sites = {site.name: site for site in survey.functions if site.parent is None}
    for group in strongly_connected(_called_globals(survey)):
        if len(group) > 1:
            yield from (sites[name] for name in group)


def cycle_without_annotation(survey: Survey) -> Iterator[Diagnostic]:
    """WF-8b: global functions that call each other in a cycle have return annotations."""
    for site in _in_cycles(survey):
        if site.func.ret_struct_info is None:
            span = site.func.span
            yield _without_result(site.name, span, "WF-8b", "is in a cycle of calls")


def unannotated_in_cycles(survey: Survey) -> list[str]:
    """The names of the global functions that violate WF-8b."""
    return [site.name for site in _in_cycles(survey) if site.func.ret_struct_info is None]


def operator_as_value(survey: Survey) -> Iterator[Diagnostic]:
    """WF-9: an operator is the callee of a call and is not used as a value."""
    for node, span in survey.non_expressions:
        if isinstance(node, Op):
            yield Diagnostic(
                f"operator {node.name} is used as a value", "WF-9", span, "it can only be called"
            )
        else:
            yield Diagnostic(
                f"{node} of kind {type(node).__name__} is not a Relax expression",
                "AST-21",
                span,
                "relax.convert_to_expr converts numbers, strings and lists",
            )


def some_function_is_public(survey: Survey) -> Iterator[Diagnostic]:
    """WF-12: some global function has a `global_symbol`."""
    mod = survey.module
    if mod is None or not len(mod):
        return
    if not any(func.attrs.get("global_symbol") for func in mod.functions.values()):
        yield Diagnostic(
            "no function of the module has a global_symbol, so the module cannot be called",
            "WF-12",
            next(iter(mod.functions.values())).span,
            'omit private=True, or use with_attr("global_symbol", name); check_well_formed=False '
            "reads parts of a module",
        )


def symbol_is_name(survey: Survey) -> Iterator[Diagnostic]:
    """WF-13: the `global_symbol` of a function is its name in the module."""
    if survey.module is None:
        return
    for var, func in survey.module.items():
        symbol = func.attrs.get("global_symbol")
        if symbol is not None and symbol != var.name_hint:
            yield Diagnostic(
                f"function {var.name_hint} has global_symbol {symbol!r}",
                "WF-13",
                func.span,
                "NormalizeGlobalVar renames public functions to their symbols; "
                "check_well_formed=False reads a text as it is",
            )


def force_pure_is_pure(survey: Survey) -> Iterator[Diagnostic]:
    """WF-21: a function with `relax.force_pure` is declared pure."""
    for site in survey.functions:
        func = site.func
        if func.attrs.get("relax.force_pure") and not func.is_pure:
            yield Diagnostic(
                f"{site.name} has relax.force_pure and is declared impure",
                "WF-21",
                func.span,
                "declare it pure, or remove the attribute",
            )


FUNCTION_CRITERIA = (
    return_sizes,
    signature_sizes,
    self_call_in_dataflow,
    cyclic_call_in_dataflow,
    if_in_dataflow,
    recursion_without_annotation,
    cycle_without_annotation,
    operator_as_value,
    some_function_is_public,
    symbol_is_name,
    force_pure_is_pure,
)
