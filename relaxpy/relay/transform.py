"""Passes over Relay modules."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relay.transform")
if TYPE_CHECKING:
    from relaxpy.plugins.relay.transform.fuse_ops import DefuseOps as DefuseOps, FuseOps as FuseOps
    from relaxpy.plugins.relay.transform.inline import DeadCodeElimination as DeadCodeElimination, EliminateCommonSubexpr as EliminateCommonSubexpr, EtaExpand as EtaExpand, Inline as Inline, LambdaLift as LambdaLift, RemoveUnusedFunctions as RemoveUnusedFunctions
    from relaxpy.plugins.relay.transform.normal_forms import ToANormalForm as ToANormalForm, ToBasicBlockNormalForm as ToBasicBlockNormalForm, ToGraphNormalForm as ToGraphNormalForm
    from relaxpy.plugins.relay.transform.partial_evaluate import PartialEvaluate as PartialEvaluate
    from relaxpy.plugins.relay.transform.passes import InferType as InferType, RelayPass as RelayPass, function_pass as function_pass
    from relaxpy.plugins.relay.transform.simplify import FoldConstant as FoldConstant, SimplifyExpr as SimplifyExpr, SimplifyInference as SimplifyInference
