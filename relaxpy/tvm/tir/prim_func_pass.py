"""Passes from Python functions that transform one PrimFunc."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relaxpy.errors import unexpected
from relaxpy.ir.core.node import is_function
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.functional import (
    FunctionalPass,
    ModuleFunction,
    map_functions,
    pass_decorator,
)
from relaxpy.ir.pass_infra.passes import Pass, PassContext, PassInfo
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.entry import user_facing


class PrimFuncPass(FunctionalPass):
    """A pass from a function over PrimFuncs; `prim_func_pass` creates it."""


def _each_kernel(step: Callable[..., Any]) -> ModuleFunction:
    """`step(func, mod, ctx)` for every PrimFunc; if it returns None, the function is removed."""

    def transform(mod: IRModule, ctx: PassContext) -> IRModule:
        return map_functions(mod, PrimFunc, lambda func: step(func, mod, ctx), removes=True)

    return transform


prim_func_pass = pass_decorator(
    "prim_func_pass", PrimFuncPass, "transform_function", "func, mod, ctx", _each_kernel
)


def _check_function(function: object) -> None:
    if not is_function(function):
        raise unexpected(function, "expected a function of PrimFuncs")


@user_facing
def Apply(ftransform: Callable[[PrimFunc], PrimFunc]) -> Pass:  # noqa: N802
    """The pass that replaces every PrimFunc by `ftransform(func)`.

    Errors:
        MisuseError (also TypeError): `ftransform` is not a Python function.
    """
    _check_function(ftransform)
    return PrimFuncPass(_each_kernel(lambda func, mod, ctx: ftransform(func)), PassInfo("Apply"))


@user_facing
def Filter(fcond: Callable[[PrimFunc], bool]) -> Pass:  # noqa: N802
    """The pass that keeps only the PrimFuncs for which `fcond(func)` is true.

    Errors:
        MisuseError (also TypeError): `fcond` is not a Python function.
    """
    _check_function(fcond)
    keep = _each_kernel(lambda func, mod, ctx: func if fcond(func) else None)
    return PrimFuncPass(keep, PassInfo("Filter"))
