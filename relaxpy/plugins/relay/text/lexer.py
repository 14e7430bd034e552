"""Tokens of Relay text."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from relaxpy.errors import ParseError, Source, Span
from relaxpy.ir.core.budget import MAX_CHARACTERS, MAX_TOKENS

_TOKEN: Final = re.compile(
    r"""
      (?P<newline>\r\n|\n|\r)
    | (?P<blank>[ \t\f\v]+)
    | (?P<header>\#\[\s*(?:version\b[^\]\n]*|metadata)\s*\])
    | (?P<comment>(?://|\#)[^\r\n]*)
    | (?P<block>/\*)
    | (?P<graph>%[0-9]+(?![A-Za-z_]))
    | (?P<local>%[A-Za-z_][A-Za-z0-9_]*)
    | (?P<globalname>@[A-Za-z_][A-Za-z0-9_]*)
    | (?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?:[if](?:16|32|64)?)?(?![A-Za-z0-9_]))
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)
    | (?P<string>"(?:[^"\\\r\n]|\\.)*")
    | (?P<sign>->|=>|==|!=|<=|>=|&&|\|\||[-+*/<>!=?.,;:(){}\[\]])
    """,
    re.VERBOSE,
)
_INDEX: Final = re.compile(r"[0-9]+(?![A-Za-z_])")
_COMMENT_SIGN: Final = re.compile(r"/\*|\*/")
_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}


class Token(NamedTuple):
    """A token: its kind, its text, its offsets, and whether a line ended right before it."""

    kind: str
    text: str
    start: int
    end: int
    newline: bool


class Tokens:
    """The tokens of a text, with the positions of the brackets that close each bracket."""

    def __init__(self, text: str, name: str) -> None:
        self.source = Source(name, text)
        self.text = text
        self._lines = [0, *(m.end() for m in re.finditer(r"\r\n|\n|\r", text))]
        self.metadata: tuple[str, int] | None = None
        self.items: list[Token] = list(islice(self._tokens(), MAX_TOKENS + 1))
        if len(self.items) > MAX_TOKENS:
            raise ParseError(f"the text has more than {MAX_TOKENS} tokens, which are not read")
        self.closing = self._matched()

    def span(self, start: int, end: int) -> Span:
        """Return the span of the characters from one offset to another."""
        line = bisect.bisect_right(self._lines, start)
        last = bisect.bisect_right(self._lines, max(start, end - 1))
        return Span(
            self.source,
            line,
            start - self._lines[line - 1] + 1,
            last,
            end - self._lines[last - 1] + 1,
        )

    def error(self, start: int, end: int, message: str, rule: str, hint: str = "") -> ParseError:
        """Return the error for a range of characters."""
        return ParseError(message, rule=rule, span=self.span(start, end), hint=hint or None)

    def _tokens(self) -> Iterator[Token]:
        text, position, newline, previous = self.text, 0, True, ""
        while position < len(text):
            if position > MAX_CHARACTERS:
                raise ParseError(
                    f"the program has more than {MAX_CHARACTERS} characters, which are not read"
                )
            match = _TOKEN.match(text, position)
            if previous == "." and text[position].isdigit():
                match = _INDEX.match(text, position)
            kind = None if match is None else (match.lastgroup or "number")
            if match is None or kind is None:
                raise self._unreadable(position)
            start, position = position, match.end()
            if kind == "newline":
                newline = True
            elif kind == "block":
                position = self._end_of_comment(start)
                newline = newline or "\n" in text[start:position]
            elif kind == "header":
                if "metadata" in match[0]:
                    self.metadata = text[position:], position
                    return
            elif kind not in ("blank", "comment"):
                previous = match[0]
                yield Token(kind, previous, start, position, newline)
                newline = False

    def _end_of_comment(self, start: int) -> int:
        depth = 0
        for sign in _COMMENT_SIGN.finditer(self.text, start):
            depth += 1 if sign[0] == "/*" else -1
            if depth == 0:
                return sign.end()
        raise self.error(start, start + 2, "this comment does not end", "RLY-61")

    def _unreadable(self, position: int) -> ParseError:
        text = self.text
        character = text[position]
        if character in "%@":
            found = re.compile(r"[%@][^\s(){}\[\],;]*").match(text, position)
            name = character if found is None else found[0]
            return self.error(
                position,
                position + len(name),
                f"{name} is not a name",
                "RLY-60",
                "a name is a letter or _, then letters, digits and _",
            )
        if character == '"':
            return self.error(position, position + 1, "this string does not end", "RLY-71")
        if character.isdigit():
            found = re.compile(r"[0-9A-Za-z_.]+").match(text, position)
            end = position + 1 if found is None else found.end()
            return self.error(
                position,
                end,
                f"{text[position:end]} is not a number",
                "RLY-62",
                "suffixes are i, i16, i32, i64, f, f16, f32 and f64",
            )
        hints = {"&": "the sign is &&", "|": "the sign is ||"}
        return self.error(
            position,
            position + 1,
            f"unexpected character {character!r}",
            "RLY-58",
            hints.get(character, ""),
        )

    def _matched(self) -> dict[int, int]:
        """Return the index of the closing bracket of each opening one."""
        closing: dict[int, int] = {}
        open_: list[int] = []
        for index, token in enumerate(self.items):
            if token.kind != "sign":
                continue
            if token.text in _CLOSING:
                open_.append(index)
            elif token.text in ")]}":
                if not open_:
                    raise self.error(
                        token.start, token.end, f"{token.text} closes nothing", "RLY-58"
                    )
                first = self.items[open_[-1]]
                if _CLOSING[first.text] != token.text:
                    line = self.span(first.start, first.end).line
                    raise self.error(
                        token.start,
                        token.end,
                        f"{token.text} does not close the {first.text} of line {line}",
                        "RLY-58",
                        f"expected {_CLOSING[first.text]}",
                    )
                closing[open_.pop()] = index
        if open_:
            token = self.items[open_[-1]]
            raise self.error(token.start, token.end, f"this {token.text} is not closed", "RLY-58")
        return closing
