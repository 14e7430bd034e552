"""Tags for all that is computed in a place, or in a function."""

from __future__ import annotations

from contextlib import ContextDecorator
from contextvars import ContextVar, Token

from typing_extensions import override

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError

_current: ContextVar[str] = ContextVar("tag", default="")


class TagScope(ContextDecorator):
    """Where operations without a tag of their own get `tag`; also decorates a function."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self._before: Token[str] | None = None

    @override
    def _recreate_cm(self) -> TagScope:
        return TagScope(self.tag)

    def __enter__(self) -> TagScope:
        if _current.get():
            raise MisuseError(f"tag {self.tag!r} is inside the scope of tag {_current.get()!r}")
        self._before = _current.set(self.tag)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            _current.reset(self._before)


@user_facing
def tag_scope(tag: str) -> TagScope:
    """A scope for `with`, or a decorator, in which what is computed has `tag`.

    Errors:
        MisuseError: the tag is no string, or empty; scopes stand inside each other.
    """
    if not isinstance(tag, str) or not tag:
        raise MisuseError(f"a tag is a string, found {tag!r:.60}", about=tag)
    return TagScope(tag)


def tagged(tag: str) -> str:
    """`tag`, or where it is empty that of the scope.

    Errors:
        MisuseError: both say one.
    """
    around = _current.get()
    if tag and around:
        raise MisuseError(f"tag {tag!r} is inside the scope of tag {around!r}", about=tag)
    return tag or around
