"""Struct info that is more precise than the declared one, after a rewrite (OPT-14)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.relax.nodes import StructInfo, Var
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.relax.rewrite.expr_mutator import PyExprMutator


def is_sharper(actual: StructInfo, declared: StructInfo) -> bool:
    """True if more is known of a value; a Var as its shape adds nothing to its dimensions."""
    if declared == actual or not is_base_of(declared, actual):
        return False
    return not occurring_vars(actual) or not is_base_of(actual, declared)


class Refined(PyExprMutator):
    """Gives variables the struct info in `sinfos`, and derives that of all that depends on them.

    A variable whose value is derived again receives the result only if it is more precise.
    """

    def __init__(self, mod: IRModule | None, sinfos: Mapping[Var, StructInfo]) -> None:
        super().__init__(mod)
        self.refined = sinfos

    @override
    def visit_var_def_(self, var: Var) -> Any:
        sinfo = self.refined.get(var)
        return super().visit_var_def_(
            var if sinfo is None else super().with_struct_info(var, sinfo)
        )

    @override
    def with_struct_info(self, var: Var, struct_info: StructInfo) -> Var:
        declared = var.struct_info
        keep = declared is not None and not is_sharper(struct_info, declared)
        return var if keep else super().with_struct_info(var, struct_info)
