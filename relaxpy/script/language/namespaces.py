"""The names that a namespace of the language offers beside its `__all__`."""

from __future__ import annotations

from collections.abc import Callable, Collection


def offers(space: object, name: str) -> bool:
    """Whether a namespace has a name beside its `__all__`."""
    answers: Callable[[str], bool] | None = getattr(space, "_offers", None)
    return answers is not None and answers(name)


def public_names(space: object) -> Collection[str]:
    """The names that a namespace offers beside its `__all__`: operators registered meanwhile."""
    lists: Callable[[], Collection[str]] | None = getattr(space, "_public_names", None)
    return () if lists is None else lists()
