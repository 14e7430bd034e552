"""Well-formedness of annotations and scalars: each criterion one function."""

from __future__ import annotations

from collections.abc import Iterator

from relaxpy.errors import Diagnostic
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.survey import BIND_SHAPE_VAR, Annotation, Survey
from relaxpy.ir.short_text.nodes import ShortText
from relaxpy.ir.tir import expr as tir


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
            text = ShortText().prim(division, INT64)
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
