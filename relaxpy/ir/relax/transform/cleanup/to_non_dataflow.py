"""ToNonDataflow: dataflow blocks become ordinary ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from typing_extensions import override

from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.nodes import BindingBlock, DataflowBlock, DataflowVar, Function, Var
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter
from relaxpy.ir.relax.transform.rewrite_pass import RewritePass
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class ToNonDataflow(RewritePass):
    """Makes the bindings of dataflow blocks ordinary ones, whose order and errors then stay."""

    @override
    def rewriting(self, mod: IRModule) -> Callable[[Function], Function]:
        return lambda func: _Ordinary().expr(func)


class _Ordinary(BindingRewriter):
    @override
    def block(self, block: BindingBlock) -> Sequence[BindingBlock]:
        if isinstance(block, DataflowBlock):
            for binding in block.bindings:
                var = binding.var
                if isinstance(var, DataflowVar):
                    sinfo = var.struct_info and self._remapped(var.struct_info)
                    self._remap[var] = Var(var.name_hint, sinfo, var.span)
            block = BindingBlock(block.bindings, block.span)
        return super().block(block)
