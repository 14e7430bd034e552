"""When the words of I, R and T act: on their own where Python runs, not where a text is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeAlias

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError
from relaxpy.script.parser.forms import Form, MetaVar

Act: TypeAlias = Callable[[Form], Any]

_act: ContextVar[Act | None] = ContextVar("relaxpy_act", default=None)


@contextmanager
def acting(act: Act | None) -> Iterator[None]:
    """The time in which a record is handed to `act` as soon as it is made, or to nobody."""
    token = _act.set(act)
    try:
        yield
    finally:
        _act.reset(token)


def is_helper(function: object) -> bool:
    """Whether what a text calls is of the user's own Python, not of relaxpy or built in."""
    module = getattr(function, "__module__", None)
    return not isinstance(module, str) or not module.startswith(("relaxpy.", "builtins"))


class Held:
    """A frame that a Python function uses while a text is read: `with T.block():`."""

    def __init__(self, form: Form, place: AbstractContextManager[object]) -> None:
        self.form = form
        self.place = place
        self.entered = False

    def __enter__(self) -> Any:
        self.entered = True
        return self.place.__enter__()

    def __iter__(self) -> Iterator[Any]:
        raise MisuseError(
            f"a Python function enters a {self.form.spoken}",
            hint="write `with T.serial(...) as i:`, or let the text itself have the loop",
        )

    def __exit__(self, *raised: Any) -> bool | None:
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
