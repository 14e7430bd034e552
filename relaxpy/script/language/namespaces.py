"""The names that a namespace of the language has in addition to its `__all__`."""

from __future__ import annotations

from collections.abc import Callable, Collection


def offers(space: object, name: str) -> bool:
    """Whether a namespace has `name` in addition to its `__all__`."""
    answers: Callable[[str], bool] | None = getattr(space, "_offers", None)
    return answers is not None and answers(name)


def public_names(space: object) -> Collection[str]:
    """The names of a namespace that are not in its `__all__`: operators registered later."""
    lists: Callable[[], Collection[str]] | None = getattr(space, "_public_names", None)
    return () if lists is None else lists()
