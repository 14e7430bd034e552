"""Packed functions: Python callables known to programs by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from relaxpy.entry import user_facing
from relaxpy.errors import (
    MisuseError,
    PackedFuncError,
    Span,
    UnknownPackedFuncError,
    close_names,
)
from relaxpy.exec.runtime.packed import call_users
from relaxpy.exec.runtime.values import Value, from_packed

F = TypeVar("F", bound=Callable[..., Any])

_functions: dict[str, Callable[..., Any]] = {}
_pure_names: set[str] = set()


@overload
def register_func(
    name: str, f: None = None, override: bool = False, *, pure: bool = False
) -> Callable[[F], F]: ...
@overload
def register_func(name: str, f: F, override: bool = False, *, pure: bool = False) -> F: ...
@overload
def register_func(name: F) -> F: ...
@user_facing
def register_func(
    name: str | F, f: F | None = None, override: bool = False, *, pure: bool = False
) -> F | Callable[[F], F]:
    """Enter `f` under `name`; without `f`, a decorator that does. Alone, `f` has its own name.

    `pure` promises that calling `f` has no visible effect (PU-4).

    Errors:
        PackedFuncError (also ValueError): the name is taken, and `override` is not set.
        MisuseError (also TypeError): the name is no string, or `f` cannot be called.
    """
    if callable(name):
        return _enter(getattr(name, "__name__", ""), name, override, pure)
    if f is not None:
        return _enter(name, f, override, pure)

    def enter(func: F) -> F:
        return _enter(name, func, override, pure)

    return enter


def _enter(name: str, func: F, override: bool, pure: bool) -> F:
    if not isinstance(name, str) or not name:
        raise MisuseError(f"a packed function's name is a string, found {name!r:.60}", about=name)
    if not callable(func):
        raise MisuseError(
            f"a packed function is callable, found {func!r:.60} for {name!r}", about=func
        )
    if name in _functions and not override:
        raise PackedFuncError(
            f"a packed function {name!r} is already registered",
            hint="pass override=True to put another in its place",
            about=name,
        )
    _functions[name] = func
    if pure:
        _pure_names.add(name)
    else:
        _pure_names.discard(name)
    return func


@overload
def get_global_func(name: str) -> Callable[..., Any]: ...
@overload
def get_global_func(name: str, allow_missing: bool) -> Callable[..., Any] | None: ...
@user_facing
def get_global_func(name: str, allow_missing: bool = False) -> Callable[..., Any] | None:
    """The packed function registered under `name`; with `allow_missing`, None if there is none.

    Errors:
        UnknownPackedFuncError (also ValueError, KeyError): there is none (EV-13).
    """
    found = _functions.get(name) if isinstance(name, str) else None
    if found is None and not allow_missing:
        raise UnknownPackedFuncError(
            f"no packed function is registered as {name!r}",
            rule="EV-13",
            hint=close_names(str(name), _functions)
            or f"register it: relaxpy.register_func({name!r}, f)",
            about=name,
        )
    return found


def is_registered_pure(name: str) -> bool:
    """Whether the function under `name` was registered as pure."""
    return name in _pure_names


def list_global_func_names() -> list[str]:
    """The names of all packed functions, sorted."""
    return sorted(_functions)


@user_facing
def remove_global_func(name: str) -> None:
    """Take the function under `name` out of the registry.

    Errors:
        UnknownPackedFuncError (also ValueError, KeyError): there is none.
    """
    get_global_func(name)
    del _functions[name]
    _pure_names.discard(name)


def packed_function(name: str, own: Value | None, span: Span | None) -> Callable[..., Any]:
    """What a program means by `name`: the registered function, else its `own` (EV-13, EV-14).

    Errors:
        UnknownPackedFuncError: there is neither; `span` is where the program asks for it.
    """
    found = _functions.get(name, own)
    if found is not None:
        return found
    try:
        return get_global_func(name)
    except UnknownPackedFuncError as error:
        raise error.located(span) from None


def call_packed(name: str, args: tuple[Value, ...]) -> Value:
    """What the packed function under `name` gives for `args`, as a value (EV-19)."""
    return from_packed(call_users(get_global_func(name), name, args), ())
