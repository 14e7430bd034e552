"""UpdateParamStructInfo: parameters with other struct info."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from typing_extensions import override

from relaxpy.errors import MisuseError, TransformError
from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.nodes import Function, StructInfo, Var, as_struct_info
from relaxpy.ir.relax.rewrite.expr_functor import PyExprMutator
from relaxpy.ir.relax.transform.rewrite_pass import RewritePass
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class UpdateParamStructInfo(RewritePass):
    """Gives the parameters of functions the struct info that `sinfo_func` returns for them.

    A parameter for which it returns None stays. The struct info of bindings and results is derived
    from that of the parameters.

    Errors:
        MisuseError: `sinfo_func` is not a function.
        TransformError: it returns something else.
        StructInfoError: the operands in a function no longer fit together.
    """

    sinfo_func: Callable[[Var], StructInfo | None]

    @override
    def rewriting(self, mod: IRModule) -> Callable[[Function], Function]:
        return self._updated

    def _updated(self, func: Function) -> Function:
        params = tuple(map(self._param, func.params))
        if params == func.params:
            return func
        mutator = PyExprMutator()
        for old, new in zip(func.params, params, strict=True):
            mutator.set_var_remap(old, new)
        body: Any = mutator.visit_with_new_scope(func.body, params)
        return rebuild(func, params=params, body=body, ret_struct_info=body.struct_info)

    def _param(self, param: Var) -> Var:
        sinfo = self.sinfo_func(param)
        if sinfo is None or sinfo == param.struct_info:
            return param
        try:
            return Var(param.name_hint, as_struct_info(sinfo), param.span)
        except MisuseError as error:
            raise TransformError(
                f"sinfo_func returned {sinfo!r:.60} for parameter {param.name_hint}, expected "
                "struct info or None"
            ) from error
