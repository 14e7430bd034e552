"""The answers to an editor's questions about one text: findings, hovers, completions, definitions.

Positions are lines and columns in characters, both from 1.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

from relaxpy.errors import Span, UnknownNameError
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.short_text.nodes import short_text
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.plugins.cli.lsp.findings import NAMESPACES, Finding, Findings, covers, findings
from relaxpy.plugins.cli.lsp.names import Names, mended_program
from relaxpy.plugins.cli.sketch import sketch
from relaxpy.rules import explain
from relaxpy.script.language.wording import public_names
from relaxpy.support.dataclass import dataclass

#: The characters of a text that is read as far as possible when it has errors.
_MAX_SKETCHED: Final = 200_000
#: The characters before a position in which a call is looked for.
_MAX_CALL: Final = 4_000
_DOTTED: Final = re.compile(r"([A-Za-z_]\w*(?:\.\w+)*)\.(\w*)\Z")
_CALLED: Final = re.compile(r"([A-Za-z_]\w*(?:\.\w+)*)\Z")
_MAX_DOC: Final = 3_000


@dataclass(frozen=True, slots=True)
class Item:
    """A completion: a name, its kind, and its signature."""

    name: str
    kind: str
    signature: str
    path: str


@dataclass(frozen=True, slots=True)
class Call:
    """The signature of the call at a position, its parameters, and which of them is next."""

    signature: str
    parameters: tuple[str, ...]
    active: int
    doc: str


class Document:
    """The text of a file at one moment; everything is computed when it is first needed."""

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name
        self.lines = re.split(r"\r\n|\r|\n", text)

    @property
    def findings(self) -> list[Finding]:
        """The findings of `relaxpy check` in the text."""
        return self._checked.found

    @cached_property
    def _checked(self) -> Findings:
        return findings(self.text, self.name)

    @cached_property
    def _names(self) -> Names | None:
        program = mended_program(self.text, self.name)
        return None if program is None else Names(program)

    @cached_property
    def _facts(self) -> Mapping[tuple[int, int] | tuple[int, str], str]:
        """Texts about definitions and calls by position, about scalars by function and name."""
        names, checked = self._names, self._checked
        mended = "" if names is None else "\n".join(names.program.lines)
        if not checked.programs and mended not in ("", self.text):
            checked = findings(mended, self.name)
        programs = list(checked.programs)
        for text, known in checked.others if len(self.text) <= _MAX_SKETCHED else ():
            program, _ = sketch(text, self.name, known)
            programs += [] if program is None else [program]
        found: dict[tuple[int, int] | tuple[int, str], str] = {}
        for program in programs:
            table = program.functions_by_name if isinstance(program, IRModule) else {"": program}
            for func in table.values():
                found |= _facts_of(func)
        return found

    def hover(self, line: int, column: int) -> str | None:
        """The hover text of a position, in Markdown: errors and their rules, values, operators."""
        diagnostics = [finding.diagnostic for finding in self.findings]
        parts = [
            _explained(diagnostic.message, diagnostic.rule)
            for diagnostic in diagnostics
            if diagnostic.span is not None and covers(diagnostic.span, line, column)
        ]
        names = self._names
        path = [] if names is None else names.path(line, column)
        if names is not None and path:
            parts += self._about(names, path)
        return "\n\n---\n\n".join(parts) or None

    def _about(self, names: Names, path: list[ast.AST]) -> Iterator[str]:
        """The facts about the name at the end of a path, and about its call."""
        leaf = path[-1]
        if isinstance(leaf, ast.Name | ast.Attribute):
            dotted = _dotted(leaf)
            value = _resolved(names.namespaces, dotted)
            if value is not None:
                call = path[-2] if len(path) > 1 else None
                is_called = isinstance(call, ast.Call) and call.func is leaf
                end = names.span(call) if isinstance(call, ast.Call) and is_called else None
                result = None if end is None else self._facts.get((end.line, end.column))
                yield _described(dotted, value, result)
                return
        node = names.definition(path)
        if node is None:
            return
        span = names.span(node)
        fact = self._facts.get((span.line, span.column))
        functions = [n for n in path if isinstance(n, ast.FunctionDef)]
        if fact is None and isinstance(node, ast.Name | ast.arg) and functions:
            name = node.id if isinstance(node, ast.Name) else node.arg
            fact = self._facts.get((functions[-1].lineno, name))
        if fact is not None:
            yield _code(fact)

    def definition(self, line: int, column: int) -> Span | None:
        """Where the name at a position is defined in this text."""
        names = self._names
        if names is None:
            return None
        node = names.definition(names.path(line, column))
        return None if node is None else names.span(node)

    def completions(self, line: int, column: int) -> list[Item]:
        """The names after the dot before a position: of a namespace, or of the module."""
        names = self._names
        match = _DOTTED.search(self._before(line, column))
        if match is None:
            return []
        owner = match[1]
        space = _resolved(NAMESPACES if names is None else names.namespaces, owner)
        if space is not None:
            return list(_members(owner, space))
        functions = [] if names is None else names.functions(owner, line)
        return [
            Item(f.name, "function", f"({ast.unparse(f.args)})", f"{owner}.{f.name}")
            for f in functions
        ]

    def call(self, line: int, column: int) -> Call | None:
        """The call of a function of a namespace whose arguments are typed at a position."""
        first = max(0, line - 50)
        before = "\n".join([*self.lines[first : line - 1], self._before(line, column)])[-_MAX_CALL:]
        depth, commas = 0, 0
        for k in range(len(before) - 1, -1, -1):
            char = before[k]
            if char in ")]}":
                depth += 1
            elif char in "([{" and depth:
                depth -= 1
            elif char == "," and not depth:
                commas += 1
            elif char in "[{":  # an argument that is a list
                commas = 0
            elif char == "(":
                called = _CALLED.search(before[:k])
                if called is None:  # an argument that is a tuple
                    commas = 0
                    continue
                return self._call(called[1], commas)
        return None

    def _call(self, dotted: str, commas: int) -> Call | None:
        spaces = NAMESPACES if self._names is None else self._names.namespaces
        value = _resolved(spaces, dotted)
        signature = None if value is None else _signature(value)
        if signature is None:
            return None
        parameters = tuple(map(str, signature.parameters.values()))
        return Call(f"{dotted}{signature}", parameters, commas, _doc(value))

    def documentation(self, path: str) -> str | None:
        """The documentation of a completion, by its path."""
        value = _resolved(NAMESPACES if self._names is None else self._names.namespaces, path)
        return None if value is None else _doc(value)

    def rules(self, first: int, last: int) -> list[str]:
        """The IDs of the rules that errors on these lines cite."""
        diagnostics = (finding.diagnostic for finding in self.findings)
        rules = (d.rule for d in diagnostics if d.rule and d.span and first <= d.span.line <= last)
        return list(dict.fromkeys(rules))

    def _before(self, line: int, column: int) -> str:
        """The text of a line before a column; empty if there is no such line."""
        return self.lines[line - 1][: column - 1] if 0 < line <= len(self.lines) else ""


def rule_text(rule: str) -> str | None:
    """The explanation of a rule in Markdown; None if there is no such rule."""
    try:
        found = explain(rule)
    except UnknownNameError:
        return None
    text = f"**{found.id}** ({found.family.title}): {found.sentence}"
    if found.good is not None:
        text += f"\n\nA program that follows it:\n\n{_code(found.good)}"
    if found.bad is not None:
        text += f"\n\nA program that breaks it:\n\n{_code(found.bad)}"
    return text


def _explained(message: str, rule: str | None) -> str:
    explanation = rule and rule_text(rule)
    return f"{message}\n\n{explanation}" if explanation else message


def _code(text: str) -> str:
    return f"```python\n{text}\n```"


def _facts_of(func: rx.BaseFunc) -> Iterator[tuple[tuple[int, int] | tuple[int, str], str]]:
    """The facts about values in a function, with their keys in `Document._facts`."""
    start = func.span
    if start is not None:
        column = start.column + (len("def ") if isinstance(func, PrimFunc) else 0)
        yield (start.line, column), _function_text(func)
    for node in walk(func):
        span: Span | None = getattr(node, "span", None)
        match node:
            case rx.Var(name_hint=name) if span and node.struct_info is not None:
                yield (span.line, span.column), f"{name}: {short_text(node.struct_info)}"
            case rx.Function() if span:
                yield (span.line, span.column), _function_text(node)
            case rx.Call() if span and node.struct_info is not None:
                yield (span.line, span.column), short_text(node.struct_info)
            case Buffer(name=name) if span:
                yield (span.line, span.column), _buffer_text(node)
            case tir.Var(name=name) if start is not None and isinstance(func, PrimFunc):
                yield (start.line, name), f"{name}: T.{node.dtype}"
            case _:
                continue


def _function_text(func: rx.BaseFunc) -> str:
    name = func.attrs.get("global_symbol", "")
    sinfo = "a function" if func.struct_info is None else short_text(func.struct_info)
    return f"{name}: {sinfo}" if name else sinfo


def _buffer_text(buffer: Buffer) -> str:
    sizes = ", ".join(map(short_text, buffer.shape))
    comma = "," if len(buffer.shape) == 1 else ""
    return f'{buffer.name}: T.Buffer(({sizes}{comma}), "{buffer.dtype}")'


def _dotted(node: ast.expr) -> str:
    """A name with its attributes; empty if it begins with something else."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.insert(0, node.attr)
        node = node.value
    return ".".join([node.id, *attributes]) if isinstance(node, ast.Name) else ""


