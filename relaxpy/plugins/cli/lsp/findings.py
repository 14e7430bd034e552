"""Find the errors that `relaxpy check` reports in the text of a file, without executing it.

Among them are those of operators that accept their operands for special values of symbolic
dimensions only.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final, Literal, TypeAlias

from relaxpy.errors import Diagnostic, ParseError, RelaxpyError, RelaxpyWarning, Span
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.block_builder.derive import normalize_functions
from relaxpy.ir.relax.nodes import BaseFunc, Function
from relaxpy.ir.relax.relations.shape_vars import shape_vars_of
from relaxpy.ir.relax.rewrite.map_bindings import replace_variables
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import Var
from relaxpy.plugins.cli.programs import PROGRAM_MARKS, ProgramFile, is_of_a_program
from relaxpy.plugins.cli.show import UsageError
from relaxpy.script import ir, relax, tir
from relaxpy.script.parser.source import Program, parse_text
from relaxpy.script.read import from_source
from relaxpy.support.dataclass import dataclass

_OPERATOR_RULE: Final = "DER-36"
#: Sizes that are tried: variable k has the value `first + k * step`. The first ones have many
#: divisors, the others are odd, smaller than tables and caches, or larger than windows.
_TRIALS: Final = ((420, 60), (7, 4), (22, 4), (5040, 720))


def special_size_errors(mod: IRModule) -> Iterator[Diagnostic]:
    """For each function, the error of an operator that fails for all sizes that are tried.

    Such a program is well-formed, as it runs where dimensions happen to be equal.
    """
    for name, func in mod.functions_by_name.items():
        variables = shape_vars_of(func.params) if isinstance(func, Function) else ()
        first: Diagnostic | None = None
        for start, step in _TRIALS if variables else ():
            sizes = {v: start + k * step for k, v in enumerate(variables)}
            error = _operator_error(mod, name, sizes)
            if error is None:
                break
            first = first or error
        else:
            if first is not None:
                yield first


def _operator_error(mod: IRModule, name: str, sizes: Mapping[Var, int]) -> Diagnostic | None:
    """The error of an operator in a function whose dimensions have these values."""
    instance = mod.clone()
    values = {var: ops.const(size, var.dtype) for var, size in sizes.items()}
    instance[name] = replace_variables(mod[name], values)
    for derived, _, result in normalize_functions(instance, suppress_warnings=True):
        if derived == name and isinstance(result, RelaxpyError):
            error = result.diagnostic
            break
    else:
        return None
    if error.rule != _OPERATOR_RULE:
        return None
    shown = ", ".join(f"{var.name} = {size}" for var, size in sizes.items())
    return Diagnostic(
        f"runs for special sizes only; with {shown}, {error.message}",
        error.rule,
        error.span,
        "give dimensions that are to be equal one name, or write the number",
    )


Severity: TypeAlias = Literal["error", "warning", "information"]
AnyProgram: TypeAlias = IRModule | BaseFunc

#: The characters of a text that is checked while it changes; `relaxpy check` reads more.
MAX_CHARACTERS: Final = 1_000_000
NAMESPACES: Final[Mapping[str, object]] = {"I": ir, "R": relax, "T": tir}
_NAMESPACE_MODULES: Final = ("relaxpy.script", "tvm.script", "tvm.script.parser")
_PROGRAMS: Final = frozenset(mark.rpartition(".")[2] for mark in PROGRAM_MARKS)
_MACROS: Final = frozenset({"inline", "macro"})
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class Finding:
    """A diagnostic, and how severe an editor shows it."""

    diagnostic: Diagnostic
    severity: Severity = "error"


@dataclass(slots=True)
class Findings:
    """The findings in a text, its programs without errors, and the texts of the others.

    Each of these texts comes with the values of the names that it uses, unless they are only those
    of the namespaces.
    """

    found: list[Finding] = field(default_factory=list)
    programs: list[AnyProgram] = field(default_factory=list)
    others: list[tuple[str, Mapping[str, object] | None]] = field(default_factory=list)

    def add(self, error: RelaxpyError, severity: Severity = "error") -> None:
        """Add the diagnostics of an error."""
        self.found += (Finding(diagnostic, severity) for diagnostic in error.diagnostics)

    def add_program(self, program: AnyProgram) -> None:
        """Add a program without errors, with the warnings about it."""
        self.programs.append(program)
        module = program if isinstance(program, IRModule) else IRModule.from_expr(program)
        self.found += (Finding(doubt, "warning") for doubt in special_size_errors(module))


def findings(text: str, name: str) -> Findings:
    """The findings in the text of the file `name`.

    Errors are those of `relaxpy check`. Of a file with statements that only Python executes, the
    first one is marked as information. Its programs are read one by one; one that uses what Python
    computes is left out.
    """
    result = Findings()
    if len(text) > MAX_CHARACTERS:
        start = f"the file has {len(text)} characters, more than {MAX_CHARACTERS}"
        result.add(ParseError(f"{start} are checked by `relaxpy check` only"), "information")
        return result
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RelaxpyWarning)
        _read(ProgramFile(name, text), result)
    doubts = (getattr(warning.message, "diagnostic", None) for warning in caught)
    result.found += (Finding(doubt, "warning") for doubt in doubts if doubt is not None)
    return result


def _read(file: ProgramFile, result: Findings) -> None:
    is_python = file.needs_python
    if not file.text.strip() or not _may_be_program(file.text, is_python):
        return
    if is_python:
        for program in _programs_between_python(file, result):
            result.add_program(program)
        return
    try:
        result.add_program(file.program())
    except UsageError as error:
        result.add(error, "information")
    except RelaxpyError as error:
        result.add(error)
        result.others.append((file.text, None))


def _may_be_program(text: str, is_python: bool) -> bool:
    """True if a text has marked definitions, imports nothing else, or is not complete yet."""
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    return any(
        _is_marked(statement, _PROGRAMS)
        if isinstance(statement, _DEFINITIONS)
        else isinstance(statement, ast.ImportFrom) and not is_python
        for statement in statements
    )


def _programs_between_python(file: ProgramFile, result: Findings) -> Iterator[AnyProgram]:
    """The programs that use only each other, literals and the namespaces."""
    parsed = parse_text(file.text, file.name)
    first = next(node for node in parsed.tree.body if not is_of_a_program(node))
    what = "statements outside of programs, from here on, are not executed"
    hint = "`relaxpy check --import` imports the file as Python does"
    result.found.append(Finding(Diagnostic(what, None, parsed.span(first), hint), "information"))
    known = dict(NAMESPACES)
    computed: set[str] = set()
    kept: list[ast.stmt] = []
    for statement in parsed.tree.body:
        match statement:
            case ast.ImportFrom(module=module) if module in _NAMESPACE_MODULES:
                kept.append(statement)
            case ast.FunctionDef() | ast.ClassDef() if _is_marked(statement, _MACROS):
                kept.append(statement)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) if _is_marked(
                statement, _PROGRAMS
            ):
                computed.add(name)
                text = _only(parsed, [*kept, statement])
                if "*" in computed or not _used_names(statement).isdisjoint(computed - {name}):
                    result.others.append((text, dict(known)))
                    continue
                try:
                    program = from_source(text, known, filename=file.name)
                except RelaxpyError as error:
                    result.add(error)
                    result.others.append((text, dict(known)))
                    continue
                if isinstance(program, (IRModule, BaseFunc)):
                    yield program
                computed.discard(name)
                known[name] = program
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                try:
                    known[name] = ast.literal_eval(value)
                except (ValueError, TypeError, RecursionError, MemoryError):
                    computed |= _bound_names(statement)
            case _:
                computed |= _bound_names(statement)


def _is_marked(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, marks: Collection[str]
) -> bool:
    """True if the name of a decorator ends in one of `marks`."""
    named = (d.func if isinstance(d, ast.Call) else d for d in node.decorator_list)
    return any(isinstance(name, ast.Attribute) and name.attr in marks for name in named)


def _used_names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _bound_names(statement: ast.stmt) -> set[str]:
    """The names that a statement of Python may bind; a star for any name."""
    found: set[str] = set()
    for node in ast.walk(statement):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.FunctionDef(name=name):
                found.add(name)
            case ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.alias(name=name, asname=asname):
                found.add(asname or name.split(".")[0])
            case _:
                continue
    return found


def _only(program: Program, statements: Sequence[ast.stmt]) -> str:
    """The text of these statements, each at its position."""
    lines = [""] * len(program.lines)
    for statement in statements:
        decorators = getattr(statement, "decorator_list", ())
        first = min([statement.lineno, *(node.lineno for node in decorators)]) - 1
        last = statement.end_lineno or statement.lineno
        lines[first:last] = program.lines[first:last]
    return "\n".join(lines)


def covers(span: Span, line: int, column: int) -> bool:
    """True if a position, from 1, is in a span or at its end."""
    return (span.line, span.column) <= (line, column) <= (span.end_line, span.end_column)
