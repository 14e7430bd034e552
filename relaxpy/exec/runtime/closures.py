"""Partial application of functions at run time."""

from __future__ import annotations

from relaxpy.errors import RuntimeCheckError, counted
from relaxpy.exec.runtime.values import (
    Category,
    Closure,
    FunctionValue,
    Value,
    category_of,
    describe,
)
from relaxpy.ir.relax.nodes import FuncStructInfo
from relaxpy.ir.relax.relations import erase_to_well_defined


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
    # Shape variables that only the captured arguments bind are unknown to callers of the closure.
    return Closure(
        lambda *args: function(*args, *captured), erase_to_well_defined(rest), function.name
    )
