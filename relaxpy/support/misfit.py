"""Arguments that do not match the annotations of a function, compared when a call of it fails."""

from __future__ import annotations

import builtins
import inspect
from collections import ChainMap, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from numbers import Integral, Real
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Final, Literal, SupportsIndex, Union, get_args, get_origin, get_type_hints

import numpy as np

from relaxpy.errors import MisuseError, unexpected

_KINDS: Final[Mapping[Any, tuple[Any, str]]] = {
    str: (str, "a string"),
    int: (Integral, "an integer"),
    SupportsIndex: (Integral, "an integer"),
    float: (Real, "a number"),
    bool: ((bool, np.bool_), "True or False"),
    np.bool_: ((bool, np.bool_), "True or False"),
    np.number: (np.number, "a number"),
    NoneType: (NoneType, "None"),
}
"""By annotation, what an argument is an instance of, and its name in messages."""
_NAMES: Final = {
    "Mapping": "a table",
    "dict": "a table",
    "Path": "a path",
    "PathLike": "a path",
    "PrimExpr": "a scalar expression",
    "Tensor": "a tensor expression",
}
_LISTS: Final = (list, tuple, Collection, Iterable, Sequence)
_SCALARS: Final = ("a scalar expression", "True or False", "an integer", "a number", "a string")


def first_misfit(
    function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
) -> MisuseError | None:
    """The error for the first argument that does not match its annotation, if there is one."""
    signature = inspect.signature(function)
    names: dict[str, Any] = getattr(inspect.unwrap(function), "__globals__", {})
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        param = signature.parameters[name]
        hint = _resolved(param.annotation, names)
        variadic = param.kind is param.VAR_POSITIONAL and isinstance(value, tuple)
        for each in value if variadic else (value,):
            if param.kind is not param.VAR_KEYWORD and not _fits(each, hint):
                owner = getattr(function, "shown_name", function.__qualname__)
                if function.__name__ == "__init__":
                    owner = type(args[0]).__name__
                return unexpected(each, f"{owner}: {name} is {_shown(hint)}")
    return None


def binds(
    function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
) -> bool:
    """True if the function has parameters for all of its arguments, or none are known."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _resolved(annotation: object, names: dict[str, Any]) -> object:
    """The type that an annotation stands for; what only type checkers know in it is Any."""
    if annotation is inspect.Parameter.empty:
        return Any
    known = ChainMap(names, vars(builtins), defaultdict(lambda: Any, np=np))
    try:
        return get_type_hints(SimpleNamespace(__annotations__={"it": annotation}), {}, known)["it"]
    except (AttributeError, NameError, SyntaxError, TypeError):
        return Any


def _terms(hint: object) -> tuple[Any, ...]:
    if get_origin(hint) in (Union, UnionType):
        return tuple(term for member in get_args(hint) for term in _terms(member))
    return (hint,)


def _fits(value: object, hint: object) -> bool:
    return any(_is_instance(value, term) for term in _terms(hint))


def _is_instance(value: object, term: Any) -> bool:
    origin, members = get_origin(term) or term, get_args(term)
    if origin is Literal:
        return any(type(value) is type(member) and value == member for member in members)
    if not isinstance(origin, type):
        return True
    if issubclass(origin, str):  # such as a datatype
        return isinstance(value, str)
    if origin not in _LISTS:
        try:
            return isinstance(value, _KINDS.get(origin, (origin,))[0])
        except TypeError:  # a protocol whose instances are not known at run time
            return True
    if not isinstance(value, (list, tuple)):
        kind = Iterable if origin is Iterable else Sequence
        return isinstance(value, kind) and not isinstance(value, (str, bytes))
    return len(members) != 1 or all(_fits(each, members[0]) for each in value)


def _shown(hint: object) -> str:
    """The description of a type in messages."""
    return " or ".join(_nouns(hint))


def _nouns(hint: object) -> list[str]:
    nouns = list(dict.fromkeys(map(_noun, _terms(hint))))
    if {"a scalar expression", "a number"} <= {*nouns}:
        nouns = [*(noun for noun in nouns if noun not in _SCALARS), "a scalar"]
    return nouns


def _noun(term: Any) -> str:
    origin, members = get_origin(term) or term, get_args(term)
    if origin is Literal:
        return " or ".join(map(repr, members))
    if origin in _KINDS:
        return _KINDS[origin][1]
    if origin in _LISTS:
        several = " or ".join(map(_plural, _nouns(members[0]) if members else ()))
        return f"a list of {several}" if several else "a list"
    name = getattr(origin, "__name__", str(origin))
    return _NAMES.get(name, f"{'an' if name[0] in 'AEIOU' else 'a'} {name}")


def _plural(noun: str) -> str:
    article, _, rest = noun.partition(" ")
    if article not in ("a", "an"):
        return noun
    kind, of, members = rest.partition(" of ")
    return f"{kind}s{of}{members}"
