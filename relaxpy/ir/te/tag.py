"""Tag scopes, which set the tag of all operations that are created inside them."""

from __future__ import annotations

from contextlib import ContextDecorator
from contextvars import ContextVar, Token

from typing_extensions import override

from relaxpy.errors import MisuseError, unexpected
from relaxpy.support.entry import user_facing

_current: ContextVar[str] = ContextVar("tag", default="")


class TagScope(ContextDecorator):
    """A context manager and decorator that sets `tag` on operations without a tag."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self._token: Token[str] | None = None

    @override
    def _recreate_cm(self) -> TagScope:
        return TagScope(self.tag)

    def __enter__(self) -> TagScope:
        if _current.get():
            raise MisuseError(f"tag {self.tag!r} is inside the scope of tag {_current.get()!r}")
        self._token = _current.set(self.tag)
        return self

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _current.reset(self._token)


@user_facing
def tag_scope(tag: str) -> TagScope:
    """Return a context manager, or decorator, in which operations have `tag`.

    Errors:
        MisuseError: the tag is not a string, or is empty; scopes are nested.
    """
    if not isinstance(tag, str) or not tag:
        raise unexpected(tag, "a tag is a string")
    return TagScope(tag)


def tagged(tag: str) -> str:
    """Return `tag`, or the tag of the enclosing scope if it is empty.

    Errors:
        MisuseError: both are set.
    """
    enclosing = _current.get()
    if tag and enclosing:
        raise MisuseError(f"tag {tag!r} is inside the scope of tag {enclosing!r}", about=tag)
    return tag or enclosing
