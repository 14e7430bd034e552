"""Passes over modules that compile does not run: symbols, purity, scalars, virtual devices.

AttachGlobalSymbol: every function has a symbol, its name.

NormalizeGlobalVar: the names of public functions are their symbols.

RemovePurityChecking: calls that are declared pure become plain ones.

ComputePrimValue: scalar expressions become calls of kernels that compute them.

RealizeVDevice: devices are propagated from hints and declared tensors.

UpdateVDevice: a virtual device of the module is replaced by another one.

IPCAllReduceRewrite, LowerGPUIPCAllocStorage: no-ops that pipelines of programs of TVM name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, cast

from typing_extensions import override

from relaxpy.errors import MisuseError, Span, TransformError
from relaxpy.ir.core.device import Device
from relaxpy.ir.core.node import Attrs, Node
from relaxpy.ir.core.traverse import rebuild, rewrite, walk
from relaxpy.ir.global_info import VDevice
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra import functional
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.passes.rewrite_pass import RewritePass
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import bound_vars, occurring_vars
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.block_builder.function_table import normalize_global_names
from relaxpy.ir.relax.nodes import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    Function,
    GlobalVar,
    StructInfo,
    TensorStructInfo,
    Var,
)
from relaxpy.ir.relax.relations.shape_vars import variables_of
from relaxpy.ir.relax.rewrite.map_bindings import (
    BindingRewriter,
    Rewritten,
    map_with_builder,
    replace_variables,
)
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.intrin import ret
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Evaluate
from relaxpy.ir.tir.substitution import substitute
from relaxpy.support.dataclass import dataclass, replace

_TARGETS: Mapping[str, Iterable[str]] = {"cpu": ("llvm", "c", "cpu")}


@dataclass(frozen=True)
class RealizeVDevice(RewritePass):
    """Propagates devices to tensors that are computed together, and copies between devices.

    The sources are the devices in struct info and, where these are unknown, the operands of
    `hint_on_device`. Such a call becomes `to_vdevice`, or an alias if its operand is there already.

    Errors:
        TransformError: the module does not list the device of a hint.
    """

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        devices = [d for d in mod.global_infos.get("vdevice", ()) if isinstance(d, VDevice)]

        def realized(func: rx.Function) -> rx.Function:
            known = _Devices(func, devices).known
            return _Placing(known, devices).expr(func) if known else func

        return realized


def _device_of_hint(call: rx.Call, devices: Iterable[VDevice]) -> VDevice:
    """The device of the module that a hint means."""
    hint = call.attrs["dst_vdevice"]
    scope = call.attrs.get("memory_scope", "global")
    for device in devices:
        if isinstance(hint, Device):
            kinds = _TARGETS.get(hint.kind, (hint.kind,))
            is_meant = device.kind in kinds and device.vdevice_id == hint.index
            is_meant = is_meant and device.memory_scope == scope
        else:
            is_meant = device == hint
        if is_meant:
            return device
    raise TransformError(
        f"the module lists no device {hint} with memory scope {scope}",
        span=call.span,
        hint='I.module_global_infos({"vdevice": [I.vdevice(...)]}) lists the devices',
    )


class _Devices:
    """The devices that are `known` of variables of a function."""

    def __init__(self, func: rx.Function, devices: Iterable[VDevice]) -> None:
        self.known: dict[rx.Var, VDevice] = {}
        self._together: dict[rx.Var, list[rx.Var]] = {}
        hinted: dict[rx.Var, VDevice] = {}
        declared: dict[rx.Var, VDevice] = {}
        for node in walk(func):
            if isinstance(node, rx.Function):
                declared.update(_declared(node.params))
                declared.update(_declared_results(node.ret_struct_info, node.body.body))
            if not isinstance(node, (rx.VarBinding, rx.MatchCast)) or node.var is None:
                continue
            value = node.value
            if rx.is_call_of(value, "relax.hint_on_device"):
                device = _device_of_hint(value, devices)
                declared[node.var] = device
                hinted.update({v: device for v in value.args if isinstance(v, rx.Var)})
                continue
            is_copy = rx.is_call_of(value, "relax.to_vdevice")
            if is_copy or _declares_result(node):
                declared.update(_declared((node.var,)))
            for var in () if is_copy else occurring_vars(value):
                self._together.setdefault(node.var, []).append(var)
                self._together.setdefault(var, []).append(node.var)
        declared.update(_declared(func.params))
        self._spread(declared)
        self._spread(hinted)

    def _spread(self, devices: Mapping[rx.Var, VDevice]) -> None:
        """Add devices of variables that have none yet, and of those that are computed with them."""
        waiting = [var for var in devices if var not in self.known]
        self.known.update({var: devices[var] for var in waiting})
        while waiting:
            var = waiting.pop()
            for other in self._together.get(var, ()):
                if other not in self.known:
                    self.known[other] = self.known[var]
                    waiting.append(other)


def _declares_result(binding: rx.Binding) -> bool:
    """True if the device of a value is declared, and not derived from those of operands."""
    value = binding.value
    if _declared_device(value.struct_info) is None:
        return True
    if isinstance(value, rx.Call):
        return bool(value.sinfo_args)
    return isinstance(binding, rx.MatchCast) or isinstance(value, rx.Constant)


def _declared_results(
    ret: rx.StructInfo | None, result: rx.Expr
) -> Iterator[tuple[rx.Var, VDevice]]:
    """The variables that a function returns, with the devices that it declares for them."""
    if isinstance(ret, rx.TupleStructInfo) and isinstance(result, rx.Tuple):
        for sinfo, field in zip(ret.fields, result.fields, strict=True):
            yield from _declared_results(sinfo, field)
    device = _declared_device(ret)
    if device is not None and isinstance(result, rx.Var):
        yield result, device


def _declared(variables: Iterable[rx.Var]) -> dict[rx.Var, VDevice]:
    devices = {var: _declared_device(var.struct_info) for var in variables}
    return {var: device for var, device in devices.items() if device is not None}


def _declared_device(sinfo: rx.StructInfo | None) -> VDevice | None:
    if not isinstance(sinfo, rx.TensorStructInfo) or not isinstance(sinfo.vdevice, VDevice):
        return None
    return sinfo.vdevice


class _Placing(BindingRewriter):
    """Gives variables their devices, and replaces hints by copies."""

    def __init__(self, known: Mapping[rx.Var, VDevice], devices: Iterable[VDevice]) -> None:
        super().__init__()
        self.known, self.devices = known, devices
        for var, device in known.items():
            sinfo = var.struct_info
            if isinstance(sinfo, rx.TensorStructInfo) and sinfo.vdevice != device:
                self._remap[var] = replace(var, struct_info=replace(sinfo, vdevice=device))

    @override
    def function(self, func: rx.Function) -> rx.Function:
        params = tuple(self._remapped(param) for param in func.params)
        after = super().function(func)
        ret = self._placed(func.ret_struct_info, func.body.body)
        if params == func.params and ret is func.ret_struct_info:
            return after
        return rebuild(after, params=params, ret_struct_info=ret)

    def _placed(self, sinfo: rx.StructInfo | None, result: rx.Expr) -> rx.StructInfo | None:
        """The struct info of a result with its device, if that is known."""
        if isinstance(sinfo, rx.TensorStructInfo) and sinfo.vdevice is None:
            device = self.known.get(result) if isinstance(result, rx.Var) else None
            return sinfo if device is None else replace(sinfo, vdevice=device)
        if isinstance(sinfo, rx.TupleStructInfo) and isinstance(result, rx.Tuple):
            fields = tuple(map(self._placed, sinfo.fields, result.fields))
            return sinfo if fields == sinfo.fields else replace(sinfo, fields=fields)  # type: ignore[arg-type]
        return sinfo

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        if not rx.is_call_of(call, "relax.hint_on_device") or not isinstance(
            binding, rx.VarBinding
        ):
            return None
        device = _device_of_hint(call, self.devices)
        if _declared_device(call.args[0].struct_info) == device:
            return rx.VarBinding(binding.var, call.args[0], binding.span)
        attrs = Attrs({"dst_vdevice": device})
        return rx.Call(Op.get("relax.to_vdevice"), call.args, attrs, span=call.span)


@dataclass(frozen=True)
class UpdateVDevice(Pass):
    """Replaces the virtual device number `index` of the module by `new_vdevice`.

    Errors:
        MisuseError: `new_vdevice` is not a VDevice, or the module has no device of that number.
    """

    new_vdevice: VDevice
    index: int

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.index < 0:
            raise MisuseError(f"index is a number from 0 on, found {self.index}", about=self.index)

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        devices = mod.global_infos.get("vdevice", ())
        if self.index >= len(devices):
            raise MisuseError(
                f"the module has {len(devices)} virtual devices, there is no number {self.index}"
            )
        old = devices[self.index]
        if old == self.new_vdevice:
            return mod
        result = map_functions(mod, Function, lambda func: self._updated(func, old))
        result = result.clone() if result is mod else result
        new = (*devices[: self.index], self.new_vdevice, *devices[self.index + 1 :])
        result.update_global_info("vdevice", new)
        return normalize_module(result)

    def _updated(self, func: Function, old: object) -> Function:
        def rule(node: Node) -> Node:
            if isinstance(node, TensorStructInfo) and node.vdevice == old:
                return replace(node, vdevice=self.new_vdevice)
            if isinstance(node, Call) and old in node.attrs.values():
                attrs = {k: self.new_vdevice if v == old else v for k, v in node.attrs.items()}
                return rebuild(node, attrs=attrs)
            return node

        table: dict[Var, Var] = {}
        for var in bound_vars(func):
            sinfo = var.struct_info
            new = None if sinfo is None else rewrite(sinfo, rule)
            if new is not sinfo:
                table[var] = replace(var, struct_info=cast("StructInfo", new))
        return cast("Function", rewrite(replace_variables(func, table), rule))


@dataclass(frozen=True)
class AttachGlobalSymbol(Pass):
    """Makes the functions of a module public, with their names as symbols.

    The name of a PrimFunc is first prefixed by the module's attribute `system_lib_prefix`.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        prefix = str(mod.get_attr("system_lib_prefix") or "")
        result = mod.clone()
        renamed: dict[GlobalVar | str, GlobalVar | str] = {}
        for var, func in mod.items():
            if not isinstance(func, (Function, PrimFunc)):
                continue
            name = var.name_hint
            is_prefixed = func.attrs.get("global_symbol") == name and name.startswith(prefix)
            if isinstance(func, PrimFunc) and not is_prefixed:
                name = prefix + name
            if func.attrs.get("global_symbol") != name:
                result[var] = func.with_attr("global_symbol", name)
            if name != var.name_hint:
                renamed[var] = name
        if renamed:
            result = result.replace_global_vars(renamed)
        unchanged = all(result.find_function(v.name_hint) is func for v, func in mod.items())
        return mod if unchanged else result


