"""The hook through which calls that Python code builds become values of the function being read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias, TypeVar, cast

from relaxpy.ir.relax.nodes.base import Expr

Evaluate: TypeAlias = Callable[[Expr], Expr]
E = TypeVar("E", bound=Expr)

_evaluate: ContextVar[Evaluate | None] = ContextVar("relaxpy_evaluate", default=None)


@contextmanager
def evaluating(evaluate: Evaluate | None) -> Iterator[None]:
    """The time in which each call is passed to `evaluate` as soon as it is built, or to nobody."""
    token = _evaluate.set(evaluate)
    try:
        yield
    finally:
        _evaluate.reset(token)


def is_evaluating() -> bool:
    """Whether user code is building part of the function being read."""
    return _evaluate.get() is not None


def evaluated(expr: E) -> E:
    """`expr`, which user code has just built, as the function being read evaluates it."""
    evaluate = _evaluate.get()
    return expr if evaluate is None else cast("E", evaluate(expr))
