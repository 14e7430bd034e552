"""PropagateSharding: annotations of some tensors distribute all of them."""

from __future__ import annotations

from typing_extensions import override

from relaxpy.dataclass import dataclass, replace
from relaxpy.ir.core.traverse import rebuild, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.map_functions import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.nodes.distributed import (
    DeviceMesh,
    DTensorStructInfo,
    Placement,
    PlacementSpec,
)
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten
from relaxpy.ir.relax.transform.distributed.placements import (
    OF_PARTS,
    Placements,
    is_annotation,
)


@dataclass(frozen=True)
class PropagateSharding(Pass):
    """Distributes the tensors of functions as calls of `R.dist.annotate_sharding` in them say.

    Axes that hold the same elements, or that are contracted together, are split together; other
    axes are not split. The calls are removed; one between two others becomes `R.dist.redistribute`.

    Packed functions return what is declared, distributed; those of `nn.KVCache` become those of a
    cache of which each device has a part, `vm.builtin.distributed.attention_kv_cache_…`.

    Errors:
        TransformError: annotations contradict each other, or nothing says where a tensor is.
        StructInfoError: an operator does not take tensors that are split so.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)

        def distributed(func: rx.Function) -> rx.Function:
            placements = Placements(func, mod)
            return _Distributing(placements).distributed(func) if placements.annotations else func

        return normalize_module(map_functions(mod, rx.Function, distributed))


class _Distributing(BindingRewriter):
    """Gives the variables of a function the struct info that the annotations imply."""

    def __init__(self, placements: Placements) -> None:
        super().__init__()
        self.placements = placements
        self._before: dict[rx.Var, rx.Var] = {}

    def distributed(self, func: rx.Function) -> rx.Function:
        """The function on distributed tensors."""
        bound = [node.var for node in walk(func.body) if isinstance(node, rx.VarBinding)]
        for var in (*func.params, *bound):
            sinfo = self.placements.sinfo(var)
            if sinfo != var.struct_info:
                self._images[var] = new = replace(var, struct_info=sinfo)
                self._before[new] = var
        params = tuple(self._with_images(param) for param in func.params)
        body = self.sequence(func.body)
        return rebuild(func, params=params, body=body, ret_struct_info=None)

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call, var = binding.value, binding.var
        if not isinstance(call, rx.Call) or var is None:
            return None
        if is_annotation(call):
            return _changed(call, var)
        call = _distributed_builtin(call, var)
        mesh = self.placements.mesh(self._before.get(var, var))
        if mesh is None:
            return None if call is binding.value else replace(binding, value=call)
        args = tuple(_with_constants(arg, mesh) for arg in call.args)
        if call.sinfo_args and var.struct_info is not None:
            declared: tuple[rx.StructInfo, ...] = (var.struct_info,)
            if len(call.sinfo_args) > 1:
                assert isinstance(var.struct_info, rx.TupleStructInfo)
                declared = var.struct_info.fields
            return replace(
                binding, value=rx.Call(call.op, args, call.attrs, declared, span=call.span)
            )
        if all(new is old for new, old in zip(args, call.args, strict=True)):
            return None
        return replace(binding, value=rebuild(call, args=args))


def _distributed_builtin(call: rx.Call, var: rx.Var) -> rx.Call:
    """The call of a cache of which devices have parts, if it takes or returns such rows."""
    symbol = call.op.global_symbol if isinstance(call.op, rx.ExternFunc) else ""
    sinfos = (var.struct_info, *(arg.struct_info for arg in call.args))
    if symbol not in OF_PARTS or not any(isinstance(s, DTensorStructInfo) for s in sinfos):
        return call
    return rebuild(call, op=rx.ExternFunc(OF_PARTS[symbol]))


def _changed(annotation: rx.Call, var: rx.Var) -> rx.Expr:
    """The annotated tensor, distributed as the struct info of `var` says."""
    source = annotation.args[0]
    before, after = source.struct_info, var.struct_info
    assert isinstance(before, DTensorStructInfo)
    assert isinstance(after, DTensorStructInfo)
    if before.is_placed_like(after):
        return source
    call = R.dist.redistribute(source, after.device_mesh, after.placement)
    return replace(call, span=annotation.span)  # type: ignore[no-any-return]


def _with_constants(arg: rx.Expr, mesh: DeviceMesh) -> rx.Expr:
    """An operand in which every device has the constants."""
    if isinstance(arg, rx.Tuple):
        fields = tuple(_with_constants(field, mesh) for field in arg.fields)
        same = all(new is old for new, old in zip(fields, arg.fields, strict=True))
        return arg if same else rebuild(arg, fields=fields)
    if not isinstance(arg, rx.Constant) or not isinstance(arg.struct_info, rx.TensorStructInfo):
        return arg
    placement = Placement((PlacementSpec.replica(),) * len(mesh.shape))
    return rx.Constant(arg.data, DTensorStructInfo(arg.struct_info, mesh, placement))
