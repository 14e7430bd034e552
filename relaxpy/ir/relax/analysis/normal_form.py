"""Whether a program is in normal form: one diagnostic for each violation (WF-23).

This checks NF-2 with the leaves of NF-1, NF-3 and NF-4, and NF-5, NF-8, NF-9, NF-11, NF-12 and
NF-13. NF-6 and NF-7 always hold, since functions and conditionals wrap their bodies in a SeqExpr.
"""

from __future__ import annotations

from collections.abc import Iterator

from relaxpy.errors import Diagnostic
from relaxpy.ir.relax.analysis.survey import Survey
from relaxpy.ir.relax.block_builder.normalize import is_leaf, is_normal_value
from relaxpy.ir.relax.nodes import DataflowBlock, If, SeqExpr

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
