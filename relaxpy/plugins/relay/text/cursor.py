"""Tokens of Relay text, a position in them, and the names that are in scope there."""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from relaxpy.errors import Diagnostic, ParseError, RelaxpyError, Source, Span, close_names
from relaxpy.ir.core.budget import MAX_CHARACTERS, MAX_TOKENS, Budget, Task
from relaxpy.plugins.relay import expr as rl, ty

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


T = TypeVar("T")


class Scope:
    """The names of the module, and of the definition that is being read.

    `diagnostics` collects undefined names, after which reading goes on.
    """

    def __init__(self) -> None:
        self.data_types: dict[str, ty.GlobalTypeVar] = {}
        self.arities: dict[str, int] = {}
        #: The type that the bare name of a data type means in its own constructors (RLY-77).
        self.declared: ty.TypeCall | None = None
        self.constructors: dict[str, rl.Constructor] = {}
        self.globals: dict[str, rl.GlobalVar] = {}
        self.type_params: dict[str, ty.TypeVar] = {}
        self.locals: dict[str, rl.Var] = {}
        self.graph: dict[str, rl.RelayExpr] = {}
        self.constants: list[rl.Constant] = []
        self.diagnostics: list[Diagnostic] = []

    @contextmanager
    def nested(self, variables: Iterable[rl.Var] = ()) -> Iterator[dict[str, rl.Var | None]]:
        """Open a scope of locals; the yielded table has those that it hides."""
        hidden: dict[str, rl.Var | None] = {}
        try:
            for variable in variables:
                self.bind(variable, hidden)
            yield hidden
        finally:
            for name, old in hidden.items():
                if old is None:
                    del self.locals[name]
                else:
                    self.locals[name] = old

    def bind(self, variable: rl.Var, hidden: dict[str, rl.Var | None]) -> None:
        """Make a variable visible until the scope of `hidden` ends."""
        name = variable.name_hint
        hidden.setdefault(name, self.locals.get(name))
        self.locals[name] = variable

    @contextmanager
    def with_type_params(self, params: Iterable[ty.TypeVar]) -> Iterator[None]:
        """Open a scope of type parameters."""
        table = self.type_params
        new = {param.name_hint: param for param in params}
        hidden = {name: table[name] for name in new if name in table}
        table.update(new)
        try:
            yield
        finally:
            for name in new:
                del table[name]
            table.update(hidden)

    @contextmanager
    def definition(self) -> Iterator[None]:
        """Open the scope of the graph bindings of a definition (RLY-79)."""
        outer, self.graph = self.graph, {}
        try:
            yield
        finally:
            self.graph = outer


class Cursor:
    """The next token, and the checks of what may stand there."""

    def __init__(self, tokens: Tokens, budget: Budget) -> None:
        self.tokens = tokens
        self.budget = budget
        self.items = tokens.items
        self.index = 0
        end = len(tokens.text.rstrip())
        self.end_token = Token("end", "the end of the text", max(end - 1, 0), max(end, 1), True)

    @property
    def token(self) -> Token:
        """The next token."""
        return self.items[self.index] if self.index < len(self.items) else self.end_token

    def peek(self, distance: int = 1) -> Token:
        """Return the token after the next, or one further away."""
        index = self.index + distance
        return self.items[index] if index < len(self.items) else self.end_token

    def at(self, *texts: str) -> bool:
        """Return whether the next token is one of these signs or names."""
        token = self.token
        return token.text in texts and token.kind in ("sign", "name")

    def take(self) -> Token:
        """Return the next token, and move past it."""
        token = self.token
        self.index += 1
        return token

    def accept(self, text: str) -> bool:
        """Move past the next token if it is `text`; return whether it was."""
        if self.at(text):
            self.index += 1
            return True
        return False

    def expect(self, text: str, rule: str, where: str = "") -> Token:
        """Move past `text`.

        Errors:
            ParseError: something else stands there.
        """
        if not self.at(text):
            raise self.unexpected(f"`{text}`{' ' + where if where else ''}", rule)
        return self.take()

    def expect_kind(self, kind: str, what: str, rule: str) -> Token:
        """Return the next token and move past it, if it is of that kind.

        Errors:
            ParseError: it is not.
        """
        if self.token.kind != kind:
            raise self.unexpected(what, rule)
        return self.take()

    def unexpected(self, expected: str, rule: str, hint: str = "") -> ParseError:
        """Return the error for the next token."""
        token = self.token
        found = token.text if token.kind == "end" else f"{token.text!r:.60}"
        return self.error(token, f"expected {expected}, found {found}", rule, hint)

    def error(
        self, token: Token, message: str, rule: str, hint: str = "", last: Token | None = None
    ) -> ParseError:
        """Return the error for a token, or for the tokens up to `last`."""
        return self.tokens.error(token.start, (last or token).end, message, rule, hint)

    def span(self, first: Token, last: Token | None = None) -> Span:
        """Return the span from one token to another, or to the last one read."""
        final = last or self.items[max(self.index - 1, 0)]
        return self.tokens.span(first.start, max(final.end, first.end))

    def listed(self, closing: str, item: Callable[[], T], rule: str) -> list[T]:
        """Return the items up to the closing bracket, which may follow a comma (RLY-72)."""
        items: list[T] = []
        while not self.accept(closing):
            items.append(item())
            if not self.at(closing):
                self.expect(",", rule, f"or {closing}")
        return items

    def each(
        self, closing: str, item: Callable[[], Task[T]], rule: str
    ) -> Generator[Task[Any], Any, list[T]]:
        """Read items as `listed` does, which may contain items as deep as the text goes."""
        items: list[T] = []
        while not self.accept(closing):
            items.append((yield item()))
            if not self.at(closing):
                self.expect(",", rule, f"or {closing}")
        return items

    def located(self, first: Token, build: Callable[[], T]) -> T:
        """Return what `build` returns; its errors get the position from `first` to here."""
        try:
            return build()
        except RelaxpyError as error:
            raise error.located(self.span(first)) from None

    def undefined(
        self, scope: Scope, token: Token, what: str, known: Mapping[str, object], rule: str
    ) -> None:
        """Report a name that nothing defines."""
        hint = close_names(token.text.lstrip("%@"), known)
        if token.kind == "local" and self.token.text == "=":
            hint = f"a binding is written let {token.text} = value; body"
        scope.diagnostics.append(
            Diagnostic(f"{what} {token.text} is not defined", rule, self.span(token, token), hint)
        )
