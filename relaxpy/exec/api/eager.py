"""Calls of decorated functions on arrays; functions are compiled at the first call and cached."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from weakref import WeakKeyDictionary, ref

from relaxpy.errors import CompileError, WellFormedError
from relaxpy.exec.api.as_module import as_module
from relaxpy.exec.api.compile import compile
from relaxpy.exec.api.executable import EntryPoint, checking
from relaxpy.exec.runtime.registry import Answer, answers_in, still_hold
from relaxpy.exec.runtime.threads import THREADS, rounding
from relaxpy.exec.runtime.values import Value
from relaxpy.ir.core.memo import noted_reads
from relaxpy.ir.core.target import VARIABLE, Target, target_kind
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.passes import PassContext
from relaxpy.ir.relax.call_graph import mentioned_globals
from relaxpy.ir.relax.nodes import BaseFunc
from relaxpy.ir.tir.prim_func import PrimFunc, kernel_faults

_compiled: WeakKeyDictionary[BaseFunc, EntryPoint] = WeakKeyDictionary()
_kernels: WeakKeyDictionary[PrimFunc, EntryPoint] = WeakKeyDictionary()
_surroundings: WeakKeyDictionary[BaseFunc, tuple[object, Sequence[Answer]]] = WeakKeyDictionary()
"""The settings, and the answers of the registry, at the compilation."""


def call_function(
    func: BaseFunc, args: Sequence[object], kwargs: Mapping[str, object] | None = None
) -> Value:
    """Call `func`, which does not belong to a module; the first call compiles it.

    Errors:
        CompileError: it refers to functions of a module, or cannot be compiled.
        RuntimeCheckError: a check failed.
    """
    entry = _compiled.get(func)
    known, answers = _surroundings.get(func, ((), ()))
    current = _settings()
    if entry is None or known != current or not still_hold(answers):
        _check_alone(func)
        with noted_reads() as reads:
            entry = compile(func).entry_point(_name_of(func))
        # The table below must not keep the function alive.
        entry.program.written = partial(_module_of, ref(func))
        _compiled[func], _surroundings[func] = entry, (current, answers_in(reads))
    return checking(entry)(*args, **(kwargs or {}))


def _settings() -> tuple[object, ...]:
    """The settings on which a compilation depends, other than the registry."""
    variables = map(os.environ.get, (VARIABLE, THREADS))
    target, options = target_kind(Target.current()), PassContext.current().options
    return Op.changes, target, *variables, options, rounding()


def call_kernel(func: PrimFunc, args: Sequence[object]) -> None:
    """Call a kernel on NumPy, which takes less time than compiling it natively if it runs once.

    The first call compiles it, without passes.

    Errors:
        WellFormedError, CompileError, RuntimeCheckError: as those of `call_function`.
    """
    entry = _kernels.get(func)
    if entry is None:
        _check_alone(func)
        if faults := kernel_faults(func):
            raise WellFormedError(faults)
        entry = _kernels[func] = compile(func, "numpy", relax_pipeline=None)[_name_of(func)]
    entry(*args)


def _module_of(func: ref[BaseFunc]) -> IRModule | None:
    """The module of a function while it is in use."""
    found = func()
    return None if found is None else as_module(found, "compile")


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
