"""RemovePurityChecking: calls that are declared pure become plain ones."""

from __future__ import annotations

from collections.abc import Callable

from typing_extensions import override

from relaxpy.errors import TransformError
from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax.nodes import Binding, BindingBlock, Call, DataflowBlock, Function
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten
from relaxpy.ir.relax.transform.rewrite_pass import RewritePass
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class RemovePurityChecking(RewritePass):
    """Makes pure functions pure by force, and the calls that are declared pure plain ones.

    Other passes can no longer tell that such calls are pure, so this is one of the last passes, and
    comes after ToNonDataflow.

    Errors:
        TransformError: a call that is declared pure is in a dataflow block, which force does not
            allow (PU-10).
    """

    @override
    def rewriting(self, mod: IRModule) -> Callable[[Function], Function]:
        return lambda func: _Plain().expr(func)


class _Plain(BindingRewriter):
    @override
    def function(self, func: Function) -> Function:
        func = super().function(func)
        if func.is_pure and not func.attrs.get("relax.force_pure", False):
            func = func.with_attr("relax.force_pure", True)
        return func

    @override
    def step(self, binding: Binding, block: BindingBlock) -> Rewritten:
        call = binding.value
        if not isinstance(call, Call) or not isinstance(call.op, Op):
            return None
        plain = _plain(call)
        if plain is not None and isinstance(block, DataflowBlock):
            raise TransformError(
                f"{call.op.name} is in a dataflow block, where a plain call is not allowed",
                rule="PU-10",
                span=call.span,
                hint="apply ToNonDataflow first",
            )
        return plain


def _plain(call: Call) -> Call | None:
    """The call without its declaration of purity; None if it has none."""
    match getattr(call.op, "name", ""):
        case "relax.call_pure_packed":
            callee, *args = call.args
            return Call(callee, tuple(args), call.attrs, call.sinfo_args, span=call.span)
        case "relax.invoke_pure_closure":
            return rebuild(call, op=Op.get("relax.invoke_closure"))
        case _:
            return None
