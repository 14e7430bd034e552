"""Passes over PrimFuncs."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.pass_infra.prim_func_pass import Apply as Apply, Filter as Filter, PrimFuncPass as PrimFuncPass, prim_func_pass as prim_func_pass
    from relaxpy.ir.tir.transform.bind_target import BindTarget as BindTarget
    from relaxpy.ir.tir.transform.lower_blocks import ConvertBlocksToOpaque as ConvertBlocksToOpaque, HoistIfThenElse as HoistIfThenElse, LowerInitBlock as LowerInitBlock, UnrollLoop as UnrollLoop
    from relaxpy.ir.tir.transform.narrow_index import ForceNarrowIndexToInt32 as ForceNarrowIndexToInt32
    from relaxpy.ir.tir.transform.remove_no_op import RemoveAssume as RemoveAssume, RemoveNoOp as RemoveNoOp
    from relaxpy.ir.tir.transform.simplify import Simplify as Simplify
    from relaxpy.ir.tir.transform.simplify import Simplify as StmtSimplify
    from relaxpy.ir.tir.transform.use_assume_to_reduce_branches import UseAssumeToReduceBranches as UseAssumeToReduceBranches
    from relaxpy.ir.transform import ApplyPassToFunction as ApplyPassToFunction, PrintIR as PrintIR
    __all__ = ['Apply', 'ApplyPassToFunction', 'BindTarget', 'ConvertBlocksToOpaque', 'Filter', 'ForceNarrowIndexToInt32', 'HoistIfThenElse', 'LowerInitBlock', 'PrimFuncPass', 'PrintIR', 'RemoveAssume', 'RemoveNoOp', 'Simplify', 'StmtSimplify', 'UnrollLoop', 'UseAssumeToReduceBranches', 'prim_func_pass']
else:
    _face(globals(), """
        relaxpy.ir.pass_infra.prim_func_pass: Apply Filter PrimFuncPass prim_func_pass
        relaxpy.ir.tir.transform.bind_target: BindTarget
        relaxpy.ir.tir.transform.lower_blocks: ConvertBlocksToOpaque HoistIfThenElse LowerInitBlock UnrollLoop
        relaxpy.ir.tir.transform.narrow_index: ForceNarrowIndexToInt32
        relaxpy.ir.tir.transform.remove_no_op: RemoveAssume RemoveNoOp
        relaxpy.ir.tir.transform.simplify: Simplify StmtSimplify=Simplify
        relaxpy.ir.tir.transform.use_assume_to_reduce_branches: UseAssumeToReduceBranches
        relaxpy.ir.transform: ApplyPassToFunction PrintIR
    """)
