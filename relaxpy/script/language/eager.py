"""Eager directives of I, R and T: they take effect at once, instead of returning a record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeAlias

from relaxpy.errors import MisuseError
from relaxpy.script.language.records import Form, MetaVar
from relaxpy.support.entry import user_facing

Handler: TypeAlias = Callable[[Form], Any]

_handler: ContextVar[Handler | None] = ContextVar("relaxpy_eager_handler", default=None)


@contextmanager
def handling(handler: Handler | None) -> Iterator[None]:
    """Pass each new record to `handler`; with None, directives return their records."""
    outer = _handler.get()
    _handler.set(handler)
    try:
        yield
    finally:
        _handler.set(outer)


def is_eager() -> bool:
    """True if directives are eager in the current context."""
    return _handler.get() is not None


def is_helper(function: object) -> bool:
    """True if `function` is the user's, neither relaxpy's nor built in."""
    module = getattr(function, "__module__", None)
    return not isinstance(module, str) or not module.startswith(("relaxpy.", "builtins"))


def not_iterable(form: Form) -> MisuseError:
    """Create the error for a Python loop over a frame."""
    return MisuseError(
        f"Python cannot iterate over a {form.display_name}: it is a context",
        hint="write `with T.serial(...) as i:`, or move the loop into the program",
    )


class PendingFrame:
    """A frame that a Python function enters while a program is parsed: `with T.block():`.

    `opened` lists the open frames of the same call, the innermost last.
    """

    def __init__(
        self, form: Form, scope: AbstractContextManager[object], opened: list[PendingFrame]
    ) -> None:
        self.form = form
        self.scope = scope
        self.opened = opened
        self.is_used = False

    def __enter__(self) -> Any:
        if self.is_used:
            raise MisuseError(
                f"a {self.form.display_name} can be entered only once, in the call that creates it",
                hint="create another one",
            )
        self.is_used = True
        entered = self.scope.__enter__()
        self.opened.append(self)
        return entered

    def __iter__(self) -> Iterator[Any]:
        raise not_iterable(self.form)

    def __exit__(self, *raised: Any) -> bool | None:
        if self not in self.opened:  # a generator may outlive its call, which has closed it
            return None
        if self.opened[-1] is not self:
            raise MisuseError(f"a {self.form.display_name} is left before the frame inside it")
        self.opened.pop()
        return self.scope.__exit__(*raised)


def directive(function: Callable[..., Any], default: Handler | None = None) -> Callable[..., Any]:
    """Wrap a function that returns a record; in an eager context the record is applied at once."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        handler = _handler.get() or default
        if handler is None:
            return function(*args, **kwargs)
        return _call_eagerly(handler, function, args, kwargs)

    return call


@user_facing
def _call_eagerly(
    handler: Handler, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    with handling(None):
        form = function(*args, **kwargs)
        return handler(form) if isinstance(form, Form) and not isinstance(form, MetaVar) else form
