"""Calls of users' Python functions: what one raises is a PackedFuncError of the same class, too."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from types import GetSetDescriptorType, MappingProxyType, MemberDescriptorType
from typing import Any

from relaxpy.errors import Diagnostic, PackedFuncError, RelaxpyError, Span

_SLOTS = (GetSetDescriptorType, MemberDescriptorType)
_NO_ATTRS: Mapping[str, Any] = MappingProxyType({})


def call_users(
    function: Callable[..., Any],
    name: str,
    args: tuple[Any, ...],
    attrs: Mapping[str, Any] = _NO_ATTRS,
    span: Span | None = None,
) -> Any:
    """The result of a user's function, which messages call `name` (EV-19).

    Errors:
        PackedFuncError: it raised an Exception; the error is of that one's class as well, has its
            attributes and traceback, and keeps it as `failure`. Errors of relaxpy pass as they are.
    """
    _calls_users = True
    try:
        return function(*args, **attrs)
    except RelaxpyError:
        raise
    except Exception as error:  # of whatever kind: the user's class is kept
        raise failure_of(error, name, span).with_traceback(error.__traceback__) from error.__cause__


def failure_of(error: Exception, name: str, span: Span | None = None) -> PackedFuncError:
    """The PackedFuncError that stands for what the function `name` raised."""
    try:
        text = str(error)
    except Exception as own:  # the user's `__str__` fails, which hides no error of theirs
        text = f"<its text: {type(own).__name__}>"
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return _failed(error, (Diagnostic(f"packed function {name!r} raised {what}", span=span),))


def _failed(error: Exception, diagnostics: tuple[Diagnostic, ...]) -> PackedFuncError:
    """An error of both classes, made without a call of the user's own `__new__` and `__init__`."""
    found = PackedFuncError()
    with suppress(TypeError):  # classes that do not mix
        raised: Any = type(error)
        kind = _both(raised)
        builtin = next(base for base in raised.__mro__ if base.__module__ == "builtins")
        try:
            # It makes room for its members, as those of an OSError.
            found = builtin.__new__(kind, *error.args)
        except TypeError:  # as MemoryError, which makes no instances but its own
            found = Exception.__new__(kind)
        _take_over(found, error)
    found.diagnostics, found.about, found.failure = diagnostics, error, error
    found.__context__, found.__suppress_context__ = error.__context__, error.__suppress_context__
    return found


@lru_cache(maxsize=64)
def _both(kind: type[Exception]) -> type[PackedFuncError]:
    """A subclass of PackedFuncError and of `kind`, which shows as PackedFuncError.

    Errors:
        TypeError: there can be none, as when their metaclasses differ.
    """

    def reduce(self: PackedFuncError) -> tuple[Any, ...]:
        # A trial on an exception of this very process, as a class whose `__init__` takes other
        # arguments fails only where it is loaded: no bytes from outside are read here.
        try:
            pickle.loads(pickle.dumps(self.failure))
        except Exception:  # of any kind: the class of the user's error is lost, not the error
            return PackedFuncError, (), {"diagnostics": self.diagnostics}
        return _failed, (self.failure, self.diagnostics)

    members = {
        "__module__": PackedFuncError.__module__,
        "__doc__": f"A packed function raised {kind.__name__}.",
        "__str__": PackedFuncError.__str__,
        "__reduce__": reduce,
    }
    bases = (PackedFuncError,) if issubclass(PackedFuncError, kind) else (PackedFuncError, kind)
    return type("PackedFuncError", bases, members)


def _take_over(found: PackedFuncError, error: Exception) -> None:
    """Give `found` the attributes of `error`, those in slots and of built-in classes included."""
    vars(found).update(vars(error))
    for base in type(error).__mro__:
        for name, member in vars(base).items():
            if isinstance(member, _SLOTS) and name[:2] != "__":
                try:
                    setattr(found, name, getattr(error, name))
                except (AttributeError, TypeError, ValueError):
                    continue  # read-only, or never set