@dataclass(frozen=True)
class NormalizeGlobalVar(Pass):
    """Renames each public function to its `global_symbol`, and private ones that have that name.

    Errors:
        TransformError: two public functions have the same symbol.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return normalize_global_names(mod)


@dataclass(frozen=True)
class RemovePurityChecking(RewritePass):
    """Makes pure functions pure by force, and the calls that are declared pure plain ones.

    Other passes can no longer tell that such calls are pure, so this is one of the last passes, and
    comes after ToNonDataflow.

    Errors:
        TransformError: a call that is declared pure is in a dataflow block, which force does not
            allow (PU-10).
    """

    @override
    def rewriting(self, mod: IRModule) -> Callable[[Function], Function]:
        return lambda func: _Plain().expr(func)


class _Plain(BindingRewriter):
    @override
    def function(self, func: Function) -> Function:
        func = super().function(func)
        if func.is_pure and not func.attrs.get("relax.force_pure", False):
            func = func.with_attr("relax.force_pure", True)
        return func

    @override
    def step(self, binding: Binding, block: BindingBlock) -> Rewritten:
        call = binding.value
        if not isinstance(call, Call) or not isinstance(call.op, Op):
            return None
        plain = _plain(call)
        if plain is not None and isinstance(block, DataflowBlock):
            raise TransformError(
                f"{call.op.name} is in a dataflow block, where a plain call is not allowed",
                rule="PU-10",
                span=call.span,
                hint="apply ToNonDataflow first",
            )
        return plain


def _plain(call: Call) -> Call | None:
    """The call without its declaration of purity; None if it has none."""
    match getattr(call.op, "name", ""):
        case "relax.call_pure_packed":
            callee, *args = call.args
            return Call(callee, tuple(args), call.attrs, call.sinfo_args, span=call.span)
        case "relax.invoke_pure_closure":
            return rebuild(call, op=Op.get("relax.invoke_closure"))
        case _:
            return None


@dataclass(frozen=True)
class ComputePrimValue(Pass):
    """Replaces scalar values other than literals and variables by calls of kernels.

    Kernels are not known to be pure. Dataflow blocks and functions that may only make pure calls
    keep their values, so this pass comes after ToNonDataflow and RemovePurityChecking.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        return normalize_module(
            map_with_builder(mod, lambda func, builder: _Computing(builder).expr(func))
        )


