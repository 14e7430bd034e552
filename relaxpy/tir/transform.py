"""Passes over PrimFuncs."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.tir.transform")
if TYPE_CHECKING:
    from relaxpy.ir.transform import ApplyPassToFunction as ApplyPassToFunction, PrintIR as PrintIR
    from relaxpy.tvm.tir.bind_target import Apply as Apply, BindTarget as BindTarget, Filter as Filter, PrimFuncPass as PrimFuncPass, prim_func_pass as prim_func_pass
    from relaxpy.tvm.tir.narrow_index import ForceNarrowIndexToInt32 as ForceNarrowIndexToInt32, UseAssumeToReduceBranches as UseAssumeToReduceBranches
    from relaxpy.tvm.tir.simplify import ConvertBlocksToOpaque as ConvertBlocksToOpaque, HoistIfThenElse as HoistIfThenElse, LowerInitBlock as LowerInitBlock, RemoveAssume as RemoveAssume, RemoveNoOp as RemoveNoOp, Simplify as Simplify, UnrollLoop as UnrollLoop
    from relaxpy.tvm.tir.simplify import Simplify as StmtSimplify
    __all__ = ['Apply', 'ApplyPassToFunction', 'BindTarget', 'ConvertBlocksToOpaque', 'Filter', 'ForceNarrowIndexToInt32', 'HoistIfThenElse', 'LowerInitBlock', 'PrimFuncPass', 'PrintIR', 'RemoveAssume', 'RemoveNoOp', 'Simplify', 'StmtSimplify', 'UnrollLoop', 'UseAssumeToReduceBranches', 'prim_func_pass']
