"""Passes over Relay modules."""

from relaxpy.ir.relay.transform.common_subexpr import EliminateCommonSubexpr
from relaxpy.ir.relay.transform.dead_code import DeadCodeElimination, RemoveUnusedFunctions
from relaxpy.ir.relay.transform.eta_expand import EtaExpand
from relaxpy.ir.relay.transform.fold_constant import FoldConstant
from relaxpy.ir.relay.transform.fuse_ops import DefuseOps, FuseOps
from relaxpy.ir.relay.transform.gradient import FirstOrderGradient, gradient
from relaxpy.ir.relay.transform.inline import Inline
from relaxpy.ir.relay.transform.lambda_lift import LambdaLift
from relaxpy.ir.relay.transform.normal_forms import (
    ToANormalForm,
    ToBasicBlockNormalForm,
    ToGraphNormalForm,
)
from relaxpy.ir.relay.transform.partial_evaluate import PartialEvaluate
from relaxpy.ir.relay.transform.passes import InferType, RelayPass, function_pass
from relaxpy.ir.relay.transform.simplify_inference import SimplifyInference

__all__ = [
    "DeadCodeElimination",
    "DefuseOps",
    "EliminateCommonSubexpr",
    "EtaExpand",
    "FirstOrderGradient",
    "FoldConstant",
    "FuseOps",
    "InferType",
    "Inline",
    "LambdaLift",
    "PartialEvaluate",
    "RelayPass",
    "RemoveUnusedFunctions",
    "SimplifyInference",
    "ToANormalForm",
    "ToBasicBlockNormalForm",
    "ToGraphNormalForm",
    "function_pass",
    "gradient",
]
