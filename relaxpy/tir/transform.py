"""Passes over PrimFuncs."""

from relaxpy.absent import hint_at_absent as _hint_at_absent
from relaxpy.ir.pass_infra.prim_func_pass import Apply, Filter, PrimFuncPass, prim_func_pass
from relaxpy.ir.tir.transform.bind_target import BindTarget, ForceNarrowIndexToInt32
from relaxpy.ir.tir.transform.use_assume_to_reduce_branches import UseAssumeToReduceBranches
from relaxpy.ir.transform import ApplyPassToFunction, PrintIR

__all__ = [
    "Apply",
    "ApplyPassToFunction",
    "BindTarget",
    "Filter",
    "ForceNarrowIndexToInt32",
    "PrimFuncPass",
    "PrintIR",
    "UseAssumeToReduceBranches",
    "prim_func_pass",
]

_hint_at_absent(globals())
