"""Passes that rewrite the functions of a module one by one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from typing_extensions import override

from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.map_functions import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.nodes import Function


class RewritePass(Pass):
    """The base class of passes over the functions of a module, normalised before and after.

    Functions of other kinds stay.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        return normalize_module(map_functions(mod, Function, self.rewriting(mod)))

    @abstractmethod
    def rewriting(self, mod: IRModule) -> Callable[[Function], Function]:
        """What rewrites a function of `mod`, which is in normal form; it returns one that stays."""
