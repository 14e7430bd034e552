"""The passes over Relax programs."""

from relaxpy.exec.bisect import Bisection as Bisection, bisect as bisect
from relaxpy.exec.explain import Explanation as Explanation, explain as explain
from relaxpy.ir.relax.dpl.fusion import (
    FusionPattern as FusionPattern,
    PatternCheckContext as PatternCheckContext,
)
from relaxpy.ir.relax.transform import *
from relaxpy.ir.relax.transform.cleanup.update_param_struct_info import (
    UpdateParamStructInfo as UpdateParamStructInfo,
)
from relaxpy.ir.relax.transform.fusion.cost import fusion_pays as fusion_pays
from relaxpy.missing import hint_at_absent as _hint_at_absent
from relaxpy.relax.transform import legalize_ops as legalize_ops, transform as transform

UpdateParamType = UpdateParamStructInfo

_hint_at_absent(globals())
