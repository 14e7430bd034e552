"""Executables whose weights are constants instead of arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relaxpy.errors import MisuseError, UnknownNameError, unexpected
from relaxpy.exec.api.compile import compile
from relaxpy.exec.api.executable import Executable
from relaxpy.ir.module import IRModule
from relaxpy.ir.passes.bind_params import BindParams
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.call_graph import mentioned_globals
from relaxpy.ir.relax.relations.shape_vars import shape_vars_of
from relaxpy.ir.relax.rewrite.map_bindings import copy_with_new_vars
from relaxpy.support.pysource import Names


def bound(
    executable: Executable,
    name: str,
    weights: Mapping[str, object] | None,
    named: Mapping[str, object],
) -> Executable:
    """The executable of the same program whose function `name` has weights as constants.

    Errors: as for `Executable.bind`.
    """
    program, module, values = executable.program, executable.written, _joined(weights, named)
    functions = {
        key: func
        for key, func in module.functions_by_name.items()
        if isinstance(func, rx.Function) and func.attrs.get("global_symbol") == name
    }
    if not functions:
        raise MisuseError(f"only parameters of Relax functions are bound: {name} is none")
    [(key, func)] = functions.items()
    try:
        module = BindParams(key, values)(_apart(module, key))
    except UnknownNameError as error:
        sizes = {var.name for var in shape_vars_of(func.params)} & values.keys()
        if not sizes:
            raise
        raise error.hinted(
            f"{min(sizes)} is a shape variable: compile a module without it, which "
            "relax.transform.BindSymbolicVars returns"
        ) from None
    return compile(
        module,
        program.codes or program.saved_target,
        relax_pipeline=program.pipeline,
        schedules=program.schedules,
    )


def _joined(weights: Mapping[str, object] | None, named: Mapping[str, object]) -> dict[Any, object]:
    """The values of a mapping and of keywords, by name."""
    if weights is not None and not isinstance(weights, Mapping):
        raise unexpected(
            weights,
            "weights are a mapping of names to arrays",
            hint='write ex.bind(w=array), or ex.bind({"w": array})',
        )
    given = weights or {}
    for name in given.keys() & named.keys():
        raise MisuseError(f"parameter {name} is bound twice", about=named[name])
    if not (given or named):
        raise MisuseError(
            "bind takes values of parameters, found none", hint="write ex.bind(w=array)"
        )
    return {**given, **named}


def _apart(module: IRModule, name: str) -> IRModule:
    """The module in which functions that call `name` call a private copy of it."""
    if not any(name in mentioned_globals(func) for func in module.functions.values()):
        return module
    private = Names(module.functions_by_name).fresh(f"{name}_unbound")
    result = module.replace_global_vars({name: private})
    func = result[private]
    assert isinstance(func, rx.Function)
    result[name] = func.with_attr("global_symbol", module[name].attrs["global_symbol"])
    result[private] = copy_with_new_vars(func).without_attr("global_symbol")
    return result
