"""RewriteCUDAGraph: calls whose operands keep their addresses become functions to capture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from typing_extensions import override

from relaxpy.errors import Span
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.node import EMPTY_ATTRS, Attrs
from relaxpy.ir.core.traverse import reached, rebuild
from relaxpy.ir.link import free_name
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.passes import Pass, PassContext, register_config
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import (
    definable_tir_vars_in_struct_info,
    occurring_vars,
    used_shape_vars,
)
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.relations.shape_vars import variables_of
from relaxpy.ir.relax.rewrite.map_bindings import copy_with_new_vars
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.dataclass import replace

_OPTION: Final = "relax.backend.use_cuda_graph"
register_config(_OPTION, bool)

_ALLOC_STORAGE: Final = "relax.memory.alloc_storage"
#: Operators that do not end a region, but stay outside of it.
_BESIDE: Final = ("relax.memory.kill_storage", "relax.builtin.alloc_tensor")
#: Operators that are neither captured nor may stand within a region.
_BETWEEN: Final = frozenset(
    f"relax.{name}"
    for name in (
        *("assert_op", "call_builtin_with_ctx", "call_py_func"),
        *("invoke_closure", "invoke_pure_closure", "print"),
    )
)
#: Operators that may be captured, but do not launch a kernel.
_NO_KERNEL: Final = ("relax.memory.", "relax.builtin.", "relax.null_value")


@dataclass(frozen=True)
class RewriteCUDAGraph(Pass):
    """Moves calls whose operands keep their memory to functions that a CUDA graph can capture.

    Nothing changes unless the configuration has `relax.backend.use_cuda_graph`.

    Storages of known size, but for those that results of the function may share, are allocated by
    one function, `cuda_graph_alloc`, so that each has one address in all calls. Storages of several
    functions share them by size, scope, device and datatype.

    A region begins with a call of a kernel or packed function whose operands are literals, or
    depend only on such storages and on parameters after the first `num_input`. It ends before the
    first binding that depends on anything else. Dimensions may depend on shape variables that such
    parameters define, or that the attribute `relax.rewrite_cuda_graph.capture_symbolic_vars` names.

    The functions are called by `vm.builtin.cuda_graph.get_cached_alloc` and `run_or_capture`. Here
    both call them, since a CPU does not capture graphs: every call allocates its storages.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        if not (ctx.config or {}).get(_OPTION):
            return mod
        mod = normalize_module(mod)
        plans = {
            name: _Plan(mod, func)
            for name, func in mod.functions_by_name.items()
            if isinstance(func, rx.Function)
        }
        plans = {name: plan for name, plan in plans.items() if plan.storages or plan.regions}
        return normalize_module(_rewritten(mod, plans)) if plans else mod


@dataclass(slots=True)
class _Region:
    """Bindings that become a function, its inputs and results, and its shape variables."""

    bindings: list[rx.VarBinding] = field(default_factory=list)
    #: Bindings of storages between the first and the last one of the region.
    storages: list[rx.VarBinding] = field(default_factory=list)
    inputs: list[rx.Var] = field(default_factory=list)
    outputs: list[rx.Var] = field(default_factory=list)


