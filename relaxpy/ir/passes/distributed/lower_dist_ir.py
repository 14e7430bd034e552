"""LowerDistIR: distributed tensors become the local shards of each device (SPMD).

LowerGlobalViewToLocalView: kernels on whole tensors become kernels on the shards of a device.

LegalizeRedistribute: changes of placement become collective and local operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from typing_extensions import override

from relaxpy.errors import RelaxpyError, TransformError
from relaxpy.ir.core.traverse import rebuild, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.passes.distributed.placements import OF_PARTS, kernel_inputs, kernel_of, whole
from relaxpy.ir.passes.rewrite_pass import RewritePass
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.known import fields_of
from relaxpy.ir.relax.nodes.distributed import DeviceMesh, DTensorStructInfo, Placement
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, PrecedingBindings, Rewritten
from relaxpy.ir.tir.analysis.axis_groups import Axis, AxisGroups
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import IntImm, PrimExpr
from relaxpy.support.dataclass import dataclass, replace

_NEEDED_BEFORE = {
    "relax.call_tir": "LowerGlobalViewToLocalView",
    "relax.dist.redistribute": "LegalizeRedistribute",
    "relax.dist.annotate_sharding": "PropagateSharding",
}


@dataclass(frozen=True)
class LowerDistIR(RewritePass):
    """Generates the SPMD program: each device computes its shards of the tensors.

    The first worker has the inputs, as whole tensors, and sends them or their shards to the others.
    Kernels have to work on shards already, as after `LowerGlobalViewToLocalView`.

    With `own_params` this holds for the first `num_input` parameters only, an attribute of the
    function. The others are weights; each worker passes its own part
    (`relaxpy.distributed.own_parts`).

    Errors:
        TransformError: a size is not divided by the number of devices, an operator needs more than
            the shards that a device has, or the devices of a mesh are not numbered in its order.
    """

    own_params: bool = False

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        return partial(_lowered, own_params=self.own_params)


def _lowered(func: rx.Function, own_params: bool) -> rx.Function:
    is_distributed = any(
        isinstance(node, (rx.Var, rx.Constant)) and _mentions_dtensor(node.struct_info)
        for node in (*func.params, *walk(func))
    )
    if not is_distributed:
        return func
    received = len(func.params)
    if own_params:
        received = func.attrs.get("num_input", -1)
        if not isinstance(received, int) or received < 0:
            raise TransformError(
                "LowerDistIR: with own_params the attribute num_input says how many parameters are "
                "no weights",
                span=func.span,
                hint='write R.func_attr({"num_input": 1}) in the function',
                about=func,
            )
    return _Lowering().lowered(func, received)


def _mentions_dtensor(sinfo: rx.StructInfo | None) -> bool:
    if isinstance(sinfo, rx.TupleStructInfo):
        return any(map(_mentions_dtensor, sinfo.fields))
    return isinstance(sinfo, DTensorStructInfo)


def _part(sinfo: rx.StructInfo, call: rx.Expr) -> rx.StructInfo:
    """The shard of a value that a device has."""
    if isinstance(sinfo, rx.TupleStructInfo):
        return rx.TupleStructInfo(tuple(_part(field, call) for field in sinfo.fields))
    if not isinstance(sinfo, DTensorStructInfo):
        return sinfo
    if sinfo.is_whole:
        return sinfo.tensor_sinfo
    dims = _dims_of_part(sinfo, call)
    return rx.TensorStructInfo(rx.ShapeExpr(tuple(dims)), sinfo.dtype, sinfo.tensor_sinfo.vdevice)


def _dims_of_part(sinfo: DTensorStructInfo, about: rx.Expr) -> Sequence[PrimExpr]:
    dims = sinfo.tensor_sinfo.get_shape()
    if dims is None:
        raise TransformError(
            f"LowerDistIR: the shape of {sinfo} is not known", span=about.span, about=about
        )
    if sinfo.device_mesh.device_range is None:
        raise TransformError(
            f"LowerDistIR: the devices of {sinfo.device_mesh} are not numbered in its order",
            span=about.span,
            about=about,
        )
    result = list(dims)
    for spec, count in zip(sinfo.placement.dim_specs, sinfo.device_mesh.shape, strict=True):
        if spec.kind == "sharding":
            size = result[spec.axis]
            if isinstance(size, IntImm) and size.value % count:
                raise TransformError(
                    f"LowerDistIR: axis {spec.axis} of {sinfo} cannot be divided in {count} "
                    "equal parts",
                    span=about.span,
                    about=about,
                )
            result[spec.axis] = size // count
    return result


class _Lowering(BindingRewriter):
    """The rewriting of one function."""

    def __init__(self) -> None:
        super().__init__()
        self._fields: dict[tuple[rx.Expr, int], rx.Var] = {}
        """The replacements of fields of parameters."""
        self._wholes: dict[rx.Var, rx.StructInfo] = {}
        """The distributed values that variables of the new program are shards of."""

    def lowered(self, func: rx.Function, inputs: int) -> rx.Function:
        """The function of one device, which gets its part of all parameters but the inputs."""
        params = []
        for index, p in enumerate(func.params):
            sinfo = p.struct_info
            if sinfo is not None and _mentions_dtensor(sinfo):
                sinfo = whole(sinfo) if index < inputs else _part(sinfo, p)
                params.append(replace(p, struct_info=sinfo))
            else:
                params.append(p)
        blocks = func.body.blocks
        kind = (
            rx.DataflowBlock
            if blocks and isinstance(blocks[0], rx.DataflowBlock)
            else rx.BindingBlock
        )
        received: list[rx.Binding] = []
        for index, (old, new) in enumerate(zip(func.params, params, strict=True)):
            if old is new:
                continue
            self._remap[old] = new
            if index >= inputs:
                continue
            if isinstance(old.struct_info, DTensorStructInfo):
                self._remap[old] = _received(new, old.struct_info, kind, received)
            elif isinstance(old.struct_info, rx.TupleStructInfo):
                for index, field in enumerate(old.struct_info.fields):
                    if isinstance(field, DTensorStructInfo):
                        item = _bound(rx.TupleGetItem(new, index, span=new.span), kind, received)
                        self._fields[new, index] = _received(item, field, kind, received)
        for node in walk(func.body):
            if isinstance(node, rx.VarBinding) and node.var.struct_info is not None:
                self._enter(node.var, node.value, node.var.struct_info)
        body = self.sequence(rx.SeqExpr(func.body.blocks, func.body.body, span=func.body.span))
        first, later = (body.blocks[0].bindings, body.blocks[1:]) if blocks else ((), ())
        body = rx.SeqExpr((kind((*received, *first)), *later), body.body, span=body.span)
        return rebuild(func, params=tuple(params), body=body, ret_struct_info=None)

    def _enter(self, var: rx.Var, value: rx.Expr, sinfo: rx.StructInfo) -> None:
        """Record the local form of a variable that is bound to distributed tensors."""
        if _mentions_dtensor(sinfo):
            if isinstance(value, rx.Call):
                _check_needs_parts_only(value, sinfo)
            self._remap[var] = part = replace(var, struct_info=_part(sinfo, value))
            self._wholes[part] = sinfo

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        value, var = binding.value, binding.var
        if isinstance(value, rx.TupleGetItem):
            return self._fields.get((value.tuple_value, value.index))
        sinfo = None if var is None else self._wholes.get(var)
        if not isinstance(value, rx.Call):
            new = _without_placement(value)
            return None if new is value else replace(binding, value=new)
        is_packed = isinstance(value.op, rx.ExternFunc)
        if sinfo is None and not is_packed:
            return None
        args = tuple(map(_without_placement, value.args))
        if any(new is not old for new, old in zip(args, value.args, strict=True)):
            value = rebuild(value, args=args)
        result = (_packed_for_one_device if is_packed else _for_one_device)(value, sinfo)
        if var is not None and _is_gathered_unknown(result, sinfo):
            assert var.struct_info is not None
            whole_again = block.var_type("gv", None)
            return [
                rx.VarBinding(whole_again, result, value.span),
                rx.MatchCast(var, whole_again, var.struct_info, value.span),
            ]
        return None if result is binding.value else replace(binding, value=result)


def _is_gathered_unknown(call: rx.Call, result: rx.StructInfo | None) -> bool:
    """True if shards are joined to an axis of unknown size, where n // 2 * 2 is n."""
    if not rx.is_call_of(call, "relax.ccl.allgather") or not isinstance(result, DTensorStructInfo):
        return False
    dims = result.tensor_sinfo.get_shape()
    return dims is not None and not all(isinstance(dim, IntImm) for dim in dims)


