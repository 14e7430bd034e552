"""Declared results of functions whose bodies were rewritten."""

from __future__ import annotations

from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.nodes import Function
from relaxpy.ir.relax.relations import is_base_of


def with_derived_results(before: IRModule, after: IRModule) -> IRModule:
    """`after`, in which each changed function declares the struct info of its body's result.

    A declaration stays if less is known of the body. The module is in normal form (OPT-14).
    """
    result = after
    for var, func in after.items():
        if not isinstance(func, Function) or func is before.find_function(var.name_hint):
            continue
        declared, derived = func.ret_struct_info, func.body.struct_info
        if declared is None or derived is None or is_base_of(derived, declared):
            continue
        if is_base_of(declared, derived):
            result = after.clone() if result is after else result
            result[var] = rebuild(func, ret_struct_info=derived)
    return normalize_module(result)
