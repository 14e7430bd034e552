"""The errors of a program, collected while it is parsed; and type parameters, `def f[n](...)`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, Protocol

from relaxpy.errors import Diagnostic, ParseError, RelaxpyError
from relaxpy.script.language.wording import as_parse_error
from relaxpy.script.parser.source.scope import POISON, Poisoned, Scope
from relaxpy.script.parser.source.text import Program, too_deep

MAX_ERRORS = 20


class TooManyErrors(Exception):  # noqa: N818
    """The program has MAX_ERRORS errors; parsing stops."""


class Report:
    """The errors found in a program so far."""

    def __init__(self) -> None:
        self.errors: list[RelaxpyError] = []

    def add(self, error: RelaxpyError) -> None:
        """Add an error."""
        self.errors.append(error)
        if len(self.errors) >= MAX_ERRORS:
            raise TooManyErrors

    def failure(self) -> RelaxpyError | None:
        """One error with all diagnostics, of the class of the first; None without errors."""
        if not self.errors:
            return None
        diagnostics: dict[Diagnostic, None] = {}
        for error in self.errors:
            diagnostics |= dict.fromkeys(error.diagnostics)
        kind = type(self.errors[0])
        return kind(list(diagnostics))


class Reading(Protocol):
    """The program and the scope of an evaluator."""

    program: Program
    scope: Scope


class Statements:
    """Parses statements one by one; an error in one is reported, and the next is parsed."""

    def __init__(self, reading: Reading, report: Report, *, in_macro: bool = False) -> None:
        self.reading = reading
        self.in_macro = in_macro
        self.report = report
        self.following: ast.stmt | None = None

    def read(
        self,
        nodes: Sequence[ast.stmt],
        statement: Callable[[ast.stmt], None],
        then: ast.stmt | None = None,
    ) -> None:
        """Parse `nodes` with `statement`; names bound by an erroneous one are poisoned.

        During a call, `following` is the next statement, which is `then` for the last one.
        """
        for node, self.following in zip_longest(nodes, nodes[1:], fillvalue=then):
            assert node is not None
            try:
                statement(node)
            except Poisoned:
                self.poison(node)
            except RecursionError:
                self.poison(node)
                if self.in_macro:  # a macro that uses itself, which is reported at its call
                    raise
                self.report.add(too_deep(self.reading.program, node))
            except RelaxpyError as error:
                self.poison(node)
                self.report.add(as_parse_error(error, self.reading.program.span(header(node))))

    def poison(self, node: ast.stmt) -> None:
        """Mark every name that `node` would have bound."""
        nested = (n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr))
        for name in (*bound_names(node), *nested):
            self.reading.scope.set(name, POISON)


def header(node: ast.stmt) -> ast.stmt | ast.expr:
    """The node at which a message about a statement points: without nested statements."""
    match node:
        case ast.If(test=test) | ast.While(test=test):
            return test
        case ast.For(iter=iter_):
            return iter_
        case ast.With(items=[item, *_]):
            return item.context_expr
        case _:
            return node


def bound_names(node: ast.stmt) -> Iterator[str]:
    """The names that a statement binds in its enclosing scope."""
    worklist: list[ast.expr]
    match node:
        case ast.Assign(targets=targets):
            worklist = list(targets)
        case ast.AnnAssign(target=bound) | ast.AugAssign(target=bound):
            worklist = [bound]
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
            return
        case ast.If() | ast.With() | ast.For():
            for inner in (*node.body, *getattr(node, "orelse", ())):
                yield from bound_names(inner)
            return
        case _:
            return
    while worklist:
        target = worklist.pop()
        if isinstance(target, ast.Name):
            yield target.id
        elif isinstance(target, (ast.Tuple, ast.List)):
            worklist += target.elts
        elif isinstance(target, ast.Starred):
            worklist.append(target.value)


_STATEMENTS: dict[type[ast.stmt], tuple[str, str]] = {
    ast.While: ("while", "use recursion: a function that calls itself in one branch of an if"),
    ast.For: ("for", "write the functions one by one, or create them in Python"),
    ast.AsyncFor: ("async for", "programs do not wait for anything"),
    ast.AsyncWith: ("async with", "programs do not wait for anything"),
    ast.AsyncFunctionDef: ("async def", "programs do not wait for anything"),
    ast.Try: ("try", "errors of a running program end it; check before with an if"),
    ast.TryStar: ("try", "errors of a running program end it; check before with an if"),
    ast.Raise: ("raise", "use R.assert_op(condition) or T.Assert"),
    ast.Import: ("import", "import at the top of the file; its names can be used here"),
    ast.ImportFrom: ("import", "import at the top of the file; its names can be used here"),
    ast.Global: ("global", "return new values instead"),
    ast.Nonlocal: ("nonlocal", "return new values instead"),
    ast.Delete: ("del", "values die after their last use by themselves"),
    ast.ClassDef: ("class", "put all functions in the class of one @I.ir_module"),
    ast.Assert: ("assert", "use R.assert_op(condition, message) in an impure function"),
    ast.AugAssign: ("an augmented assignment", ""),
    ast.Break: ("break", "a loop is unrolled as a whole: iterate over fewer values"),
    ast.Continue: ("continue", "a loop is unrolled: put the other statements into an if"),
    ast.Match: ("match", "use if and else"),
    ast.FunctionDef: (
        "a function",
        "define it outside; functions of Python are called as they are",
    ),
}


_IN_KERNELS: dict[type[ast.stmt], str] = {
    ast.Global: "keep what changes in a buffer",
    ast.Raise: "write assert condition, message",
}


def refusal(program: Program, node: ast.stmt, where: str) -> ParseError:
    """Create the error for a Python statement that is not part of the language at `where`."""
    name, hint = _STATEMENTS.get(type(node), (type(node).__name__, ""))
    if isinstance(node, ast.AugAssign):
        target = ast.unparse(node.target)
        value = ast.BinOp(ast.Name(target), node.op, node.value)
        hint = f"write {target} = {ast.unparse(value)}: variables are bound, never changed"
    if where == "a kernel":
        hint = _IN_KERNELS.get(type(node), hint)
    if isinstance(node, ast.FunctionDef):
        node = _keyword(node, "def")
    blocks = (ast.Try, ast.TryStar, ast.With, ast.ClassDef, ast.For, ast.While, ast.AsyncFor)
    if isinstance(node, blocks):
        node = _keyword(node, name)
    rule = "EV-24" if name == "try" and where != "a kernel" else None
    return program.error(node, f"{name} is not part of {where}", rule=rule, hint=hint or None)


def _keyword(node: ast.stmt, name: str) -> ast.stmt:
    """A node with the position of the keyword of a compound statement."""
    keyword = ast.Pass()
    keyword.lineno = keyword.end_lineno = node.lineno
    keyword.col_offset = node.col_offset
    keyword.end_col_offset = node.col_offset + len(name)
    return keyword


def docstring_removed(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements of a body without its docstring."""
    match body:
        case [ast.Expr(value=ast.Constant(value=str())), *rest]:
            return rest
        case _:
            return body