class _Plan:
    """The storages of a function that are allocated once, and its regions."""

    def __init__(self, mod: IRModule, func: rx.Function) -> None:
        self._mod, self.func = mod, func
        self.storages: list[rx.VarBinding] = []
        self.regions: list[_Region] = []
        self._static: set[rx.Var] = set()
        self._dims: set[tir.Var] = set()
        self._returned = _sources_of_result(func)
        self._add_parameters()
        for block in func.body.blocks:
            self._block(block)
        for region in self.regions:
            self._complete(region)

    def _add_parameters(self) -> None:
        """Add the parameters that are the same in all calls, and the shape variables."""
        params, attrs = self.func.params, self.func.attrs
        number = attrs.get("num_input", len(params))
        names = attrs.get("relax.rewrite_cuda_graph.capture_symbolic_vars", ())
        for k, param in enumerate(params):
            assert param.struct_info is not None
            defined = definable_tir_vars_in_struct_info(param.struct_info)
            if isinstance(number, int) and k >= number:
                self._static.add(param)
                self._dims.update(defined)
            elif isinstance(names, Sequence):
                self._dims.update(var for var in defined if var.name in names)

    def _block(self, block: rx.BindingBlock) -> None:
        region: _Region | None = None
        waiting: list[rx.VarBinding] = []
        for binding in block.bindings:
            if isinstance(block, rx.DataflowBlock) or not isinstance(binding, rx.VarBinding):
                region = None
                continue
            value, var = binding.value, binding.var
            if rx.is_call_of(value, _ALLOC_STORAGE):
                if var not in self._returned and _has_known_size(value):
                    self.storages.append(binding)
                    self._static.add(var)
                    waiting.append(binding)
                continue
            if any(rx.is_call_of(value, name) for name in _BESIDE):
                continue
            if not self._is_static_value(value):
                region = None
                continue
            self._static.add(var)
            if region is None and self._launches_kernel(value):
                region = _Region()
                waiting = []
                self.regions.append(region)
            if region is not None:
                region.bindings.append(binding)
                region.storages += waiting
                waiting = []

    def _is_static_value(self, value: rx.Expr) -> bool:
        """True if a value is the same in all calls, apart from the elements of its tensors."""
        if not isinstance(value, rx.Call):
            return self._is_static(value)
        if not all(map(self._is_static, value.args)):
            return False
        match value.op:
            case rx.GlobalVar(name_hint=name):
                return isinstance(self._mod.functions_by_name.get(name), PrimFunc)
            case Op(name=name):
                return name not in _BETWEEN
            case callee:
                return isinstance(callee, rx.ExternFunc)

    def _is_static(self, expr: rx.Expr) -> bool:
        match expr:
            case rx.Var():
                return expr in self._static
            case rx.Tuple(fields=fields):
                return all(map(self._is_static, fields))
            case rx.TupleGetItem(tuple_value=value):
                return self._is_static(value)
            case rx.ShapeExpr(values=values):
                return all(self._dims.issuperset(variables_of(size)) for size in values)
            case rx.PrimValue(value=number):
                return self._dims.issuperset(variables_of(number))
            case _:
                return isinstance(expr, (rx.Constant, rx.StringImm, rx.DataTypeImm, rx.ExternFunc))

    def _launches_kernel(self, value: rx.Expr) -> bool:
        match value:
            case rx.Call(op=Op(name=name)):
                return not name.startswith(_NO_KERNEL)
            case rx.Call(op=rx.ExternFunc(global_symbol=symbol)):
                return not symbol.startswith("vm.builtin.")
            case _:
                return isinstance(value, rx.Call)

    def _complete(self, region: _Region) -> None:
        """Set the inputs of a region and its outputs, each in the order of their first use."""
        bound = {binding.var for binding in region.bindings}
        within = set(region.bindings)
        inputs: dict[rx.Var, None] = {}
        for binding in region.bindings:
            inputs |= dict.fromkeys(occurring_vars(binding.value))
        region.inputs = [var for var in inputs if var not in bound]
        outside: list[rx.Expr] = [
            binding.value
            for block in self.func.body.blocks
            for binding in block.bindings
            if binding not in within
        ]
        used: dict[rx.Var, None] = {}
        for value in (*outside, self.func.body.body):
            used |= occurring_vars(value)
        region.outputs = [var for var in used if var in bound]


def _sources_of_result(func: rx.Function) -> set[rx.Var]:
    """The variables on whose memory the result of a function may depend."""
    operands = {
        binding.var: occurring_vars(binding.value)
        for block in func.body.blocks
        for binding in block.bindings
        if binding.var is not None
    }
    return {*reached(occurring_vars(func.body.body), lambda var: operands.get(var, ()))}


def _has_known_size(call: rx.Call) -> bool:
    shape = call.args[0]
    return isinstance(shape, rx.ShapeExpr) and all(isinstance(n, tir.IntImm) for n in shape.values)


def _size(binding: rx.VarBinding) -> int:
    """The number of bytes of a storage of known size."""
    assert isinstance(binding.value, rx.Call)
    shape = binding.value.args[0]
    assert isinstance(shape, rx.ShapeExpr)
    [size] = shape.values
    assert isinstance(size, tir.IntImm)
    return size.value


def _kind(binding: rx.VarBinding) -> object:
    """Device, scope and datatype of a storage."""
    assert isinstance(binding.value, rx.Call)
    return tuple(map(str, binding.value.args[1:]))


class _Slots:
    """The storages of all functions: one is as large as the largest of those that share it."""

    def __init__(self, plans: Iterable[_Plan]) -> None:
        groups: dict[object, list[rx.VarBinding]] = {}
        shared: dict[rx.VarBinding, tuple[object, int]] = {}
        for plan in plans:
            own: dict[object, list[rx.VarBinding]] = {}
            for binding in plan.storages:
                own.setdefault(_kind(binding), []).append(binding)
            for kind, bindings in own.items():
                bindings.sort(key=_size, reverse=True)
                group = groups.setdefault(kind, [])
                for rank, binding in enumerate(bindings):
                    shared[binding] = kind, rank
                    if rank == len(group):
                        group.append(binding)
                    elif _size(group[rank]) < _size(binding):
                        group[rank] = binding
        starts: dict[object, int] = {}
        self.bindings: list[rx.VarBinding] = []
        for kind, group in groups.items():
            starts[kind] = len(self.bindings)
            self.bindings += group
        self.index = {binding: starts[kind] + rank for binding, (kind, rank) in shared.items()}
        self.sinfo = rx.TupleStructInfo((rx.ObjectStructInfo(),) * len(self.bindings))


