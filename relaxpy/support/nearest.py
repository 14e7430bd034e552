"""Close matches for an unknown name, and descriptions of values, for messages."""

from __future__ import annotations

import inspect
from collections.abc import Iterable


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
    """The indefinite article of `noun`."""
    return "an" if noun[:1] in "AEIOUaeiou" or noun[:2] == "R." else "a"


def digits(value: object) -> str:
    """The repr of a value; of a very large integer, its magnitude."""
    if isinstance(value, int) and value.bit_length() > 400:
        return f"{'-' if value < 0 else ''}2**{value.bit_length() - 1}…"
    try:
        return f"{value!r:.130}"
    except ValueError:
        return f"a {type(value).__name__} of integers of too many digits"


_LONGEST_NAME = 200
_MOST_NAMES = 8_000


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """At most two of the names in `known` with the least edit distance from `name`.

    The distance is at most one edit for three letters. A name of over 200 letters, or more than
    8,000 names, give no result, since a comparison takes time quadratic in the lengths.
    """
    limit = len(name) // 3
    ranks: dict[tuple[int, int], list[str]] = {}
    others = set(known) - {name}
    if len(name) > _LONGEST_NAME or len(others) > _MOST_NAMES:
        return []
    for other in sorted(others):
        edits = edit_distance(name.casefold(), other.casefold(), limit)
        if edits <= limit:
            # The case of letters is not an edit, but decides between names of equal distance.
            case_changes = sum(
                a.isupper() != b.isupper() for a, b in zip(name, other, strict=False)
            )
            ranks.setdefault((edits, case_changes), []).append(other)
            limit = edits
    return ranks[min(ranks)][:2] if ranks else []


def edit_distance(a: str, b: str, limit: int) -> int:
    """Count the insertions, deletions, substitutions and transpositions that turn `a` into `b`.

    If there are more than `limit`, the result is any number above the limit.

    Rule:
        Optimal string alignment distance (Damerau, CACM 7(3), 1964).
    """
    if abs(len(a) - len(b)) > limit:
        return limit + 1
    previous: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before_previous, previous, row = previous, row, [i]
        for j, y in enumerate(b, 1):
            cost = min(previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, before_previous[j - 2] + 1)
            row.append(cost)
        if min(row) > limit:
            return limit + 1
    return row[-1]
