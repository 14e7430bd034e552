"""Analyses and passes that tests of passes use."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.testing.transform")
if TYPE_CHECKING:
    from relaxpy.ir.passes.rewrite_pass import Normalize as ApplyEmptyCppMutator
    from relaxpy.ir.relax.analysis.variables import dataflow_liveness_analysis as dataflow_liveness_analysis
    from relaxpy.tvm.lowering.call_tir_rewrite import dataflow_single_inplace_call as dataflow_single_inplace_call
    from relaxpy.tvm.relax.aliases import dataflow_alias_analysis as dataflow_alias_analysis, dataflow_inplace_analysis as dataflow_inplace_analysis
    __all__ = ['ApplyEmptyCppMutator', 'dataflow_alias_analysis', 'dataflow_inplace_analysis', 'dataflow_liveness_analysis', 'dataflow_single_inplace_call']
