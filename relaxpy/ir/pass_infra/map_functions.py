"""The driver of passes over the functions of one kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from relaxpy.errors import TransformError
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.nodes import BaseFunc

F = TypeVar("F", bound=BaseFunc)


def map_functions(
    mod: IRModule, kind: type[F], step: Callable[[F], Any], *, removes: bool = False
) -> IRModule:
    """The module with `step(func)` instead of each function of a kind; itself if none changes.

    If the step `removes` functions, it returns None for them.

    Errors:
        TransformError: a step returns something other than a function of the kind.
    """
    result = mod
    for var, func in mod.items():
        changed = step(func) if isinstance(func, kind) else func
        if changed is func:
            continue
        result = mod.clone() if result is mod else result
        if changed is None and removes:
            del result[var]
        elif isinstance(changed, kind):
            result[var] = changed
        else:
            raise TransformError(
                f"a pass over {kind.__name__}s returned {type(changed).__name__} for "
                f"{var.name_hint}",
                rule="TOP-8",
            )
    return result
