"""The only module of the parser that calls functions and operators which a text names.

The text, or the caller of `from_source`, chooses the arguments of every function here. A guard
checks them first, and `tests/script/test_door.py` searches the parser for other calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from relaxpy.ir.tir.expr import CALLED_BY_TEXT

__asks_for_text__ = True

_CONVERSIONS: Mapping[int, Callable[[object], object]] = {
    ord("s"): str,
    ord("r"): repr,
    ord("a"): ascii,
}


def call(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """`function(*args, **kwargs)`.

    Errors: those of the function; MisuseError where it needs to know whether scalars are equal.
    """
    token = CALLED_BY_TEXT.set(True)
    try:
        return function(*args, **kwargs)
    finally:
        CALLED_BY_TEXT.reset(token)


def operate(function: Callable[..., Any], *operands: Any) -> Any:
    """Apply a Python operator, which may call methods of its operands.

    Errors: as of `call`.
    """
    token = CALLED_BY_TEXT.set(True)
    try:
        return function(*operands)
    finally:
        CALLED_BY_TEXT.reset(token)


def attribute(owner: Any, name: str) -> Any:
    """`owner.name`."""
    return getattr(owner, name)


def item(owner: Any, index: Any) -> Any:
    """`owner[index]`."""
    return owner[index]


def members(value: Any) -> Iterator[Any]:
    """The members of `value`, one by one."""
    return iter(value)


def next_member(iterator: Iterator[Any], end: Any) -> Any:
    """The next member of a user's iterator, or `end`."""
    token = CALLED_BY_TEXT.set(True)
    try:
        return next(iterator, end)
    finally:
        CALLED_BY_TEXT.reset(token)


def truth(value: Any) -> bool:
    """The truth value of `value`."""
    return bool(value)


def formatted(value: Any, conversion: int, spec: str) -> str:
    """`value` formatted as in an f-string."""
    convert = _CONVERSIONS.get(conversion)
    shown = value if convert is None else convert(value)
    return format(shown, spec) if spec else str(shown)
