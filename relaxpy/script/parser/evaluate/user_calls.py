"""The only module of the parser that calls functions and operators which a text names.

The arguments of every function here come from the text, or from the caller of `from_source`. A
guard checks them first, and `tests/script/test_user_calls.py` searches the parser for other calls.
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

    Errors: those of the function; MisuseError if it depends on whether two scalars are equal.
    """
    token = CALLED_BY_TEXT.set(True)
    try:
        return function(*args, **kwargs)
    finally:
        CALLED_BY_TEXT.reset(token)


def operate(function: Callable[..., Any], *operands: Any) -> Any:
    """Apply a Python operator, which may call methods of its operands.

    Errors: the same as of `call`.
    """
    return call(function, operands, {})


def attribute(owner: Any, name: str) -> Any:
    """`owner.name`."""
    return getattr(owner, name)


def item(owner: Any, index: Any) -> Any:
    """`owner[index]`."""
    return owner[index]


def members(value: Any) -> Iterator[Any]:
    """An iterator over the members of `value`."""
    return iter(value)


def next_member(iterator: Iterator[Any], end: Any) -> Any:
    """The next member of a user's iterator, or `end`."""
    return call(next, (iterator, end), {})


def truth(value: Any) -> bool:
    """The truth value of `value`."""
    return bool(value)


def formatted(value: Any, conversion: int, spec: str) -> str:
    """Format `value` as in an f-string."""
    convert = _CONVERSIONS.get(conversion)
    converted = value if convert is None else convert(value)
    return format(converted, spec) if spec else str(converted)
