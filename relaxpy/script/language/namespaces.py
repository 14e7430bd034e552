"""The names that a namespace of the language has in addition to its `__all__`."""

from __future__ import annotations

from collections.abc import Callable, Collection


def offers(space: object, name: str) -> bool:
    """Return whether a namespace has `name` in addition to its `__all__`."""
    has_name: Callable[[str], bool] | None = getattr(space, "_offers", None)
    return has_name is not None and has_name(name)


def public_names(space: object) -> Collection[str]:
    """Return the names of a namespace that are not in its `__all__`: operators registered later."""
    list_names: Callable[[], Collection[str]] | None = getattr(space, "_public_names", None)
    return () if list_names is None else list_names()
