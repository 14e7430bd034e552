"""Tokens of Relay text, a position in them, and reading of types, literals and attributes."""

from __future__ import annotations

import bisect
import json
import math
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from relaxpy.errors import (
    Diagnostic,
    MisuseError,
    ParseError,
    RelaxpyError,
    RelayTypeError,
    Source,
    Span,
    close_names,
)
from relaxpy.ir.core.budget import MAX_CHARACTERS, MAX_TOKENS, Budget, Task, run
from relaxpy.ir.core.dtype import Array, DataType
from relaxpy.plugins.relay import expr as rl, ty
from relaxpy.plugins.relay.op.relations import RELATIONS
from relaxpy.plugins.relay.text.printer import MAX_DIGITS

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
        """The span of the characters from one offset to another."""
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
        """The error for a range of characters."""
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
        """The index of the closing bracket of each opening one."""
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
        """The token after the next, or one further away."""
        index = self.index + distance
        return self.items[index] if index < len(self.items) else self.end_token

    def at(self, *texts: str) -> bool:
        """True if the next token is one of these signs or names."""
        token = self.token
        return token.text in texts and token.kind in ("sign", "name")

    def take(self) -> Token:
        """Move past the next token, and return it."""
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
        """Move past the next token and return it, if it is of that kind.

        Errors:
            ParseError: it is not.
        """
        if self.token.kind != kind:
            raise self.unexpected(what, rule)
        return self.take()

    def unexpected(self, expected: str, rule: str, hint: str = "") -> ParseError:
        """The error for the next token."""
        token = self.token
        found = token.text if token.kind == "end" else f"{token.text!r:.60}"
        return self.error(token, f"expected {expected}, found {found}", rule, hint)

    def error(
        self, token: Token, message: str, rule: str, hint: str = "", last: Token | None = None
    ) -> ParseError:
        """The error for a token, or for the tokens up to `last`."""
        return self.tokens.error(token.start, (last or token).end, message, rule, hint)

    def span(self, first: Token, last: Token | None = None) -> Span:
        """The span from one token to another, or to the last one read."""
        final = last or self.items[max(self.index - 1, 0)]
        return self.tokens.span(first.start, max(final.end, first.end))

    def listed(self, closing: str, item: Callable[[], T], rule: str) -> list[T]:
        """The items up to the closing bracket, which may follow a comma (RLY-72)."""
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
        """The result of `build`, whose errors get the position from `first` to here."""
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


_KINDS = {kind.name: kind for kind in list(ty.TypeKind)[:4]}
_WIDTHS = {"int": "int32", "uint": "uint32", "float": "float32"}
_MAX_DIGITS = 18


