"""Well-formedness: each criterion WF-n is one function over a survey of the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from relaxpy.entry import user_facing
from relaxpy.errors import Diagnostic, MisuseError, RelaxpyError
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.analysis.calls import mentioned_globals
from relaxpy.ir.relax.analysis.normal_form import check_normal_form
from relaxpy.ir.relax.analysis.survey import Survey, survey
from relaxpy.ir.relax.analysis.wf_annotations import ANNOTATION_CRITERIA
from relaxpy.ir.relax.analysis.wf_functions import FUNCTION_CRITERIA
from relaxpy.ir.relax.analysis.wf_scopes import SCOPE_CRITERIA
from relaxpy.ir.relax.derive import normalize_functions
from relaxpy.ir.relax.nodes import BaseFunc, Function

Criterion: TypeAlias = Callable[[Survey], Iterator[Diagnostic]]
CRITERIA: tuple[Criterion, ...] = (*SCOPE_CRITERIA, *FUNCTION_CRITERIA, *ANNOTATION_CRITERIA)


@user_facing
def check_well_formed(
    program: IRModule | BaseFunc,
    check_struct_info: bool = True,
    *,
    normal_form: bool = False,
) -> list[Diagnostic]:
    """Everything that is wrong with a module, or with one function on its own.

    With `check_struct_info`, a program that breaks no criterion is derived, too, and what that
    finds is among the answers (WF-7d, PU-8, DER-n). With `normal_form`, NF-1 to NF-13 must hold
    (WF-23).

    Errors:
        MisuseError (also TypeError): `program` is neither.
    """
    if not isinstance(program, (IRModule, BaseFunc)):
        raise MisuseError(
            f"expected a module or a function, found {type(program).__name__}", about=program
        )
    seen = survey(program)
    found = [diagnostic for criterion in CRITERIA for diagnostic in criterion(seen)]
    if normal_form:
        found += check_normal_form(seen)
    if check_struct_info and not found:
        found += _derivation_faults(program)
    return found


def _derivation_faults(program: IRModule | BaseFunc) -> Iterator[Diagnostic]:
    if isinstance(program, IRModule):
        mod = program
    elif isinstance(program, Function) and not mentioned_globals(program):
        mod = IRModule({"main": program})
    else:
        return
    for _, _, result in normalize_functions(mod, quiet=True):
        if isinstance(result, RelaxpyError):
            yield from result.diagnostics


@user_facing
def well_formed(
    program: IRModule | BaseFunc,
    check_struct_info: bool = True,
    *,
    normal_form: bool = False,
) -> bool:
    """Whether `check_well_formed` finds nothing wrong."""
    return not check_well_formed(program, check_struct_info, normal_form=normal_form)