def _resolved(spaces: Mapping[str, object], dotted: str) -> object:
    """The value of a dotted name in the namespaces; None if it has none."""
    first, *rest = dotted.split(".")
    value = spaces.get(first)
    for name in rest:
        if value is None or name.startswith("_"):
            return None
        value = getattr(value, name, None)
    return value


def _members(owner: str, space: object) -> Iterator[Item]:
    names = {*getattr(space, "__all__", ()), *public_names(space)}
    for name in sorted(names or dir(space)):
        value = None if name.startswith("_") else getattr(space, name, None)
        if value is None:
            continue
        signature = _signature(value)
        kind = "class" if inspect.isclass(value) else "module" if signature is None else "function"
        yield Item(name, kind, "" if signature is None else f"{signature}", f"{owner}.{name}")


def _signature(value: object) -> inspect.Signature | None:
    """The parameters with their defaults, without annotations; None if it is not callable."""
    if not callable(value):
        return None
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return None
    empty = inspect.Parameter.empty
    plain = [p.replace(annotation=empty) for p in signature.parameters.values()]
    return inspect.Signature(plain)


def _described(dotted: str, value: object, result: str | None) -> str:
    signature = _signature(value)
    shown = f"{dotted}{'' if signature is None else signature}"
    if result is not None:
        shown += f" -> {result}"
    doc = _doc(value)
    return f"{_code(shown)}\n\n{doc}" if doc else _code(shown)


def _doc(value: object) -> str:
    """The documentation of a value, as preformatted text after its first paragraph."""
    doc = inspect.getdoc(value) or ""
    if len(doc) > _MAX_DOC:
        doc = f"{doc[:_MAX_DOC]}…"
    first, gap, rest = doc.partition("\n\n")
    return f"{first}\n\n```text\n{rest}\n```" if gap else first
