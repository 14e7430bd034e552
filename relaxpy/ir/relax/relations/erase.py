"""Erasure: what is left of an info where some of its variables are not in scope (ERA)."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from functools import partial
from typing import TypeVar, cast

from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo
from relaxpy.ir.relax.relations.shape_vars import (
    bound_shape_vars,
    extended,
    map_nested,
    sizes_of,
    variables_of,
)
from relaxpy.ir.tir import expr as tir

I = TypeVar("I", bound=rx.StructInfo)  # noqa: E741


def erase_to_well_defined(
    info: I,
    relax_vars: Container[rx.Var] = (),
    shape_vars: Container[tir.Var] = (),
) -> I:
    """`info` less the shapes and values that mention variables out of scope; itself if none does.

    Rule:
        ERA-1, ERA-2, ERA-3, ERA-4, ERA-5, ERA-6, ERA-10, ERA-11.
        `relax_vars` and `shape_vars` are the variables in scope.
    """
    match info:
        case rx.TensorStructInfo(shape=shape) if shape is not None:
            is_var = isinstance(shape, rx.Var)
            kept = shape in relax_vars if is_var else _in_scope(info, shape_vars)
            return info if kept else cast("I", replace(info, shape=None))
        case rx.ShapeStructInfo() if not _in_scope(info, shape_vars):
            return cast("I", replace(info, values=None))
        case rx.PrimStructInfo() if not _in_scope(info, shape_vars):
            return cast("I", replace(info, value=None))
        case rx.TupleStructInfo() | DTensorStructInfo():
            return map_nested(lambda f: erase_to_well_defined(f, relax_vars, shape_vars), info)
        case rx.FuncStructInfo():
            return _erase_function(info, relax_vars, shape_vars)  # type: ignore[return-value]
        case _:
            return info


def _in_scope(info: rx.StructInfo, shape_vars: Container[tir.Var]) -> bool:
    return all(var in shape_vars for size in sizes_of(info) for var in variables_of(size))


def _erase_function(
    info: rx.FuncStructInfo, relax_vars: Container[rx.Var], shape_vars: Container[tir.Var]
) -> rx.FuncStructInfo:
    """ERA-7, ERA-8, ERA-9: a parameter that is weakened may no longer bind what others rely on."""
    own = bound_shape_vars(info, shape_vars)
    while True:
        scope = extended(shape_vars, own)
        rule = partial(erase_to_well_defined, relax_vars=relax_vars, shape_vars=scope)
        erased = map_nested(rule, info)
        left = bound_shape_vars(erased, shape_vars)
        if len(left) == len(own):
            return erased
        own = left
