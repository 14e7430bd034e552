"""Passes over PrimFuncs."""

from relaxpy.ir.pass_infra.prim_func_pass import (
    Apply as Apply,
    Filter as Filter,
    PrimFuncPass as PrimFuncPass,
    prim_func_pass as prim_func_pass,
)
from relaxpy.ir.tir.transform.bind_target import BindTarget as BindTarget
from relaxpy.ir.tir.transform.lower_blocks import (
    ConvertBlocksToOpaque as ConvertBlocksToOpaque,
    HoistIfThenElse as HoistIfThenElse,
    LowerInitBlock as LowerInitBlock,
    UnrollLoop as UnrollLoop,
)
from relaxpy.ir.tir.transform.narrow_index import ForceNarrowIndexToInt32 as ForceNarrowIndexToInt32
from relaxpy.ir.tir.transform.remove_no_op import (
    RemoveAssume as RemoveAssume,
    RemoveNoOp as RemoveNoOp,
)
from relaxpy.ir.tir.transform.simplify import Simplify as Simplify
from relaxpy.ir.tir.transform.use_assume_to_reduce_branches import (
    UseAssumeToReduceBranches as UseAssumeToReduceBranches,
)
from relaxpy.ir.transform import ApplyPassToFunction as ApplyPassToFunction, PrintIR as PrintIR
from relaxpy.missing import hint_at_absent as _hint_at_absent

StmtSimplify = Simplify

_hint_at_absent(globals())
