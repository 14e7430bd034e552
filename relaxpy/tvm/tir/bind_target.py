"""Passes by which programs of TVM choose how kernels run, which `compile` decides here."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from typing_extensions import override

from relaxpy.errors import check_type
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.target import Target
from relaxpy.ir.core.traverse import rename, walk
from relaxpy.ir.core.types import PointerType
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.tir.expr import Var
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Block
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_constructed


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