def _without_placement(arg: rx.Expr) -> rx.Expr:
    """An operand in which constants are ordinary ones, as each device has them."""
    match arg:
        case rx.Tuple(fields=fields):
            new = tuple(map(_without_placement, fields))
            same = all(n is old for n, old in zip(new, fields, strict=True))
            return arg if same else rebuild(arg, fields=new)
        case rx.Constant(struct_info=DTensorStructInfo() as sinfo):
            return rx.Constant(arg.data, whole(sinfo))
        case _:
            return arg


def _check_needs_parts_only(call: rx.Call, result: rx.StructInfo) -> None:
    """Errors: TransformError if devices compute partial results, which nothing combines."""
    rule = call.op.record.axes if isinstance(call.op, Op) else None
    if rule is None or not isinstance(result, DTensorStructInfo):
        return
    sinfos = [arg.struct_info for arg in call.args]
    wholes = [whole(sinfo) for sinfo in sinfos if sinfo is not None]
    for sinfo, labels in zip(sinfos, rule(call, wholes, result.tensor_sinfo), strict=False):
        specs = sinfo.placement.dim_specs if isinstance(sinfo, DTensorStructInfo) else ()
        for spec in specs:
            label = labels[spec.axis] if spec.kind == "sharding" else 0
            if label is not None and label < 0:
                raise TransformError(
                    f"LowerDistIR: the axis along which {call.op} reduces is split, so that each "
                    "device has a partial result",
                    span=call.span,
                    hint="run LegalizeOps and relax.distributed.transform."
                    "LowerGlobalViewToLocalView first",
                    about=call,
                )


