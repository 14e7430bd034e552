"""Passes over PrimFuncs."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.transform import ApplyPassToFunction as ApplyPassToFunction, PrintIR as PrintIR
    from relaxpy.tvm.tir.bind_target import BindTarget as BindTarget
    from relaxpy.tvm.tir.lower_blocks import ConvertBlocksToOpaque as ConvertBlocksToOpaque, HoistIfThenElse as HoistIfThenElse, LowerInitBlock as LowerInitBlock, UnrollLoop as UnrollLoop
    from relaxpy.tvm.tir.narrow_index import ForceNarrowIndexToInt32 as ForceNarrowIndexToInt32
    from relaxpy.tvm.tir.prim_func_pass import Apply as Apply, Filter as Filter, PrimFuncPass as PrimFuncPass, prim_func_pass as prim_func_pass
    from relaxpy.tvm.tir.remove_no_op import RemoveAssume as RemoveAssume, RemoveNoOp as RemoveNoOp
    from relaxpy.tvm.tir.simplify import Simplify as Simplify
    from relaxpy.tvm.tir.simplify import Simplify as StmtSimplify
    from relaxpy.tvm.tir.use_assume_to_reduce_branches import UseAssumeToReduceBranches as UseAssumeToReduceBranches
    __all__ = ['Apply', 'ApplyPassToFunction', 'BindTarget', 'ConvertBlocksToOpaque', 'Filter', 'ForceNarrowIndexToInt32', 'HoistIfThenElse', 'LowerInitBlock', 'PrimFuncPass', 'PrintIR', 'RemoveAssume', 'RemoveNoOp', 'Simplify', 'StmtSimplify', 'UnrollLoop', 'UseAssumeToReduceBranches', 'prim_func_pass']
else:
    _face(globals(), """
        relaxpy.ir.transform: ApplyPassToFunction PrintIR
        relaxpy.tvm.tir.bind_target: BindTarget
        relaxpy.tvm.tir.lower_blocks: ConvertBlocksToOpaque HoistIfThenElse LowerInitBlock UnrollLoop
        relaxpy.tvm.tir.narrow_index: ForceNarrowIndexToInt32
        relaxpy.tvm.tir.prim_func_pass: Apply Filter PrimFuncPass prim_func_pass
        relaxpy.tvm.tir.remove_no_op: RemoveAssume RemoveNoOp
        relaxpy.tvm.tir.simplify: Simplify StmtSimplify=Simplify
        relaxpy.tvm.tir.use_assume_to_reduce_branches: UseAssumeToReduceBranches
    """)
