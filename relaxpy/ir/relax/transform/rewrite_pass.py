"""Passes that rewrite the functions of a module one by one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from typing_extensions import override

from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.nodes import Function
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter
from relaxpy.ir.relax.rewrite.map_with_builder import map_with_builder
from relaxpy.ir.relax.rewrite.unused import remove_all_unused


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
        """Rewrites a function of `mod`, which is in normal form, or returns it unchanged."""


class FusionPass(Pass):
    """The base class of passes that replace bindings of functions by calls of new kernels.

    Unused bindings and kernels are removed.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)

        def fused(func: Function, builder: BlockBuilder) -> Function:
            after = self.rewriter(builder).expr(func)
            return func if after is func else remove_all_unused(after)

        result = map_with_builder(mod, fused)
        return mod if result is mod else normalize_module(result)

    @abstractmethod
    def rewriter(self, builder: BlockBuilder) -> BindingRewriter:
        """Rewrites the bindings of one function; kernels are added to the builder."""
