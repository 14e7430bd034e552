"""Partial application of functions at run time."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.errors import RuntimeCheckError, counted
from relaxpy.exec.runtime.values import (
    Category,
    Closure,
    FunctionValue,
    Value,
    category_of,
    describe,
)
from relaxpy.ir.relax.nodes import FuncStructInfo, PrimStructInfo, StructInfo
from relaxpy.ir.relax.relations import erase_to_well_defined
from relaxpy.ir.relax.relations.shape_vars import substitute_info
from relaxpy.ir.tir import expr as tir, ops


def make_closure(function: Value, captured: tuple[Value, ...]) -> Value:
    """The closure that appends the `captured` values to its arguments.

    Errors:
        RuntimeCheckError: `function` is not a function, or takes fewer arguments.
    """
    if category_of(function) is Category.PACKED_FUNC:
        return lambda *args: function(*args, *captured)
    if not isinstance(function, FunctionValue):
        raise RuntimeCheckError(f"make_closure takes a function, found {describe(function)}")
    open_count = function.arity - len(captured)
    if open_count < 0:
        raise RuntimeCheckError(
            f"a function of {counted(function.arity, 'argument')} cannot capture {len(captured)}",
            rule="FN-11",
        )
    sinfo = function.struct_info
    assert sinfo.params is not None
    rest = FuncStructInfo(sinfo.params[:open_count], sinfo.ret, sinfo.purity)
    # Other shape variables that only the captured arguments bind are unknown to callers.
    rest = substitute_info(rest, _captured_sizes(sinfo.params[open_count:], captured))
    return Closure(
        lambda *args: function(*args, *captured), erase_to_well_defined(rest), function.name
    )


def _captured_sizes(
    params: Sequence[StructInfo], captured: tuple[Value, ...]
) -> dict[tir.Var, tir.PrimExpr]:
    """The values of shape variables that are captured directly."""
    return {
        param.value: ops.const(value, param.value.dtype)
        for param, value in zip(params, captured, strict=True)
        if isinstance(param, PrimStructInfo)
        and isinstance(param.value, tir.Var)
        and isinstance(value, int)
    }
