"""LegalizeRedistribute: changes of placement become collective and local operators."""

from __future__ import annotations

from collections.abc import Callable

from typing_extensions import override

from relaxpy.errors import TransformError
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo, Placement
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten
from relaxpy.ir.relax.transform.rewrite_pass import RewritePass
from relaxpy.support.dataclass import dataclass, replace


@dataclass(frozen=True)
class LegalizeRedistribute(RewritePass):
    """Replaces `R.dist.redistribute` by gathers and local slices along each axis of the mesh.

    Devices gather axes that are no longer split, and keep their shards of newly split ones. A
    call that changes nothing becomes an alias.

    Errors:
        TransformError: a tensor would have to move to another mesh.
    """

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        return lambda func: _Legalizing().expr(func)


class _Legalizing(BindingRewriter):
    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        if not rx.is_call_of(call, "relax.dist.redistribute"):
            return None
        before, after = call.args[0].struct_info, binding.var and binding.var.struct_info
        assert isinstance(before, DTensorStructInfo)
        assert isinstance(after, DTensorStructInfo)
        if before.is_placed_like(after):
            return replace(binding, value=call.args[0])
        mesh = after.device_mesh
        if before.device_mesh != mesh:
            raise TransformError(
                f"LegalizeRedistribute: {before} becomes {after}, which is on another mesh",
                span=call.span,
                about=call,
            )
        kind = rx.DataflowVar if isinstance(block, rx.DataflowBlock) else rx.Var
        bindings: list[rx.Binding] = []
        value: rx.Expr = call.args[0]
        for k, axis, is_split in _steps(before.placement, after.placement):
            if not isinstance(value, rx.Var):
                var = kind("gv", None)
                bindings.append(rx.VarBinding(var, value, call.span))
                value = var
            count = mesh.shape[k]
            among = None if len(mesh.shape) == 1 else (count, mesh.stride(k))
            if is_split:
                made = R.dist.redistribute_replica_to_shard(value, count, axis, among)
            else:
                made = R.ccl.allgather(value, count, False, among, axis)
            value = replace(made, span=call.span)
        return [*bindings, replace(binding, value=value)]


def _steps(before: Placement, after: Placement) -> list[tuple[int, int, bool]]:
    """Axes of the mesh, the axes of the tensor that are gathered or split along them, and which.

    An axis of the tensor that is split along several axes of the mesh is split along the first of
    them first. So an axis that is split along a later one is gathered before, and split again after
    that.
    """
    old = [spec.axis if spec.kind == "sharding" else None for spec in before.dim_specs]
    new = [spec.axis if spec.kind == "sharding" else None for spec in after.dim_specs]
    changes: list[int] = []
    for k, (from_axis, to_axis) in enumerate(zip(old, new, strict=True)):
        touched = {axis for j in changes for axis in (old[j], new[j])} - {None}
        if from_axis != to_axis or from_axis in touched:
            changes.append(k)
    gathered = [(k, axis, False) for k in reversed(changes) if (axis := old[k]) is not None]
    return gathered + [(k, axis, True) for k in changes if (axis := new[k]) is not None]
