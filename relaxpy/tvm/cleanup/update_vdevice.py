"""UpdateVDevice: a virtual device of the module is replaced by another one."""

from __future__ import annotations

from typing import cast

from typing_extensions import override

from relaxpy.errors import MisuseError
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rebuild, rewrite
from relaxpy.ir.global_info import VDevice
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.analysis.variables import bound_vars
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.nodes import Call, Function, StructInfo, TensorStructInfo, Var
from relaxpy.ir.relax.rewrite.map_bindings import replace_variables
from relaxpy.support.dataclass import dataclass, replace


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
