"""RealizeVDevice: devices are propagated from hints and declared tensors.

UpdateVDevice: a virtual device of the module is replaced by another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import cast

from typing_extensions import override

from relaxpy.errors import MisuseError, TransformError
from relaxpy.ir.core.device import Device
from relaxpy.ir.core.node import Attrs, Node
from relaxpy.ir.core.traverse import rebuild, rewrite, walk
from relaxpy.ir.global_info import VDevice
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.passes.rewrite_pass import RewritePass
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import bound_vars, occurring_vars
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.nodes import Call, Function, StructInfo, TensorStructInfo, Var
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten, replace_variables
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
    if isinstance(value, rx.Call):
        return bool(value.sinfo_args)
    return isinstance(binding, rx.MatchCast) or isinstance(value, rx.Constant)


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
