"""Well-formedness: each criterion WF-n is one function over a survey of the program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from relaxpy.errors import Diagnostic, MisuseError, RelaxpyError, Span, close_names
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.traverse import reached, strongly_connected
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.survey import (
    BIND_SHAPE_VAR,
    Annotation,
    CallSite,
    Fault,
    FunctionSite,
    Survey,
    survey,
)
from relaxpy.ir.relax.block_builder.derive import normalize_functions
from relaxpy.ir.relax.block_builder.normalize import StrongerAnnotations, is_leaf, is_normal_value
from relaxpy.ir.relax.call_graph import mentioned_globals
from relaxpy.ir.relax.relations.compatibility import shown
from relaxpy.ir.tir import expr as tir
from relaxpy.support.entry import user_facing
from relaxpy.support.gc_pause import gc_paused


def dataflow_var_outside_block(survey: Survey) -> Iterator[Diagnostic]:
    """WF-1a: a DataflowVar is bound inside a dataflow block."""
    for site in survey.bindings:
        var = site.binding.var
        if isinstance(var, rx.DataflowVar) and not site.dataflow:
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
        if use.fault == fault and not isinstance(use.var, rx.GlobalVar):
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
        if use.fault == "unbound" and not isinstance(use.var, rx.GlobalVar):
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
                f"{shown(use.size)} in a match_cast does not bind {use.var.name}",
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
        elif isinstance(use.var, rx.GlobalVar) and (name, use.span) not in seen:
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
    """True if a function calls itself."""
    callee, function = site.call.op, site.function
    if isinstance(callee, rx.GlobalVar):
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
        if not site.dataflow or not isinstance(callee, rx.GlobalVar) or _is_self_call(site):
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
        if isinstance(call.call.op, rx.GlobalVar):
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
        target = local.get(callee) if isinstance(callee, rx.Var) else None
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


def _differing_ranks(sinfo: rx.StructInfo) -> tuple[int, int] | None:
    """The number of dimensions and the declared `ndim`, if they differ."""
    match sinfo:
        case (
            rx.TensorStructInfo(shape=rx.ShapeExpr(values=values))
            | rx.ShapeStructInfo(values=tuple() as values)
        ):
            known = len(values)
        case rx.TensorStructInfo(shape=rx.Expr(struct_info=rx.ShapeStructInfo(ndim=known))) if (
            known >= 0
        ):
            pass
        case _:
            return None
    return None if sinfo.ndim == known else (known, sinfo.ndim)


def _rank_faults(
    survey: Survey, rule: str, kinds: tuple[type[rx.StructInfo], ...], roles: tuple[str, ...] | None
) -> Iterator[Diagnostic]:
    for note in survey.annotations:
        if not isinstance(note.sinfo, kinds) or (roles is not None and note.role not in roles):
            continue
        ranks = _differing_ranks(note.sinfo)
        if ranks is not None:
            what = "tensor" if isinstance(note.sinfo, rx.TensorStructInfo) else "shape"
            yield Diagnostic(
                f"the annotation of {note.owner} gives a {what} {ranks[0]} dimensions and ndim "
                f"{ranks[1]}",
                rule,
                note.span,
                "leave ndim out",
            )


def variable_rank(survey: Survey) -> Iterator[Diagnostic]:
    """WF-10: in a variable's annotation `ndim` is the number of dimensions."""
    return _rank_faults(
        survey, "WF-10", (rx.TensorStructInfo, rx.ShapeStructInfo), ("param", "var")
    )


def tensor_rank(survey: Survey) -> Iterator[Diagnostic]:
    """WF-14d: a shape has `ndim` dimensions."""
    return _rank_faults(survey, "WF-14d", (rx.TensorStructInfo,), None)


def shape_rank(survey: Survey) -> Iterator[Diagnostic]:
    """WF-15b: `values` has `ndim` members."""
    return _rank_faults(survey, "WF-15b", (rx.ShapeStructInfo,), None)


