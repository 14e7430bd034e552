"""Normalize: normal form, with all struct info derived."""

from __future__ import annotations

from typing_extensions import override

from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.support.dataclass import dataclass


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
