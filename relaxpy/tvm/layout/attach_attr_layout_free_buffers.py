"""AttachAttrLayoutFreeBuffers: kernels list the operands whose layout may be changed in advance."""

from __future__ import annotations

from typing import cast

from typing_extensions import override

from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten, map_with_builder
from relaxpy.ir.relax.transform.cleanup.dead_code_elimination import DeadCodeElimination
from relaxpy.ir.relax.transform.convert_layout import LAYOUT_FREE
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class AttachAttrLayoutFreeBuffers(Pass):
    """Calls copies of PrimFuncs that list which of their operands are weights or constants.

    The weights of a function are its parameters from the number `num_input` on, which is an
    attribute. The attribute `layout_free_buffers` has the positions of such operands. PrimFuncs
    that are not called any more are removed, as by DeadCodeElimination.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)

        def attached(func: rx.Function, builder: BlockBuilder) -> rx.Function:
            return _Attaching(mod, builder, func).expr(func)

        result = map_with_builder(mod, attached)
        return mod if result is mod else DeadCodeElimination().transform(result, ctx)


class _Attaching(BindingRewriter):
    """Replaces the callees of one function."""

    def __init__(self, mod: IRModule, builder: BlockBuilder, func: rx.Function) -> None:
        super().__init__()
        self.mod, self.builder = mod, builder
        count = func.attrs.get("num_input")
        self.weights = frozenset(func.params[count:] if isinstance(count, int) else ())

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        if not rx.is_call_of(call, "relax.call_tir"):
            return None
        callee = call.args[0]
        func = self.mod[callee.name_hint] if isinstance(callee, rx.GlobalVar) else None
        operands = cast("rx.Tuple", call.args[1]).fields
        free = [k for k, arg in enumerate(operands) if self._is_free(arg)]
        if not free or not isinstance(func, PrimFunc) or _listed(func) == free:
            return None
        new = func.with_attr(LAYOUT_FREE, free).without_attr("global_symbol")
        gvar = self.builder.add_func(new, cast("rx.GlobalVar", callee).name_hint)
        return rebuild(call, args=(gvar, *call.args[1:]))

    def _is_free(self, arg: rx.Expr) -> bool:
        is_constant = isinstance(arg, rx.Constant) or isinstance(self.value_of(arg), rx.Constant)
        return is_constant or arg in self.weights


def _listed(func: PrimFunc) -> list[int]:
    """The positions that a PrimFunc lists."""
    return [int(position) for position in cast("list[int]", func.attrs.get(LAYOUT_FREE) or ())]