def tensor_shape_kind(survey: Survey) -> Iterator[Diagnostic]:
    """WF-14a: the shape of a tensor is absent, a Var, or a ShapeExpr."""
    for note in survey.annotations:
        sinfo = note.sinfo
        if isinstance(sinfo, rx.TensorStructInfo) and not isinstance(
            sinfo.shape, (rx.Var, rx.ShapeExpr, type(None))
        ):
            yield Diagnostic(
                f"the shape in the annotation of {note.owner} is a {type(sinfo.shape).__name__}",
                "WF-14a",
                note.span,
                "bind it to a variable and use the variable",
            )


def shape_variable_scope(survey: Survey) -> Iterator[Diagnostic]:
    """WF-14b: a Var that is used as a shape is in scope."""
    for use in survey.var_faults:
        if use.as_shape:
            yield Diagnostic(
                f"variable {use.var.name_hint}, used as a shape, is not in scope here",
                "WF-14b",
                use.span,
                "bind it further up, or state only ndim",
            )


def _size_faults(
    survey: Survey, rule: str, kind: type[rx.StructInfo], what: str
) -> Iterator[Diagnostic]:
    for use in survey.shape_var_faults:
        if isinstance(use.node, kind) and use.role in ("var", "sinfo_arg"):
            yield Diagnostic(
                f"shape variable {use.var.name} in {what} is not in scope here",
                rule,
                use.span,
                BIND_SHAPE_VAR,
            )


def tensor_sizes(survey: Survey) -> Iterator[Diagnostic]:
    """WF-14c: the shape variables of a tensor's shape are in scope."""
    return _size_faults(survey, "WF-14c", rx.TensorStructInfo, "the shape of a tensor")


def shape_sizes(survey: Survey) -> Iterator[Diagnostic]:
    """WF-15a: the shape variables of a shape's members are in scope."""
    return _size_faults(survey, "WF-15a", rx.ShapeStructInfo, "a shape")


def scalar_sizes(survey: Survey) -> Iterator[Diagnostic]:
    """WF-16: the shape variables of a scalar's value are in scope."""
    return _size_faults(survey, "WF-16", rx.PrimStructInfo, "the value of a scalar")


def _functions(survey: Survey) -> Iterator[tuple[Annotation, rx.FuncStructInfo]]:
    for note in survey.annotations:
        if isinstance(note.sinfo, rx.FuncStructInfo):
            yield note, note.sinfo


def function_in_two_forms(survey: Survey) -> Iterator[Diagnostic]:
    """WF-17a: a Callable does not have both `params` and `derive_func`."""
    for note, sinfo in _functions(survey):
        if sinfo.params is not None and sinfo.derive_func is not None:
            yield Diagnostic(
                f"the annotation of {note.owner} gives a function params and a derive_func",
                "WF-17a",
                note.span,
                "give one of the two",
            )


def function_in_no_form(survey: Survey) -> Iterator[Diagnostic]:
    """WF-17b: a Callable has `params` or `derive_func`."""
    for note, sinfo in _functions(survey):
        if sinfo.params is None and sinfo.derive_func is None:
            yield Diagnostic(
                f"the annotation of {note.owner} gives a function neither params nor a derive_func",
                "WF-17b",
                note.span,
                "FuncStructInfo.opaque_func builds one of which nothing is known",
            )


def scalar_literal(survey: Survey) -> Iterator[Diagnostic]:
    """WF-18: a PrimValue is a number, or arithmetic on shape variables in scope."""
    for literal, span in survey.prim_values:
        value = literal.value
        if isinstance(value, tir.StringImm) or value.dtype.lanes != 1 or value.dtype.is_void:
            yield Diagnostic(
                f"the value of a PrimValue is a scalar, found {value}",
                "WF-18",
                span,
                "R.const builds a tensor of numbers, R.str a string",
            )
        elif value.dtype.family == "handle":
            yield Diagnostic(
                f"the value of a PrimValue is a number, found {value}",
                "WF-18",
                span,
                "write an integer, a float, or arithmetic on shape variables",
            )
    for use in survey.shape_var_faults:
        if isinstance(use.node, rx.PrimValue):
            yield Diagnostic(
                f"shape variable {use.var.name} in a PrimValue is not in scope here",
                "WF-18",
                use.span,
                BIND_SHAPE_VAR,
            )


