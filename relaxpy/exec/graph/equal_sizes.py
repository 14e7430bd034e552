"""Programs of which operators take operands of equal sizes, as native code checks when it runs.

An operator whose operands broadcast has no kernel where sizes may be equal or 1, such as `n` and
`m`. They nearly always are equal. Then native code runs a kernel for equal sizes, and leaves all
other sizes to the text in Python, which lowers the operator for the values that arrive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from typing_extensions import override

from relaxpy.dataclass import replace
from relaxpy.errors import RelaxpyError
from relaxpy.exec.runtime.dynamic import dynamic_calls, is_dynamic
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.passes import PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.op.definition.registry import infer_op_call
from relaxpy.ir.relax.relations.context import Context
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten
from relaxpy.ir.relax.transform.legalize import LegalizeOps
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.ops import const


def with_equal_sizes(module: IRModule) -> IRModule:
    """The module with casts to equal sizes in functions whose operators all have kernels then."""
    result = module
    for name in dict.fromkeys(name for name, _ in dynamic_calls(module)):
        func = module[name]
        assert isinstance(func, rx.Function)
        candidate = result.clone()
        candidate[name] = _Casts().expr(func)
        try:
            candidate = LegalizeOps().transform(candidate, PassContext())
        except RelaxpyError:  # it fails whatever the values are, and does so when it runs
            continue
        if name not in (caller for caller, _ in dynamic_calls(candidate)):
            result = candidate
    return result


class _Casts(BindingRewriter):
    """Casts the operands of operators that are lowered at run time."""

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        if not isinstance(call, rx.Call) or not is_dynamic(call):
            return None
        op = cast("Op", call.op)
        kind = rx.DataflowVar if isinstance(block, rx.DataflowBlock) else rx.Var
        casts: list[rx.Binding] = []
        args = list(call.args)
        for index, sinfo in _equal_shapes(call.args):
            equal = kind("equal", sinfo)
            casts.append(rx.MatchCast(equal, args[index], sinfo, span=binding.span))
            args[index] = equal
        call = rebuild(call, args=tuple(args))
        try:
            result = infer_op_call(op, call, Context())
        except RelaxpyError:  # it fails whatever the values are, and does so when it runs
            return None
        if not isinstance(binding, rx.VarBinding):
            return [*casts, replace(binding, value=call)]
        return [*casts, rx.VarBinding(self.rederived(binding.var, result), call, binding.span)]


def _equal_shapes(args: Sequence[rx.Expr]) -> list[tuple[int, rx.TensorStructInfo]]:
    """The operands whose sizes may be unequal, with sizes that are equal, from the last one on."""
    one = const(1, "int64")
    sizes: list[tir.PrimExpr] = []
    changed = []
    for index, arg in enumerate(args):
        sinfo = getattr(arg, "struct_info", None)  # what takes its place may have none
        shape = sinfo.get_shape() if isinstance(sinfo, rx.TensorStructInfo) else None
        if shape is None or not isinstance(sinfo, rx.TensorStructInfo):
            continue
        known = list(reversed(shape))
        for axis, size in enumerate(known):
            if axis == len(sizes):
                sizes.append(size)
            elif prove_equal(sizes[axis], one) is True:
                sizes[axis] = size
            elif prove_equal(size, one) is not True and prove_equal(size, sizes[axis]) is None:
                known[axis] = sizes[axis]
        if any(a is not b for a, b in zip(known, reversed(shape), strict=True)):
            shape = tuple(reversed(known))
            changed.append((index, replace(sinfo, shape=rx.ShapeExpr(shape))))
    return changed
