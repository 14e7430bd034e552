"""BindSymbolicVars: shape variables are replaced by values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from relaxpy.errors import UnknownNameError, close_names
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.analysis.symbolic import defined_symbolic_vars
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.nodes import Function, GlobalVar
from relaxpy.ir.relax.rewrite.bind import bind_symbolic_vars
from relaxpy.ir.relax.transform.find_function import find_function, name_of_function
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class BindSymbolicVars(Pass):
    """Replaces shape variables by values, in one function or in all that define them.

    The keys are variables or their names. With `func_name` the function defines each of them, and
    otherwise one function of the module at least.

    Errors:
        UnknownNameError (also KeyError, ValueError): there is no such function or shape variable.
        MisuseError (also TypeError): a variable is bound twice, several have one name, or
            `binding_map` is not a mapping.
    """

    binding_map: Mapping[tir.Var | str, Any]
    func_name: str | GlobalVar | None = None

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.func_name is not None:
            object.__setattr__(self, "func_name", name_of_function(self.func_name))

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        if self.func_name is not None:
            name, func = find_function(mod, self.func_name, "BindSymbolicVars")
            bound = bind_symbolic_vars(func, self.binding_map)
            if bound is func:
                return mod
            result = mod.clone()
            result[name] = bound
            return normalize_module(result)
        unused = dict.fromkeys(self.binding_map)
        names: dict[str, None] = {}

        def step(func: Function) -> Function:
            defined = defined_symbolic_vars(func)
            names.update((var.name, None) for var in defined)
            known = {*defined, *(var.name for var in defined)}
            here = {key: value for key, value in self.binding_map.items() if key in known}
            for key in here:
                unused.pop(key, None)
            return bind_symbolic_vars(func, here)

        result = map_functions(mod, Function, step)
        for key in unused:
            raise UnknownNameError(
                f"BindSymbolicVars: no function of the module defines shape variable {key}",
                hint=close_names(str(key), names),
                about=key,
            )
        return result if result is mod else normalize_module(result)
