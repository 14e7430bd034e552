"""The module and the scope of a Relax function that is being lowered, and how it is called."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection
from dataclasses import field
from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from relaxpy.exec.numpy import python_ast as py
from relaxpy.exec.numpy.python_ast import load_text
from relaxpy.exec.runtime.checks import Signature
from relaxpy.exec.runtime.threads import silent_context
from relaxpy.ir.core.fork_lock import Late
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.dataclass import dataclass, replace

if TYPE_CHECKING:
    from relaxpy.exec.numpy.compiler import Kernel


@dataclass(frozen=True, slots=True)
class GlobalCallee:
    """A function of the module, with its Python name and the signature for checks of calls.

    A kernel has its PrimFunc and its compiled form. A function with recursive tail calls may have a
    `step`, which returns these calls.
    """

    name: str
    signature: Signature
    prim_func: PrimFunc | None = None
    kernel: Kernel | None = None
    step: str | None = None

    @property
    def written(self) -> frozenset[int]:
        """The positions of the parameters that a kernel may write."""
        return frozenset() if self.kernel is None else self.kernel.written


class LateLiteral(Late[np.ndarray[Any, Any]]):
    """The array of a literal, which is loaded at run time."""

    __slots__ = ("literal",)

    def __init__(self, literal: rx.Constant) -> None:
        super().__init__(lambda: np.asarray(literal.data))
        self.literal = literal


@dataclass(slots=True)
class Scope:
    """The variables and sizes in scope, and local functions."""

    values: dict[rx.Var, ast.expr] = field(default_factory=dict)
    sizes: dict[tir.Var, str] = field(default_factory=dict)
    origins: dict[tir.Var, str] = field(default_factory=dict)
    functions: dict[rx.Var, tuple[str, int]] = field(default_factory=dict)

    def captured(self, itself: rx.Var | None) -> Scope:
        """The scope that the function `itself` captures: no other DataflowVar (EV-9, EV-11)."""
        inner = self.nested()
        for var in [v for v in inner.values if isinstance(v, rx.DataflowVar) and v is not itself]:
            del inner.values[var]
            inner.functions.pop(var, None)
        return inner

    def nested(self) -> Scope:
        """A scope nested in this one."""
        return replace(
            self,
            values=dict(self.values),
            sizes=dict(self.sizes),
            origins=dict(self.origins),
            functions=dict(self.functions),
        )


def suppress_warnings(
    function: ast.FunctionDef, may_warn: Collection[ast.stmt], *, whole: bool
) -> None:
    """Suppress NumPy's warnings in the statements `may_warn`, or in the `whole` function.

    The whole function is allowed if it calls no functions that must see the caller's settings.
    """
    if not may_warn:
        return
    if whole:
        function.decorator_list.append(py.path("rx.without_warnings"))
    else:
        function.body = _with_errstate(function.body, {id(stmt) for stmt in may_warn})


def _with_errstate(body: list[ast.stmt], may_warn: Collection[int]) -> list[ast.stmt]:
    """`body` with `errstate` around runs of statements that may warn, and their allocations."""
    out: list[ast.stmt] = []
    run: list[ast.stmt] = []
    for stmt in body:
        if isinstance(stmt, ast.If):
            stmt.body, stmt.orelse = (
                _with_errstate(stmt.body, may_warn),
                _with_errstate(stmt.orelse, may_warn),
            )
        if id(stmt) in may_warn or (run and (is_allocation(stmt) or isinstance(stmt, ast.Delete))):
            run.append(stmt)
            continue
        out += _closed(run, may_warn)
        run = []
        out.append(stmt)
    return out + _closed(run, may_warn)


def _closed(run: list[ast.stmt], may_warn: Collection[int]) -> list[ast.stmt]:
    """The run with `errstate` around the statements up to the last one that may warn."""
    count = max((i + 1 for i, stmt in enumerate(run) if id(stmt) in may_warn), default=0)
    if not count:
        return run
    ignored = py.call("np.errstate", all=py.text("ignore"))
    return [ast.With([ast.withitem(ignored)], run[:count]), *run[count:]]


def is_allocation(stmt: ast.stmt, *modules: str) -> bool:
    """True if a statement only creates a tensor, by the function `empty` of these modules.

    Without modules, it may also be the tensor of another name.
    """
    match stmt:
        case ast.Assign(value=ast.Name()):
            return not modules
        case ast.Assign(
            value=ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr="empty"))
        ):
            return module in (modules or ("np", "rx"))
        case _:
            return False


@dataclass(frozen=True, slots=True, eq=False)
class CheckedFunction:
    """The quick check of the arguments of a function; the full check reports errors.

    The function has these `params`, and calls only kernels, so that NumPy's warnings can be
    suppressed. The `names` are those of the function itself and of a new context in the source of
    the check.
    """

    params: tuple[str, ...]
    checks: tuple[ast.stmt, ...]
    names: tuple[str, str]

    def checked(self, work: FunctionType) -> Callable[..., Any]:
        """The function `work` with the check of its arguments."""
        function, context = self.names
        run = py.call(py.attribute(py.call(context), "run"), function, *self.params)
        name = work.__name__
        checked = py.function(name, self.params, [*self.checks, ast.Return(run)])
        names = {**work.__globals__, function: work, context: silent_context}
        loaded: Callable[..., Any] = load_text([checked], f"arguments of {name}", names)[1][name]
        return wraps(work)(loaded)
