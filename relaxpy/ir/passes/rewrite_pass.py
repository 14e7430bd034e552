"""Passes that rewrite the functions of a module one by one, and Normalize."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from typing_extensions import override

from relaxpy.errors import TransformError, UnknownNameError, close_names, unexpected
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.passes.cleanup.dead_code_elimination import without_dead_code
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.nodes import Function, GlobalVar
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, map_with_builder
from relaxpy.support.dataclass import dataclass


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
        """Rewrite a function of `mod`, which is in normal form, or return it unchanged."""


class FusionPass(Pass):
    """The base class of passes that replace bindings of functions by calls of new kernels.

    Unused bindings and kernels are removed.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)

        def fused(func: Function, builder: BlockBuilder) -> Function:
            after = self.rewriter(builder).expr(func)
            return func if after is func else without_dead_code(after)

        result = map_with_builder(mod, fused)
        return mod if result is mod else normalize_module(result)

    @abstractmethod
    def rewriter(self, builder: BlockBuilder) -> BindingRewriter:
        """A rewriter of the bindings of one function; it adds kernels to the builder."""


def name_of_function(func_name: object, option: str = "func_name") -> str:
    """The name that an option gives as a string or as a GlobalVar.

    Errors:
        MisuseError (also TypeError, ValueError): it is neither.
    """
    if isinstance(func_name, GlobalVar):
        return func_name.name_hint
    if isinstance(func_name, str):
        return func_name
    raise unexpected(func_name, f"{option} names a function")


def find_function(mod: IRModule, func_name: object, pass_name: str) -> tuple[str, Function]:
    """The Relax function that `func_name` names, for the pass `pass_name`, and the name.

    Errors:
        UnknownNameError (also KeyError, ValueError): the module has no such function.
        TransformError: it is not a Relax function.
    """
    name = name_of_function(func_name)
    func = mod.functions_by_name.get(name)
    if func is None:
        raise UnknownNameError(
            f"{pass_name}: the module has no function {name!r:.60}",
            hint=close_names(name, mod.functions_by_name),
            about=func_name,
        )
    if not isinstance(func, Function):
        raise TransformError(f"{pass_name}: {name} is not a Relax function", about=func)
    return name, func


@dataclass(frozen=True)
class Normalize(Pass):
    """The module in normal form, with the struct info of every node derived, callees first.

    Rule:
        NF-21, NF-22.

    Errors:
        StructInfoError: the struct info of an expression and its operands do not fit together.
        WellFormedError: an ordinary block is inside a dataflow block (NF-15).
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return normalize_module(mod)