class _Computing(BindingRewriter):
    def __init__(self, builder: BlockBuilder) -> None:
        super().__init__()
        self.builder = builder
        self.is_free = False

    @override
    def function(self, func: rx.Function) -> rx.Function:
        outer = self.is_free
        self.is_free = not func.is_pure or bool(func.attrs.get("relax.force_pure", False))
        after = super().function(func)
        self.is_free = outer
        return after

    def _call(self, value: tir.PrimExpr, span: Span | None) -> rx.Call:
        """A call of a kernel that computes a value."""
        sizes = tuple(dict.fromkeys(variables_of(value)))
        params = {size: size.renamed(size.name) for size in sizes}
        body = Evaluate(ret(substitute(value, params)))
        kernel = PrimFunc(tuple(params.values()), body, value.dtype)
        kernel = kernel.with_attr("tir.is_host_func", True)
        callee = self.builder.add_func(kernel, "compute_symbolic_expr")
        return rx.Call(callee, tuple(map(rx.PrimValue, sizes)), span=span)

    @override
    def sequence(self, seq: rx.SeqExpr) -> rx.SeqExpr:
        seq = super().sequence(seq)
        new: list[rx.Binding] = []
        body = self._computed(seq.body, new) if self.is_free else seq.body
        if not new:
            return seq
        return rebuild(seq, blocks=(*seq.blocks, rx.BindingBlock(tuple(new))), body=body)

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        value = binding.value
        if not self.is_free or isinstance(block, rx.DataflowBlock):
            return None
        new: list[rx.Binding] = []
        is_bound = isinstance(binding, rx.VarBinding)
        if isinstance(value, rx.PrimValue) and _is_compound(value) and is_bound:
            value = self._call(value.value, value.span)
        elif isinstance(value, (rx.Call, rx.Tuple)):
            value = self._computed(value, new)
        if not isinstance(binding, rx.VarBinding):
            return [*new, replace(binding, value=value)] if new else None
        var = binding.var
        if value.struct_info != var.struct_info:
            var = self._derived(var)
        is_same = value is binding.value and var is binding.var
        return None if is_same else [*new, rx.VarBinding(var, value, binding.span)]

    def _derived(self, var: rx.Var) -> rx.Var:
        """The variable with struct info that is derived, if that so far has a computed value."""
        nodes = () if var.struct_info is None else walk(var.struct_info)
        if not any(isinstance(n, rx.PrimStructInfo) and n.value is not None for n in nodes):
            return var
        return self.rederived(var)

    def _computed(self, expr: rx.Expr, new: list[rx.Binding]) -> rx.Expr:
        """An expression over the results of kernels, which are bound in `new`."""
        match expr:
            case rx.PrimValue() if _is_compound(expr):
                var = rx.Var("value", span=expr.span)
                new.append(rx.VarBinding(var, self._call(expr.value, expr.span), expr.span))
                return var
            case rx.Tuple(fields=fields):
                after = self._all(fields, new)
                return expr if after is fields else rebuild(expr, fields=after)
            case rx.Call(args=args):
                after = self._all(args, new)
                return expr if after is args else rebuild(expr, args=after)
            case _:
                return expr

    def _all(self, exprs: tuple[rx.Expr, ...], new: list[rx.Binding]) -> tuple[rx.Expr, ...]:
        count = len(new)
        after = tuple(
            self._computed(e, new) if isinstance(e, (rx.PrimValue, rx.Tuple)) else e for e in exprs
        )
        return exprs if len(new) == count else after


