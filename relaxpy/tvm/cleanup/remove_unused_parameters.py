"""RemoveUnusedParameters: private functions take only the parameters that they use."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import free_symbolic_vars, used_vars
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.relations.shape_vars import definable_shape_vars
from relaxpy.ir.relax.rewrite.bind import fits, shape_var_images
from relaxpy.ir.relax.transform.cleanup.dead_code_elimination import without_dead_code
from relaxpy.ir.relax.transform.cleanup.private_functions import calls_of, only_called, with_calls
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class RemoveUnusedParameters(Pass):
    """Removes parameters that private functions do not use, and the arguments of all calls.

    If the struct info of such a parameter defines shape variables that are still used, parameters
    for their values replace it. A parameter stays if a call may fail because of its argument
    (OPT-8). Bindings of arguments that nothing uses any more are removed.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        while True:
            after = _without_unused_parameters(mod)
            if after is mod:
                return mod
            mod = after


def _without_unused_parameters(mod: IRModule) -> IRModule:
    """The module after one round, which may leave other parameters unused."""
    calls = calls_of(mod)
    changed = {
        name: change
        for name, func in only_called(mod).items()
        if (change := _Change.of(func, calls.get(name, ()))) is not None
    }
    if not changed:
        return mod
    result = mod.clone()
    for name, change in changed.items():
        result[name] = change.after
    called = with_calls(result, {name: change.call for name, change in changed.items()})
    called = normalize_module(called)
    for var, func in called.items():
        if isinstance(func, rx.Function) and func is not mod.find_function(var.name_hint):
            called[var] = without_dead_code(func)
    return normalize_module(called)


@dataclass(frozen=True)
class _Change:
    """A function before and after, with the values that it takes for shape variables."""

    before: rx.Function
    after: rx.Function
    kept: Sequence[bool]
    sizes: Sequence[tir.Var]

    @staticmethod
    def of(func: rx.Function, calls: Sequence[rx.Call]) -> _Change | None:
        """The replacement of a function; None if it uses all parameters."""
        if "num_input" in func.attrs or any(len(c.args) != len(func.params) for c in calls):
            return None
        used = set(used_vars(func))
        kept = [p in used or not all(_fits(func, p, c) for c in calls) for p in func.params]
        if all(kept):
            return None
        _, sizes = _completed(func, kept)
        if not all(v in shape_var_images(_pairs(func, c)) for c in calls for v in sizes):
            return None
        for k, param in enumerate(func.params):
            # A parameter for the value of a shape variable would be removed and added again.
            if not kept[k] and set(_definable(param)) <= set(sizes) and _is_size(param):
                kept[k] = True
        if all(kept):
            return None
        params, sizes = _completed(func, kept)
        after = rebuild(func, params=(*params, *map(_parameter_for, sizes)))
        return _Change(func, after, kept, sizes)

    def call(self, call: rx.Call) -> rx.Expr:
        """A call of the function after the change."""
        args = [arg for arg, kept in zip(call.args, self.kept, strict=True) if kept]
        images = shape_var_images(_pairs(self.before, call)) if self.sizes else {}
        return rebuild(call, args=(*args, *(rx.PrimValue(images[var]) for var in self.sizes)))


def _completed(func: rx.Function, kept: Sequence[bool]) -> tuple[list[rx.Var], list[tir.Var]]:
    """The kept parameters, and the shape variables that are used and that none of them defines."""
    params = [param for param, keep in zip(func.params, kept, strict=True) if keep]
    missing = set(free_symbolic_vars(rebuild(func, params=tuple(params))))
    missing -= set(free_symbolic_vars(func))
    defined = dict.fromkeys(v for param in func.params for v in _definable(param))
    return params, [var for var in reversed(defined) if var in missing]


def _definable(param: rx.Var) -> Sequence[tir.Var]:
    return () if param.struct_info is None else definable_shape_vars(param.struct_info)


def _is_size(param: rx.Var) -> bool:
    """Return whether a parameter is the value of one shape variable."""
    sinfo = param.struct_info
    return isinstance(sinfo, rx.PrimStructInfo) and isinstance(sinfo.value, tir.Var)


def _parameter_for(var: tir.Var) -> rx.Var:
    return rx.Var(f"param_{var.name}", rx.PrimStructInfo(var.dtype, var))


def _pairs(func: rx.Function, call: rx.Call) -> list[tuple[rx.Var, rx.Expr]]:
    return list(zip(func.params, call.args, strict=True))


def _fits(func: rx.Function, param: rx.Var, call: rx.Call) -> bool:
    """Return whether the argument of a parameter is known to fit it."""
    argument = call.args[func.params.index(param)]
    return fits(param, argument, shape_var_images(_pairs(func, call)))
