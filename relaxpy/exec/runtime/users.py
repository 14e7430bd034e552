"""Calls of users' functions, whose exceptions are raised as PackedFuncErrors of the same class."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from contextvars import ContextVar
from functools import lru_cache
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, Final, NoReturn
from weakref import ref

import numpy as np
from typing_extensions import override

from relaxpy.errors import Diagnostic, PackedFuncError, RelaxpyError, Span
from relaxpy.exec.runtime.values import NO_ATTRS, on_views
from relaxpy.support.frames import arose_in_relaxpy
from relaxpy.support.scopes import setting

_SLOTS = (GetSetDescriptorType, MemberDescriptorType)
passes_tensors: Final[ContextVar[bool]] = ContextVar("relaxpy_passes_tensors", default=False)


def passing_tensors() -> AbstractContextManager[None]:
    """A context in which users' functions get tensors, as programs of TVM expect."""
    return setting(passes_tensors, True)


def call_users(
    function: Callable[..., Any],
    name: str,
    args: tuple[Any, ...],
    attrs: Mapping[str, Any] = NO_ATTRS,
    span: Span | None = None,
) -> Any:
    """The result of a user's function, which messages call `name` (EV-19).

    In `passing_tensors`, arrays are passed as tensors over the same memory.

    Errors:
        PackedFuncError: it changed the form of an array, or raised an Exception. Then the error is
            an instance of that class as well, has its attributes and traceback, and keeps it as
            `failure`. Errors of relaxpy are propagated unchanged, and so is the RecursionError of
            a program that the function called.
    """
    _calls_users = True
    try:
        arrays = [arg for arg in args if type(arg) is np.ndarray]
        forms = [(array.shape, array.strides, array.dtype) for array in arrays]
        if passes_tensors.get():
            result = on_views(function, args, attrs, tensors=True)
        else:
            kept = [*map(ref, arrays)]  # as in `on_views`
            result = function(*args, **attrs)
            del kept
        if forms != [(array.shape, array.strides, array.dtype) for array in arrays]:
            raise changed_forms(name, span)
        return result
    except RelaxpyError:
        raise
    except Exception as error:  # of any kind: the error keeps the user's class
        if _ran_out_of_stack(error):
            raise
        raise _failure_of(error, name, span).with_traceback(
            error.__traceback__
        ) from error.__cause__


def changed_forms(name: str, span: Span | None) -> PackedFuncError:
    """The error that the function `name` changed the form of an array."""
    problem = "changed the shape, the strides or the datatype of an argument"
    return PackedFuncError(f"packed function {name!r} {problem}", span=span)


def raise_again(error: BaseException, name: str, span: Span | None) -> NoReturn:
    """Raise the exception that the function `name` raised, as `call_users` does."""
    _calls_users = True
    context = error.__context__
    try:
        raise error
    except Exception as failure:  # of any kind: it is raised again with the function's name
        failure.__context__ = context
        if isinstance(failure, RelaxpyError) or _ran_out_of_stack(failure):
            raise
        raise _failure_of(failure, name, span).with_traceback(
            failure.__traceback__
        ) from failure.__cause__
    except BaseException as failure:
        failure.__context__ = context
        raise
    finally:
        del error  # its traceback refers to this frame


def _ran_out_of_stack(error: Exception) -> bool:
    """True if a program that the user's function called had too little stack to report this."""
    return isinstance(error, RecursionError) and arose_in_relaxpy(error)


def _failure_of(error: Exception, name: str, span: Span | None) -> PackedFuncError:
    """The PackedFuncError for the exception that the function `name` raised."""
    try:
        text = str(error)
    except Exception as own:  # the user's `__str__` fails, which must not hide the error
        text = f"<its text: {type(own).__name__}>"
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return _wrapped(error, (Diagnostic(f"packed function {name!r} raised {what}", span=span),))


def _wrapped(failure: Exception, diagnostics: tuple[Diagnostic, ...]) -> PackedFuncError:
    """An error of both classes with the attributes of `failure`."""
    error, kind = PackedFuncError(), type(failure)
    with suppress(TypeError):  # the classes cannot be combined
        error = _rebuilt(_combined(kind), failure.args, dict(_attributes(failure)))  # type: ignore[arg-type]
    error.diagnostics, error.about, error.failure = diagnostics, failure, failure
    error.__context__ = failure.__context__
    error.__suppress_context__ = failure.__suppress_context__
    return error


@lru_cache(maxsize=64)
def _combined(kind: type[Exception]) -> type[PackedFuncError]:
    """A subclass of PackedFuncError and of `kind`, whose name is PackedFuncError.

    Errors:
        TypeError: the classes cannot be combined, for instance because their metaclasses differ.
    """
    members = {
        "__module__": PackedFuncError.__module__,
        "__doc__": f"A packed function raised {kind.__name__}.",
        "__str__": PackedFuncError.__str__,
        "__reduce__": lambda self: (_wrapped, (_Portable(self.failure), self.diagnostics)),
    }
    bases = (PackedFuncError,) if issubclass(PackedFuncError, kind) else (PackedFuncError, kind)
    return type("PackedFuncError", bases, members)


def _rebuilt(kind: type[Any], args: tuple[Any, ...], attributes: Mapping[str, Any]) -> Any:
    """An exception of class `kind`, created without its `__new__` and `__init__`.

    These may take other arguments than `args`.
    """
    builtin: Any = kind
    while builtin.__module__ != "builtins":
        builtin = builtin.__base__  # the base class that determines the layout in memory
    try:
        # This fills the fields of the built-in class, such as those of an OSError.
        error = builtin.__new__(kind, *args)
    except TypeError:  # MemoryError cannot create instances of subclasses
        error = Exception.__new__(kind, *args)
    for name, value in attributes.items():
        with suppress(AttributeError, TypeError, ValueError):  # read-only
            object.__setattr__(error, name, value)
    return error


def _attributes(error: Exception) -> Iterator[tuple[str, Any]]:
    """The attributes of `error`, including those in slots and those of built-in classes."""
    yield from vars(error).items()
    for base in type(error).__mro__:
        for name, member in vars(base).items():
            if isinstance(member, _SLOTS) and name[:2] != "__":
                with suppress(AttributeError):  # never set
                    yield name, getattr(error, name)


class _Portable:
    """An exception in a pickle: it is rebuilt from its class, arguments and attributes.

    If its class cannot be imported by name, a base class is used. Attributes that cannot be pickled
    are left out.
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    @override
    def __reduce__(self) -> tuple[object, ...]:
        error = self._error
        kind = next(base for base in type(error).__mro__ if _can_be_pickled(base))
        attributes = {name: _portable(value) for name, value in _attributes(error)}
        kept = {name: value for name, value in attributes.items() if _can_be_pickled(value)}
        return _rebuilt, (kind, kept.get("args", ()), kept)


def _portable(value: Any) -> Any:
    if isinstance(value, Exception):
        return _Portable(value)
    return type(value)(map(_portable, value)) if type(value) in (list, tuple) else value


def _can_be_pickled(value: object) -> bool:
    try:
        pickle.dumps(value)
    except Exception:  # whatever the `__reduce__` of the value raises
        return False
    return True
