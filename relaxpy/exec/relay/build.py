"""Compilation of a Relay module as a whole: `relay.build`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relaxpy.entry import user_facing
from relaxpy.exec.compile import TargetLike, compile
from relaxpy.exec.executable import Executable
from relaxpy.ir.relax.transform import BindParams
from relaxpy.ir.relay.expr import RelayExpr
from relaxpy.ir.relay.module import RelayModule
from relaxpy.ir.relay.to_relax.translation import to_relax


@user_facing
def build(
    ir_mod: RelayModule | RelayExpr,
    target: TargetLike | None = None,
    params: Mapping[Any, object] | None = None,
) -> Executable:
    """Return the executable of a module, or of an expression, that is translated to Relax.

    `params` are arguments of `main` by the names of its parameters. The target is one
    of those of `compile`.

    Errors:
        MisuseError (also TypeError, ValueError): there is no such target.
        RelayTypeError: the module is not well-typed.
        TransformError: an expression or a type is not one of Relax; all are reported.
    """
    mod = RelayModule.from_expr(ir_mod) if isinstance(ir_mod, RelayExpr) else ir_mod
    translated = to_relax(mod)
    if params:
        translated = BindParams("main", params)(translated)
    return compile(translated, target)
