"""Descriptions of values for messages."""

from __future__ import annotations

import inspect


def described(value: object) -> str:
    """Describe `value` for a message: its type and text, or its name in programs."""
    name = getattr(value, "display_name", None)
    if isinstance(value, type):
        return f"class {name if isinstance(name, str) else value.__name__}"
    if inspect.isroutine(value):
        return f"function {getattr(value, '__name__', value)!r}"
    if inspect.ismodule(value):
        return f"module {value.__name__!r}"
    if isinstance(name, str):
        return name if name[:2] in ("I.", "R.", "T.") else f"{article(name)} {name}"
    return "None" if value is None else f"{type(value).__name__} {value!r:.60}"


def article(noun: str) -> str:
    """Return the indefinite article of `noun`."""
    return "an" if noun[:1] in "AEIOUaeiou" or noun[:2] == "R." else "a"


def digits(value: object) -> str:
    """Return the repr of a value; of a very large integer, its magnitude."""
    if isinstance(value, int) and value.bit_length() > 400:
        return f"{'-' if value < 0 else ''}2**{value.bit_length() - 1}…"
    try:
        return f"{value!r:.130}"
    except ValueError:
        return f"a {type(value).__name__} of integers of too many digits"
