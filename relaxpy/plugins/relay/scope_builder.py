"""Building of lets and branches by Python code that runs: `relay.ScopeBuilder`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from relaxpy.errors import MisuseError, check_type
from relaxpy.plugins.relay.expr import If, Let, RelayExpr, Tuple, Var, const
from relaxpy.plugins.relay.ty import Type
from relaxpy.support.entry import user_facing


class ScopeBuilder:
    """A builder of an expression: lets in order, and a result or two branches at the end.

    Python numbers, arrays and lists of expressions become expressions.
    """

    def __init__(self) -> None:
        self._bindings: list[list[tuple[Var, RelayExpr]]] = [[]]
        self._results: list[RelayExpr | None] = [None]
        self._condition: RelayExpr | None = None
        self._branch: RelayExpr | None = None

    @user_facing
    def let(self, var: Var | str | tuple[str, Type], value: Any) -> Var:
        """Bind a value to a variable, which is given by a name, or a name and a type, or itself.

        Errors:
            MisuseError (also TypeError): it is none of these, or the value is not an expression.
        """
        if isinstance(var, (tuple, list)) and len(var) == 2:
            var = Var(*var)
        elif isinstance(var, str):
            var = Var(var)
        check_type(var, Var, "a variable is given by a name or a name and a type")
        self._bindings[-1].append((var, as_expr(value)))
        return var

    @user_facing
    def ret(self, value: Any) -> None:
        """Set the result of the scope.

        Errors:
            MisuseError: the scope has one.
        """
        if self._results[-1] is not None:
            raise MisuseError("this scope has a result already", rule="RLY-42")
        self._results[-1] = as_expr(value)

    @contextmanager
    def if_scope(self, cond: RelayExpr) -> Iterator[None]:
        """Open the scope of the first branch; `else_scope` follows."""
        self._condition = cond
        with self._nested():
            yield
        self._branch = self._closed

    @contextmanager
    def else_scope(self) -> Iterator[None]:
        """Open the scope of the second branch; the result is the choice between both."""
        cond, branch = self._condition, self._branch
        if cond is None or branch is None:
            raise MisuseError("else_scope follows if_scope", rule="RLY-50")
        self._condition = self._branch = None
        with self._nested():
            yield
        self.ret(If(cond, branch, self._closed))

    @contextmanager
    def _nested(self) -> Iterator[None]:
        self._bindings.append([])
        self._results.append(None)
        yield
        self._closed = self._wrapped(self._bindings.pop(), self._results.pop())

    @staticmethod
    def _wrapped(bindings: list[tuple[Var, RelayExpr]], result: RelayExpr | None) -> RelayExpr:
        if result is None:
            raise MisuseError("the scope has no result", rule="RLY-42", hint="call ret(value)")
        for var, value in reversed(bindings):
            result = Let(var, value, result)
        return result

    @user_facing
    def get(self) -> RelayExpr:
        """The expression.

        Errors:
            MisuseError: there is no result.
        """
        return self._wrapped(self._bindings[0], self._results[0])

    def type_of(self, expr: RelayExpr) -> Type | None:
        """The annotation of a variable, or the type of an expression that has one."""
        return expr.type_annotation if isinstance(expr, Var) else expr.checked_type_


def as_expr(value: Any) -> RelayExpr:
    """An expression; numbers and arrays become constants, lists tuples."""
    if isinstance(value, RelayExpr):
        return value
    if isinstance(value, (tuple, list)):
        return Tuple([as_expr(v) for v in value])  # type: ignore[arg-type]
    return const(value)
