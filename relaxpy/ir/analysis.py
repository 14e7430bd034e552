"""Analyses of whole modules."""

from __future__ import annotations

from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.nodes import Call, GlobalVar
from relaxpy.ir.tir import expr as tir


def collect_call_map(mod: IRModule) -> dict[GlobalVar, list[GlobalVar]]:
    """The callees of each function of the module, `call_tir` included, each once."""
    table: dict[GlobalVar, list[GlobalVar]] = {}
    for var, func in mod.items():
        called: dict[GlobalVar, None] = {}
        for node in walk(func):
            if isinstance(node, (Call, tir.Call)):
                for callee in (node.op, *node.args):
                    if isinstance(callee, GlobalVar) and callee.name_hint in mod:
                        called[mod.get_global_var(callee.name_hint)] = None
        table[var] = list(called)
    return table
