"""Values of a context that nested scopes set, also where scopes may end out of order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, TypeVar
from weakref import ref

from relaxpy.support.dataclass import dataclass

T = TypeVar("T")


@contextmanager
def setting(variable: ContextVar[T], value: T) -> Iterator[None]:
    """The scope in which a context variable has this value."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@dataclass(eq=False)
class _Scope(Generic[T]):
    value: T
    is_open: bool = True


class ScopedValue(Generic[T]):
    """The value that the innermost open scope of this context has set.

    The scope of a generator that nobody finishes ends when the generator is freed: while scopes
    that were opened later are open, and perhaps in another thread. A scope that a signal
    interrupts as it begins or ends is not open for good, as only its frame keeps it.
    """

    def __init__(self, name: str) -> None:
        self._scopes: ContextVar[tuple[ref[_Scope[T]], ...]] = ContextVar(name, default=())

    def get(self) -> T | None:
        """The value of the innermost open scope, or None outside of all scopes."""
        for reference in reversed(self._scopes.get()):
            if (scope := reference()) is not None and scope.is_open:
                return scope.value
        return None

    @contextmanager
    def set(self, value: T) -> Iterator[None]:
        """The scope in which `get` returns `value`, unless an inner scope sets another."""
        scope = _Scope(value)
        try:
            self._scopes.set((*self._scopes.get(), ref(scope)))
            yield
        finally:
            scope.is_open = False
            open_ones = [r for r in self._scopes.get() if (s := r()) is not None and s.is_open]
            self._scopes.set(tuple(open_ones))
