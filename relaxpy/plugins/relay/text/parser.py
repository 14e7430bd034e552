"""Reading of a whole Relay text: data types, functions and an expression (RLY-58, RLY-59)."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from relaxpy.errors import Diagnostic, MisuseError, ParseError, RelaxpyError, check_type, unexpected
from relaxpy.ir.core.budget import Budget, run
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Node
from relaxpy.plugins.relay import expr as rl, ty
from relaxpy.plugins.relay.infer.whole_module import infer_module
from relaxpy.plugins.relay.module import RelayModule
from relaxpy.plugins.relay.text.cursor import MAX_DIMENSIONS, Cursor, Scope, Token, Tokens, Types
from relaxpy.plugins.relay.text.exprs import Exprs
from relaxpy.support.entry import user_facing
from relaxpy.support.gc_pause import gc_paused

_DECLARATIONS = {"def": "globalname", "data": "name", "type": "name"}


class Program(NamedTuple):
    """The content of a text; `expr` is the expression after the declarations."""

    functions: dict[rl.GlobalVar, rl.Function]
    data_types: list[ty.TypeData]
    expr: rl.RelayExpr | None


@user_facing
@gc_paused
def parse(
    source: str,
    source_name: str = "from_string",
    init_module: RelayModule | None = None,
    init_meta_table: Mapping[str, Sequence[object]] | None = None,
) -> RelayModule:
    """Read a module, check its types, and return it with types (`relay.parse`).

    The functions and data types of `init_module` are visible and part of the result. An expression
    after the declarations becomes the function `main` over its free variables.

    Errors:
        ParseError: the text is not a program, or a name is not defined; all such names are listed.
        RelayTypeError: the program is not well-typed.
    """
    check_type(init_module, RelayModule | None, "init_module is a module")
    budget = Budget()
    program = read(source, source_name, init_module, init_meta_table, budget)
    module = RelayModule() if init_module is None else init_module.clone()
    for data in program.data_types:
        module[data.header] = data
    for var, function in program.functions.items():
        module[var] = function
    if program.expr is not None:
        module = RelayModule.from_expr(program.expr, module.functions, module.type_definitions)
    return infer_module(module, budget)


def fromtext(source: str, source_name: str = "from_string") -> RelayModule:
    """Read a module as `parse` does."""
    return parse(source, source_name)


@user_facing
@gc_paused
def parse_expr(source: str) -> rl.RelayExpr:
    """Read an expression without checking its types; open literals get their default datatype.

    Errors:
        ParseError: the text is not an expression, or a name is not defined.
    """
    program = read(source, "from_string")
    if program.expr is not None:
        return with_default_literals(program.expr)
    if len(program.functions) == 1:
        return with_default_literals(next(iter(program.functions.values())))
    raise ParseError("expected an expression, found declarations only", rule="RLY-59")


def read(
    source: str,
    source_name: str,
    init_module: RelayModule | None = None,
    init_meta_table: Mapping[str, Sequence[object]] | None = None,
    budget: Budget | None = None,
) -> Program:
    """Read a text without checking its types."""
    check_type(source, str, "the source is a string")
    if "\0" in source:
        raise ParseError("the text contains a null character", rule="RLY-58")
    cursor = Cursor(Tokens(source, str(source_name)), budget or Budget())
    return _Reader(cursor, init_module, init_meta_table).program()


class _Declaration(NamedTuple):
    """A declaration of the module: its keyword, its name and the tokens that it consists of."""

    keyword: str
    name: Token
    first: int
    end: int


class _Reader:
    """A reader of one text."""

    def __init__(
        self,
        cursor: Cursor,
        module: RelayModule | None,
        meta_table: Mapping[str, Sequence[object]] | None,
    ) -> None:
        self.cursor = cursor
        self.scope = Scope()
        self.types = Types(self.cursor, self.scope)
        self.exprs = Exprs(self.cursor, self.scope, self.types)
        self.data: dict[str, ty.TypeData] = {}
        self.scope.constants = [*self._metadata(), *_constants(meta_table)]
        if module is not None:
            for header, data in module.type_definitions.items():
                self.scope.data_types[header.name_hint] = header
                self.scope.arities[header.name_hint] = len(data.type_vars)
            self.scope.constructors.update(module.constructors)
            self.scope.globals.update({v.name_hint: v for v in module.get_global_vars()})

    def program(self) -> Program:
        """Read data types first, then the names of functions, then bodies (RLY-59)."""
        cursor, scope = self.cursor, self.scope
        declarations = list(self._declarations())
        end = cursor.index
        types = [d for d in declarations if d.keyword != "def"]
        functions = [d for d in declarations if d.keyword == "def"]
        for declaration in types:
            self._header(declaration)
        for declaration in types:
            self._recovering(declaration, self._constructors)
        scope.declared = None
        own: dict[str, Token] = {}
        for declaration in functions:
            name = declaration.name.text[1:]
            if name in own:
                line = cursor.span(own[name], own[name]).line
                self._report(declaration.name, f"@{name} is defined twice: also in line {line}")
            own[name] = declaration.name
            scope.globals[name] = rl.GlobalVar(
                name, span=cursor.span(declaration.name, declaration.name)
            )
        table: dict[rl.GlobalVar, rl.Function] = {}
        for declaration in functions:
            self._recovering(declaration, lambda d: table.update(self._function(d)))
        expr = None
        if end < len(cursor.items):
            cursor.index = end
            expr = self._expression()
        elif not declarations:
            raise ParseError("the text is empty", rule="RLY-59")
        if scope.diagnostics:
            raise ParseError(sorted(scope.diagnostics, key=_position))
        return Program(table, list(self.data.values()), expr)

    def _declarations(self) -> Iterator[_Declaration]:
        """Move past the declarations at the beginning of the text, and yield them."""
        cursor = self.cursor
        items, closing = cursor.items, cursor.tokens.closing
        while cursor.token.kind == "name":
            first = cursor.index
            external = cursor.at("extern") and cursor.peek().text == "type"
            keyword = items[first + external].text
            name = cursor.peek(1 + external)
            if name.kind != _DECLARATIONS.get(keyword):
                if keyword == "def":
                    cursor.take()
                    raise cursor.unexpected("a global name such as @f", "RLY-38")
                return
            index = first + external + 2
            if external:
                while index < len(items) and items[index].text in "[<":
                    index = self._after_params(index)
            else:
                while index < len(items) and items[index].text != "{":
                    index = closing.get(index, index) + 1
                if index >= len(items):
                    cursor.index = len(items)
                    raise cursor.unexpected(f"{{ of {name.text}", "RLY-59")
                index = closing[index] + 1
            cursor.index = index
            cursor.accept(";")
            yield _Declaration("extern" if external else keyword, name, first, index)

    def _after_params(self, index: int) -> int:
        """The index of the token after the type parameters at `index`."""
        items, closing = self.cursor.items, self.cursor.tokens.closing
        if index in closing:
            return closing[index] + 1
        while index < len(items) and items[index].text != ">":
            index += 1
        return index + 1

    def _recovering(self, declaration: _Declaration, read: object) -> None:
        """Read a declaration; its first syntax error does not hide those of other declarations."""
        self.cursor.index = declaration.first
        self.exprs.in_line = False
        self.scope.locals.clear()
        try:
            read(declaration)  # type: ignore[operator]
        except RelaxpyError as error:
            if any(d.span is None for d in error.diagnostics):
                error = error.located(self.cursor.span(declaration.name, declaration.name))
            if not isinstance(error, ParseError) and not self.scope.diagnostics:
                raise error from None
            self.scope.diagnostics += error.diagnostics

    def _report(self, token: Token, message: str, rule: str = "RLY-5") -> None:
        span = self.cursor.span(token, token)
        self.scope.diagnostics.append(Diagnostic(message, rule, span))

    def _header(self, declaration: _Declaration) -> None:
        """Enter the name of a data type and the number of its type parameters."""
        scope, name = self.scope, declaration.name.text
        if name in self.data or name in scope.data_types:
            self._report(declaration.name, f"two data types are called {name}", "RLY-95")
        span = self.cursor.span(declaration.name, declaration.name)
        scope.data_types[name] = header = ty.GlobalTypeVar(name, span=span)
        self.cursor.index = declaration.first + 2 + (declaration.keyword == "extern")
        params = self.types.type_params()
        scope.arities[name] = len(params)
        self.data[name] = ty.TypeData(header, params, (), span=span)  # type: ignore[arg-type]

    def _constructors(self, declaration: _Declaration) -> None:
        """Read the constructors of a data type in either format (RLY-77)."""
        cursor, scope, types = self.cursor, self.scope, self.types
        data = self.data[declaration.name.text]
        constructors: list[rl.Constructor] = []
        cursor.index = declaration.first + 2 + (declaration.keyword == "extern")
        types.type_params()
        if declaration.keyword == "extern":
            return
        result = ty.TypeCall(data.header, data.type_vars)
        with scope.with_type_params(data.type_vars):
            scope.declared = result if declaration.keyword == "data" else None
            cursor.expect("{", "RLY-77", "before the constructors")
            while not cursor.accept("}"):
                token = cursor.expect_kind("name", "the name of a constructor", "RLY-77")
                fields: list[ty.Type] = []
                if cursor.accept(":"):
                    cursor.expect("(", "RLY-77", "before the field types")
                    fields = cursor.listed(")", types.type, "RLY-77")
                    cursor.expect("->", "RLY-77", "and the data type")
                    arrow = cursor.token
                    declared = types.type()
                    if declared != result:
                        wrong = cursor.error(
                            arrow,
                            f"constructor {token.text} belongs to {result}, not to {declared}",
                            "RLY-31",
                            last=cursor.items[cursor.index - 1],
                        )
                        scope.diagnostics += wrong.diagnostics
                    cursor.accept(",")
                else:
                    if cursor.accept("("):
                        fields = cursor.listed(")", types.type, "RLY-77")
                    if not cursor.at("}"):
                        cursor.expect(",", "RLY-77", "or }")
                if token.text in scope.constructors:
                    self._report(token, f"two constructors are called {token.text}", "RLY-95")
                constructor = rl.Constructor(
                    token.text,
                    fields,  # type: ignore[arg-type]
                    data.header,
                    span=cursor.span(token, token),
                )
                scope.constructors[token.text] = constructor
                constructors.append(constructor)
        self.data[declaration.name.text] = ty.TypeData(
            data.header,
            data.type_vars,
            constructors,  # type: ignore[arg-type]
            span=data.span,
        )

    def _function(self, declaration: _Declaration) -> dict[rl.GlobalVar, rl.Function]:
        """Read a `def` (RLY-38)."""
        cursor = self.cursor
        cursor.index += 2
        with self.scope.definition():
            function = run(self.exprs.function(declaration.name))
        return {self.scope.globals[declaration.name.text[1:]]: function}

    def _expression(self) -> rl.RelayExpr | None:
        """Read the expression after the declarations, which ends the text."""
        cursor = self.cursor
        self.exprs.in_line = False
        self.scope.locals.clear()
        try:
            with self.scope.definition():
                expr = run(self.exprs.sequence())
            if cursor.index < len(cursor.items):
                raise cursor.unexpected("the end of the text", "RLY-59")
        except ParseError as error:
            self.scope.diagnostics += error.diagnostics
            return None
        return expr

    def _metadata(self) -> list[rl.Constant]:
        """The constants after `#[metadata]` (RLY-65)."""
        tokens = self.cursor.tokens
        if tokens.metadata is None:
            return []
        text, start = tokens.metadata
        try:
            table = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ParseError(
                f"the metadata is not JSON: {error}",
                rule="RLY-65",
                span=tokens.span(start, start + 1),
            ) from None
        if not isinstance(table, dict):
            raise ParseError(
                "the metadata is a table of lists",
                rule="RLY-65",
                span=tokens.span(start, start + 1),
            )
        try:
            return _constants(table)
        except MisuseError as error:
            raise ParseError(
                error.diagnostic.message, rule="RLY-65", span=tokens.span(start, start + 1)
            ) from None


def _position(diagnostic: Diagnostic) -> tuple[int, int]:
    span = diagnostic.span
    return (0, 0) if span is None else (span.line, span.column)


def _constants(table: Mapping[str, Sequence[object]] | None) -> list[rl.Constant]:
    """The entries of `relay.Constant` in a metadata table."""
    if table is None:
        return []
    entries = table.get("relay.Constant", ()) if isinstance(table, Mapping) else None
    if not isinstance(entries, (list, tuple)):
        raise MisuseError("the metadata is a table of lists", rule="RLY-65", about=table)
    return [_constant(entry) for entry in entries]


def _constant(entry: object) -> rl.Constant:
    if isinstance(entry, rl.Constant):
        return entry
    if isinstance(entry, np.ndarray):
        return rl.Constant(entry)
    match entry:
        case {"dtype": str() as name, "shape": list() as shape, "data": str() as text}:
            if not all(type(dim) is int and 0 <= dim < 1 << 40 for dim in shape):
                raise MisuseError("a shape consists of integers >= 0", rule="RLY-65")
            element = DataType(name)
            if element.lanes != 1 or element.family == "handle" or not str(element):
                raise MisuseError(f"no tensor has the datatype {name!r}", rule="RLY-65")
            if len(shape) > MAX_DIMENSIONS:
                raise MisuseError(f"a shape has at most {MAX_DIMENSIONS} dimensions", rule="RLY-65")
            dtype = element.numpy()
            try:
                data = base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError):
                raise MisuseError("the data of an entry is not base64", rule="RLY-65") from None
            if math.prod(shape) * dtype.itemsize != len(data):
                raise MisuseError(f"{len(data)} bytes do not fill {shape} of {name}", rule="RLY-65")
            if not data and math.prod(dim or 1 for dim in shape) >= 1 << 62:
                raise MisuseError(f"no tensor has the shape {shape}", rule="RLY-65")
            return rl.Constant(np.frombuffer(data, dtype.newbyteorder("<")).reshape(shape))
        case _:
            raise unexpected(
                entry, "an entry of relay.Constant has dtype, shape and data", rule="RLY-65"
            )


def with_default_literals(expr: rl.RelayExpr) -> rl.RelayExpr:
    """An expression in which literals have their default datatypes."""

    def constant(node: Node) -> rl.Constant | None:
        return node.as_constant() if isinstance(node, rl.Literal) else None

    return rl.rewrite(expr, constant)
