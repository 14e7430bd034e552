"""Passes by which programs of TVM choose how kernels run, which `compile` decides here."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from typing_extensions import override

from relaxpy.dataclass import dataclass
from relaxpy.entry import user_constructed
from relaxpy.errors import check_type
from relaxpy.ir.core.target import Target
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.map_functions import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.tir.prim_func.function import PrimFunc


@user_constructed
@dataclass(frozen=True, slots=True)
class BindTarget(Pass):
    """Give every PrimFunc that has no attribute `target` this one."""

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


@dataclass(frozen=True, slots=True, init=False)
class ApplyDefaultSchedule(Pass):
    """The module itself: kernels are scheduled when they are compiled, whatever the rules."""

    rules: tuple[ScheduleRule, ...] = field(default=())

    def __init__(self, *rules: ScheduleRule) -> None:
        """Errors: MisuseError (also TypeError) if one of `rules` is not a ScheduleRule."""
        for rule in rules:
            check_type(rule, ScheduleRule, "expected a ScheduleRule")
        object.__setattr__(self, "rules", rules)

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return mod
