"""Closures made at run time: a function whose last arguments are held."""

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


def make_closure(function: Value, held: tuple[Value, ...]) -> Value:
    """`function` with its last arguments given.

    Errors:
        RuntimeCheckError: it is no function, or takes fewer arguments.
    """
    if category_of(function) is Category.PACKED_FUNC:
        return lambda *args: function(*args, *held)
    if not isinstance(function, FunctionValue):
        raise RuntimeCheckError(f"make_closure takes a function, found {describe(function)}")
    open_count = function.arity - len(held)
    if open_count < 0:
        raise RuntimeCheckError(
            f"a function of {counted(function.arity, 'argument')} cannot hold {len(held)}",
            rule="FN-11",
        )
    info = function.struct_info
    assert info.params is not None
    rest = FuncStructInfo(info.params[:open_count], info.ret, info.purity)
    # Sizes that only the held arguments bind mean nothing to who calls the closure.
    return Closure(lambda *args: function(*args, *held), erase_to_well_defined(rest), function.name)
