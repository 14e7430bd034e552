"""Resolve the names of a text by its syntax tree alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Final, TypeAlias

from relaxpy.errors import ParseError, Span
from relaxpy.plugins.cli.lsp.findings import MAX_CHARACTERS, NAMESPACES
from relaxpy.script import ir, relax, tir
from relaxpy.script.parser.graph.state import class_name_of, name_of
from relaxpy.script.parser.source import Positioned, Program, parse_text
from relaxpy.support.dataclass import dataclass

_MODULES: Final = {"ir": ir, "relax": relax, "tir": tir}
#: How many lines that are not valid Python are left out.
_MAX_MENDED: Final = 8
_Position: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Definition:
    """A name that a function binds, and the position from which it is visible."""

    name: str
    node: Positioned
    visible: _Position


def mended_program(text: str, name: str) -> Program | None:
    """The syntax tree of a text whose incomplete lines are left out; None if that is not enough."""
    lines = text.split("\n")
    for _ in range(_MAX_MENDED):
        try:
            return parse_text("\n".join(lines), name, limit=MAX_CHARACTERS)
        except ParseError as error:
            span = error.diagnostic.span
            if span is None or not 0 < span.line <= len(lines):
                return None
            line = lines[span.line - 1]
            lines[span.line - 1] = f"{line[: len(line) - len(line.lstrip())]}pass"
    return None


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a program by their position."""

    program: Program
    namespaces: dict[str, object] = field(init=False)

    def __post_init__(self) -> None:
        found = dict(NAMESPACES)
        for node in self.program.tree.body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").endswith(".script"):
                named = ((alias.asname or alias.name, alias.name) for alias in node.names)
                found |= {name: _MODULES[module] for name, module in named if module in _MODULES}
        object.__setattr__(self, "namespaces", found)

    def path(self, line: int, column: int) -> list[ast.AST]:
        """The nodes that contain a position, from 1, the outermost first."""
        lines = self.program.lines
        if not 0 < line <= len(lines):
            return []
        at = line, len(lines[line - 1][: column - 1].encode())
        return [node for node in ast.walk(self.program.tree) if _contains(node, at)]

    def definition(self, path: Sequence[ast.AST]) -> Positioned | None:
        """The node that defines the name at the end of a path; None if it is not in the text."""
        match path:
            case [*_, ast.Attribute(value=ast.Name(id=owner), attr=name)]:
                return self._function(owner, name, path)
            case [*_, ast.Name(id=name) as node]:
                return self._visible(name, node, path)
            case [*_, ast.arg() as node]:
                return node
            case [*_, ast.FunctionDef() as node]:
                return name_of(node)
            case _:
                return None

    def span(self, node: Positioned) -> Span:
        """The position of a node."""
        return self.program.span(node)

    def functions(self, owner: str, line: int) -> list[ast.FunctionDef]:
        """The functions of the class `owner`, or of the one at a line, which `cls` stands for."""
        classes = [node for node in self.program.tree.body if isinstance(node, ast.ClassDef)]
        found = [node for node in classes if node.name == owner] or [
            node for node in classes if node.lineno <= line <= (node.end_lineno or line)
        ]
        if owner in self.namespaces or not found:
            return []
        return [node for node in found[0].body if isinstance(node, ast.FunctionDef)]

    def _function(self, owner: str, name: str, path: Sequence[ast.AST]) -> ast.expr | None:
        line = next((n.lineno for n in path if isinstance(n, ast.ClassDef)), 0)
        found = (node for node in self.functions(owner, line) if node.name == name)
        return next(map(name_of, found), None)

    def _visible(self, name: str, use: ast.Name, path: Sequence[ast.AST]) -> Positioned | None:
        """The last definition before a use, in the innermost scope that has one."""
        at = use.lineno, use.col_offset
        for scope in reversed(path):
            found: Positioned | None = None
            match scope:
                case ast.FunctionDef():
                    visible = [d for d in _bound_in(scope) if d.name == name]
                    known = [d.node for d in visible if d.visible <= at or d.node is use]
                    found = known[-1] if known else None
                case ast.ClassDef() | ast.Module():
                    found = _member(scope, name)
                case _:
                    continue
            if found is not None:
                return found
        return None


def _contains(node: ast.AST, at: _Position) -> bool:
    if not isinstance(node, ast.expr | ast.stmt | ast.arg | ast.keyword):
        return isinstance(node, ast.Module)
    end = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
    return (node.lineno, node.col_offset) <= at <= end


def _end(node: ast.expr | ast.stmt) -> _Position:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def _bound_in(function: ast.FunctionDef) -> Iterator[_Definition]:
    """The bindings of a function, in source order; not what functions in it bind."""
    start = function.lineno, function.col_offset
    spec = function.args
    for arg in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg):
        if arg is not None:
            yield _Definition(arg.arg, arg, start)
    worklist: list[tuple[ast.AST, _Position | None]] = [(s, None) for s in reversed(function.body)]
    while worklist:
        node, visible = worklist.pop()
        match node:
            case ast.FunctionDef(name=name):
                yield _Definition(name, name_of(node), (node.lineno, node.col_offset))
                continue
            case ast.Name(id=name, ctx=ast.Store()):
                yield _Definition(name, node, visible or _end(node))
            case ast.Assign() | ast.AnnAssign() | ast.NamedExpr():
                visible = _end(node)
            case _:
                pass
        inner = list(ast.iter_child_nodes(node))
        worklist += ((child, _inherited(child, visible)) for child in reversed(inner))


def _inherited(child: ast.AST, visible: _Position | None) -> _Position | None:
    """Where names in a child become visible: targets of an assignment after all of it."""
    return visible if isinstance(child, ast.Name | ast.Tuple | ast.List | ast.Starred) else None


def _member(scope: ast.ClassDef | ast.Module, name: str) -> Positioned | None:
    for node in scope.body:
        match node:
            case ast.FunctionDef() if node.name == name:
                return name_of(node)
            case ast.ClassDef() if node.name == name:
                return class_name_of(node)
            case ast.Assign(targets=[ast.Name(id=target) as bound]) if target == name:
                return bound
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                for alias in aliases:
                    if (alias.asname or alias.name) == name:
                        return alias
            case _:
                continue
    return None