def scalar_datatype(survey: Survey) -> Iterator[Diagnostic]:
    """WF-19: a scalar has a datatype."""
    for note in survey.annotations:
        sinfo = note.sinfo
        if isinstance(sinfo, rx.PrimStructInfo) and (
            sinfo.dtype.is_void or sinfo.dtype.family == "handle"
        ):
            yield Diagnostic(
                f"the annotation of {note.owner} gives a scalar no numeric datatype",
                "WF-19",
                note.span,
                'state one, as in R.Prim("int64")',
            )


def datatypes(survey: Survey) -> Iterator[Diagnostic]:
    """WF-20: datatypes are those of DT-2, DT-3, DT-4 and DT-8."""
    for note in survey.annotations:
        if isinstance(note.sinfo, (rx.TensorStructInfo, rx.PrimStructInfo)):
            defect = note.sinfo.dtype.relax_defect
            if defect is not None:
                yield Diagnostic(
                    f"the annotation of {note.owner} has datatype {note.sinfo.dtype}",
                    "WF-20",
                    note.span,
                    "use a datatype such as float32, int64 or bool",
                    notes=(defect,),
                )


def scalar_value_datatype(survey: Survey) -> Iterator[Diagnostic]:
    """WF-22: the value of a scalar has its datatype."""
    for note in survey.annotations:
        sinfo = note.sinfo
        if (
            isinstance(sinfo, rx.PrimStructInfo)
            and sinfo.value is not None
            and sinfo.value.dtype != sinfo.dtype
        ):
            yield Diagnostic(
                f"the annotation of {note.owner} gives a scalar of {sinfo.dtype} the value "
                f"{sinfo.value} of {sinfo.value.dtype}",
                "WF-22",
                note.span,
                f"give it datatype {sinfo.value.dtype}, or convert the value",
            )


def division_by_zero(survey: Survey) -> Iterator[Diagnostic]:
    """PX-3: no dimension contains a division whose divisor is always zero."""
    for division, span in survey.divisions:
        if prove_equal(division.b, tir.IntImm(division.b.dtype, 0)):
            text = shown(division)
            yield Diagnostic(
                f"{text} always divides by zero",
                "PX-3",
                span,
                "divide by something that is not always zero",
            )


ANNOTATION_CRITERIA = (
    variable_rank,
    tensor_shape_kind,
    shape_variable_scope,
    tensor_sizes,
    tensor_rank,
    shape_sizes,
    shape_rank,
    scalar_sizes,
    function_in_two_forms,
    function_in_no_form,
    scalar_literal,
    scalar_datatype,
    datatypes,
    scalar_value_datatype,
    division_by_zero,
)


Criterion: TypeAlias = Callable[[Survey], Iterator[Diagnostic]]
CRITERIA: tuple[Criterion, ...] = (*SCOPE_CRITERIA, *FUNCTION_CRITERIA, *ANNOTATION_CRITERIA)


@user_facing
@gc_paused
def check_well_formed(
    obj: IRModule | rx.BaseFunc, check_struct_info: bool = True, *, normal_form: bool = False
) -> list[Diagnostic]:
    """The violations of the well-formedness rules in a module or a single function.

    With `check_struct_info`, functions that satisfy all criteria are also derived, which reports
    violations of WF-7d, PU-8 and DER-n, and nodes that declare false struct info. With
    `normal_form`, functions must be in normal form (WF-23).

    Errors:
        MisuseError (also TypeError): `obj` is neither, or too large if its shared nodes are copied.
    """
    if not isinstance(obj, (IRModule, rx.BaseFunc)):
        raise MisuseError(f"expected a module or a function, found {type(obj).__name__}", about=obj)
    facts = survey(obj)
    result = [diagnostic for criterion in CRITERIA for diagnostic in criterion(facts)]
    if normal_form:
        result += check_normal_form(facts)
    if check_struct_info:
        result += _derivation_faults(_derivable(obj, facts, sound=not result))
    return result