def type_parameters(
    node: ast.FunctionDef | ast.ClassDef, error: Callable[..., ParseError], report: Report
) -> list[str]:
    """The type parameters of a definition; errors in them are reported."""
    args = node.args if isinstance(node, ast.FunctionDef) else None
    taken = set() if args is None else {a.arg for a in (*args.posonlyargs, *args.args)}
    names: list[str] = []
    for param in getattr(node, "type_params", ()):
        name: str = param.name
        message, details = "", dict[str, Any]()
        if args is None:
            message = "the class of a module has no type parameters"
            details = {"rule": "SC-12", "hint": f"each function has its own: def f[{name}](...)"}
        elif type(param).__name__ in ("TypeVarTuple", "ParamSpec"):
            message = f"{name} is one shape variable, without a star"
            details = {"rule": "SC-12", "hint": f"[{name}] declares the shape variable {name}"}
        elif getattr(param, "bound", None) or getattr(param, "default_value", None):
            message = f"shape variable {name} is an int64 and has neither type nor default"
            details = {"rule": "PX-9", "hint": f"write [{name}]"}
        elif name in names or name in taken:
            other = "a shape variable" if name in names else "a parameter"
            message = f"{name} is the name of {other} already"
            details = {"rule": "SC-9"}
        if message:
            report.add(error(param, message, **details))
        if name not in names and name not in taken:
            names.append(name)
    return names
