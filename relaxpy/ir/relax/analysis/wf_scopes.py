"""Well-formedness of scopes: what may be bound and used where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from relaxpy.errors import Diagnostic, Span, close_names
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.relax.analysis.survey import SIZES_COME_FROM, Fault, ShapeVarUse, Survey
from relaxpy.ir.relax.nodes import DataflowVar, GlobalVar
from relaxpy.ir.short_text.nodes import ShortText
from relaxpy.ir.tir.expr import PrimExpr


def size_text(size: PrimExpr) -> str:
    """A dimension as infos write it."""
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
                "bind a Var",
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
            yield Diagnostic(message.format(use.var.name_hint), rule, use.span, hint)


def dataflow_var_used_outside(survey: Survey) -> Iterator[Diagnostic]:
    """WF-1b: a DataflowVar is used inside the block that binds it."""
    return _uses(
        survey,
        "block",
        "WF-1b",
        "the DataflowVar {} is used outside the dataflow block that binds it",
        "name it in R.output(...) to use it after the block",
    )


_HINTS = 20


class _Nearest:
    """Hints at names that are spelt alike, for the first few of many: each looks at all names."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(names)
        self._left = _HINTS

    def __call__(self, name: str) -> str | None:
        self._left -= 1
        return close_names(name, self._names) if self._left >= 0 else None


def unbound_variable(survey: Survey) -> Iterator[Diagnostic]:
    """WF-2a: every variable is a parameter or on the left of a binding."""
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
    for var, places in survey.binders.items():
        for span in places[1:]:
            yield Diagnostic(
                f"variable {var.name_hint} is bound more than once",
                "WF-2b",
                span,
                "every binding and every parameter needs a variable of its own",
            )


def bound_by_itself(survey: Survey) -> Iterator[Diagnostic]:
    """WF-2c: only a function may mention the variable that it is bound to."""
    return _uses(
        survey,
        "self",
        "WF-2c",
        "variable {} is used in its own binding, which defines no function",
        "only a function may call itself so; bind another variable",
    )


def used_too_early(survey: Survey) -> Iterator[Diagnostic]:
    """WF-3: a variable is used after the binding that binds it."""
    message, hint = "variable {} is used before it is bound", "move its binding further up"
    return _uses(survey, "early", "WF-3", message, hint)


def captured_dataflow_var(survey: Survey) -> Iterator[Diagnostic]:
    """WF-11: a function inside a dataflow block uses no DataflowVar of it."""
    return _uses(
        survey,
        "captured",
        "WF-11",
        "the DataflowVar {} is used in a function defined inside its dataflow block",
        "pass it to the function, or bind a Var",
    )


def size_used_too_early(survey: Survey) -> Iterator[Diagnostic]:
    """WF-5a: a shape variable is used after what binds it."""
    for use in survey.shape_var_faults:
        if use.fault == "gone" or use.role in ("param", "return") or _in_cast(use):
            continue
        what = "bound nowhere" if use.fault == "unbound" else "used before it is bound"
        yield Diagnostic(
            f"shape variable {use.var.name} is {what}",
            "WF-5a",
            use.span,
            SIZES_COME_FROM,
        )


def _in_cast(use: ShapeVarUse) -> bool:
    return use.role == "cast"


def compound_size_binds_nothing(survey: Survey) -> Iterator[Diagnostic]:
    """WF-5b: in a match_cast only a lone variable binds, for what stands right of it."""
    for use in survey.shape_var_faults:
        if _in_cast(use):
            yield Diagnostic(
                f"{size_text(use.size)} in a match_cast binds no {use.var.name}",
                "WF-5b",
                use.span,
                f"let {use.var.name} stand alone further left",
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
                "let the branch or function that binds it give it as its result",
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
                "bind it anew by an R.match_cast here",
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
