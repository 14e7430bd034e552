"""AttachGlobalSymbol: every function has a symbol, its name."""

from __future__ import annotations

from typing_extensions import override

from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.nodes import Function, GlobalVar
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.dataclass import dataclass


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
