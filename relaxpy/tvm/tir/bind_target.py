"""Passes by which programs of TVM choose how kernels run, and passes from Python functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from typing_extensions import override

from relaxpy.errors import check_type, unexpected
from relaxpy.ir.core.node import Node, is_function
from relaxpy.ir.core.target import Target
from relaxpy.ir.core.traverse import rename, walk
from relaxpy.ir.core.types import PointerType
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.functional import (
    FunctionalPass,
    ModuleFunction,
    map_functions,
    pass_decorator,
)
from relaxpy.ir.pass_infra.passes import Pass, PassContext, PassInfo
from relaxpy.ir.tir.expr import Var
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Block
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_constructed, user_facing


@user_constructed
@dataclass(frozen=True, slots=True)
class BindTarget(Pass):
    """Gives every PrimFunc that has no attribute `target` this one."""

    target: Target

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        def bound(func: PrimFunc) -> PrimFunc:
            return func if "target" in func.attrs else func.with_attr("target", self.target)

        return map_functions(mod, PrimFunc, bound)


class ScheduleRule:
    """A rule by which TVM schedules kernels. It decides nothing: `compile` schedules each."""

    def __init__(self, *options: Any, **named: Any) -> None:
        """Options have no effect."""


class Fallback(ScheduleRule):
    """The rule for all kernels on GPUs, after which they allocate no global memory."""


@dataclass(frozen=True, slots=True, init=False)
class ApplyDefaultSchedule(Pass):
    """The module itself: kernels are scheduled when they are compiled, whatever the rules.

    `gpu.Fallback` puts what kernels allocate into shared memory, except where they have the
    attribute "tir.is_scheduled"; values do not change.
    """

    rules: tuple[ScheduleRule, ...] = field(default=())

    def __init__(self, *rules: ScheduleRule) -> None:
        """Errors: MisuseError (also TypeError) if one of `rules` is not a ScheduleRule."""
        for rule in rules:
            check_type(rule, ScheduleRule, "expected a ScheduleRule")
        object.__setattr__(self, "rules", rules)

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        is_for_all = any(isinstance(rule, Fallback) for rule in self.rules)
        return map_functions(mod, PrimFunc, _without_global_memory) if is_for_all else mod


def _without_global_memory(func: PrimFunc) -> PrimFunc:
    if func.attrs.get("tir.is_scheduled"):
        return func
    moved: dict[Node, Node] = {}
    for block in walk(func.body):
        for buffer in block.alloc_buffers if isinstance(block, Block) else ():
            if buffer.scope() == "global":
                data, kind = buffer.data, buffer.data.type_annotation
                assert isinstance(kind, PointerType)
                moved[data] = Var(data.name, PointerType(kind.element_type, "shared"))
    return func.with_body(rename(func.body, moved)) if moved else func


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
    return PrimFuncPass(_each_kernel(lambda func, mod, ctx: ftransform(func)), PassInfo(0, "Apply"))


@user_facing
def Filter(fcond: Callable[[PrimFunc], bool]) -> Pass:  # noqa: N802
    """The pass that keeps only the PrimFuncs for which `fcond(func)` is true.

    Errors:
        MisuseError (also TypeError): `fcond` is not a Python function.
    """
    _check_function(fcond)
    keep = _each_kernel(lambda func, mod, ctx: func if fcond(func) else None)
    return PrimFuncPass(keep, PassInfo(0, "Filter"))
