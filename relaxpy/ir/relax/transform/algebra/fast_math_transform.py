"""FastMathTransform: functions are computed by their fast variants."""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from relaxpy.dataclass import dataclass
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.op.definition.rules import by_te
from relaxpy.ir.relax.transform.legalize import legalized

_FAST: Final = {
    Op("relax.exp"): by_te("fast_exp", "fast_exp"),
    Op("relax.erf"): by_te("fast_erf", "fast_erf"),
    Op("relax.tanh"): by_te("fast_tanh", "fast_tanh"),
    Op("relax.nn.softmax"): by_te("nn.fast_softmax", "fast_softmax"),
}


@dataclass(frozen=True)
class FastMathTransform(Pass):
    """Replaces calls of exp, erf, tanh and softmax by kernels of the `topi.fast_` functions.

    These are the exact functions, since those of NumPy are faster than polynomials in their place.
    A call whose operand has an unknown shape or datatype stays as it is.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return legalized(mod, _FAST.get)