def _packed_for_one_device(call: rx.Call, result: rx.StructInfo | None) -> rx.Call:
    """The call of a packed function that takes and returns the shards of a device."""
    assert isinstance(call.op, rx.ExternFunc)
    symbol, args = call.op.global_symbol, call.args
    name = next((old for old, new in OF_PARTS.items() if new == symbol), symbol)
    if name != symbol and isinstance(result, DTensorStructInfo):
        args = (*args[:-1], rx.ShapeExpr(tuple(_dims_of_part(result, call))))
    sinfos = tuple(_part(sinfo, call) for sinfo in call.sinfo_args)
    return rx.Call(rx.ExternFunc(name), args, call.attrs, sinfos, span=call.span)


def _for_one_device(call: rx.Call, result: rx.StructInfo | None) -> rx.Call:
    """The call on the shards of a device."""
    if not isinstance(call.op, Op):
        return call
    name = call.op.name
    if name in _NEEDED_BEFORE:
        raise TransformError(
            f"LowerDistIR: {name} works on whole tensors",
            span=call.span,
            hint=f"run relax.distributed.transform.{_NEEDED_BEFORE[name]} first",
            about=call,
        )
    if name == "relax.dist.call_tir_local_view":
        return rx.Call(
            Op.get("relax.call_tir"),
            call.args,
            call.attrs,
            (_part(call.sinfo_args[0], call),),
            span=call.span,
        )
    if name == "relax.reshape" and isinstance(result, DTensorStructInfo):
        shape = rx.ShapeExpr(tuple(_dims_of_part(result, call)))
        return rebuild(call, args=(call.args[0], shape))
    if any(map(_mentions_dtensor, call.sinfo_args)):
        parts = tuple(_part(sinfo, call) for sinfo in call.sinfo_args)
        return rx.Call(call.op, call.args, call.attrs, parts, span=call.span)
    return call


def _bound(value: rx.Expr, kind: type[rx.BindingBlock], received: list[rx.Binding]) -> rx.Var:
    """The variable of a new binding."""
    var = (rx.DataflowVar if kind is rx.DataflowBlock else rx.Var)("gv", None)
    received.append(rx.VarBinding(var, value, value.span))
    return var


def _received(
    whole: rx.Var, sinfo: DTensorStructInfo, kind: type[rx.BindingBlock], received: list[rx.Binding]
) -> rx.Var:
    """The shard that a device gets of a tensor that the first worker has."""
    mesh, specs = sinfo.device_mesh, sinfo.placement.dim_specs
    if len(specs) == 1 and specs[0].kind == "sharding":
        call = R.ccl.scatter_from_worker0(whole, mesh.shape[0], specs[0].axis)
        return _bound(replace(call, span=whole.span), kind, received)
    var = _bound(replace(R.ccl.broadcast_from_worker0(whole), span=whole.span), kind, received)
    for k, spec in enumerate(specs):
        if spec.kind == "sharding":
            among = (mesh.shape[k], mesh.stride(k))
            call = R.dist.redistribute_replica_to_shard(var, mesh.shape[k], spec.axis, among)
            var = _bound(replace(call, span=whole.span), kind, received)
    return var


@dataclass(frozen=True)
class LowerGlobalViewToLocalView(Pass):
    """Replaces kernels that are called on distributed tensors by kernels for the local shards.

    Such a kernel has smaller loops and buffers; the other one stays in the module. Where the axis
    is split along which it reduces, `R.ccl.allreduce` combines the partial results.

    Errors: TransformError: a kernel cannot work on such shards.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return _GlobalViewLowering(normalize_module(mod)).run()


class _GlobalViewLowering(BindingRewriter):
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
    fields = fields_of(sinfo)
    return [field for field in fields if isinstance(field, DTensorStructInfo)]


def _placed(call: rx.Call, buffers: Sequence[Buffer]) -> list[tuple[Buffer, rx.StructInfo | None]]:
    """The buffers of a kernel, with the struct info of the arguments of a call."""
    inputs: Sequence[rx.Expr] = kernel_inputs(call)
    sinfos = [*(arg.struct_info for arg in inputs), *_fields(call.sinfo_args[0])]
    return list(zip(buffers, sinfos, strict=False))


def _split(
    groups: AxisGroups, placed: Sequence[tuple[Buffer, rx.StructInfo | None]]
) -> dict[Axis, tuple[tuple[int, int], ...]]:
    """The groups of axes that are split, each with axes of the mesh and their sizes."""
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
        steps = PrecedingBindings(binding, block, "gv")
        value: rx.Expr = call.args[0]
        for k, axis, is_split in _steps(before.placement, after.placement):
            value = steps.bound(value)
            count = mesh.shape[k]
            among = None if len(mesh.shape) == 1 else (count, mesh.stride(k))
            if is_split:
                value = R.dist.redistribute_replica_to_shard(value, count, axis, among)
            else:
                value = R.ccl.allgather(value, count, False, among, axis)
        return steps.ended(value)


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