class Types:
    """A reader of types at the position of a cursor."""

    def __init__(self, cursor: Cursor, scope: Scope) -> None:
        self.cursor = cursor
        self.scope = scope

    def type(self) -> ty.Type:
        """The type at the cursor."""
        return run(self._type())

    def _type(self) -> Task[ty.Type]:
        cursor = self.cursor
        first = cursor.token
        if cursor.accept("("):
            return (yield from self._tuple())
        if first.kind != "name":
            raise cursor.unexpected("a type", "RLY-66")
        cursor.take()
        if first.text == "_":
            return ty.IncompleteType(span=cursor.span(first))
        if first.text in ("fn", "fun"):
            return (yield from self._function(first))
        if first.text == "ref" and cursor.at("("):
            cursor.take()
            value = yield self._type()
            cursor.expect(")", "RLY-66")
            return ty.RefType(value, span=cursor.span(first))
        if first.text == "Tensor" and cursor.at("["):
            return self._tensor(first)
        return (yield from self._named(first))

    def _tuple(self) -> Generator[Task[Any], Any, ty.Type]:
        cursor = self.cursor
        fields: list[ty.Type] = []
        comma = False
        while not cursor.accept(")"):
            fields.append((yield self._type()))
            comma = cursor.accept(",")
            if not comma and not cursor.at(")"):
                raise cursor.unexpected(", or )", "RLY-66")
        return fields[0] if len(fields) == 1 and not comma else ty.TupleType(fields)  # type: ignore[arg-type]

    def _function(self, first: Token) -> Generator[Task[Any], Any, ty.Type]:
        cursor = self.cursor
        params = self.type_params()
        with self.scope.with_type_params(params):
            cursor.expect("(", "RLY-66", "before the argument types")
            args = yield from cursor.each(")", self._type, "RLY-66")
            cursor.expect("->", "RLY-66", "and the result type")
            result = yield self._type()
            constraints = self.where(args, result) if cursor.at("where") else []
        return ty.FuncType(args, result, params, constraints, span=cursor.span(first))  # type: ignore[arg-type]

    def _tensor(self, first: Token) -> ty.Type:
        cursor = self.cursor
        cursor.expect("[", "RLY-66")
        shape = self._shape()
        cursor.expect(",", "RLY-66", "and the datatype")
        dtype = self._dtype()
        cursor.accept(",")
        cursor.expect("]", "RLY-66")
        return ty.TensorType(shape, dtype, span=cursor.span(first))

    def _shape(self) -> ty.Shape:
        cursor = self.cursor
        token = cursor.token
        if token.kind == "name":
            cursor.take()
            if token.text == "_":
                return ty.IncompleteType(ty.TypeKind.Shape)
            return self._parameter(token, ty.TypeKind.Shape)  # type: ignore[no-any-return]
        cursor.expect("(", "RLY-66", "of a shape, or a parameter of kind Shape")
        return tuple(cursor.listed(")", self.dim, "RLY-68"))

    def dim(self) -> ty.Dim:
        """The dimension at the cursor (RLY-68)."""
        cursor = self.cursor
        token = cursor.token
        if cursor.accept("?"):
            return ty.ANY
        if token.kind == "number" and token.text.isdigit():
            cursor.take()
            if len(token.text) > _MAX_DIGITS:
                raise cursor.error(token, "a dimension has at most 18 digits", "RLY-68")
            return int(token.text)
        if token.kind == "name":
            cursor.take()
            if token.text == "_":
                return ty.IncompleteType(ty.TypeKind.ShapeVar)
            return self._parameter(token, ty.TypeKind.ShapeVar)  # type: ignore[no-any-return]
        raise cursor.unexpected("a dimension", "RLY-68", "an integer, ? or a ShapeVar parameter")

    def _dtype(self) -> ty.Dtype:
        cursor = self.cursor
        token = cursor.expect_kind("name", "a datatype", "RLY-66")
        if token.text in self.scope.type_params:
            return self._parameter(token, ty.TypeKind.BaseType)  # type: ignore[no-any-return]
        if token.text == "_":
            return ty.IncompleteType(ty.TypeKind.BaseType)
        dtype = datatype(token.text)
        if dtype is None:
            raise cursor.error(token, f"{token.text} is not a datatype", "RLY-66")
        return dtype

    def _parameter(self, token: Token, kind: ty.TypeKind) -> Any:
        """The type parameter that a token names."""
        parameter = self.scope.type_params.get(token.text)
        if parameter is None:
            raise self.cursor.error(
                token, f"there is no type parameter {token.text} here", "RLY-95"
            )
        if parameter.kind is not kind:
            raise self.wrong_kind(token, parameter, kind)
        return parameter

    def wrong_kind(self, token: Token, found: ty.TypeVar, kind: ty.TypeKind) -> RelayTypeError:
        """The error for a type parameter where another kind is needed."""
        hints = {
            ty.TypeKind.BaseType: f"Tensor[(), {token.text}] is a scalar of this datatype",
            ty.TypeKind.Shape: f"Tensor[{token.text}, float32] is a tensor of this shape",
            ty.TypeKind.ShapeVar: f"Tensor[({token.text},), float32] has this dimension",
        }
        return RelayTypeError(
            f"expected {_described(kind)}, found {token.text}, which is of kind {found.kind.name}",
            rule="RLY-17",
            span=self.cursor.span(token, token),
            hint=hints.get(found.kind) if kind is ty.TypeKind.Type else None,
        )

    def _named(self, first: Token) -> Generator[Task[Any], Any, ty.Type]:
        cursor, scope = self.cursor, self.scope
        name = first.text
        if name in scope.type_params:
            return self._parameter(first, ty.TypeKind.Type)  # type: ignore[no-any-return]
        if name in scope.data_types:
            args: list[ty.Type] = []
            if cursor.accept("["):
                args = yield from cursor.each("]", self._type, "RLY-67")
            elif scope.declared is not None and name == scope.declared.func.name_hint:
                args = list(scope.declared.args)
            arity = scope.arities[name]
            if len(args) != arity:
                raise RelayTypeError(
                    f"the data type {name} takes {arity} type{'s' * (arity != 1)}, "
                    f"found {len(args)}",
                    rule="RLY-67",
                    span=cursor.span(first),
                )
            return ty.TypeCall(scope.data_types[name], args, span=cursor.span(first))  # type: ignore[arg-type]
        dtype = datatype(name)
        if dtype is not None:
            return ty.TensorType((), dtype, span=cursor.span(first))
        known = {**scope.type_params, **scope.data_types}
        cursor.undefined(scope, first, "the type", known, "RLY-95")
        if cursor.at("["):
            cursor.index = cursor.tokens.closing[cursor.index] + 1
        return ty.IncompleteType(span=cursor.span(first))

    def type_params(self) -> list[ty.TypeVar]:
        """The type parameters at the cursor, if there are any (RLY-74)."""
        cursor = self.cursor
        if not cursor.at("<", "["):
            return []
        closing = ">" if cursor.take().text == "<" else "]"
        names: dict[str, ty.TypeVar] = {}

        def parameter() -> None:
            token = cursor.expect_kind("name", "the name of a type parameter", "RLY-74")
            if token.text in names:
                raise cursor.error(token, f"two type parameters are called {token.text}", "RLY-74")
            kind = ty.TypeKind.Type
            if cursor.accept(":"):
                word = cursor.expect_kind("name", "a kind", "RLY-17")
                if word.text not in _KINDS:
                    raise cursor.error(
                        word,
                        f"{word.text} is not a kind of type parameters",
                        "RLY-17",
                        f"kinds are {', '.join(_KINDS)}",
                    )
                kind = _KINDS[word.text]
            names[token.text] = ty.TypeVar(token.text, kind, span=cursor.span(token))

        cursor.listed(closing, parameter, "RLY-74")
        return list(names.values())

    def where(self, args: list[ty.Type], result: ty.Type) -> list[ty.TypeRelation]:
        """The relations of a `where` clause, over these types unless others are named."""
        cursor = self.cursor
        cursor.expect("where", "RLY-76")
        relations = []
        while True:
            token = cursor.expect_kind("name", "the name of a type relation", "RLY-76")
            if token.text not in RELATIONS:
                cursor.undefined(
                    self.scope, token, "the type relation", dict.fromkeys(RELATIONS), "RLY-95"
                )
            related = [*args, result]
            if cursor.accept("("):
                related = cursor.listed(")", self.type, "RLY-76")
            if not related:
                raise cursor.error(token, f"{token.text} relates no types", "RLY-76")
            relations.append(ty.TypeRelation(token.text, related, span=cursor.span(token)))  # type: ignore[arg-type]
            if not cursor.accept(",") or cursor.at("{"):
                return relations

    def type_arg(self) -> object:
        """The type argument at the cursor: a type, a shape or a dimension (RLY-75)."""
        cursor = self.cursor
        token = cursor.token
        if token.kind == "number" or token.text == "?":
            return self.dim()
        inner = cursor.peek()
        if cursor.at("(") and (inner.kind == "number" or inner.text == "?"):
            return self._shape()
        parameter = self.scope.type_params.get(token.text) if token.kind == "name" else None
        if parameter is not None:
            cursor.take()
            return parameter
        return self.type()

    def type_args(self) -> list[object] | None:
        """The type arguments at the cursor; None if `<` is a comparison (RLY-75)."""
        cursor = self.cursor
        start, known = cursor.index, len(self.scope.diagnostics)
        cursor.expect("<", "RLY-75")
        try:
            args = cursor.listed(">", self.type_arg, "RLY-75")
            if cursor.at("(") and args:
                return args
        except (ParseError, RelayTypeError):
            pass
        cursor.index = start
        del self.scope.diagnostics[known:]
        return None


