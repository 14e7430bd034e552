"""Decorated functions called on arrays: compiled at the first call, and kept while they live."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

from relaxpy.errors import CompileError
from relaxpy.exec.compile import compile
from relaxpy.exec.executable import EntryPoint
from relaxpy.exec.reference.graph import evaluate
from relaxpy.exec.runtime.values import Value
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.call_graph import mentioned_globals
from relaxpy.ir.relax.nodes import BaseFunc, Expr

_compiled: WeakKeyDictionary[BaseFunc, EntryPoint] = WeakKeyDictionary()


def call_function(
    func: BaseFunc, args: Sequence[object], kwargs: Mapping[str, object] | None = None
) -> Value:
    """What `func`, which is part of no module, gives for these arguments.

    Errors:
        CompileError: it cannot be run by itself. RuntimeCheckError: an argument does not fit.
    """
    entry = _compiled.get(func)
    if entry is None:
        _check_alone(func)
        entry = _compiled[func] = compile(func)[_name_of(func)]
    return entry(*args, **(kwargs or {}))


def _name_of(func: BaseFunc) -> str:
    return str(func.attrs.get("global_symbol") or "main")


def _check_alone(func: BaseFunc) -> None:
    """Refuse a function that needs others of the module it comes from."""
    own = _name_of(func)
    known = getattr(func, "callees", {}).keys() | {own}
    others = [name for name in mentioned_globals(func) if name not in known]
    if others:
        raise CompileError(
            f"{own} calls {', '.join(others)} of its module, so it does not run by itself",
            rule="WF-24",
            span=func.span,
            hint=f'compile the module: relaxpy.compile(mod)["{own}"](...)',
        )


def evaluate_call(expr: Expr, module: IRModule | None = None) -> Value:
    """The value of a call whose operands are constants, by the reference evaluator.

    Errors:
        RelaxpyError: the evaluation fails.
    """
    return evaluate(expr, module)
