"""RemoveNoOp: statements of kernels that have no effect are removed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from typing_extensions import override

from relaxpy.ir.arith.tvm.analyzer import Extension
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import occurrences, rebuild, rewrite
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext, register_config
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.intrinsics import CallEffectKind, effect_of
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import (
    Allocate,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    Stmt,
    stmt_seq,
)
from relaxpy.support.dataclass import dataclass
from relaxpy.tvm.tir.simplify import Simplifier, does_nothing, is_used, nothing

register_config("tir.RemoveNoOp", Mapping)


@dataclass(frozen=True)
class RemoveNoOp(Pass):
    """Removes statements without effect: those that compute values only or store what they load.

    Rule:
        A loop without iterations is removed, as are empty loops, branches and allocations, and
        unused names. Values that call functions are still computed. Stores that later ones
        overwrite are kept, whatever the option "tir.RemoveNoOp" of a PassContext is.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return map_functions(
            mod, PrimFunc, lambda func: _Remover(Extension.NoExtensions).function(func)
        )


@dataclass(frozen=True)
class RemoveAssume(RemoveNoOp):
    """Removes `T.assume`, and statements that have no effect after that."""

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        def assumption(node: Node) -> Node | None:
            match node:
                case Evaluate(value=tir.Call(op=Op(name="tir.assume"))):
                    return nothing()
                case _:
                    return None

        def without(func: PrimFunc) -> PrimFunc:
            body = cast("Stmt", rewrite(func.body, assumption))
            return func if body is func.body else func.with_body(body)

        return RemoveNoOp.transform(self, map_functions(mod, PrimFunc, without), ctx)


class _Remover(Simplifier):
    """Removes statements by the facts of the simplifier, and leaves expressions unchanged."""

    @override
    def expression(self, value: PrimExpr) -> PrimExpr:
        return value

    @override
    def statement(self, stmt: Stmt) -> Stmt:
        match changed := super().statement(stmt):
            case Evaluate(value=value) if not does_nothing(changed):
                return _computed(value)
            case For(extent=extent, body=body):
                is_empty = self.holds(ops.compare(tir.LE, extent, 0)) is True
                if is_empty or does_nothing(body):
                    return _computed(changed.min, extent)
            case IfThenElse(condition=condition, then_case=yes, else_case=no):
                if no is not None and does_nothing(no):
                    no = None
                if does_nothing(yes):
                    if no is None:
                        return _computed(condition)
                    return IfThenElse(ops.logical_not(condition), no)
                return changed if no is changed.else_case else rebuild(changed, else_case=no)
            case LetStmt(var=var, value=value, body=body) if not is_used(var, body):
                both = [s for s in (_computed(value), body) if not does_nothing(s)]
                return stmt_seq(*both) if both else nothing()
            case Allocate(body=body) | DeclBuffer(body=body) if does_nothing(body):
                return body
            case _:
                pass
        return changed


def _computed(*values: PrimExpr) -> Stmt:
    """The values that have effects, computed for these; nothing if there are none."""
    kept = [value for value in values if _has_effect(value)]
    return stmt_seq(*kept) if kept else nothing()


def _has_effect(value: PrimExpr) -> bool:
    return any(effect_of(call) > CallEffectKind.ReadState for call in occurrences(value, tir.Call))
