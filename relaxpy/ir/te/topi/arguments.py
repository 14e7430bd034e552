"""Errors of tensor functions for arguments of wrong types."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np

from relaxpy.errors import RelaxpyError, unexpected
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.support.entry import user_facing

P = ParamSpec("P")
T = TypeVar("T")

_SCALARS = (PrimExpr, int, float, np.number, np.bool_)
#: By annotation: the accepted types, and their name in messages.
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "Tensor": ((Tensor,), "a tensor expression"),
    "Value": ((Tensor, *_SCALARS), "a tensor expression or a scalar"),
    "ExprLike": (_SCALARS, "a scalar"),
    "PrimExpr": ((PrimExpr,), "a scalar expression"),
    "SupportsIndex": ((int, np.integer), "an integer"),
    "int": ((int, np.integer), "an integer"),
    "float": ((int, float, np.floating), "a number"),
    "bool": ((bool, np.bool_), "True or False"),
    "str": ((str,), "a string"),
    "TakeMode": ((str,), "a string"),
    "None": ((type(None),), "None"),
}
_MEMBERS = {
    "Axes": "SupportsIndex | Sequence[SupportsIndex] | None",
    "Numbers": "int | Sequence[int]",
    "Padding": "int | Sequence[int] | str",
    "Sizes": "ExprLike | None | Sequence[ExprLike]",
    "PoolType": "str",
}


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a tensor function so that it reports arguments of wrong types.

    Errors:
        MisuseError (also TypeError): an argument does not match its annotation.
    """

    @wraps(function)
    def entry(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except RelaxpyError:
            raise
        except (AttributeError, LookupError, TypeError, ValueError):
            _refuse_misfits(function, args, kwargs)
            raise

    return user_facing(entry)


def _refuse_misfits(
    function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    signature = inspect.signature(function)
    try:
        arguments = signature.bind(*args, **kwargs).arguments
    except TypeError:  # Python's own error is raised by the caller
        return
    for name, value in arguments.items():
        annotation = signature.parameters[name].annotation
        if not _fits(value, annotation):
            raise unexpected(
                value, f"topi.{function.__name__}: {name} is {_shown(annotation)}"
            ) from None


def _fits(value: object, annotation: str) -> bool:
    """True if `value` matches `annotation`."""
    for term in _MEMBERS.get(annotation, annotation).split(" | "):
        member = term.removeprefix("Sequence[").removesuffix("]")
        if member == term:
            if isinstance(value, _KINDS[term][0]):
                return True
        elif isinstance(value, (list, tuple)) and all(_fits(v, member) for v in value):
            return True
    return False


def _shown(annotation: str) -> str:
    """The description of an annotation in messages."""
    return " or ".join(map(_kind, _MEMBERS.get(annotation, annotation).split(" | ")))


def _kind(term: str) -> str:
    member = term.removeprefix("Sequence[").removesuffix("]")
    if member == term:
        return _KINDS[term][1]
    _, _, kind = _kind(member).rpartition("a list of ")
    if kind != _kind(member):
        return f"a list of lists of {kind}"
    _, _, noun = kind.partition(" ")
    return f"a list of {noun}s"
