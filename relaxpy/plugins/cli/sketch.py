"""Read programs with errors: replace ill-formed statements by placeholders."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from typing import Final

from relaxpy.errors import Diagnostic, RelaxpyError, Span
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.nodes import BaseFunc
from relaxpy.script.read import from_source
from relaxpy.support.dataclass import dataclass

#: How often a text is read again after statements were replaced.
_ROUNDS: Final = 40


def sketch(
    text: str, filename: str, extra_vars: Mapping[str, object] | None = None
) -> tuple[IRModule | BaseFunc | None, list[Diagnostic]]:
    """The program of a text, ill-formed or not, with the errors of the text.

    A statement that cannot be read is replaced by a call of a packed function, named after the
    statement's callee, on the variables that it uses; then by one without arguments, and then it is
    left out. The program is None if this does not help.
    """
    found: list[Diagnostic] = []
    replaced = _Replaced()
    for _ in range(_ROUNDS):
        try:
            program = from_source(text, extra_vars, False, filename=filename)
        except RelaxpyError as error:
            lines = {d.span.line for d in found if d.span}
            found += [d for d in error.diagnostics if not lines or _is_of_name(d, lines)]
            changed = replaced.without(text, [d.span for d in error.diagnostics if d.span])
            if changed == text:
                break
            text = changed
        else:
            return (program if isinstance(program, (IRModule, BaseFunc)) else None), found
    return None, found


@dataclass(slots=True)
class _Replaced:
    """How often the statement that begins at a line was replaced."""

    counts: dict[int, int] = field(default_factory=dict)

    def without(self, text: str, spans: list[Span]) -> str:
        """The text with other statements at these positions, on the same lines."""
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return text
        lines = text.split("\n")
        statements = {stmt.lineno: stmt for s in spans if (stmt := _statement(tree, s)) is not None}
        for line, stmt in statements.items():
            count = self.counts[line] = self.counts.get(line, 0) + 1
            first, last = line - 1, (stmt.end_lineno or line) - 1
            if isinstance(stmt, ast.If):
                last = (stmt.test.end_lineno or line) - 1
            before = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
            # The replacement has as many lines, so that all positions stay.
            new = _instead(stmt, _bound_names(tree), count)
            head, bracket, rest = new.rpartition("(" if "(" in new else new)
            lines[first] = before + head + bracket
            lines[first + 1 : last + 1] = [""] * (last - first)
            lines[last] += rest
        return "\n".join(lines)


def _is_of_name(diagnostic: Diagnostic, lines: Collection[int]) -> bool:
    """True if an error on another line is about a name, and not one of a replacement."""
    span = diagnostic.span
    return (diagnostic.rule or "").startswith("SC-") and span is not None and span.line not in lines


def _statement(tree: ast.Module, span: Span) -> ast.stmt | None:
    """The innermost statement of a function at a position; None in its signature or decorators."""
    best: ast.stmt | None = None
    for func in ast.walk(tree):
        for node in func.body if isinstance(func, ast.FunctionDef) else ():
            for inner in ast.walk(node):
                if isinstance(inner, ast.stmt) and not isinstance(
                    inner, ast.FunctionDef | ast.With
                ):
                    end = inner.test.end_lineno if isinstance(inner, ast.If) else inner.end_lineno
                    if inner.lineno <= span.line <= (end or inner.lineno):
                        best = inner
    return best


def _bound_names(tree: ast.Module) -> set[str]:
    """The variables and parameters of all functions."""
    names = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    stores = (n for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return names | {node.id for node in stores}


def _instead(stmt: ast.stmt, bound: set[str], count: int) -> str:
    """The `count`-th replacement of a statement, from 1."""
    match stmt:
        case ast.If() if count < 3:
            return 'if R.const(True, "bool"):'
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if count < 3:
            return f"{name} = {_call(value, bound, count)}"
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if count < 3:
            return f"{name} = {_call(value, bound, count)}"
        case ast.Return(value=ast.expr() as value) if count < 3:
            return f"return {_call(value, bound, count)}"
        case ast.Return():
            return "return R.tuple()"
        case _:
            return "pass"


def _call(value: ast.expr, bound: set[str], count: int) -> str:
    """A call of a packed function, named after an expression's callee."""
    used = dict.fromkeys(_used(value, bound)) if count == 1 else ()
    match value:
        case ast.Call(
            args=[ast.Constant(value=str(name)), *_], keywords=[ast.keyword("sinfo_args")]
        ):
            pass  # it was replaced before
        case _:
            name = ast.unparse(value.func if isinstance(value, ast.Call) else value)[:40]
    return f"R.call_pure_packed({', '.join([repr(name), *used])}, sinfo_args=[R.Object])"


def _used(value: ast.expr, bound: set[str]) -> Iterator[str]:
    for node in ast.walk(value):
        if isinstance(node, ast.Name) and node.id in bound:
            yield node.id
