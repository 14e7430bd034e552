"""PropagateSharding: shardings are propagated from annotated tensors to all others."""

from __future__ import annotations

from typing_extensions import override

from relaxpy.errors import Span, TransformError
from relaxpy.ir.core.traverse import rebuild, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.ops.definition.registry import R, registered_ops
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.passes.cleanup.private_functions import InlinePrivateFunctions
from relaxpy.ir.passes.distributed import placements
from relaxpy.ir.passes.distributed.placements import OF_PARTS, Placements, is_annotation
from relaxpy.ir.passes.legalize import LegalizeOps
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.known import fields_of
from relaxpy.ir.relax.nodes import distributed as dist
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten
from relaxpy.support.dataclass import dataclass, replace

_SHAPE_OF = Op.get("relax.shape_of")


@dataclass(frozen=True)
class PropagateSharding(Pass):
    """Distributes the tensors of functions according to calls of `R.dist.annotate_sharding`.

    Axes that hold the same elements, or that are contracted together, are split together; other
    axes are not split. The calls are removed; one between two others becomes `R.dist.redistribute`,
    and so does what an operator needs whole. Private functions are inlined first, and operators
    without a rule of their own become kernels, which say what can be split.

    Packed functions return what is declared, distributed; those of `nn.KVCache` become those of a
    cache of which each device has a part, `vm.builtin.distributed.attention_kv_cache_…`.

    Errors:
        TransformError: annotations contradict each other, nothing says on which of several meshes a
            tensor is, or a size is not a multiple of the number of parts.
        StructInfoError: a function or an operator takes no tensors of several devices.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)

        if not any(
            isinstance(node, rx.Call) and is_annotation(node)
            for func in mod.functions.values()
            for node in walk(func)
        ):
            return mod
        with_rules = [name for name, op in registered_ops().items() if op.record.axes]
        mod = LegalizeOps(skip_ops=with_rules)(InlinePrivateFunctions()(mod))

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
        bound = []
        for node in walk(func.body):
            if isinstance(node, (rx.MatchCast, rx.Function)):
                _refuse_scope(node)
            elif isinstance(node, rx.VarBinding):
                bound.append(node.var)
        for var in (*func.params, *bound):
            sinfo = self.placements.sinfo(var)
            if sinfo != var.struct_info:
                self._remap[var] = new = replace(var, struct_info=sinfo)
                self._before[new] = var
        params = tuple(self._remapped(param) for param in func.params)
        body = self.sequence(func.body)
        return rebuild(func, params=params, body=body, ret_struct_info=None)

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call, var = binding.value, binding.var
        if var is None:
            return None
        if isinstance(call, (rx.Var, rx.Constant, rx.Tuple)):
            return _as_declared(call, var, block)
        if not isinstance(call, rx.Call):
            return None
        if is_annotation(call):
            return _changed(call, var)
        call = _distributed_builtin(call, var)
        if call.op == _SHAPE_OF and isinstance(
            found := call.args[0].struct_info, dist.DTensorStructInfo
        ):
            return found.shape if isinstance(found.shape, rx.ShapeExpr) else None
        mesh = _mesh_of(var.struct_info) or _mesh_of(
            *(arg.struct_info for arg in placements.tensors_of(call))
        )
        if mesh is None:
            return None if call is binding.value else replace(binding, value=call)
        if isinstance(call.op, Op) and not (placements.tensors_of(call) or call.sinfo_args):
            raise TransformError(
                f"PropagateSharding: {call.op.name} computes a tensor of one device, which is used "
                "with those of several",
                span=call.span,
                hint="pass it to the function",
                about=call,
            )
        args = tuple(_with_constants(arg, mesh) for arg in call.args)
        call = rx.Call(call.op, args, call.attrs, call.sinfo_args, span=call.span)
        axes = placements.axes_of_call(call, var.struct_info, self.placements.mod)
        if axes is None:
            _require_operator(call)
            assert isinstance(call.op, rx.ExternFunc)
            is_of_parts = call.op.global_symbol in OF_PARTS.values()
            fields = [
                f for f in fields_of(var.struct_info) if isinstance(f, dist.DTensorStructInfo)
            ]
            if is_of_parts or not all(field.is_whole for field in fields):
                return replace(binding, value=_with_declared(call, var.struct_info))
            axes = placements.whole_axes(call, var.struct_info)
        return _Divided(call, var, axes, mesh, block).bindings()


class _Divided:
    """The bindings that compute a call on shards of its operands, after their redistribution."""

    def __init__(
        self,
        call: rx.Call,
        var: rx.Var,
        axes: placements.CallAxes,
        mesh: dist.DeviceMesh,
        block: rx.BindingBlock,
    ) -> None:
        self.call, self.var, self.axes, self.mesh = call, var, axes, mesh
        self._kind = block.var_type
        self._bindings: list[rx.Binding] = []
        wanted = [f for f in fields_of(var.struct_info) if isinstance(f, dist.DTensorStructInfo)]
        self.division = placements.division(axes, wanted, mesh)

    def bindings(self) -> list[rx.Binding]:
        """The bindings, the last one of which binds the variable of the call."""
        placed = iter(
            [self._placed(arg, labels) for arg, labels in self.axes.operands if _is_placed(arg)]
        )
        args = tuple(
            rx.Tuple(tuple(next(placed) if _is_placed(f) else f for f in arg.fields), span=arg.span)
            if isinstance(arg, rx.Tuple)
            else (next(placed, arg) if _is_placed(arg) else arg)
            for arg in self.call.args
        )
        wanted = self.var.struct_info
        assert wanted is not None
        labels = iter(self.axes.results)
        computed = [self._as_computed(field, next(labels)) for field in fields_of(wanted)]
        is_tuple = isinstance(wanted, rx.TupleStructInfo)
        result = rx.TupleStructInfo(tuple(computed)) if is_tuple else computed[0]
        call = _with_declared(replace(self.call, args=args), result)
        value: rx.Expr = self._computed(call)
        if result != wanted:
            source = self._bound(value)
            items: list[rx.Expr] = [source]
            if is_tuple:
                gets = [rx.TupleGetItem(source, k, span=call.span) for k in range(len(computed))]
                items = list(map(self._bound, gets))
            for k, (old, new) in enumerate(zip(computed, fields_of(wanted), strict=True)):
                if old != new and isinstance(new, dist.DTensorStructInfo):
                    moved = _redistributed(items[k], new, call.span)
                    items[k] = self._bound(moved) if is_tuple else moved
            value = rx.Tuple(tuple(items), span=call.span) if is_tuple else items[0]
        return [*self._bindings, rx.VarBinding(self.var, value, call.span)]

    def _as_computed(self, field: rx.StructInfo | None, labels: placements.Labels) -> rx.StructInfo:
        """The struct info of a result as the devices compute it."""
        assert field is not None
        if not isinstance(field, dist.DTensorStructInfo):
            return field
        return replace(field, placement=self.division.placement(labels))

    def _bound(self, value: rx.Expr, sinfo: rx.StructInfo | None = None) -> rx.Var:
        """The variable of a new binding."""
        var = self._kind("gv", sinfo)
        self._bindings.append(rx.VarBinding(var, value, self.call.span))
        return var

    def _placed(self, arg: rx.Expr, labels: placements.Labels) -> rx.Expr:
        """An operand whose axes have these labels, placed as the call needs it."""
        sinfo, placement = arg.struct_info, self.division.placement(labels)
        assert isinstance(sinfo, dist.DTensorStructInfo)
        if sinfo.placement == placement and sinfo.device_mesh == self.mesh:
            return arg
        wanted = dist.DTensorStructInfo(sinfo.tensor_sinfo, self.mesh, placement)
        return self._bound(_redistributed(arg, wanted, self.call.span), wanted)

    def _computed(self, call: rx.Call) -> rx.Expr:
        """The call, or one of operators whose partial results can be combined in its place."""
        kept = {label for labels in self.axes.results for label in labels}
        is_reduced = any(label is not None and label not in kept for label in self.division.along)
        if not is_reduced or rx.is_call_of(call, "relax.call_tir"):
            return call
        assert isinstance(call.op, Op)
        assert call.op.record.partial is not None
        value = call.op.record.partial(call, self._emitted)
        assert isinstance(value, rx.Call)
        return replace(value, span=self.call.span)

    def _emitted(self, value: rx.Expr) -> rx.Expr:
        """The variable of an operand, or a constant that every device has."""
        if isinstance(value, rx.Constant):
            return _with_constants(value, self.mesh)
        assert isinstance(value, rx.Call)
        return self._bound(replace(value, span=self.call.span))


def _distributed_builtin(call: rx.Call, var: rx.Var) -> rx.Call:
    """The call of a sharded cache, if it takes or returns such rows."""
    symbol = call.op.global_symbol if isinstance(call.op, rx.ExternFunc) else ""
    sinfos = (var.struct_info, *(arg.struct_info for arg in call.args))
    if symbol not in OF_PARTS or not any(isinstance(s, dist.DTensorStructInfo) for s in sinfos):
        return call
    return rebuild(call, op=rx.ExternFunc(OF_PARTS[symbol]))


def _changed(annotation: rx.Call, var: rx.Var) -> rx.Expr:
    """The annotated tensor, distributed as the struct info of `var` says."""
    after = var.struct_info
    assert isinstance(after, dist.DTensorStructInfo)
    source = _with_constants(annotation.args[0], after.device_mesh)
    before = source.struct_info
    assert isinstance(before, dist.DTensorStructInfo)
    if before.is_placed_like(after):
        return source
    return _redistributed(source, after, annotation.span)


def _redistributed(value: rx.Expr, wanted: dist.DTensorStructInfo, span: Span | None) -> rx.Expr:
    """The tensor, distributed in this way."""
    call = R.dist.redistribute(value, wanted.device_mesh, wanted.placement)
    return replace(call, span=span)  # type: ignore[no-any-return]


def _as_declared(value: rx.Expr, var: rx.Var, block: rx.BindingBlock) -> Rewritten:
    """The value of a variable that is bound to leaves, distributed as the variable is."""
    bindings: list[rx.Binding] = []
    leaves: list[rx.Expr] = []
    items = value.fields if isinstance(value, rx.Tuple) else (value,)
    for leaf, wanted in zip(items, fields_of(var.struct_info), strict=False):
        if not isinstance(wanted, dist.DTensorStructInfo):
            leaves.append(leaf)
            continue
        placed = _with_constants(leaf, wanted.device_mesh)
        before = placed.struct_info
        if isinstance(before, dist.DTensorStructInfo) and not before.is_placed_like(wanted):
            moved = block.var_type("gv", None)
            call = _redistributed(placed, wanted, value.span)
            bindings.append(rx.VarBinding(moved, call, value.span))
            placed = moved
        leaves.append(placed)
    if all(new is old for new, old in zip(leaves, items, strict=True)):
        return None
    new = rebuild(value, fields=tuple(leaves)) if isinstance(value, rx.Tuple) else leaves[0]
    return [*bindings, rx.VarBinding(var, new, value.span)]


def _with_declared(call: rx.Call, result: rx.StructInfo | None) -> rx.Call:
    """The call of something whose result is declared, with a distributed one."""
    if not call.sinfo_args or result is None:
        return call
    declared = fields_of(result) if len(call.sinfo_args) > 1 else (result,)
    return rx.Call(call.op, call.args, call.attrs, declared, span=call.span)


def _refuse_scope(node: rx.MatchCast | rx.Function) -> None:
    """Errors: TransformError, since it does not support distributed tensors."""
    what = "a match_cast" if isinstance(node, rx.MatchCast) else "a local function"
    raise TransformError(
        f"PropagateSharding: {what} in a function with annotations",
        span=node.span,
        hint="write the shape in the signature of the function"
        if isinstance(node, rx.MatchCast)
        else "make it a private function of the module, which is inlined",
        about=node,
    )


def _require_operator(call: rx.Call) -> None:
    """Refuse a call of a function of the program."""
    if isinstance(call.op, rx.ExternFunc):
        return
    raise TransformError(
        f"PropagateSharding: tensors of several devices are passed to the function {call.op}",
        span=call.span,
        hint="private functions of the module that do not call themselves are inlined: "
        "R.function(private=True)",
        about=call,
    )


def _is_placed(arg: rx.Expr) -> bool:
    return isinstance(arg.struct_info, dist.DTensorStructInfo)


def _mesh_of(*sinfos: rx.StructInfo | None) -> dist.DeviceMesh | None:
    """The first mesh of these tensors."""
    fields = (field for sinfo in sinfos for field in fields_of(sinfo))
    return next((f.device_mesh for f in fields if isinstance(f, dist.DTensorStructInfo)), None)


def _with_constants(arg: rx.Expr, mesh: dist.DeviceMesh) -> rx.Expr:
    """An operand in which every device has the constants."""
    if isinstance(arg, rx.Tuple):
        fields = tuple(_with_constants(field, mesh) for field in arg.fields)
        same = all(new is old for new, old in zip(fields, arg.fields, strict=True))
        return arg if same else rebuild(arg, fields=fields)
    if not isinstance(arg, rx.Constant) or not isinstance(arg.struct_info, rx.TensorStructInfo):
        return arg
    placement = dist.Placement((dist.PlacementSpec.replica(),) * len(mesh.shape))
    return rx.Constant(arg.data, dist.DTensorStructInfo(arg.struct_info, mesh, placement))