def _rewritten(mod: IRModule, plans: Mapping[str, _Plan]) -> IRModule:
    """The module with the functions of the plans, and those that they call."""
    result, slots = mod.clone(), _Slots(plans.values())
    allocate = rx.GlobalVar(free_name("cuda_graph_alloc", mod.functions_by_name))
    if slots.bindings:
        variables = [binding.var for binding in slots.bindings]
        result[allocate.name_hint] = _function([], slots.bindings, variables)
    number = 0
    for name, plan in plans.items():
        launches: dict[rx.Binding, list[rx.VarBinding]] = {}
        for region in plan.regions:
            symbol = free_name(f"{name}_cuda_graph_capture", result.functions_by_name)
            dims = _dimensions(region)
            params = list(region.inputs)
            if dims is not None:
                params.append(rx.Var("shape_expr", rx.ShapeStructInfo(dims.values)))
            result[symbol] = _function(params, region.bindings, region.outputs)
            launches |= {binding: [] for binding in region.bindings}
            launches[region.bindings[0]] = _launch(region, rx.GlobalVar(symbol), number, dims)
            number += 1
        result[name] = _with_launches(plan.func, launches, slots, allocate)
    return result


def _dimensions(region: _Region) -> rx.ShapeExpr | None:
    """The shape variables of a region; None if there are none."""
    nodes = (*region.inputs, *region.bindings)
    dims = dict.fromkeys(var for node in nodes for var in used_shape_vars(node))
    return rx.ShapeExpr(tuple(dims)) if dims else None


def _launch(
    region: _Region, capture: rx.GlobalVar, number: int, dims: rx.ShapeExpr | None
) -> list[rx.VarBinding]:
    """The bindings instead of a region: its storages, the call, and its outputs."""
    span = region.bindings[0].span
    more = () if dims is None else (dims,)
    key = rx.PrimValue(ops.const(number, INT64))
    sinfo = rx.TupleStructInfo(tuple(map(_sinfo, region.outputs)))
    args = capture, rx.Tuple((*region.inputs, *more)), key, *more
    results = rx.Var("gv", sinfo, span)
    fetched = [
        rx.VarBinding(
            binding.var, rx.TupleGetItem(results, region.outputs.index(binding.var)), binding.span
        )
        for binding in region.bindings
        if binding.var in region.outputs
    ]
    call = _builtin("run_or_capture", args, sinfo, span)
    return [*region.storages, rx.VarBinding(results, call, span), *fetched]


def _sinfo(var: rx.Var) -> rx.StructInfo:
    assert var.struct_info is not None
    return var.struct_info


def _builtin(
    name: str, args: Sequence[rx.Expr], sinfo: rx.StructInfo, span: Span | None
) -> rx.Call:
    callee = rx.ExternFunc(f"vm.builtin.cuda_graph.{name}")
    op = Op.get("relax.call_builtin_with_ctx")
    return rx.Call(op, (callee, rx.Tuple(tuple(args))), EMPTY_ATTRS, (sinfo,), span=span)


def _function(
    params: Sequence[rx.Var], bindings: Sequence[rx.VarBinding], results: Sequence[rx.Var]
) -> rx.Function:
    """The private function of bindings that returns these variables."""
    fields, span = rx.Tuple(tuple(results)), bindings[0].span
    out = rx.Var("gv", None, span)
    block = rx.BindingBlock((*bindings, rx.VarBinding(out, fields, span)))
    body = rx.SeqExpr((block,), out if results else fields)  # an empty tuple is itself the result
    attrs = Attrs({"relax.force_pure": True})
    return copy_with_new_vars(rx.Function(tuple(params), body, None, True, attrs, span=span))


def _with_launches(
    func: rx.Function,
    launches: Mapping[rx.Binding, Sequence[rx.Binding]],
    slots: _Slots,
    allocate: rx.GlobalVar,
) -> rx.Function:
    """The function with calls instead of the regions and of the allocations of storages."""
    storages: rx.Var | None = None
    done: set[rx.Binding] = set()
    blocks: list[rx.BindingBlock] = []
    for block in func.body.blocks:
        bindings: list[rx.Binding] = []
        for binding in (new for old in block.bindings for new in launches.get(old, (old,))):
            if binding in done:  # a storage that a region before it needs
                continue
            done.add(binding)
            if not isinstance(binding, rx.VarBinding) or binding not in slots.index:
                bindings.append(binding)
                continue
            if storages is None:
                zero, span = rx.PrimValue(ops.const(0, INT64)), binding.span
                storages = rx.Var("gv", slots.sinfo, span)
                call = _builtin("get_cached_alloc", (allocate, zero), slots.sinfo, span)
                bindings.append(rx.VarBinding(storages, call, span))
            item = rx.TupleGetItem(storages, slots.index[binding])
            bindings.append(rx.VarBinding(binding.var, item, binding.span))
        blocks.append(replace(block, bindings=tuple(bindings)))
    after = rebuild(func, body=rebuild(func.body, blocks=tuple(blocks)))
    if func.is_pure and not func.attrs.get("relax.force_pure", False):
        return after.with_attr("relax.force_pure", True)
    return after