def _described(kind: ty.TypeKind) -> str:
    return {
        ty.TypeKind.Type: "a type",
        ty.TypeKind.BaseType: "a datatype",
        ty.TypeKind.Shape: "a shape",
        ty.TypeKind.ShapeVar: "a dimension",
    }[kind]


def datatype(name: str) -> DataType | None:
    """The datatype of a name, or None; `int`, `uint` and `float` have 32 bits."""
    try:
        dtype = DataType(_WIDTHS.get(name, name))
    except MisuseError:
        return None
    return dtype if str(dtype) and dtype.family != "handle" else None


_SUFFIXES: Final = {"i": "int32", "f": "float32"} | {
    f"{letter}{bits}": f"{family}{bits}"
    for letter, family in (("i", "int"), ("f", "float"))
    for bits in (16, 32, 64)
}
_LITERALS: Final = {"True": True, "False": False, "None": None, "nullptr": None}
_MAX_DEPTH: Final = 50
MAX_DIMENSIONS: Final = 32
"""The dimensions of an array in every version of NumPy."""


class Literals:
    """A reader of literals at the position of a cursor."""

    def __init__(self, cursor: Cursor, scope: Scope, types: Types) -> None:
        self.cursor = cursor
        self.scope = scope
        self.types = types

    def attribute_value(self, depth: int = 0) -> object:
        """The value of an attribute: a number, Boolean, string, list or None."""
        cursor = self.cursor
        token = cursor.token
        if depth > _MAX_DEPTH:
            raise cursor.error(token, f"lists nested more than {_MAX_DEPTH} deep", "RLY-71")
        if cursor.accept("["):
            return tuple(cursor.listed("]", lambda: self.attribute_value(depth + 1), "RLY-71"))
        if cursor.at("meta"):
            return self._attribute_entry()
        if cursor.accept("("):
            return self._bracketed_attribute(depth + 1)
        if token.kind == "string":
            cursor.take()
            return self._string(token)
        if token.kind == "name" and token.text in _LITERALS:
            cursor.take()
            return _LITERALS[token.text]
        negative = cursor.accept("-")
        if cursor.token.kind == "number":
            value, _ = self._number(cursor.take(), negative=negative)
            return value
        if not negative and token.kind == "name" and datatype(token.text) is not None:
            cursor.take()
            return token.text
        raise cursor.unexpected("a number, Boolean, string, list or None", "RLY-71")

    def _attribute_entry(self) -> object:
        """An entry of the metadata: a number that no literal can write, or an array."""
        data = self.meta(self.cursor.take()).data
        return data.item() if data.ndim == 0 and data.dtype == "float64" else data

    def _bracketed_attribute(self, depth: int) -> object:
        cursor = self.cursor
        value = self.attribute_value(depth)
        if not cursor.at(","):
            cursor.expect(")", "RLY-71")
            return value
        cursor.take()
        return (value, *cursor.listed(")", lambda: self.attribute_value(depth), "RLY-71"))

    def _string(self, token: Token) -> str:
        try:
            text: str = json.loads(token.text, strict=False)
        except ValueError:
            raise self.cursor.error(
                token, "this string has an unknown escape", "RLY-71", "escapes are those of JSON"
            ) from None
        return text

    def _number(self, token: Token, *, negative: bool) -> tuple[int | float, DataType | None]:
        """The number of a token, and the datatype of its suffix (RLY-62)."""
        text = token.text
        letters = text.lstrip("0123456789.eE+-")
        suffix = letters if letters in _SUFFIXES else ""
        digits = text.removesuffix(suffix) if suffix else text
        whole = digits.isdigit()
        if len(digits) > MAX_DIGITS:
            message = f"this number has more than {MAX_DIGITS} digits"
            raise self.cursor.error(token, message, "RLY-62")
        value: int | float = int(digits) if whole else float(digits)
        value = -value if negative else value
        if not suffix:
            if isinstance(value, float) and not np.isfinite(value):
                raise self.cursor.error(token, f"{text} does not fit float64", "RLY-63")
            return value, None
        dtype = DataType(_SUFFIXES[suffix])
        if dtype.family == "float":
            with np.errstate(over="ignore"):
                rounded = float(np.array(_as_float(value), str(dtype)))
            if np.isfinite(rounded):
                return -0.0 if negative and not value else _as_float(value), dtype
        elif whole and -(1 << dtype.bits - 1) <= value < 1 << dtype.bits - 1:
            return value, dtype
        sign = "-" if negative else ""
        raise self.cursor.error(token, f"{sign}{digits} does not fit {dtype}", "RLY-62")

    def literal(self, first: Token, *, negative: bool) -> rl.RelayExpr:
        """A number, whose datatype is open if it has no suffix (RLY-63)."""
        cursor = self.cursor
        token = cursor.take()
        value, dtype = self._number(token, negative=negative)
        span = cursor.span(first)
        if dtype is not None:
            return rl.Constant(np.array(value, str(dtype)), span=span)
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise cursor.error(token, f"{value} does not fit int64", "RLY-63")
        return rl.Literal(value, span=span)

    def constant(self, first: Token) -> rl.Constant:
        """`Constant(value, shape, datatype)` (RLY-64)."""
        cursor = self.cursor
        cursor.expect("(", "RLY-64")
        value = cursor.token
        negative = cursor.accept("-")
        number: int | float | bool
        if cursor.at("True", "False"):
            number = cursor.take().text == "True"
        else:
            number, _ = self._number(
                cursor.expect_kind("number", "a number", "RLY-64"), negative=negative
            )
        cursor.expect(",", "RLY-64", "and the shape")
        cursor.expect("(", "RLY-64", "before the shape")
        shape = cursor.listed(")", self.types.dim, "RLY-64")
        cursor.expect(",", "RLY-64", "and the datatype")
        name = cursor.expect_kind("name", "a datatype", "RLY-64")
        dtype = datatype(name.text)
        cursor.accept(",")
        cursor.expect(")", "RLY-64")
        if dtype is None:
            raise cursor.error(name, f"{name.text} is not a datatype", "RLY-64")
        sizes = [d for d in shape if isinstance(d, int)]
        if len(sizes) < len(shape):
            raise cursor.error(first, "the shape of a constant consists of integers", "RLY-64")
        if len(sizes) > MAX_DIMENSIONS:
            raise cursor.error(
                first,
                f"a constant has at most {MAX_DIMENSIONS} dimensions, found {len(sizes)}",
                "RLY-64",
            )
        element = _element(number, dtype)
        if element is None:
            raise cursor.error(value, f"{number} does not fit {dtype}", "RLY-64")
        span = cursor.span(first)
        try:
            cursor.budget.spend_bytes(element.itemsize * math.prod(d or 1 for d in sizes))
        except ParseError as error:
            raise error.located(span) from None
        return rl.Constant(np.full(sizes, element), span=span)

    def meta(self, first: Token) -> rl.Constant:
        """`meta[relay.Constant][i]` (RLY-65)."""
        cursor = self.cursor
        cursor.expect("[", "RLY-65")
        kind = cursor.expect_kind("name", "the kind of the entry", "RLY-65")
        cursor.expect("]", "RLY-65")
        cursor.expect("[", "RLY-65")
        index = cursor.expect_kind("number", "the number of the entry", "RLY-65")
        cursor.expect("]", "RLY-65")
        constants = self.scope.constants
        if kind.text != "relay.Constant":
            raise cursor.error(
                kind, f"there is no table {kind.text}", "RLY-65", "the table is relay.Constant"
            )
        number = index.text.lstrip("0") or "0"
        if not index.text.isdigit() or len(number) > 9 or int(number) >= len(constants):
            raise cursor.error(
                index,
                f"there is no entry {index.text} among {len(constants)} constants",
                "RLY-65",
                "entries are listed after #[metadata], or passed as init_meta_table",
                last=index,
            )
        entry = constants[int(number)]
        return rl.Constant(entry.data, span=cursor.span(first))


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _element(value: float, dtype: DataType) -> Array | None:
    """`value` as an array of rank 0; None if it does not fit the datatype."""
    try:
        with np.errstate(all="ignore"):
            element = np.array(value, str(dtype))
    except (OverflowError, ValueError, TypeError):
        return None
    if dtype.family != "float" and element.item() != value:
        return None
    if np.isinf(element.astype("float64")) and np.isfinite(_as_float(value)):
        return None
    return element
