"""BindParams: parameters of a function are replaced by values."""

from __future__ import annotations

from collections.abc import Mapping

from typing_extensions import override

from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.nodes import GlobalVar, Var
from relaxpy.ir.relax.rewrite.bind import bind_params
from relaxpy.ir.relax.transform.find_function import find_function, name_of_function
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class BindParams(Pass):
    """Replaces parameters of a function, by name or variable, by values, and drops them.

    Values are expressions, arrays, numbers, or tuples of these. Arrays become constants, whose
    shapes determine shape variables.

    Errors:
        UnknownNameError (also KeyError, ValueError): there is no such function or parameter.
        MisuseError (also TypeError): a parameter is bound twice, or `params` is not a mapping.
        StructInfoError: a value does not fit its parameter.
    """

    func_name: str | GlobalVar
    params: Mapping[Var | str, object]

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "func_name", name_of_function(self.func_name))

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        name, func = find_function(mod, self.func_name, "BindParams")
        bound = bind_params(func, self.params)
        if bound is func:
            return mod
        result = mod.clone()
        result[name] = bound
        return normalize_module(result)
