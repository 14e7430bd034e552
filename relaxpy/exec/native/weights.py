"""The arguments of kernels that are always constants: kernels have no code for others."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Final

from relaxpy.ir.core.traverse import occurrences
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.op_record import CallKind
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir.prim_func import PrimFunc


def constant_arguments(module: IRModule) -> Mapping[PrimFunc, Set[int]]:
    """The numbers of the arguments of kernels that are constants in all calls of the module."""
    functions, found = module.functions_by_name, dict[PrimFunc, Set[int]]()
    for func in functions.values():
        for call in occurrences(func, rx.Call) if isinstance(func, rx.Function) else ():
            match call:
                case rx.Call(Op() as op, [rx.GlobalVar() as callee, rx.Tuple() as given, *_]):
                    kernel = functions.get(callee.name_hint)
                    if isinstance(kernel, PrimFunc) and op.record.calls in _KERNEL_CALLS:
                        numbers = enumerate(given.fields)
                        constants = {n for n, arg in numbers if isinstance(arg, rx.Constant)}
                        found[kernel] = found.get(kernel, constants) & constants
                case _:
                    pass
    return found


_KERNEL_CALLS: Final = (CallKind.KERNEL, CallKind.INPLACE_KERNEL)
