"""LowerGlobalViewToLocalView: kernels on whole tensors become kernels on the shards of a device."""

from __future__ import annotations

import math
from collections.abc import Sequence

from typing_extensions import override

from relaxpy.errors import RelaxpyError, TransformError
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.nodes.distributed import DeviceMesh, DTensorStructInfo
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten
from relaxpy.ir.relax.transform.distributed.call_axes import kernel_inputs, kernel_of
from relaxpy.ir.tir.analysis.index_map import Axis, AxisGroups
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.support.dataclass import dataclass, replace


@dataclass(frozen=True)
class LowerGlobalViewToLocalView(Pass):
    """Replaces kernels that are called on distributed tensors by kernels for the local shards.

    Such a kernel has smaller loops and buffers; the other one stays in the module. Where the axis
    is split along which it reduces, `R.ccl.allreduce` combines the partial results.

    Errors: TransformError: a kernel cannot work on such shards.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return _Lowering(normalize_module(mod)).run()


class _Lowering(BindingRewriter):
    """One run over a module."""

    def __init__(self, mod: IRModule) -> None:
        super().__init__()
        self.mod, self.builder = mod, BlockBuilder(mod)

    def run(self) -> IRModule:
        """The module with kernels for shards; itself if nothing changes."""
        changed = {
            var: new
            for var, func in self.mod.items()
            if isinstance(func, rx.Function) and (new := self.expr(func)) is not func
        }
        if not changed:
            return self.mod
        result = self.builder.get()
        for var, func in changed.items():
            result[var] = func
        return normalize_module(result)

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call, var = binding.value, binding.var
        if (
            not rx.is_call_of(call, "relax.call_tir")
            or var is None
            or not _fields(call.sinfo_args[0])
        ):
            return None
        try:
            return self._lowered(call, var, isinstance(block, rx.DataflowBlock))
        except RelaxpyError as error:
            error.located(call.span)
            raise

    def _lowered(self, call: rx.Call, var: rx.Var, dataflow: bool) -> Rewritten:
        found = kernel_of(call, self.mod)
        if found is None:
            raise TransformError(f"{call.args[0]} is not a kernel of the module", about=call)
        groups, buffers = found
        placed = _placed(call, buffers)
        split = _split(groups, placed)
        partial = groups.reductions(split)
        callee = call.args[0]
        if split:
            assert isinstance(callee, rx.GlobalVar)
            counts = {group: math.prod(size for _, size in along) for group, along in split.items()}
            callee = self.builder.add_func(groups.split(counts), callee.name_hint)
        local = rx.Call(
            Op.get("relax.dist.call_tir_local_view"),
            (callee, *call.args[1:]),
            call.attrs,
            call.sinfo_args,
            span=call.span,
        )
        if not partial:
            return rx.VarBinding(var, local, call.span)
        result = call.sinfo_args[0]
        if len(partial) > 1 or not isinstance(result, DTensorStructInfo):
            raise TransformError("a kernel with several results reduces along a split axis")
        [((_, combination), reduced)] = partial.items()
        axes = sorted({k for group in reduced for k, _ in split[group]})
        bindings: list[rx.Binding] = []
        value: rx.Expr = local
        for among in _reduced_along(result.device_mesh, axes):
            parts = (rx.DataflowVar if dataflow else rx.Var)("gv", result)
            bindings.append(rx.VarBinding(parts, value, call.span))
            total = R.ccl.allreduce(parts, combination, in_group=False, among=among)
            value = replace(total, span=call.span)
        return [*bindings, rx.VarBinding(var, value, call.span)]


def _fields(sinfo: rx.StructInfo) -> list[DTensorStructInfo]:
    """The distributed tensors of a result, none if it is a result of one device."""
    fields = sinfo.fields if isinstance(sinfo, rx.TupleStructInfo) else (sinfo,)
    return [field for field in fields if isinstance(field, DTensorStructInfo)]


def _placed(call: rx.Call, buffers: Sequence[Buffer]) -> list[tuple[Buffer, rx.StructInfo | None]]:
    """The buffers of a kernel, with the struct info of the arguments of a call."""
    inputs: Sequence[rx.Expr] = kernel_inputs(call)
    sinfos = [*(arg.struct_info for arg in inputs), *_fields(call.sinfo_args[0])]
    return list(zip(buffers, sinfos, strict=False))


def _split(
    groups: AxisGroups, placed: Sequence[tuple[Buffer, rx.StructInfo | None]]
) -> dict[Axis, tuple[tuple[int, int], ...]]:
    """The groups of axes that are split, each with axes of the mesh and their sizes.

    Errors:
        TransformError: an axis has to be whole, or only some axes of a group are split.
    """
    split: dict[Axis, tuple[tuple[int, int], ...]] = {}
    for buffer, sinfo in placed:
        for axis, along in _split_axes(sinfo).items():
            group = groups.group(buffer, axis)
            if group is None or split.setdefault(group, along) != along:
                raise TransformError(
                    f"axis {axis} of {buffer.name}, which is {sinfo}, cannot be split: the kernel "
                    "needs all of it, or splits it together with an axis that is not split so",
                    hint="distribute it in another way by R.dist.redistribute",
                )
    for buffer, sinfo in placed:
        whole = set(range(len(buffer.shape))) - _split_axes(sinfo).keys()
        for axis in sorted(whole):
            if groups.group(buffer, axis) in split:
                raise TransformError(
                    f"axis {axis} of {buffer.name}, which is {sinfo}, has to be split like others",
                    hint="distribute it in another way by R.dist.redistribute",
                )
    return split


def _split_axes(sinfo: rx.StructInfo | None) -> dict[int, tuple[tuple[int, int], ...]]:
    """The axes of a tensor that are split, each with axes of the mesh and their sizes."""
    axes: dict[int, tuple[tuple[int, int], ...]] = {}
    if isinstance(sinfo, DTensorStructInfo):
        for k, spec in enumerate(sinfo.placement.dim_specs):
            if spec.kind == "sharding":
                axes[spec.axis] = (*axes.get(spec.axis, ()), (k, sinfo.device_mesh.shape[k]))
    return axes


def _reduced_along(mesh: DeviceMesh, axes: Sequence[int]) -> list[tuple[int, int]]:
    """The workers among which partial results are combined, one time after the other.

    There may be more workers than the mesh has.
    """
    if all(k in axes or size == 1 for k, size in enumerate(mesh.shape)):
        return [(math.prod(mesh.shape), 1)]
    return [(mesh.shape[k], mesh.stride(k)) for k in axes if mesh.shape[k] > 1]
