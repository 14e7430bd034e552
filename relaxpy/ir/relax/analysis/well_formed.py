"""Well-formedness: each criterion WF-n is one function over a survey of the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from relaxpy.entry import user_facing
from relaxpy.errors import Diagnostic, MisuseError, RelaxpyError
from relaxpy.ir.core.gc_pause import gc_paused
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.analysis.normal_form import check_normal_form
from relaxpy.ir.relax.analysis.survey import Survey, survey
from relaxpy.ir.relax.analysis.wf_annotations import ANNOTATION_CRITERIA
from relaxpy.ir.relax.analysis.wf_functions import FUNCTION_CRITERIA
from relaxpy.ir.relax.analysis.wf_scopes import SCOPE_CRITERIA
from relaxpy.ir.relax.block_builder.claims import FalseClaims
from relaxpy.ir.relax.block_builder.derive import normalize_functions
from relaxpy.ir.relax.call_graph import mentioned_globals
from relaxpy.ir.relax.nodes import BaseFunc, Function

Criterion: TypeAlias = Callable[[Survey], Iterator[Diagnostic]]
CRITERIA: tuple[Criterion, ...] = (*SCOPE_CRITERIA, *FUNCTION_CRITERIA, *ANNOTATION_CRITERIA)


@user_facing
@gc_paused
def check_well_formed(
    obj: IRModule | BaseFunc,
    check_struct_info: bool = True,
    *,
    normal_form: bool = False,
) -> list[Diagnostic]:
    """Everything that is wrong with a module, or with one function on its own.

    With `check_struct_info`, functions that break no criterion are derived, too, and what that
    finds is among the answers (WF-7d, PU-8, DER-n): each node that declares another struct info
    than it has, too. With `normal_form`, they must be in normal form (WF-23).

    Errors:
        MisuseError (also TypeError): `obj` is neither, or shares so much that it has no end.
    """
    if not isinstance(obj, (IRModule, BaseFunc)):
        raise MisuseError(f"expected a module or a function, found {type(obj).__name__}", about=obj)
    seen = survey(obj)
    found = [diagnostic for criterion in CRITERIA for diagnostic in criterion(seen)]
    if normal_form:
        found += check_normal_form(seen)
    if check_struct_info:
        found += _derivation_faults(_derivable(obj, sound=not found))
    return found


def _derivable(program: IRModule | BaseFunc, *, sound: bool) -> IRModule:
    """The functions that can be derived: those that break no criterion, nor mention one that does.

    A function that mentions others can be derived only beside them.
    """
    if isinstance(program, IRModule):
        mod = program
    else:
        mod = IRModule({"main": program} if isinstance(program, Function) else {})
        if "main" in mod and mentioned_globals(program):
            del mod["main"]
    if sound:
        return mod
    functions = mod.functions_by_name
    users: dict[str, list[str]] = {}
    for name, func in functions.items():
        for mentioned in mentioned_globals(func):
            users.setdefault(mentioned, []).append(name)
    waiting = [name for name, func in functions.items() if _breaks_a_criterion(func)]
    waiting += [name for name in users if name not in functions]
    left_out: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in left_out:
            left_out.add(name)
            waiting += users.get(name, ())
    return IRModule({name: func for name, func in functions.items() if name not in left_out})


def _breaks_a_criterion(func: BaseFunc) -> bool:
    alone = survey(func)
    return any(True for criterion in CRITERIA for _ in criterion(alone))


def _derivation_faults(mod: IRModule) -> Iterator[Diagnostic]:
    """What derivation finds, less what may only follow from a function that failed before."""
    unknown: set[str] = set()
    claims = FalseClaims()
    for name, func, result in normalize_functions(mod, suppress_warnings=True, false_claims=claims):
        follows = bool(unknown) and not unknown.isdisjoint(mentioned_globals(func))
        failed = isinstance(result, RelaxpyError)
        if isinstance(result, RelaxpyError) and not follows:
            yield from result.diagnostics
        if (failed or follows) and func.ret_struct_info is None:
            unknown.add(name)
    yield from claims.diagnostics


@user_facing
def well_formed(
    obj: IRModule | BaseFunc,
    check_struct_info: bool = True,
    *,
    normal_form: bool = False,
) -> bool:
    """Whether `check_well_formed` finds nothing wrong."""
    return not check_well_formed(obj, check_struct_info, normal_form=normal_form)
