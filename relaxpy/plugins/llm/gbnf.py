"""Grammars of llama.cpp (GBNF) in the syntax of llguidance, which is that of Lark.

A rule that refers to no recursive rule is a regular expression, which becomes one terminal,
unchanged; so do the regular neighbours of a sequence. Such a terminal takes as much as it can.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from itertools import groupby
from typing import Any, Final, TypeAlias

from relaxpy.plugins.llm.config import ParameterError

_TOKENS: Final = re.compile(
    r"""(?P<space>[ \t]+|\#[^\r\n]*)|(?P<line>\r\n|\r|\n)|(?P<define>::=)|(?P<name>[\w-]+)"""
    r"""|(?P<text>"(?:[^"\\]|\\.)*")|(?P<chars>\[\^?(?:[^\]\\]|\\.)+\])"""
    r"""|(?P<count>\{\s*\d{1,6}\s*(?:,\s*(?:\d{1,6})?\s*)?\})|(?P<sign>[()|*+?.])""",
    re.DOTALL,
)
_ESCAPED: Final = re.compile(
    r"\\(?:([nrt])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([\"\\\[\]^-]))|([^\\])",
    re.DOTALL,
)
_DEEPEST: Final = 100
"""The most groups within each other."""
_LARGEST: Final = 5000
"""The texts and classes of a rule, written out, up to which it is a terminal."""
_MOST_USES: Final = 250
"""The uses of rules that are not: a token takes the cube of those that are alternatives."""
Node: TypeAlias = tuple[str, Any]
"""Its kind and contents: a regular "text", a "ref" to a rule, a "seq", an "alt", or a "rep"."""
_EMPTY: Final[Node] = ("text", '""')


def lark_of_gbnf(text: str) -> str:
    """The grammar with other syntax. Errors: ParameterError, with the line and the column."""
    rules = _Parser(text).rules()
    regular = _regular(rules)
    others = [node for name, node in rules.items() if name not in regular]
    if sum(name not in regular for node in others for name in _references(node)) > _MOST_USES:
        message = f"grammar: it has more than {_MOST_USES} uses of recursive or large rules"
        raise ParameterError(message, param="grammar")
    names = {name: f"{'T' if name in regular else 'r'}{k}" for k, name in enumerate(rules)}
    writer = _Writer(names, regular)
    lines = [f"start: {names['root']}"]
    lines += [f"{names[name]}: {writer.written(node)}" for name, node in rules.items()]
    return "\n".join([*lines, *writer.terminals])


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.at, self.depth = text, 0, 0
        self.uses: dict[str, int] = {}
        """Where each name is used first."""
        self._next()

    def _error(self, message: str, at: int | None = None) -> ParameterError:
        at = self.at if at is None else at
        line, before = self.text.count("\n", 0, at) + 1, self.text.rfind("\n", 0, at)
        place = f"line {line}, column {at - before}"
        return ParameterError(f"grammar: {place}: {message}", param="grammar")

    def _next(self, *, over_lines: bool = False) -> None:
        """Go to the next token that is not a space or, within groups, the end of a line."""
        while True:
            match = _TOKENS.match(self.text, self.at)
            if match is None:
                self.kind, self.own = "end", ""
                if self.at < len(self.text):
                    raise self._error(f"unexpected {self.text[self.at : self.at + 20]!r}")
                return
            self.kind, self.own = str(match.lastgroup), match[0]
            if self.kind != "space" and not (self.kind == "line" and (over_lines or self.depth)):
                self.after = match.end()
                return
            self.at = match.end()

    def _advance(self, *, over_lines: bool = False) -> str:
        own, self.at = self.own, self.after
        self._next(over_lines=over_lines)
        return own

    def rules(self) -> dict[str, Node]:
        """The rules by their names."""
        found: dict[str, Node] = {}
        self._next(over_lines=True)
        while self.kind != "end":
            name, at = self.own, self.at
            if self.kind != "name":
                raise self._error(f"expected the name of a rule, found {name[:20]!r}")
            if name in found:
                raise self._error(f"there are two rules {name!r:.60}")
            self._advance()
            if self.kind != "define":
                raise self._error(f"expected ::= after {name!r:.60}")
            self._advance(over_lines=True)
            found[name] = self._alternatives()
            if self.kind not in {"line", "end"}:
                raise self._error(f"unexpected {self.own[:20]!r}")
            self._next(over_lines=True)
        for name, at in self.uses.items():
            if name not in found:
                raise self._error(f"there is no rule {name!r:.60}", at)
        if "root" not in found:
            raise self._error("there is no rule 'root'")
        return found

    def _alternatives(self) -> Node:
        found = [self._sequence()]
        while self.own == "|":
            self._advance(over_lines=True)
            found.append(self._sequence())
        return found[0] if len(found) == 1 else ("alt", found)

    def _sequence(self) -> Node:
        found: list[Node] = []
        while True:
            match self.kind, self.own:
                case "text", own:
                    found.append(("text", self._quoted(own)))
                case "chars", own:
                    found.append(("text", self._class(own)))
                case "name", name:
                    self.uses.setdefault(name, self.at)
                    found.append(("ref", name))
                case "sign", ".":
                    found.append(("text", "/(?s:.)/"))
                case "sign", "(":
                    found.append(self._group())
                case ("sign", "*" | "+" | "?") | ("count", _) if found and found[-1][0] != "rep":
                    found[-1] = ("rep", (found[-1], "".join(self.own.split())))
                case _:
                    return found[0] if len(found) == 1 else ("seq", found) if found else _EMPTY
            self._advance()

    def _group(self) -> Node:
        at = self.at
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self._error(f"more than {_DEEPEST} groups are within each other")
        self._advance()
        found = self._alternatives()
        if self.own != ")":
            raise self._error("this group has no end", at)
        self.depth -= 1
        return ("seq", [found]) if found[0] == "rep" else found

    def _characters(self, text: str, first: int) -> Iterator[tuple[str, bool]]:
        """The characters that a text means, and whether each is written with a backslash."""
        at = 0
        while at < len(text):
            match = _ESCAPED.match(text, at)
            if match is None:
                raise self._error(f"unknown escape {text[at : at + 2]!r}", first + at)
            letter, *codes, own, plain = match.groups()
            code = int(next((code for code in codes if code), "0"), 16)
            if code > 0x10FFFF or 0xD800 <= code < 0xE000:
                raise self._error(f"{match[0]} is not a character", first + at)
            special = {"n": "\n", "r": "\r", "t": "\t"}.get(letter)
            yield own or plain or special or chr(code), plain is None
            at = match.end()

    def _quoted(self, own: str) -> str:
        return json.dumps("".join(c for c, _ in self._characters(own[1:-1], self.at + 1)))

    def _class(self, own: str) -> str:
        is_negated = own.startswith("[^")
        inner = own[1 + is_negated : -1]
        listed = list(self._characters(inner, self.at + 1 + is_negated))
        ranges, k = "", 0
        while k < len(listed):
            low = high = listed[k][0]
            if listed[k + 1 : k + 2] == [("-", False)] and k + 2 < len(listed):
                high = listed[k + 2][0]
                k += 2
            if high < low:
                raise self._error(f"the range from {low!r} to {high!r} has no characters")
            ranges += rf"\x{{{ord(low):x}}}-\x{{{ord(high):x}}}"
            k += 1
        return f"/[{'^' * is_negated}{ranges}]/"