def _derivable(program: IRModule | rx.BaseFunc, facts: Survey, *, sound: bool) -> IRModule:
    """The functions that can be derived.

    These are the functions that violate no criterion and mention only such functions. A single
    function that mentions others cannot be derived.
    """
    if isinstance(program, IRModule):
        mod = program
    else:
        mod = IRModule({"main": program} if isinstance(program, rx.Function) else {})
        if "main" in mod and mentioned_globals(program):
            del mod["main"]
    if sound:
        return mod
    functions = mod.functions_by_name
    users: dict[str, list[str]] = {}
    for name, func in functions.items():
        for mentioned in mentioned_globals(func):
            users.setdefault(mentioned, []).append(name)
    waiting = [name for name, func in functions.items() if _violates_a_criterion(func)]
    waiting += [name for name in users if name not in functions]
    waiting += unannotated_in_cycles(facts)
    left_out = {*reached(waiting, lambda name: users.get(name, ()))}
    return IRModule({name: func for name, func in functions.items() if name not in left_out})


def _violates_a_criterion(func: rx.BaseFunc) -> bool:
    alone = survey(func)
    return any(True for criterion in CRITERIA for _ in criterion(alone))


def _derivation_faults(mod: IRModule) -> Iterator[Diagnostic]:
    """The errors of derivation, without those that may follow from an error in another function."""
    unknown: set[str] = set()
    stronger = StrongerAnnotations()
    for name, func, result in normalize_functions(mod, suppress_warnings=True, stronger=stronger):
        follows = bool(unknown) and not unknown.isdisjoint(mentioned_globals(func))
        failed = isinstance(result, RelaxpyError)
        if isinstance(result, RelaxpyError) and not follows:
            yield from result.diagnostics
        if (failed or follows) and func.ret_struct_info is None:
            unknown.add(name)
    yield from stronger.diagnostics


@user_facing
def well_formed(
    obj: IRModule | rx.BaseFunc, check_struct_info: bool = True, *, normal_form: bool = False
) -> bool:
    """True if `check_well_formed` finds nothing wrong."""
    return not check_well_formed(obj, check_struct_info, normal_form=normal_form)


_HINT = "relax.transform.Normalize brings programs into normal form"


def check_normal_form(survey: Survey) -> Iterator[Diagnostic]:
    """The violations of normal form in the functions of a program."""
    for site in survey.functions:
        yield from _sequence(site.func.body)
    for bound in survey.bindings:
        value = bound.binding.value
        if isinstance(value, rx.SeqExpr):
            yield Diagnostic("a SeqExpr is the value of a binding", "NF-5", bound.span, _HINT)
        elif not is_normal_value(value):
            rule = "NF-13" if isinstance(value, rx.If) else "NF-2"
            yield Diagnostic("an operand of this value is not a leaf", rule, bound.span, _HINT)
        if isinstance(value, rx.If):
            for branch in (value.true_branch, value.false_branch):
                yield from _sequence(branch)


def _sequence(seq: rx.SeqExpr) -> Iterator[Diagnostic]:
    if not is_leaf(seq.body):
        yield Diagnostic("the result of a SeqExpr is not a leaf", "NF-12", seq.body.span, _HINT)
    previous: bool | None = None
    for block in seq.blocks:
        if not block.bindings:
            yield Diagnostic("a block is empty", "NF-11", block.span or seq.span, _HINT)
            continue
        dataflow = isinstance(block, rx.DataflowBlock)
        if dataflow == previous:
            rule = "NF-9" if dataflow else "NF-8"
            yield Diagnostic("two adjacent blocks are of the same kind", rule, block.span, _HINT)
        previous = dataflow
