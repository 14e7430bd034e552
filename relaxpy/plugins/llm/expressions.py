"""Regular expressions of tokenizers as tables, which a loop of a few lines in any language reads.

A table is a program for sets of states: all ways to go on are followed at once, in the order in
which a search that goes back would try them, so that a text takes a time in proportion to its
length. Which characters an expression means is asked of the package tokenizers, whose version of
Unicode they then have.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np

Instruction: TypeAlias = "tuple[int, int, int]"
"""A code with two operands; those of jumps count from the instruction itself."""
Code: TypeAlias = "list[Instruction]"

CODES: Final = ("ONE_OF", "EITHER", "AHEAD", "FOUND")
ONE_OF, EITHER, AHEAD, FOUND = range(4)
"""Codes: a character of a set; two ways, the first of them preferred; the next character is one of
a set (second operand 1), or is not (0); the end."""

_CHARACTERS: Final = 0x110000
_DENSE: Final = 0x40000
"""Characters from this on are like their neighbours, except at the start and end of planes."""
_BEGINS: Final = 0x1000
_MOST: Final = 20000
"""The most instructions of an expression."""
_SYNTAX: Final = (
    r"\\[pP]\{\^?\w+\}|\\.|\(\?\w+:|\(\?(?:<?[=!]|[:>])?|(?:[?*+]|\{\d+(?:,\d*)?\})[?+]?|."
)
"""The parts of a regular expression outside of classes."""
_CLASS: Final = re.compile(
    r"\[\^?(?!\])(?:\\.|&&|[^\[\]\\]|\[:\^?\w+:\]|\[(?:\\.|[^\[\]\\])+\])*\]", re.S
)
_KIND: Final = re.compile(r"\\(?:[pP]\{\^?\w+\}|[sSdDwWhH])")
_CONTROLS: Final = {r"\r": "\r", r"\n": "\n", r"\t": "\t", r"\f": "\f", r"\v": "\v"}


class ExpressionError(Exception):
    """An expression has a part without a table: the text of the part."""


@dataclass(frozen=True)
class Expressions:
    """Expressions as tables.

    Fields:
        ranges: the first character of each range, and its kind.
        sets: for each set and kind whether the characters are in it.
        program: the instructions of all expressions; jumps are positions.
        starts: the first instruction of each expression.
    """

    ranges: Any
    sets: Any
    program: Any
    starts: list[int]


class _Reader:
    """Reads an expression of Oniguruma, whose sets are added to `sets`."""

    def __init__(self, text: str, sets: dict[str, int]) -> None:
        self.text, self.sets, self.at = text, sets, 0
        self.folds = False

    def code(self) -> Code:
        code, is_empty = self.alternatives()
        if self.at < len(self.text):
            raise ExpressionError(self.text[self.at])
        if is_empty:
            raise ExpressionError("what may be empty")
        return [*code, (FOUND, 0, 0)]

    def part(self) -> str:
        """The next part, which is not read yet."""
        found = _CLASS.match(self.text, self.at) or re.compile(_SYNTAX, re.DOTALL).match(
            self.text, self.at
        )
        return found[0] if found else ""

    def alternatives(self) -> tuple[Code, bool]:
        """The code of what is left of a group, and whether it may find nothing."""
        code, is_empty = self.sequence()
        if self.part() != "|":
            return code, is_empty
        self.at += 1
        others, other_is_empty = self.alternatives()
        code = [(EITHER, 1, len(code) + 2), *code, _jump(len(others) + 1), *others]
        return code, is_empty or other_is_empty

    def sequence(self) -> tuple[Code, bool]:
        code: Code = []
        is_empty, folded = True, ""
        while (part := self.part()) not in ("", "|", ")"):
            self.at += len(part)
            own, may_be_empty = self.item(part)
            is_letter = self.folds and len(part) == 1 and part.isalpha()
            folded = folded + part.lower() if is_letter else ""
            if together := [one for one in _folded_together() if one in folded]:
                raise ExpressionError(f"(?i:{together[0]})")
            own, may_be_empty = self.repeated(own, may_be_empty)
            code += own
            is_empty = is_empty and may_be_empty
            if len(code) > _MOST:
                raise ExpressionError("what is repeated too often")
        return code, is_empty

    def item(self, part: str) -> tuple[Code, bool]:
        """The code of a part, and whether it may find nothing."""
        if part in ("(", "(?:", "(?i:"):
            folds, self.folds = self.folds, self.folds or part == "(?i:"
            found = self.alternatives()
            self.folds = folds
            self.close(part)
            return found
        if part in ("(?=", "(?!"):
            code, _ = self.alternatives()
            self.close(part)
            if len(code) != 1 or code[0][0] != ONE_OF:
                raise ExpressionError(f"{part} with more than one character")
            return [(AHEAD, code[0][1], int(part == "(?="))], True
        return [(ONE_OF, self.set_of(part), 0)], False

    def close(self, part: str) -> None:
        if self.part() != ")":
            raise ExpressionError(part)
        self.at += 1

    def set_of(self, part: str) -> int:
        """The number of the set of characters that a part means."""
        is_class, is_kind = len(part) > 1 and part[0] == "[", _KIND.fullmatch(part) is not None
        if is_class:
            if not part.isascii() and self.folds:
                raise ExpressionError(part)
            if r"\x" in part or any(ord(c) >= _DENSE for c in part):
                raise ExpressionError(part)
        elif not is_kind and part != ".":
            if part[0] == "\\":
                plain = _CONTROLS.get(part, part[1:])
                if part not in _CONTROLS and part[1].isalnum():
                    raise ExpressionError(part)
            elif len(part) > 1 or part in "^$?*+{}()[]":
                raise ExpressionError(part)
            else:
                plain = part
            if self.folds and len(plain.casefold()) > 1:
                raise ExpressionError(f"(?i:{plain})")
            part = f"[{plain}]" if plain.isalnum() or not plain.isascii() else f"[\\{plain}]"
            part = _PLAIN.get(plain, part)
        wanted = f"(?i:{part})" if self.folds else part
        return self.sets.setdefault(wanted, len(self.sets))

    def repeated(self, code: Code, is_empty: bool) -> tuple[Code, bool]:
        """The code of what is repeated as the next part says."""
        part = self.part()
        if not part or part[0] not in "?*+{" or part == "{":
            return code, is_empty
        self.at += len(part)
        is_lazy = len(part) > 1 and part[-1] == "?"
        if is_empty or (len(part) > 1 and part[-1] == "+") or self.part()[:1] in {*"?*+"}:
            raise ExpressionError(part)
        if part[0] == "{":
            [least, *most] = part.rstrip("?")[1:-1].split(",")
            if is_lazy and not most:  # Oniguruma reads {2}? as (?:{2})?
                raise ExpressionError(part)
            bounds = int(least), (int(most[0]) if most[0] else None) if most else int(least)
        else:
            bounds = int(part[0] == "+"), 1 if part[0] == "?" else None
        return self.times(code, *bounds, is_lazy), bounds[0] == 0

    def times(self, code: Code, least: int, most: int | None, is_lazy: bool) -> Code:
        if (most is not None and most < max(least, 1)) or len(code) * max(least, most or 1) > _MOST:
            raise ExpressionError("what is repeated too often")
        size = len(code)
        if most is None:
            first = code * least
            loop = [_either(1, size + 2, is_lazy), *code, _jump(-size - 1)]
            return [*first, *loop]
        found = code * least
        left = most - least
        for n in range(left):
            found += [_either(1, (left - n) * (size + 1), is_lazy), *code]
        return found


_PLAIN: Final = {c: f"[{written}]" for written, c in _CONTROLS.items()}


def _jump(by: int) -> Instruction:
    return EITHER, by, by


def _either(first: int, second: int, is_lazy: bool) -> Instruction:
    return (EITHER, second, first) if is_lazy else (EITHER, first, second)


@lru_cache(1)
def _folded_together() -> frozenset[str]:
    """Letters that, where cases are ignored, are one other character together."""
    folded = (chr(n).casefold() for n in range(_DENSE))
    return frozenset(text for text in folded if len(text) > 1)


def expressions_of(texts: Sequence[str]) -> Expressions:
    """The tables of expressions. Errors: ExpressionError."""
    sets: dict[str, int] = {}
    program: list[Instruction] = []
    starts = []
    for text in texts:
        code = _Reader(text, sets).code() if text not in _NUMERIC else _numeric(text, sets)
        starts.append(len(program))
        for op, a, b in code:
            at = len(program)
            program.append((op, a + at, b + at) if op == EITHER else (op, a, b))
    members = np.array([_members(text) for text in sets] or [_members("[^\\s\\S]")])
    changes = np.flatnonzero((members[:, 1:] != members[:, :-1]).any(axis=0)) + 1
    first = np.concatenate([[0], changes])
    kinds, kind_of = np.unique(members[:, first], axis=1, return_inverse=True)
    return Expressions(
        np.stack([first, kind_of.reshape(-1)], axis=1).astype("i4"),
        kinds.astype("i4"),
        np.array(program, "i4").reshape(-1, 3),
        starts,
    )


NUMBER, NUMBERS = "number", "numbers"
"""The expressions of the step Digits of tokenizers: a digit, or several."""
_NUMERIC: Final = (NUMBER, NUMBERS)


def _numeric(text: str, sets: dict[str, int]) -> Code:
    one = (ONE_OF, sets.setdefault(NUMBER, len(sets)), 0)
    again = [(EITHER, -1, 1)] if text == NUMBERS else []
    return [one, *again, (FOUND, 0, 0)]


@lru_cache(1)
def sampled() -> str:
    """Characters that show what all are: those of later planes are as the last but two of them."""
    planes = (range(n, n + 0x10000) for n in range(_DENSE, _CHARACTERS, 0x10000))
    later = (n for plane in planes for n in (*plane[:_BEGINS], *plane[-3:]))
    return "".join(chr(n) for n in (*range(0xD800), *range(0xE000, _DENSE), *later))


@lru_cache(256)
def _members(text: str) -> Any:
    """The characters of a regular expression, as booleans; `number` is that of Digits."""
    from tokenizers import Regex, normalizers, pre_tokenizers

    found = np.zeros(_CHARACTERS, bool)
    if text == NUMBER:
        pieces = pre_tokenizers.Digits(individual_digits=False).pre_tokenize_str(sampled())
        # They are in turns; the first character is not a digit.
        inside = "".join(piece for piece, _ in pieces[1::2])
    else:
        without = normalizers.Replace(Regex(f"(?:{text})+"), "").normalize_str(sampled())
        found[codes(sampled())] = True
        found[codes(without)] = False
        inside = ""
    found[codes(inside)] = True
    for plane in range(_DENSE, _CHARACTERS, 0x10000):
        found[plane + _BEGINS : plane + 0xFFFD] = found[plane + 0xFFFD]
    return found


def codes(text: str) -> Any:
    """The numbers of characters."""
    return np.frombuffer(text.encode("utf-32-le"), "<u4")
