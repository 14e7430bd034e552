"""SpecializePrimFuncBasedOnCallSite: kernels get the shapes and memory scopes of their operands."""

from __future__ import annotations

from typing_extensions import override

from relaxpy.ir.core.traverse import children, walk
from relaxpy.ir.equality.structural import structural_equal
from relaxpy.ir.global_info import VDevice
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.op.call import operand_tuple
from relaxpy.ir.tir.buffer import Buffer, decl_buffer
from relaxpy.ir.tir.expr import Var
from relaxpy.ir.tir.prim_func import PrimFunc, specialized
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class SpecializePrimFuncBasedOnCallSite(Pass):
    """Specialises each kernel for the shapes and memory scopes of the tensors that it is called on.

    The scope of a tensor is that of its device, or else "global". A specialised kernel has the
    attribute `scoped`. Functions with the attribute `Primitive` do not count as callers.

    A kernel stays unchanged if one of its uses is not such a call or differs from another, if a
    call passes values of shape variables, or if the shape or datatype of a tensor is unknown.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        calls: dict[rx.GlobalVar, list[rx.Call]] = {}
        kept: set[rx.Expr] = set()
        for func in mod.functions.values():
            if not isinstance(func, rx.Function) or func.attrs.get("Primitive", 0):
                continue
            for node in walk(func.body):
                used = list(children(node))
                if rx.is_call_of(node, "relax.call_tir") and isinstance(node.args[0], rx.GlobalVar):
                    calls.setdefault(node.args[0], []).append(node)
                    used.remove(node.args[0])
                kept.update(child for child in used if isinstance(child, rx.GlobalVar))
        changed = mod.clone()
        for target, sites in calls.items():
            kernel = mod[target]
            if isinstance(kernel, PrimFunc) and target not in kept:
                versions = [_specialized(kernel, call) for call in sites]
                if all(structural_equal(version, versions[0]) for version in versions[1:]):
                    changed[target] = versions[0]
        return mod if changed.functions == mod.functions else changed


def _specialized(kernel: PrimFunc, call: rx.Call) -> PrimFunc:
    """The kernel for the tensors of a call of it; itself if not all of them are known."""
    [result] = call.sinfo_args
    results = result.fields if isinstance(result, rx.TupleStructInfo) else (result,)
    tensors: list[tuple[rx.StructInfo | None, rx.Expr | None]] = [
        (arg.struct_info, arg) for arg in operand_tuple(call.args[1]).fields
    ]
    tensors += ((sinfo, None) for sinfo in results)
    if len(call.args) > 2 or not all(_is_known(sinfo) for sinfo, _ in tensors):
        return kernel
    buffers: dict[Var, Buffer] = {}
    scopes: dict[Var, Var] = {}
    for param, (sinfo, arg) in zip(kernel.params, tensors, strict=False):
        name = arg.name_hint if isinstance(arg, rx.Var) else param.name
        old, new = kernel.buffer_of(param), _buffer(sinfo, name)
        if old is not None:
            buffers[param] = new
            if old.scope() != new.scope():
                scopes[old.data] = new.data
    version = substitute(specialized(kernel, buffers, are_arguments=True), scopes)
    if kernel.attrs.get("scoped", 0) and structural_equal(version, kernel):
        return kernel
    return version.with_attr("scoped", 1)


def _is_known(sinfo: rx.StructInfo | None) -> bool:
    if not isinstance(sinfo, rx.TensorStructInfo):
        return False
    return isinstance(sinfo.shape, rx.ShapeExpr) and bool(sinfo.dtype)


def _buffer(sinfo: rx.StructInfo | None, name: str) -> Buffer:
    """A buffer for a tensor, in the memory scope of its device."""
    assert isinstance(sinfo, rx.TensorStructInfo)
    assert isinstance(sinfo.shape, rx.ShapeExpr)
    device = sinfo.vdevice
    scope = device.memory_scope if isinstance(device, VDevice) else "global"
    return decl_buffer(sinfo.shape.values, str(sinfo.dtype), name, scope=scope)
