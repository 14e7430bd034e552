"""Reading of expressions and patterns."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Final

import numpy as np

from relaxpy.errors import MisuseError
from relaxpy.ir.core.budget import MAX_DEPTH, Task
from relaxpy.plugins.relay import expr as rl, ty
from relaxpy.plugins.relay.op.registry import Op, is_op_name, list_op_names
from relaxpy.plugins.relay.text.cursor import Cursor, Literals, Scope, Token, Types

#: The binary signs, loosest first (RLY-69).
_SIGNS: Final[tuple[Mapping[str, str], ...]] = (
    {"||": "logical_or"},
    {"&&": "logical_and"},
    {"==": "equal", "!=": "not_equal"},
    {"<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"},
    {"+": "add", "-": "subtract"},
    {"*": "multiply", "/": "divide"},
)
#: The rule and the form of what begins with a keyword.
_FORMS: Final = {
    "let": ("RLY-4", "let %x = value; body: local names begin with %"),
    "free_var": ("RLY-80", "free_var %x: T; body: local names begin with %"),
    "if": ("RLY-50", "if (condition) { value } else { value }"),
    "match": ("RLY-78", "match (value) { pattern => value, pattern => value }"),
    "fn": ("RLY-11", "fn(%x) { body }"),
    "def": ("RLY-38", "def @f(%x) { body } before the expression"),
    "data": ("RLY-77", "data D { C : (T) -> D } before the expression"),
    "type": ("RLY-77", "type D { C(T) } before the expression"),
}
_LEVELS: Final = {sign: level for level, signs in enumerate(_SIGNS) for sign in signs}
_CALLEES: Final = {sign: name for signs in _SIGNS for sign, name in signs.items()}


class Exprs:
    """A reader of expressions at the position of a cursor.

    Its methods are tasks: they yield the expressions nested in brackets, so that depth is not
    limited by Python's stack.
    """

    def __init__(self, cursor: Cursor, scope: Scope, types: Types) -> None:
        self.cursor = cursor
        self.scope = scope
        self.types = types
        self.literals = Literals(cursor, scope, types)
        self.in_line = False
        """True if a line end may end the expression: that of a graph binding (RLY-79)."""

    def sequence(self) -> Task[rl.RelayExpr]:
        """Read bindings and the expression after them, up to where neither continues."""
        cursor, scope = self.cursor, self.scope
        outer, self.in_line = self.in_line, False
        lets: list[tuple[rl.Var, rl.RelayExpr, Token]] = []
        with scope.nested() as hidden:
            value: rl.RelayExpr
            while True:
                first = cursor.token
                if first.kind == "graph" and cursor.peek().text == "=":
                    yield from self._graph_binding()
                elif cursor.at("let") and cursor.peek().kind == "local":
                    lets.append((yield from self._let(hidden)))
                elif cursor.at("free_var") and cursor.peek().kind == "local":
                    self._free_var(hidden)
                else:
                    value = yield from self.expression()
                    if not cursor.accept(";"):
                        break
                    lets.append((rl.Var("_", span=cursor.span(first)), value, first))
        self.in_line = outer
        body = value
        for variable, bound, first in reversed(lets):
            body = rl.Let(variable, bound, body, span=cursor.span(first))
        return body

    def _let(
        self, hidden: dict[str, rl.Var | None]
    ) -> Generator[Task[Any], Any, tuple[rl.Var, rl.RelayExpr, Token]]:
        """`let %x [: T] = value;`; the value sees the variable if it is a function (RLY-43)."""
        cursor, scope = self.cursor, self.scope
        first = cursor.take()
        variable = self._variable()
        cursor.expect("=", "RLY-42", "and the value")
        if self._at_whole_function():
            scope.bind(variable, hidden)
        value = yield self.expression()
        cursor.expect(";", "RLY-42", "after the value of the let")
        scope.bind(variable, hidden)
        return variable, value, first

    def _variable(self) -> rl.Var:
        """`%x`, with `: T` where it is annotated."""
        cursor = self.cursor
        token = cursor.expect_kind("local", "a variable such as %x", "RLY-60")
        annotation = self.types.type() if cursor.accept(":") else None
        return rl.Var(token.text[1:], annotation, span=cursor.span(token, token))

    def _at_whole_function(self) -> bool:
        """True if the value at the cursor is a function expression and nothing else."""
        cursor = self.cursor
        items, closing = cursor.items, cursor.tokens.closing
        index, depth = cursor.index, 0
        while index < len(items) and items[index].text == "(":
            index, depth = index + 1, depth + 1
        if index >= len(items) or items[index].text != "fn":
            return False
        while index < len(items) and items[index].text != "{":
            index = closing.get(index, index) + 1
        index = closing.get(index, len(items)) + 1
        end = index + depth
        return (
            end < len(items)
            and items[end].text == ";"
            and all(token.text == ")" for token in items[index:end])
        )

    def _graph_binding(self) -> Generator[Task[Any], Any, None]:
        """`%1 = value`, which ends at `;` or at a line end (RLY-79)."""
        cursor, scope = self.cursor, self.scope
        token = cursor.take()
        cursor.expect("=", "RLY-47")
        if token.text in scope.graph:
            raise cursor.error(token, f"{token.text} is bound twice", "RLY-79")
        self.in_line = True
        value = yield from self.expression()
        self.in_line = False
        if not cursor.accept(";") and not cursor.token.newline:
            raise cursor.unexpected("; or a line end", "RLY-79")
        scope.graph[token.text] = value

    def _free_var(self, hidden: dict[str, rl.Var | None]) -> None:
        """`free_var %x : T;` (RLY-80)."""
        cursor = self.cursor
        cursor.take()
        variable = self._variable()
        cursor.expect(";", "RLY-80")
        self.scope.bind(variable, hidden)

    def expression(self) -> Task[rl.RelayExpr]:
        """Read operands joined by signs, which bind by their levels (RLY-69)."""
        cursor = self.cursor
        first = cursor.token
        operands = [(yield from self._operand())]
        signs: list[Token] = []
        while True:
            sign = cursor.token
            current = _LEVELS.get(sign.text, -1) if sign.kind == "sign" else -1
            if current >= 0 and self._begins_line(sign):
                current = -1
            while signs and _LEVELS[signs[-1].text] >= current:
                right = operands.pop()
                callee = Op.get(_CALLEES[signs.pop().text])
                operands[-1] = rl.Call(callee, (operands[-1], right), span=cursor.span(first))
            if current < 0:
                return operands[0]
            signs.append(cursor.take())
            operands.append((yield from self._operand()))

    def _begins_line(self, token: Token) -> bool:
        """True if a token begins an expression on a line of its own (RLY-79)."""
        if not (self.in_line and token.newline):
            return False
        if token.text == "-":
            return self.cursor.peek().kind == "number"
        if token.text == "!":
            return True
        return token.text in ("(", "{") or token.kind not in ("sign", "end")

    def _operand(self) -> Generator[Task[Any], Any, rl.RelayExpr]:
        """An atom with its calls and projections, after any number of `!`."""
        cursor = self.cursor
        negations = []
        while cursor.at("!"):
            negations.append(cursor.take())
        first = cursor.token
        value = yield from self._atom()
        while True:
            token = cursor.token
            if self._begins_line(token):
                break
            if cursor.at("("):
                value = yield from self._call(value, first, ())
            elif cursor.at("<") and (args := self.types.type_args()) is not None:
                value = yield from self._call(value, first, tuple(args))
            elif cursor.at(".") and cursor.peek().kind == "number":
                cursor.take()
                index = cursor.take()
                if len(index.text) > 9:
                    raise cursor.error(index, "this index is out of range", "RLY-41")
                value = rl.TupleGetItem(value, int(index.text), span=cursor.span(first))
            else:
                break
        for token in reversed(negations):
            value = rl.Call(Op.get("logical_not"), (value,), span=cursor.span(token))
        return value

    def _call(
        self, callee: rl.RelayExpr, first: Token, type_args: tuple[object, ...]
    ) -> Generator[Task[Any], Any, rl.RelayExpr]:
        """`(arguments, name=attribute)` after a callee (RLY-71)."""
        cursor = self.cursor
        opening = cursor.take()
        args: list[rl.RelayExpr] = []
        attrs: dict[str, object] = {}
        while not cursor.accept(")"):
            name = cursor.token
            if name.kind == "name" and cursor.peek().text == "=":
                self._attribute(callee, attrs)
            elif attrs:
                raise cursor.error(name, "an operand follows the attributes", "RLY-71")
            else:
                args.append((yield self.sequence()))
            if not cursor.at(")"):
                cursor.expect(",", "RLY-72", "or )")
        if attrs and not isinstance(callee, Op):
            raise cursor.error(opening, "only operators have attributes", "RLY-71")
        if isinstance(callee, Op):
            try:
                attrs = callee.record.text_attrs(attrs)
            except MisuseError as error:
                last = cursor.items[max(cursor.index - 1, 0)]
                raise cursor.error(first, error.diagnostic.message, "RLY-71", last=last) from None
        span = cursor.span(first)
        return rl.Call(callee, args, attrs, type_args, span=span)  # type: ignore[arg-type]

    def _attribute(self, callee: rl.RelayExpr, attrs: dict[str, object]) -> None:
        """Add `name=value` to `attrs`."""
        cursor = self.cursor
        name = cursor.take()
        cursor.take()
        value = self.literals.attribute_value()
        if name.text in attrs:
            raise cursor.error(name, f"the attribute {name.text} is given twice", "RLY-71")
        if isinstance(callee, Op):
            known, last = callee.record.attributes, cursor.items[cursor.index - 1]
            if name.text not in known:
                raise cursor.error(
                    name,
                    f"{callee.name} has no attribute {name.text}",
                    "RLY-71",
                    f"it has {', '.join(known)}" if known else "it has none",
                )
            try:
                callee.record.check_attribute(name.text, value)
            except MisuseError as error:
                raise cursor.error(name, error.diagnostic.message, "RLY-71", last=last) from None
        attrs[name.text] = value

    def _atom(self) -> Generator[Task[Any], Any, rl.RelayExpr]:
        """The expression at the cursor without calls and projections."""
        cursor, scope = self.cursor, self.scope
        token = cursor.token
        match token.kind:
            case "number":
                return self.literals.literal(token, negative=False)
            case "local":
                cursor.take()
                variable = scope.locals.get(token.text[1:])
                if variable is None:
                    cursor.undefined(scope, token, "the variable", scope.locals, "RLY-95")
                    variable = rl.Var(token.text[1:], span=cursor.span(token))
                return variable
            case "graph":
                cursor.take()
                if token.text not in scope.graph:
                    raise cursor.error(token, f"{token.text} is used before it is bound", "RLY-79")
                return scope.graph[token.text]
            case "globalname":
                cursor.take()
                name = token.text[1:]
                if name not in scope.globals:
                    cursor.undefined(scope, token, "the function", scope.globals, "RLY-95")
                    return rl.GlobalVar(name, span=cursor.span(token))
                return scope.globals[name]
            case "name":
                return (yield from self._named(token))
            case _:
                pass
        if cursor.at("("):
            return (yield from self._bracketed(token))
        if cursor.at("{"):
            cursor.take()
            value: rl.RelayExpr = yield self.sequence()
            cursor.expect("}", "RLY-73")
            return value
        if cursor.at("-") and cursor.peek().kind == "number":
            cursor.take()
            return self.literals.literal(token, negative=True)
        hint = "negative(x) is the opposite of x" if cursor.at("-") else ""
        raise cursor.unexpected("an expression", "RLY-1", hint)

    def _bracketed(self, first: Token) -> Generator[Task[Any], Any, rl.RelayExpr]:
        """`()`, `(e)` or a tuple (RLY-72)."""
        cursor = self.cursor
        cursor.take()
        fields: list[rl.RelayExpr] = []
        comma = False
        while not cursor.accept(")"):
            fields.append((yield self.sequence()))
            comma = cursor.accept(",")
            if not comma and not cursor.at(")"):
                raise cursor.unexpected(", or )", "RLY-72")
        if len(fields) == 1 and not comma:
            return fields[0]
        return rl.Tuple(fields, span=cursor.span(first))  # type: ignore[arg-type]

    def _named(self, token: Token) -> Generator[Task[Any], Any, rl.RelayExpr]:
        """A literal, a construct that begins with a keyword, a constructor or an operator."""
        cursor, scope = self.cursor, self.scope
        name, following = token.text, cursor.peek().text
        if name in scope.constructors:
            cursor.take()
            constructor = scope.constructors[name]
            if constructor.inputs or cursor.at("(") or cursor.at("<"):
                return constructor
            return rl.Call(constructor, (), span=cursor.span(token))
        if name in ("True", "False"):
            cursor.take()
            return rl.Constant(np.array(name == "True"), span=cursor.span(token))
        if name == "fn" and following in ("(", "<", "["):
            return (yield self.function(cursor.take()))  # type: ignore[no-any-return]
        if name == "if" and following == "(":
            return (yield from self._if(token))
        if name == "match" and following in ("(", "?"):
            return (yield from self._match(token))
        if name in ("ref", "ref_read", "ref_write") and following == "(":
            return (yield from self._cell(token))
        if name == "Constant" and following == "(":
            return self.literals.constant(cursor.take())
        if name == "meta" and following == "[":
            return self.literals.meta(cursor.take())
        if name in _FORMS:
            rule, form = _FORMS[name]
            if name == "let" and cursor.peek().kind == "graph":
                cursor.take()
                hint = f"write {cursor.token.text} = value without let, or let %x = value; body"
                raise cursor.unexpected("a name such as %x after let", "RLY-47", hint)
            raise cursor.unexpected("an expression", rule, f"write {form}")
        cursor.take()
        if is_op_name(name):
            return Op.get(name)
        known = {**scope.constructors, **dict.fromkeys(list_op_names())}
        cursor.undefined(scope, token, "the operator or constructor", known, "RLY-95")
        return rl.Var(name, span=cursor.span(token))

    def function(self, first: Token) -> Task[rl.Function]:
        """Read `[type parameters](parameters) [-> T] [where R] { body }`."""
        cursor, scope, types = self.cursor, self.scope, self.types
        type_params = types.type_params()
        with scope.with_type_params(type_params):
            opening = cursor.expect("(", "RLY-11", "before the parameters")
            params: list[rl.Var] = []
            attrs: dict[str, object] = {}
            while not cursor.accept(")"):
                token = cursor.token
                if token.kind == "name" and cursor.peek().text == "=":
                    cursor.index += 2
                    attrs[token.text] = self.literals.attribute_value()
                elif attrs:
                    raise cursor.error(token, "a parameter follows the attributes", "RLY-11")
                else:
                    params.append(self._variable())
                if not cursor.at(")"):
                    cursor.expect(",", "RLY-72", "or )")
            names = [p.name_hint for p in params]
            if len({*names}) < len(names):
                twice = next(n for n in names if names.count(n) > 1)
                raise cursor.error(opening, f"two parameters are called %{twice}", "RLY-85")
            result = types.type() if cursor.accept("->") else None
            constraints: list[ty.TypeRelation] = []
            if cursor.at("where"):
                params = [
                    p if p.type_annotation else rl.Var(p.name_hint, _hole(), span=p.span)
                    for p in params
                ]
                result = result or _hole()
                related = [p.type_annotation for p in params if p.type_annotation is not None]
                constraints = types.where(related, result)
            cursor.expect("{", "RLY-11", "and the body of the function")
            cursor.budget.depth -= 1
            if cursor.budget.depth < 0:
                raise cursor.error(first, f"functions nested more than {MAX_DEPTH} deep", "RLY-5")
            with scope.nested(params):
                body = yield self.sequence()
            cursor.budget.depth += 1
            cursor.expect("}", "RLY-11", "after the body of the function")
        span = cursor.span(first)
        return rl.Function(
            params, body, result, type_params, attrs, constraints=constraints, span=span
        )

    def _if(self, first: Token) -> Generator[Task[Any], Any, rl.RelayExpr]:
        """`if (c) { a } else { b }`, or a chain of these (RLY-50)."""
        cursor = self.cursor
        tests: list[tuple[rl.RelayExpr, rl.RelayExpr, Token]] = []
        while True:
            token = cursor.take()
            cursor.expect("(", "RLY-50", "before the condition")
            condition = yield self.sequence()
            cursor.expect(")", "RLY-50", "after the condition")
            tests.append((condition, (yield from self._block()), token))
            cursor.expect("else", "RLY-50", "branch, since if has a value")
            if not cursor.at("if"):
                break
        value: rl.RelayExpr = yield from self._block()
        for condition, branch, token in reversed(tests):
            value = rl.If(condition, branch, value, span=cursor.span(token))
        return value

    def _block(self) -> Generator[Task[Any], Any, rl.RelayExpr]:
        cursor = self.cursor
        cursor.expect("{", "RLY-50", "of a branch")
        value: rl.RelayExpr = yield self.sequence()
        cursor.expect("}", "RLY-50", "after the branch")
        return value

    def _match(self, first: Token) -> Generator[Task[Any], Any, rl.RelayExpr]:
        """`match (e) { … }` or `match? (e) { … }` in either format (RLY-78)."""
        cursor, scope = self.cursor, self.scope
        cursor.take()
        complete = not cursor.accept("?")
        cursor.expect("(", "RLY-78", "before the value")
        data = yield self.sequence()
        cursor.expect(")", "RLY-78", "after the value")
        cursor.expect("{", "RLY-78", "before the clauses")
        clauses: list[rl.Clause] = []
        while not cursor.accept("}"):
            token = cursor.token
            others = ("=>", ",", *(("(",) if "case" in scope.constructors else ()))
            case = cursor.at("case") and cursor.peek().text not in others
            if case:
                cursor.take()
            variables: dict[str, rl.Var] = {}
            pattern = yield self.pattern(variables)
            if not case:
                cursor.expect("=>", "RLY-78", "after the pattern")
            with scope.nested(variables.values()):
                if case:
                    cursor.expect("{", "RLY-78", "before the clause")
                    value = yield self.sequence()
                    cursor.expect("}", "RLY-78", "after the clause")
                    cursor.accept(",")
                else:
                    value = yield self.sequence()
                    if not cursor.at("}"):
                        cursor.expect(",", "RLY-78", "after the clause")
            clauses.append(rl.Clause(pattern, value, span=cursor.span(token)))
        span = cursor.span(first)
        return rl.Match(data, clauses, complete, span=span)  # type: ignore[arg-type]

    def pattern(self, variables: dict[str, rl.Var]) -> Task[rl.Pattern]:
        """Read the pattern at the cursor, and add its variables (RLY-78, RLY-92)."""
        cursor, scope = self.cursor, self.scope
        first = cursor.token
        if first.kind == "local":
            variable = self._variable()
            if variable.name_hint in variables:
                raise cursor.error(first, f"the pattern binds {first.text} twice", "RLY-92")
            variables[variable.name_hint] = variable
            return rl.PatternVar(variable, span=cursor.span(first))
        if cursor.accept("_"):
            return rl.PatternWildcard(span=cursor.span(first))
        if cursor.accept("("):
            patterns = yield from cursor.each(")", lambda: self.pattern(variables), "RLY-78")
            if len(patterns) == 1 and cursor.items[cursor.index - 2].text != ",":
                return patterns[0]
            return rl.PatternTuple(patterns, span=cursor.span(first))  # type: ignore[arg-type]
        if first.kind != "name":
            raise cursor.unexpected("a pattern", "RLY-78")
        cursor.take()
        constructor = scope.constructors.get(first.text)
        inner: list[rl.Pattern] = []
        if cursor.accept("("):
            inner = yield from cursor.each(")", lambda: self.pattern(variables), "RLY-78")
        if constructor is None:
            cursor.undefined(scope, first, "the constructor", scope.constructors, "RLY-95")
            return rl.PatternWildcard(span=cursor.span(first))
        return rl.PatternConstructor(constructor, inner, span=cursor.span(first))  # type: ignore[arg-type]

    def _cell(self, first: Token) -> Generator[Task[Any], Any, rl.RelayExpr]:
        """`ref(e)`, `ref_read(e)` or `ref_write(e, v)` (RLY-81)."""
        cursor = self.cursor
        cursor.take()
        cursor.take()
        args = []
        while not cursor.accept(")"):
            args.append((yield self.sequence()))
            if not cursor.at(")"):
                cursor.expect(",", "RLY-72", "or )")
        expected = 2 if first.text == "ref_write" else 1
        if len(args) != expected:
            raise cursor.error(
                first,
                f"{first.text} takes {expected} operand{'s' * (expected > 1)}, found {len(args)}",
                "RLY-81",
                last=cursor.items[cursor.index - 1],
            )
        kinds = {"ref": rl.RefCreate, "ref_read": rl.RefRead, "ref_write": rl.RefWrite}
        cell: rl.RelayExpr = kinds[first.text](*args, span=cursor.span(first))
        return cell


def _hole() -> ty.IncompleteType:
    return ty.IncompleteType()
