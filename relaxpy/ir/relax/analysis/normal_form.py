"""Whether a program is in normal form: one diagnostic for each violation (WF-23).

Checked are NF-2 with the leaves of NF-1, NF-3 and NF-4, and NF-5, NF-8, NF-9, NF-11, NF-12, NF-13.
NF-6 and NF-7 hold for every node: functions and conditionals wrap what is not a SeqExpr.
"""

from __future__ import annotations

from collections.abc import Iterator

from relaxpy.errors import Diagnostic
from relaxpy.ir.relax.analysis.survey import Survey
from relaxpy.ir.relax.block_builder.normalize import is_leaf, is_normal_value
from relaxpy.ir.relax.nodes import DataflowBlock, If, SeqExpr

_HINT = "relax.transform.Normalize brings programs into normal form"


def check_normal_form(survey: Survey) -> Iterator[Diagnostic]:
    """What keeps the functions of a program from normal form."""
    for site in survey.functions:
        yield from _sequence(site.func.body)
    for bound in survey.bindings:
        value = bound.binding.value
        if isinstance(value, SeqExpr):
            yield Diagnostic("a SeqExpr is the value of a binding", "NF-5", bound.span, _HINT)
        elif not is_normal_value(value):
            rule = "NF-13" if isinstance(value, If) else "NF-2"
            yield Diagnostic("a part of this value is no leaf", rule, bound.span, _HINT)
        if isinstance(value, If):
            for branch in (value.true_branch, value.false_branch):
                yield from _sequence(branch)


def _sequence(seq: SeqExpr) -> Iterator[Diagnostic]:
    if not is_leaf(seq.body):
        yield Diagnostic("the result of a SeqExpr is no leaf", "NF-12", seq.body.span, _HINT)
    before: bool | None = None
    for block in seq.blocks:
        if not block.bindings:
            yield Diagnostic("a block is empty", "NF-11", block.span or seq.span, _HINT)
            continue
        kind = isinstance(block, DataflowBlock)
        if kind == before:
            rule = "NF-9" if kind else "NF-8"
            yield Diagnostic("two neighbouring blocks are of one kind", rule, block.span, _HINT)
        before = kind
