"""DispatchSortScan: running sums and products become calls of kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.transform.legalize import Legalization, legalized

_SCANS: Final = (Op("relax.cumsum"), Op("relax.cumprod"))


@dataclass(frozen=True)
class DispatchSortScan(Pass):
    """Replaces calls of cumsum and cumprod by calls of the kernels that compute them.

    A call whose operand has an unknown shape or datatype stays as it is. So do sort, argsort, topk
    and bucketize, which functions of NumPy compute.

    Example:
        @I.ir_module
        class Before:
            @R.function
            def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
                t = R.cumsum(x, axis=0)
                z = R.add(t, y)
                return z

        n = T.int64(4)

        @I.ir_module
        class After:
            @T.prim_func(private=True)
            def cumsum(x: T.Buffer((n,), "float32"), y: T.Buffer((n,), "float32")):
                T.func_attr({"tir.noalias": True})
                with T.block("cumsum_generic"):
                    T.reads(x[T.int64(0):n])
                    T.writes(y[T.int64(0):n])
                    for i in range(n):
                        y[i] = T.if_then_else(i == 0, x[i], y[i - 1] + x[i])

            @R.function
            def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
                cls = After
                t = R.call_tir(cls.cumsum, (x,), out_sinfo=R.Tensor((4,), "float32"))
                z = R.add(t, y)
                return z

    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        def rule_of(op: Op) -> Legalization | None:
            return op.record.legalize if op in _SCANS else None

        return legalized(mod, rule_of)
