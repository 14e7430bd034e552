"""Well-formedness: each criterion WF-n is one function over a survey of the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from relaxpy.errors import Diagnostic, MisuseError, RelaxpyError
from relaxpy.ir.core.traverse import reached
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.analysis.survey import Survey, survey
from relaxpy.ir.relax.analysis.wf_annotations import ANNOTATION_CRITERIA
from relaxpy.ir.relax.analysis.wf_functions import FUNCTION_CRITERIA, unannotated_in_cycles
from relaxpy.ir.relax.analysis.wf_scopes import SCOPE_CRITERIA
from relaxpy.ir.relax.block_builder.derive import normalize_functions
from relaxpy.ir.relax.block_builder.normalize import is_leaf, is_normal_value
from relaxpy.ir.relax.block_builder.stronger_annotations import StrongerAnnotations
from relaxpy.ir.relax.call_graph import mentioned_globals
from relaxpy.ir.relax.nodes import BaseFunc, DataflowBlock, Function, If, SeqExpr
from relaxpy.support.entry import user_facing
from relaxpy.support.gc_pause import gc_paused

Criterion: TypeAlias = Callable[[Survey], Iterator[Diagnostic]]
CRITERIA: tuple[Criterion, ...] = (*SCOPE_CRITERIA, *FUNCTION_CRITERIA, *ANNOTATION_CRITERIA)


@user_facing
@gc_paused
def check_well_formed(
    obj: IRModule | BaseFunc, check_struct_info: bool = True, *, normal_form: bool = False
) -> list[Diagnostic]:
    """The violations of the well-formedness rules in a module or a single function.

    With `check_struct_info`, functions that satisfy all criteria are also derived, which reports
    violations of WF-7d, PU-8 and DER-n, and nodes that declare false struct info. With
    `normal_form`, functions must be in normal form (WF-23).

    Errors:
        MisuseError (also TypeError): `obj` is neither, or too large if its shared nodes are copied.
    """
    if not isinstance(obj, (IRModule, BaseFunc)):
        raise MisuseError(f"expected a module or a function, found {type(obj).__name__}", about=obj)
    facts = survey(obj)
    result = [diagnostic for criterion in CRITERIA for diagnostic in criterion(facts)]
    if normal_form:
        result += check_normal_form(facts)
    if check_struct_info:
        result += _derivation_faults(_derivable(obj, facts, sound=not result))
    return result


def _derivable(program: IRModule | BaseFunc, facts: Survey, *, sound: bool) -> IRModule:
    """The functions that can be derived.

    These are the functions that violate no criterion and mention only such functions. A single
    function that mentions others cannot be derived.
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
    waiting = [name for name, func in functions.items() if _violates_a_criterion(func)]
    waiting += [name for name in users if name not in functions]
    waiting += unannotated_in_cycles(facts)
    left_out = {*reached(waiting, lambda name: users.get(name, ()))}
    return IRModule({name: func for name, func in functions.items() if name not in left_out})


def _violates_a_criterion(func: BaseFunc) -> bool:
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
    obj: IRModule | BaseFunc, check_struct_info: bool = True, *, normal_form: bool = False
) -> bool:
    """Return whether `check_well_formed` finds nothing wrong."""
    return not check_well_formed(obj, check_struct_info, normal_form=normal_form)


_HINT = "relax.transform.Normalize brings programs into normal form"


def check_normal_form(survey: Survey) -> Iterator[Diagnostic]:
    """The violations of normal form in the functions of a program."""
    for site in survey.functions:
        yield from _sequence(site.func.body)
    for bound in survey.bindings:
        value = bound.binding.value
        if isinstance(value, SeqExpr):
            yield Diagnostic("a SeqExpr is the value of a binding", "NF-5", bound.span, _HINT)
        elif not is_normal_value(value):
            rule = "NF-13" if isinstance(value, If) else "NF-2"
            yield Diagnostic("an operand of this value is not a leaf", rule, bound.span, _HINT)
        if isinstance(value, If):
            for branch in (value.true_branch, value.false_branch):
                yield from _sequence(branch)


def _sequence(seq: SeqExpr) -> Iterator[Diagnostic]:
    if not is_leaf(seq.body):
        yield Diagnostic("the result of a SeqExpr is not a leaf", "NF-12", seq.body.span, _HINT)
    previous: bool | None = None
    for block in seq.blocks:
        if not block.bindings:
            yield Diagnostic("a block is empty", "NF-11", block.span or seq.span, _HINT)
            continue
        dataflow = isinstance(block, DataflowBlock)
        if dataflow == previous:
            rule = "NF-9" if dataflow else "NF-8"
            yield Diagnostic("two adjacent blocks are of the same kind", rule, block.span, _HINT)
        previous = dataflow
