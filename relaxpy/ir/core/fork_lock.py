"""Locks that a forked child does not inherit from threads of its parent, and lazy values."""

from __future__ import annotations

import _frozen_importlib
import os
import sys
import threading
from collections.abc import Callable
from functools import cached_property
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from weakref import WeakSet

T = TypeVar("T")


class ForkLock:
    """A reentrant lock that is free in a forked child.

    A fork copies a lock that another thread holds, but not the thread, which would release it.
    The guarded data has to be consistent whenever a thread holds the lock, since the child sees it.
    """

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _LOCKS.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Replace the lock by a free one."""
        self._lock = threading.RLock()


class Late(Generic[T]):
    """A lazy value: `make()`, evaluated once, on first use."""

    __slots__ = ("_lock", "_make", "_value")

    def __init__(self, make: Callable[[], T]) -> None:
        self._lock, self._make = ForkLock(), make
        self._value: list[T] = []

    def __call__(self) -> T:
        """The value."""
        with self._lock:
            if not self._value:
                self._value.append(self._make())
            return self._value[0]


if TYPE_CHECKING:
    late_property = cached_property
else:

    class late_property(cached_property):  # noqa: N801 (a decorator)
        """A cached property without the lock that all objects of a class share before Python 3.12.

        Threads that need a value at once may each compute it.
        """

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            values = instance.__dict__
            if self.attrname not in values:
                values[self.attrname] = self.func(instance)
            return values[self.attrname]


_LOCKS: Final[WeakSet[ForkLock]] = WeakSet()


def _renew_all() -> None:
    for lock in list(_LOCKS):
        lock.renew()


def _forget_unfinished_imports() -> None:
    """Let the child import again what other threads were importing of relaxpy.

    CPython keeps these locks in a private table; without it, the child waits as before.
    """
    locks: dict[str, Any] = getattr(_frozen_importlib, "_module_locks", {})
    for name, reference in list(locks.items()):
        lock = reference()
        if name.startswith("relaxpy.") and lock and lock.owner not in (None, get_ident()):
            del locks[name]
            sys.modules.pop(name, None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
    os.register_at_fork(after_in_child=_forget_unfinished_imports)
