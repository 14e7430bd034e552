"""A position in the tokens of a Relay text, and the names that are in scope there."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from relaxpy.errors import Diagnostic, ParseError, RelaxpyError, Span, close_names
from relaxpy.ir.core.budget import Budget, Task
from relaxpy.plugins.relay import expr as rl, ty
from relaxpy.plugins.relay.text.lexer import Token, Tokens

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
