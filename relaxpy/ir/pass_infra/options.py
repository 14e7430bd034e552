"""Checks of the options of a pass by the types that its class declares for them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from relaxpy.errors import unexpected
from relaxpy.ir.core.node import is_function

_NAMES: Mapping[object, tuple[str, str]] = {
    bool: ("True or False", "Booleans"),
    int: ("an integer", "integers"),
    float: ("a number", "numbers"),
    str: ("a string", "strings"),
    Callable: ("a function", "functions"),
    Mapping: ("a dict", "dicts"),
    Any: ("a value", "values"),
    object: ("a value", "values"),
}


def check_options(step: Hashable) -> None:
    """Check the options of a pass, and store its lists as tuples.

    Errors:
        MisuseError (also TypeError): an option is not of its declared type.
    """
    for name, kind in _declared(type(step)).items():
        value = getattr(step, name)
        if not _has_type(value, kind):
            raise unexpected(value, f"{name} is {_described(kind)}")
        if isinstance(value, list):
            object.__setattr__(step, name, tuple(value))


@lru_cache(maxsize=256)
def _declared(cls: type) -> Mapping[str, object]:
    """The options of a class with their types, none if these cannot be evaluated."""
    if not is_dataclass(cls):
        return {}
    try:
        hints = get_type_hints(cls)
    except NameError:
        return {}
    return {field.name: hints[field.name] for field in fields(cls) if field.init}


def _has_type(value: Any, kind: Any) -> bool:
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_has_type(value, choice) for choice in args)
    if origin is Literal:
        return isinstance(value, str | int) and value in args
    if origin is Callable:
        return is_function(value)
    if origin is tuple and args[1:] != (...,):
        return (
            isinstance(value, tuple)
            and len(value) == len(args)
            and all(map(_has_type, value, args))
        )
    if origin in (Sequence, list, tuple):
        return isinstance(value, list | tuple) and all(_has_type(v, args[0]) for v in value)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            _has_type(key, args[0]) and _has_type(member, args[1]) for key, member in value.items()
        )
    if kind is bool:
        return isinstance(value, bool | np.bool_)
    if kind in (int, float):
        return isinstance(value, int | kind) and not isinstance(value, bool)
    return kind is Any or not isinstance(kind, type) or isinstance(value, kind)


def _described(kind: Any, *, several: bool = False) -> str:
    """The name of a type in messages; its plural for `several`, after "of"."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(_described(k, several=several) for k in args if k is not NoneType)
    if origin is Literal:
        return " or ".join(map(repr, args))
    if origin is tuple and args[1:] != (...,):
        return "tuples" if several else "a tuple"
    if origin in (Sequence, list, tuple):
        return f"{'lists' if several else 'a list'} of {_described(args[0], several=True)}"
    if origin is Mapping and not several:
        return f"a dict from {' to '.join(_described(k, several=True) for k in args)}"
    if (names := _NAMES.get(origin or kind)) is not None:
        return names[several]
    name = kind.__name__ if isinstance(kind, type) else "value"
    if several:
        return f"{name}s"
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
