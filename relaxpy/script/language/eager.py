"""When the words of I, R and T act: on their own where Python runs, not where a text is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeAlias

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError
from relaxpy.script.language.records import Form, MetaVar

Act: TypeAlias = Callable[[Form], Any]

_act: ContextVar[Act | None] = ContextVar("relaxpy_act", default=None)


@contextmanager
def acting(act: Act | None) -> Iterator[None]:
    """The time in which a record is handed to `act` as soon as it is made, or to nobody."""
    before = _act.get()
    _act.set(act)
    try:
        yield
    finally:
        _act.set(before)


def words_act() -> bool:
    """Whether words act where this is called."""
    return _act.get() is not None


def is_helper(function: object) -> bool:
    """Whether what a text calls is of the user's own Python, not of relaxpy or built in."""
    module = getattr(function, "__module__", None)
    return not isinstance(module, str) or not module.startswith(("relaxpy.", "builtins"))


class PendingFrame:
    """A frame that a Python function uses while a text is read: `with T.block():`.

    `opened` are those of the same call that are open, the innermost last.
    """

    def __init__(
        self, form: Form, place: AbstractContextManager[object], opened: list[PendingFrame]
    ) -> None:
        self.form = form
        self.place = place
        self.opened = opened
        self.is_used = False

    def __enter__(self) -> Any:
        if self.is_used:
            raise MisuseError(
                f"a {self.form.display_name} is entered once, in the call that makes it",
                hint="make another one",
            )
        self.is_used = True
        found = self.place.__enter__()
        self.opened.append(self)
        return found

    def __iter__(self) -> Iterator[Any]:
        raise MisuseError(
            f"a Python function enters a {self.form.display_name}",
            hint="write `with T.serial(...) as i:`, or let the text itself have the loop",
        )

    def __exit__(self, *raised: Any) -> bool | None:
        if self not in self.opened:  # it was ended with the call, which a generator may outlive
            return None
        if self.opened[-1] is not self:
            raise MisuseError(f"a {self.form.display_name} is left before the frame inside it")
        self.opened.pop()
        return self.place.__exit__(*raised)


def word(function: Callable[..., Any], default: Act | None = None) -> Callable[..., Any]:
    """A word that makes a record: it gives that, or what the record does at once."""

    @wraps(function)
    def said(*args: Any, **kwargs: Any) -> Any:
        act = _act.get() or default
        if act is None:
            return function(*args, **kwargs)
        return _at_once(act, function, args, kwargs)

    return said


@user_facing
def _at_once(
    act: Act, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    with acting(None):
        form = function(*args, **kwargs)
        return act(form) if isinstance(form, Form) and not isinstance(form, MetaVar) else form
