"""Operators that accept their operands for special values of symbolic dimensions only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from relaxpy.errors import Diagnostic, RelaxpyError
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.block_builder.derive import normalize_functions
from relaxpy.ir.relax.nodes import Function
from relaxpy.ir.relax.relations.shape_vars import definable_shape_vars
from relaxpy.ir.relax.rewrite.map_bindings import replace_variables
from relaxpy.ir.tir import expr as tir, ops

_OPERATOR_RULE: Final = "DER-36"
#: Sizes that are tried: variable k has the value `first + k * step`. The first ones have many
#: divisors, the others are odd, smaller than tables and caches, or larger than windows.
_TRIALS: Final = ((420, 60), (7, 4), (22, 4), (5040, 720))


def special_size_errors(mod: IRModule) -> Iterator[Diagnostic]:
    """For each function, the error of an operator that fails for all sizes that are tried.

    Such a program is well-formed, as it runs where dimensions happen to be equal.
    """
    for name, func in mod.functions_by_name.items():
        params = func.params if isinstance(func, Function) else ()
        infos = [p.struct_info for p in params if p.struct_info is not None]
        variables = definable_shape_vars(*infos)
        first: Diagnostic | None = None
        for start, step in _TRIALS if variables else ():
            sizes = {v: start + k * step for k, v in enumerate(variables)}
            error = _operator_error(mod, name, sizes)
            if error is None:
                break
            first = first or error
        else:
            if first is not None:
                yield first


def _operator_error(mod: IRModule, name: str, sizes: Mapping[tir.Var, int]) -> Diagnostic | None:
    """The error of an operator in a function whose dimensions have these values."""
    instance = mod.clone()
    values = {var: ops.const(size, var.dtype) for var, size in sizes.items()}
    instance[name] = replace_variables(mod[name], values)
    for derived, _, result in normalize_functions(instance, suppress_warnings=True):
        if derived == name and isinstance(result, RelaxpyError):
            error = result.diagnostic
            break
    else:
        return None
    if error.rule != _OPERATOR_RULE:
        return None
    shown = ", ".join(f"{var.name} = {size}" for var, size in sizes.items())
    return Diagnostic(
        f"runs for special sizes only; with {shown}, {error.message}",
        error.rule,
        error.span,
        "give dimensions that are to be equal one name, or write the number",
    )