def _references(node: Node) -> Iterator[str]:
    match node:
        case "ref", name:
            yield name
        case "rep", (inner, _):
            yield from _references(inner)
        case "seq" | "alt", nodes:
            for inner in nodes:
                yield from _references(inner)
        case _:
            pass


def _size(node: Node, sizes: dict[str, int]) -> int:
    """The number of texts and classes in a node, written out."""
    match node:
        case "ref", name:
            return sizes[name]
        case "rep", (inner, _):
            return _size(inner, sizes)
        case "seq" | "alt", nodes:
            return sum(_size(inner, sizes) for inner in nodes)
        case _:
            return 1


def _regular(rules: dict[str, Node]) -> set[str]:
    """The rules that refer to no rule that is recursive, and are not large when written out."""
    order = TopologicalSorter({name: set(_references(node)) for name, node in rules.items()})
    with suppress(CycleError):  # rules before those of cycles come nevertheless
        order.prepare()
    sizes: dict[str, int] = {}
    while ready := order.get_ready():
        for name in ready:
            if (size := _size(rules[name], sizes)) <= _LARGEST:
                sizes[name] = size
                order.done(name)
    return set(sizes)


class _Writer:
    def __init__(self, names: dict[str, str], regular: set[str]) -> None:
        self.names, self.regular = names, regular
        self.terminals: list[str] = []

    def _is_regular(self, node: Node) -> bool:
        return all(name in self.regular for name in _references(node))

    def written(self, node: Node) -> str:
        """The text of a node. Regular neighbours in others become terminals of their own."""
        is_regular = self._is_regular(node)
        match node:
            case "text", text:
                return str(text)
            case "ref", name:
                return self.names[name]
            case "rep", (inner, count):
                return f"({self.written(inner)}){count}"
            case "alt", nodes:
                whole = [self.written(one) if is_regular else self._joined([one]) for one in nodes]
                return f"({' | '.join(whole)})"
            case _, nodes:
                return " ".join(map(self.written, nodes)) if is_regular else self._joined(nodes)

    def _joined(self, nodes: list[Node]) -> str:
        """The text of a sequence that is within a rule which is not regular."""
        found: list[str] = []
        for is_regular, own in groupby(nodes, self._is_regular):
            texts = [*map(self.written, own)]
            if is_regular:
                self.terminals.append(f"X{len(self.terminals)}: {' '.join(texts)}")
                texts = [f"X{len(self.terminals) - 1}"]
            found += texts
        return " ".join(found)
