"""KillAfterLastUse: tensors and storage are released where nothing uses them any more."""

from __future__ import annotations

from collections.abc import Callable

from typing_extensions import override

from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import binding_key, binding_vars, occurring_vars
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.relax.rewrite.map_bindings import Rewritten, with_bindings
from relaxpy.ir.relax.transform.rewrite_pass import RewritePass
from relaxpy.support.dataclass import dataclass
from relaxpy.tvm.lowering.force_pure import LoweringRewriter


@dataclass(frozen=True)
class KillAfterLastUse(RewritePass):
    """Inserts a call that releases each tensor and each storage after its last use.

    Bindings of a variable to another one are removed. Values that the function returns, and those
    of dataflow blocks, are not released. A pure function that changes is declared pure by force.
    """

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        return lambda func: _Kills().expr(func)


class _Kills(LoweringRewriter):
    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        value = binding.value
        if not isinstance(binding, rx.VarBinding) or not isinstance(value, rx.Var):
            return None
        declared, known = binding.var.struct_info, value.struct_info
        precise = declared is None or (known is not None and is_base_of(declared, known))
        return value if precise else None

    @override
    def sequence(self, seq: rx.SeqExpr) -> rx.SeqExpr:
        seq = super().sequence(seq)
        killers = _killers(seq)
        if not killers:
            return seq
        blocks: list[rx.BindingBlock] = []
        for block in seq.blocks:
            bindings: list[rx.Binding] = []
            kills: list[rx.Binding] = []
            for binding in block.bindings:
                bindings.append(binding)
                here = killers.get(binding_key(binding), ())
                (kills if isinstance(block, rx.DataflowBlock) else bindings).extend(here)
            blocks.append(with_bindings(block, bindings))
            if kills:
                blocks.append(rx.BindingBlock(tuple(kills)))
        return rebuild(seq, blocks=tuple(blocks))


def _killers(seq: rx.SeqExpr) -> dict[object, list[rx.VarBinding]]:
    """The calls that release variables of a sequence, by the binding that uses these last."""
    bound: dict[rx.Var, str] = {}
    last: dict[rx.Var, object] = {}
    for block in seq.blocks:
        for binding in block.bindings:
            for var in binding_vars(binding):
                if var in bound:
                    last[var] = binding_key(binding)
            value = binding.value
            if isinstance(value, rx.Call) and isinstance(value.op, Op) and value.op.record.releases:
                for var in binding_vars(binding):
                    bound.pop(var, None)
            killer = _killer(binding)
            if killer and type(binding.var) is rx.Var:
                bound[binding.var] = killer
    for var in occurring_vars(seq.body):
        bound.pop(var, None)
    result: dict[object, list[rx.VarBinding]] = {}
    for var, key in last.items():
        if var in bound:
            call = rx.Call(Op.get(bound[var]), (var,), span=var.span)
            result.setdefault(key, []).append(rx.VarBinding(rx.Var("_"), call, var.span))
    return result


def _killer(binding: rx.Binding) -> str | None:
    """The operator that releases the value of a binding."""
    value, var = binding.value, binding.var
    if isinstance(value, rx.Call) and isinstance(value.op, Op):
        allocation = value.op.record.allocates
        if allocation is not None and allocation.storage:
            return allocation.killer
    tensor = var is not None and isinstance(var.struct_info, rx.TensorStructInfo)
    return "relax.memory.kill_tensor" if tensor else None
