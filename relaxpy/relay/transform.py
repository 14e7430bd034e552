"""Passes over Relay modules."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.relay.transform.common_subexpr import EliminateCommonSubexpr as EliminateCommonSubexpr
    from relaxpy.ir.relay.transform.dead_code import DeadCodeElimination as DeadCodeElimination, RemoveUnusedFunctions as RemoveUnusedFunctions
    from relaxpy.ir.relay.transform.eta_expand import EtaExpand as EtaExpand
    from relaxpy.ir.relay.transform.fold_constant import FoldConstant as FoldConstant
    from relaxpy.ir.relay.transform.fuse_ops import DefuseOps as DefuseOps, FuseOps as FuseOps
    from relaxpy.ir.relay.transform.inline import Inline as Inline
    from relaxpy.ir.relay.transform.lambda_lift import LambdaLift as LambdaLift
    from relaxpy.ir.relay.transform.normal_forms import ToANormalForm as ToANormalForm, ToBasicBlockNormalForm as ToBasicBlockNormalForm, ToGraphNormalForm as ToGraphNormalForm
    from relaxpy.ir.relay.transform.partial_evaluate import PartialEvaluate as PartialEvaluate
    from relaxpy.ir.relay.transform.passes import InferType as InferType, RelayPass as RelayPass, function_pass as function_pass
    from relaxpy.ir.relay.transform.simplify_expr import SimplifyExpr as SimplifyExpr
    from relaxpy.ir.relay.transform.simplify_inference import SimplifyInference as SimplifyInference
else:
    _face(globals(), """
        relaxpy.ir.relay.transform.common_subexpr: EliminateCommonSubexpr
        relaxpy.ir.relay.transform.dead_code: DeadCodeElimination RemoveUnusedFunctions
        relaxpy.ir.relay.transform.eta_expand: EtaExpand
        relaxpy.ir.relay.transform.fold_constant: FoldConstant
        relaxpy.ir.relay.transform.fuse_ops: DefuseOps FuseOps
        relaxpy.ir.relay.transform.inline: Inline
        relaxpy.ir.relay.transform.lambda_lift: LambdaLift
        relaxpy.ir.relay.transform.normal_forms: ToANormalForm ToBasicBlockNormalForm ToGraphNormalForm
        relaxpy.ir.relay.transform.partial_evaluate: PartialEvaluate
        relaxpy.ir.relay.transform.passes: InferType RelayPass function_pass
        relaxpy.ir.relay.transform.simplify_expr: SimplifyExpr
        relaxpy.ir.relay.transform.simplify_inference: SimplifyInference
    """)
