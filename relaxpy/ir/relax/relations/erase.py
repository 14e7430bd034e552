"""Erasure: the removal of shapes and values that mention variables out of scope (ERA)."""

from __future__ import annotations

from collections.abc import Container
from functools import partial
from typing import TypeVar, cast

from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.relations.shape_vars import (
    bound_shape_vars,
    extended,
    map_nested,
    sizes_of,
    variables_of,
)
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import replace

I = TypeVar("I", bound=rx.StructInfo)  # noqa: E741


def erase_to_well_defined(
    sinfo: I, relax_vars: Container[rx.Var] = (), shape_vars: Container[tir.Var] = ()
) -> I:
    """`sinfo` without the shapes and values that mention variables out of scope.

    Rule:
        ERA-1, ERA-2, ERA-3, ERA-4, ERA-5, ERA-6, ERA-10, ERA-11.
        `relax_vars` and `shape_vars` are the variables in scope.
    """
    match sinfo:
        case rx.TensorStructInfo(shape=shape) if shape is not None:
            is_var = isinstance(shape, rx.Var)
            kept = shape in relax_vars if is_var else _in_scope(sinfo, shape_vars)
            return sinfo if kept else cast("I", replace(sinfo, shape=None))
        case rx.ShapeStructInfo() if not _in_scope(sinfo, shape_vars):
            return cast("I", replace(sinfo, values=None))
        case rx.PrimStructInfo() if not _in_scope(sinfo, shape_vars):
            return cast("I", replace(sinfo, value=None))
        case rx.FuncStructInfo():
            return _erase_callable(sinfo, relax_vars, shape_vars)  # type: ignore[return-value]
        case _:
            return map_nested(lambda s: erase_to_well_defined(s, relax_vars, shape_vars), sinfo)


def _in_scope(sinfo: rx.StructInfo, shape_vars: Container[tir.Var]) -> bool:
    return all(var in shape_vars for size in sizes_of(sinfo) for var in variables_of(size))


def _erase_callable(
    sinfo: rx.FuncStructInfo, relax_vars: Container[rx.Var], shape_vars: Container[tir.Var]
) -> rx.FuncStructInfo:
    """ERA-7, ERA-8, ERA-9: an erased parameter may no longer bind variables that others use."""
    bound = bound_shape_vars(sinfo, shape_vars)
    while True:
        scope = extended(shape_vars, bound)
        rule = partial(erase_to_well_defined, relax_vars=relax_vars, shape_vars=scope)
        erased = map_nested(rule, sinfo)
        still_bound = bound_shape_vars(erased, shape_vars)
        if len(still_bound) == len(bound):
            return erased
        bound = still_bound
