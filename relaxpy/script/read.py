"""From text to IR, for text that may be hostile: it is parsed and never run."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from relaxpy.errors import ParseError, RelaxpyError
from relaxpy.ir.core.budget import MAX_CHARACTERS
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.nodes import BaseFunc, GlobalVar
from relaxpy.script import ir, relax, tir
from relaxpy.script.language import records
from relaxpy.script.parser import reading
from relaxpy.script.parser.evaluate.guard import TextGuard
from relaxpy.script.parser.graph.expressions import GraphEvaluator
from relaxpy.script.parser.graph.state import class_name_of
from relaxpy.script.parser.source import (
    BUILTINS,
    Program,
    Report,
    Scope,
    docstring_removed,
    parse_text,
)
from relaxpy.support.dataclass import replace
from relaxpy.support.entry import user_facing
from relaxpy.support.gc_pause import gc_paused

_NAMESPACES = {"ir": ir, "relax": relax, "s_tir": tir, "tir": tir, "tirx": tir}
_USUAL = {"I": ir, "R": relax, "T": tir}
_IMPORTED_FROM = ("relaxpy.script", "tvm.script", "tvm.script.parser")
TYPING: Mapping[str, object] = {"Annotated": Annotated, "TypeVar": TypeVar}
_PACKAGES = ("relaxpy", "tvm")
_UNDECORATED = "a class in a text is decorated with @I.ir_module or @R.rewriter"


@user_facing
@gc_paused
def from_source(
    text: str,
    extra_vars: Mapping[str, object] | None = None,
    check_well_formed: bool = True,
    *,
    filename: str | None = None,
) -> Any:
    """Parse `text` to a module, graph function or kernel; several functions become a module.

    The text may use I, R and T, or the names in `extra_vars` instead, and import these namespaces.
    It is not run, and it can call nothing else.

    Errors:
        ParseError, StructInfoError, WellFormedError: with all diagnostics.
    """
    if not isinstance(text, str):
        raise ParseError(f"a program is a string, found {type(text).__name__}", about=text)
    if not isinstance(extra_vars, Mapping | None):
        raise ParseError(
            f"extra_vars is a dict of names and values, found {type(extra_vars).__name__}",
            about=extra_vars,
        )
    for name in extra_vars or ():
        if not isinstance(name, str):
            raise ParseError(f"a name in extra_vars is a string, found {name!r:.60}", about=name)
    program = parse_text(text.removeprefix("\ufeff"), filename or "<string>", limit=MAX_CHARACTERS)
    names = dict(_USUAL | _NAMESPACES if extra_vars is None else extra_vars)
    with reading.collecting_errors(program) as report:
        return _Text(program, names, check_well_formed).read(report)


class _Text:
    def __init__(self, program: Program, names: dict[str, object], check_well_formed: bool) -> None:
        self.program = program
        self.names = names
        self.check_well_formed = check_well_formed
        # Calling a module would create an instance of a Python class.
        functions = [v for v in names.values() if callable(v) and not isinstance(v, IRModule)]
        self.guard = TextGuard(_NAMESPACES.values(), [*functions, TypeVar])
        self.scope = Scope(names, BUILTINS)
        self.values = GraphEvaluator(program, self.scope, self.guard)

    def read(self, report: Report) -> Any:
        """The function or module that the text defines; `report` gets errors of classes."""
        functions: list[ast.FunctionDef] = []
        classes: list[ast.ClassDef] = []
        for node in docstring_removed(self.program.tree.body):
            match node:
                case ast.FunctionDef(name=name):
                    macro = reading.macro_of(node, self.program, self.values)
                    if macro is None:
                        functions.append(node)
                    else:
                        self.names[name] = macro
                case ast.ClassDef():
                    classes.append(node)
                case ast.Import() | ast.ImportFrom():
                    self.import_names(node)
                case ast.Assign(targets=[ast.Name(id="metadata" as name)], value=value):
                    # The large constants, which the printer writes before the program.
                    self.names[name] = self.values.value(value)
                case ast.Assign(
                    targets=[ast.Name(id=name)],
                    value=ast.Call(func=ast.Name(id="TypeVar")) as value,
                ):
                    self.names[name] = self.values.value(value)
                case ast.Pass():
                    continue
                case ast.AsyncFunctionDef():
                    raise self.program.error(
                        node, "a program does not wait: write def, not async def"
                    )
                case _:
                    raise self.program.error(
                        node, "a text consists of functions and classes with decorators"
                    )
        if not functions and not classes:
            raise ParseError("the text defines no function and no module")
        if len(functions) == 1 and not classes:
            return self.function(functions[0])
        modules = []
        for node in classes:
            try:
                modules.append(self.module(node))
            except RelaxpyError as error:  # the other classes do not depend on this one
                report.add(error)
        if report.errors:
            return None
        for node, module in zip(classes, modules, strict=True):
            if not isinstance(module, IRModule) and len(classes) + len(functions) > 1:
                raise self.program.error(
                    class_name_of(node), "a rewriter is the only class of its text"
                )
        if functions:
            modules.append(self.module_of(functions))
        return modules[0] if len(modules) == 1 else self.merged(modules)

    def import_names(self, node: ast.Import | ast.ImportFrom) -> None:
        """Read an import of the namespaces; no other import is allowed.

        Errors:
            ParseError: it imports something else.
        """
        known: Mapping[str, object] = {}
        match node:
            case ast.ImportFrom(module="__future__"):
                return
            case ast.ImportFrom(module="typing", level=0):
                known = TYPING
            case ast.ImportFrom(module=module, level=0) if module in _IMPORTED_FROM:
                known = _NAMESPACES
            case ast.Import(names=names) if all(
                alias.name.split(".")[0] in _PACKAGES and not alias.asname for alias in names
            ):
                return
            case _:
                pass
        if not all(alias.name in known for alias in node.names):
            raise self.program.error(
                node,
                "a text imports nothing but the namespaces",
                hint="from relaxpy.script import ir as I, relax as R, tir as T",
            )
        self.names.update({alias.asname or alias.name: known[alias.name] for alias in node.names})

    def function(self, node: ast.FunctionDef) -> BaseFunc:
        options = reading.options_of(node, self.values)
        if not self.check_well_formed:
            options = replace(options, check_well_formed=False)
        return reading.read_function(
            reading.Definition(node, options, self.program), self.scope, self.guard
        )

    def module(self, node: ast.ClassDef) -> Any:
        options = None
        for decorator in node.decorator_list:
            options = self.values.value(decorator)
            if not isinstance(options, records.ModuleOptions):
                raise self.values.error(decorator, _UNDECORATED)
        if options is None:
            raise self.values.error(node, _UNDECORATED)
        if not self.check_well_formed:
            options = replace(options, check_well_formed=False)
        scope = Scope(self.names, BUILTINS)
        return reading.read_module(node, self.program, scope, options, guard=self.guard)

    def module_of(self, nodes: list[ast.FunctionDef]) -> IRModule:
        """The module of several functions outside of classes."""
        with reading.collecting_errors(self.program) as report:
            unchecked = not self.check_well_formed
            reader = reading.FunctionsReader(self.scope, report, self.guard, as_written=unchecked)
            for node in nodes:
                reader.declare(
                    reading.Definition(node, reading.options_of(node, self.values), self.program)
                )
            reader.run()
        read = {reader.gvars[n.name]: reader.read[n.name] for n in nodes}
        module = IRModule(read | reader.added())
        if self.check_well_formed:
            reading.check(module, reader.kernels)
        return module

    def merged(self, modules: list[IRModule]) -> IRModule:
        """Merge several modules: their functions, attributes and global infos."""
        functions: dict[GlobalVar, BaseFunc] = {}
        attrs: dict[str, object] = {}
        infos: dict[str, list[object]] = {}
        names: set[str] = set()
        for module in modules:
            for var, func in module.items():
                if var.name_hint in names:
                    raise ParseError(
                        f"the text defines {var.name_hint!r} twice", rule="TOP-1", span=func.span
                    )
                names.add(var.name_hint)
                functions[var] = func
            for key, value in module.attrs.items():
                if attrs.setdefault(key, value) != value:
                    raise ParseError(f"two modules of the text have an attribute {key!r}")
            for key, listed in module.global_infos.items():
                known = infos.setdefault(key, [])
                known += [entry for entry in listed if entry not in known]
        return IRModule(functions, attrs, infos)
