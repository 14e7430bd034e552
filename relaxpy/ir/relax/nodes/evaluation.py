"""The hook by which a parser evaluates the expressions that helper functions of a program build."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias, TypeVar, cast

from relaxpy.ir.relax.nodes.base import Expr
from relaxpy.support.scopes import ScopedValue

Evaluate: TypeAlias = Callable[[Expr], Expr]
E = TypeVar("E", bound=Expr)

_evaluate: ScopedValue[Evaluate | None] = ScopedValue("relaxpy_evaluate")


@contextmanager
def evaluating(evaluate: Evaluate | None) -> Iterator[None]:
    """Pass each expression to `evaluate` as soon as user code builds it; None switches this off."""
    with _evaluate.set(evaluate):
        yield


def is_evaluating() -> bool:
    """Return whether user code is building expressions of a program that is being parsed."""
    return _evaluate.get() is not None


def evaluated(expr: E) -> E:
    """Evaluate an expression that user code has just built, if a program is being parsed."""
    evaluate = _evaluate.get()
    return expr if evaluate is None else cast("E", evaluate(expr))
