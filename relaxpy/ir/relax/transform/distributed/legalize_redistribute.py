"""LegalizeRedistribute: changes of how a tensor is split become what each device does."""

from __future__ import annotations

from typing_extensions import override

from relaxpy.dataclass import dataclass, replace
from relaxpy.errors import TransformError
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.map_functions import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.nodes import Binding, BindingBlock, Function, is_call_of
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten


@dataclass(frozen=True)
class LegalizeRedistribute(Pass):
    """Replaces `R.dist.redistribute`: each device keeps its part of a tensor that it has whole.

    A call that changes nothing becomes an alias.

    Errors:
        TransformError: a tensor would have to move between devices, or the mesh has several axes.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        return normalize_module(map_functions(mod, Function, lambda f: _Legalizing().expr(f)))


class _Legalizing(BindingRewriter):
    @override
    def step(self, binding: Binding, block: BindingBlock) -> Rewritten:
        call = binding.value
        if not is_call_of(call, "relax.dist.redistribute"):
            return None
        before, after = call.args[0].struct_info, binding.var and binding.var.struct_info
        assert isinstance(before, DTensorStructInfo)
        assert isinstance(after, DTensorStructInfo)
        if before.is_placed_like(after):
            return replace(binding, value=call.args[0])
        old, new = before.placement.dim_specs, after.placement.dim_specs
        same_mesh = before.device_mesh == after.device_mesh
        if not same_mesh or len(new) != 1 or old[0].kind == "sharding":
            raise TransformError(
                f"LegalizeRedistribute: {before} becomes {after}; only tensors that each device of "
                "a mesh of one axis has as a whole can be split",
                span=call.span,
                about=call,
            )
        [count] = after.device_mesh.shape
        result = R.dist.redistribute_replica_to_shard(call.args[0], count, new[0].axis)
        return replace(binding, value=replace(result, span=call.span))
