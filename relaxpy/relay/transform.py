"""Passes over Relay modules."""

from relaxpy.ir.relay.transform.combine_parallel import (
    CombineParallelBatchMatmul,
    CombineParallelConv2D,
    CombineParallelDense,
)
from relaxpy.ir.relay.transform.common_subexpr import EliminateCommonSubexpr
from relaxpy.ir.relay.transform.convert_layout import ConvertLayout
from relaxpy.ir.relay.transform.dead_code import DeadCodeElimination, RemoveUnusedFunctions
from relaxpy.ir.relay.transform.dynamic_to_static import DynamicToStatic
from relaxpy.ir.relay.transform.eta_expand import EtaExpand
from relaxpy.ir.relay.transform.fold_constant import FoldConstant
from relaxpy.ir.relay.transform.fold_scale_axis import (
    BackwardFoldScaleAxis,
    FoldScaleAxis,
    ForwardFoldScaleAxis,
)
from relaxpy.ir.relay.transform.fuse_ops import DefuseOps, FuseOps
from relaxpy.ir.relay.transform.gradient import FirstOrderGradient, gradient
from relaxpy.ir.relay.transform.inline import Inline
from relaxpy.ir.relay.transform.lambda_lift import LambdaLift
from relaxpy.ir.relay.transform.merge_composite import MergeComposite
from relaxpy.ir.relay.transform.normal_forms import (
    ToANormalForm,
    ToBasicBlockNormalForm,
    ToGraphNormalForm,
)
from relaxpy.ir.relay.transform.partial_evaluate import PartialEvaluate
from relaxpy.ir.relay.transform.passes import InferType, RelayPass, function_pass
from relaxpy.ir.relay.transform.simplify_expr import (
    CanonicalizeCast,
    CanonicalizeOps,
    DivToMul,
    FastMath,
    SimplifyExpr,
    SplitArgs,
)
from relaxpy.ir.relay.transform.simplify_inference import SimplifyInference

__all__ = [
    "BackwardFoldScaleAxis",
    "CanonicalizeCast",
    "CanonicalizeOps",
    "CombineParallelBatchMatmul",
    "CombineParallelConv2D",
    "CombineParallelDense",
    "ConvertLayout",
    "DeadCodeElimination",
    "DefuseOps",
    "DivToMul",
    "DynamicToStatic",
    "EliminateCommonSubexpr",
    "EtaExpand",
    "FastMath",
    "FirstOrderGradient",
    "FoldConstant",
    "FoldScaleAxis",
    "ForwardFoldScaleAxis",
    "FuseOps",
    "InferType",
    "Inline",
    "LambdaLift",
    "MergeComposite",
    "PartialEvaluate",
    "RelayPass",
    "RemoveUnusedFunctions",
    "SimplifyExpr",
    "SimplifyInference",
    "SplitArgs",
    "ToANormalForm",
    "ToBasicBlockNormalForm",
    "ToGraphNormalForm",
    "function_pass",
    "gradient",
]