def _is_compound(value: rx.PrimValue) -> bool:
    return not isinstance(value.value, (tir.IntImm, tir.FloatImm, tir.Var))


class FunctionPass(functional.FunctionalPass):
    """A pass from a function over Relax functions; `function_pass` creates it."""


class DataflowBlockPass(functional.FunctionalPass):
    """A pass from a function over dataflow blocks; `dataflowblock_pass` creates it."""


def _each_function(step: Callable[..., Any]) -> functional.ModuleFunction:
    """`step(func, mod, ctx)` for every Relax function; the results are normalised and derived."""

    def transform(mod: IRModule, ctx: PassContext) -> IRModule:
        result = functional.map_functions(mod, Function, lambda func: step(func, mod, ctx))
        return result if result is mod else normalize_module(result)

    return transform


def _each_block(step: Callable[..., Any]) -> functional.ModuleFunction:
    """`step(block, mod, ctx)` for every DataflowBlock, nested functions included."""

    def transform_function(func: Function, mod: IRModule, ctx: PassContext) -> Node:
        def rule(node: Node) -> Node | None:
            if not isinstance(node, DataflowBlock):
                return node
            result = step(node, mod, ctx)
            if isinstance(result, DataflowBlock):
                return result
            kind = type(result).__name__
            raise TransformError(f"a pass over dataflow blocks returned {kind} for one")

        return rewrite(func, rule)

    return _each_function(transform_function)


function_pass = functional.pass_decorator(
    "function_pass", FunctionPass, "transform_function", "func, mod, ctx", _each_function
)
dataflowblock_pass = functional.pass_decorator(
    "dataflowblock_pass",
    DataflowBlockPass,
    "transform_dataflowblock",
    "block, mod, ctx",
    _each_block,
)


class _Unaffected(Pass):
    """A pass that returns the module itself."""

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return mod


@dataclass(frozen=True)
class IPCAllReduceRewrite(_Unaffected):
    """A no-op: memory that several GPUs share does not exist.

    Errors:
        MisuseError (also TypeError, ValueError): the strategy is not 1 or 2.
    """

    allreduce_strategy: Literal[1, 2]


@dataclass(frozen=True)
class LowerGPUIPCAllocStorage(_Unaffected):
    """A no-op: memory that several GPUs share does not exist."""
