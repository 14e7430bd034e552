"""Calls of decorated functions on arrays; functions are compiled at the first call and cached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

from relaxpy.errors import CompileError
from relaxpy.exec.compile import compile
from relaxpy.exec.executable import EntryPoint
from relaxpy.exec.runtime.values import Value
from relaxpy.ir.op import Op
from relaxpy.ir.relax.call_graph import mentioned_globals
from relaxpy.ir.relax.nodes import BaseFunc

_compiled: WeakKeyDictionary[BaseFunc, EntryPoint] = WeakKeyDictionary()
_changes: WeakKeyDictionary[BaseFunc, int] = WeakKeyDictionary()
"""The number of changes to operators when a function was compiled."""


def call_function(
    func: BaseFunc,
    args: Sequence[object],
    kwargs: Mapping[str, object] | None = None,
    target: str | None = None,
) -> Value:
    """Call `func`, which does not belong to a module; the first call compiles it for `target`.

    Errors:
        CompileError: it refers to functions of a module, or cannot be compiled.
        RuntimeCheckError: a check failed.
    """
    entry = _compiled.get(func)
    if entry is None or _changes[func] != Op.changes:
        _check_alone(func)
        _changes[func] = Op.changes
        entry = _compiled[func] = compile(func, target)[_name_of(func)]
    return entry(*args, **(kwargs or {}))


def _name_of(func: BaseFunc) -> str:
    return str(func.attrs.get("global_symbol") or "main")


def _check_alone(func: BaseFunc) -> None:
    """Errors: CompileError if a function refers to other functions of a module."""
    name = _name_of(func)
    callable_names = getattr(func, "callees", {}).keys() | {name}
    others = [other for other in mentioned_globals(func) if other not in callable_names]
    if others:
        raise CompileError(
            f"{name} calls {', '.join(others)} of its module, so it does not run by itself",
            rule="WF-24",
            span=func.span,
            hint=f'compile the module: relaxpy.compile(mod)["{name}"](...)',
        )
