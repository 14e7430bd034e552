"""Well-formedness of scopes: bindings and uses of variables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from relaxpy.errors import Diagnostic, Span, close_names
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.relax.analysis.survey import BIND_SHAPE_VAR, Fault, Survey
from relaxpy.ir.relax.nodes import DataflowVar, GlobalVar
from relaxpy.ir.short_text.nodes import ShortText
from relaxpy.ir.tir.expr import PrimExpr


def size_text(size: PrimExpr) -> str:
    """The text of a dimension, as in struct info."""
    return ShortText().prim(size, INT64)


def dataflow_var_outside_block(survey: Survey) -> Iterator[Diagnostic]:
    """WF-1a: a DataflowVar is bound inside a dataflow block."""
    for site in survey.bindings:
        var = site.binding.var
        if isinstance(var, DataflowVar) and not site.dataflow:
            yield Diagnostic(
                f"the DataflowVar {var.name_hint} is bound outside a dataflow block",
                "WF-1a",
                site.span,
                "bind a Var instead",
            )
    for var, function in survey.dataflow_params:
        yield Diagnostic(
            f"parameter {var.name_hint} of {function.name} is a DataflowVar",
            "WF-1a",
            var.span or function.func.span,
            "parameters are Vars",
        )


def _uses(survey: Survey, fault: Fault, rule: str, message: str, hint: str) -> Iterator[Diagnostic]:
    for use in survey.var_faults:
        if use.fault == fault and not isinstance(use.var, GlobalVar):
            name = use.var.name_hint
            yield Diagnostic(message.format(name), rule, use.span, hint.format(name))


def dataflow_var_used_outside(survey: Survey) -> Iterator[Diagnostic]:
    """WF-1b: a DataflowVar is used inside the block that binds it."""
    return _uses(
        survey,
        "block",
        "WF-1b",
        "the DataflowVar {} is used outside the dataflow block that binds it",
        "name it in R.output(...) to use it after the block",
    )


_MAX_HINTS = 20


class _Nearest:
    """Hints at names with a similar spelling; only the first few, since each compares all names."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(names)
        self._left = _MAX_HINTS

    def __call__(self, name: str) -> str | None:
        self._left -= 1
        return close_names(name, self._names) if self._left >= 0 else None


def unbound_variable(survey: Survey) -> Iterator[Diagnostic]:
    """WF-2a: every variable is a parameter or is bound by a binding."""
    near = _Nearest(var.name_hint for var in survey.binders)
    for use in survey.var_faults:
        if use.fault == "unbound" and not isinstance(use.var, GlobalVar):
            name = use.var.name_hint
            yield Diagnostic(
                f"variable {name} is bound nowhere",
                "WF-2a",
                use.span,
                near(name) or "bind it, or make it a parameter",
            )


def bound_twice(survey: Survey) -> Iterator[Diagnostic]:
    """WF-2b: no variable is bound twice."""
    for var, spans in survey.binders.items():
        for span in spans[1:]:
            yield Diagnostic(
                f"variable {var.name_hint} is bound more than once",
                "WF-2b",
                span,
                "use a new variable for every binding and every parameter",
            )


def bound_by_itself(survey: Survey) -> Iterator[Diagnostic]:
    """WF-2c: only a function may use the variable to which it is bound."""
    return _uses(
        survey,
        "self",
        "WF-2c",
        "variable {} is used in its own binding, which does not define a function",
        "only a function can refer to itself; bind another variable",
    )


def used_too_early(survey: Survey) -> Iterator[Diagnostic]:
    """WF-3: a variable is used after the binding that binds it."""
    message, hint = "variable {} is used before it is bound", "move its binding further up"
    return _uses(survey, "early", "WF-3", message, hint)


def captured_dataflow_var(survey: Survey) -> Iterator[Diagnostic]:
    """WF-11: a function inside a dataflow block does not use a DataflowVar of the block."""
    return _uses(
        survey,
        "captured",
        "WF-11",
        "the DataflowVar {} is used in a function defined inside its dataflow block",
        "make it an output of the block, as in R.output({}), or pass it to the function",
    )


def size_used_too_early(survey: Survey) -> Iterator[Diagnostic]:
    """WF-5a: a shape variable is bound before it is used."""
    for use in survey.shape_var_faults:
        if use.fault == "gone" or use.role in ("param", "return", "cast"):
            continue
        what = "bound nowhere" if use.fault == "unbound" else "used before it is bound"
        yield Diagnostic(
            f"shape variable {use.var.name} is {what}", "WF-5a", use.span, BIND_SHAPE_VAR
        )


def compound_size_binds_nothing(survey: Survey) -> Iterator[Diagnostic]:
    """WF-5b: a match_cast binds only variables that are whole dimensions, for uses to the right."""
    for use in survey.shape_var_faults:
        if use.role == "cast":
            yield Diagnostic(
                f"{size_text(use.size)} in a match_cast does not bind {use.var.name}",
                "WF-5b",
                use.span,
                f"make {use.var.name} a dimension by itself further left",
            )


def out_of_scope(survey: Survey) -> Iterator[Diagnostic]:
    """WF-24: nothing is used outside its scope."""
    near = _Nearest(v.name_hint for v in survey.module or ())
    seen: set[tuple[str, Span | None]] = set()
    for use in survey.var_faults:
        name = use.var.name_hint
        if use.fault == "gone":
            yield Diagnostic(
                f"variable {name} is used outside the scope in which it is bound",
                "WF-24",
                use.span,
                "return it from the branch or function that binds it",
            )
        elif isinstance(use.var, GlobalVar) and (name, use.span) not in seen:
            seen.add((name, use.span))
            yield Diagnostic(
                f"the module has no function {name}",
                "WF-24",
                use.span,
                near(name) or "add one to the module under this name",
            )
    for size in survey.shape_var_faults:
        if size.fault == "gone" and size.role not in ("param", "return", "cast"):
            yield Diagnostic(
                f"shape variable {size.var.name} is used outside the scope in which it is bound",
                "WF-24",
                size.span,
                "bind it again by an R.match_cast here",
            )


SCOPE_CRITERIA = (
    dataflow_var_outside_block,
    dataflow_var_used_outside,
    unbound_variable,
    bound_twice,
    bound_by_itself,
    used_too_early,
    size_used_too_early,
    compound_size_binds_nothing,
    captured_dataflow_var,
    out_of_scope,
)
