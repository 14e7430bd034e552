"""Functions of TVM's tests: expressions with their types, and the results of passes."""

from __future__ import annotations

from collections.abc import Callable

from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.infer.module import infer_module
from relaxpy.plugins.relay.module import RelayModule
from relaxpy.support.entry import user_facing


@user_facing
def run_infer_type(expr: rl.RelayExpr) -> rl.RelayExpr:
    """An expression with types."""
    typed: rl.Function = infer_module(RelayModule.from_expr(expr))["main"]
    return typed if isinstance(expr, rl.Function) else typed.body


@user_facing
def run_opt_pass(
    expr: rl.RelayExpr, opt_pass: Callable[[RelayModule], RelayModule], import_prelude: bool = False
) -> rl.RelayExpr:
    """The result of a pass, or a sequence of passes, on an expression, with types."""
    module = RelayModule.from_expr(expr)
    if import_prelude:
        module.import_from_std("prelude.rly")
    result: rl.Function = infer_module(opt_pass(module))["main"]
    return result if isinstance(expr, rl.Function) else result.body
