"""Reads whole definitions: one function, or the functions of a module, callees first."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

from relaxpy.errors import MisuseError, RelaxpyError, WellFormedError, counted
from relaxpy.ir import hooks
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.link import alone, brought_along, linked, renamed_in
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.call_graph import mentioned_globals, strongly_connected
from relaxpy.ir.relax.nodes import BaseFunc, Function, GlobalVar
from relaxpy.ir.relax.nodes.evaluation import evaluating
from relaxpy.ir.relax.nodes.python_function import python_function, reindented
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.ir.tir.prim_func.well_formed import kernel_faults
from relaxpy.script.language import records
from relaxpy.script.language.devices import Devices
from relaxpy.script.language.eager import handling
from relaxpy.script.parser.evaluate.guard import OPEN, Guard
from relaxpy.script.parser.evaluate.macros import Macro, MacroOptions
from relaxpy.script.parser.graph.function import GraphReader
from relaxpy.script.parser.graph.signature import Signature
from relaxpy.script.parser.graph.state import class_name_of, declared_pure, ends_in, name_of
from relaxpy.script.parser.graph.values import GraphEvaluator
from relaxpy.script.parser.kernel.function import KernelReader
from relaxpy.script.parser.source.report import (
    Full,
    Report,
    Statements,
    bound_names,
    docstring_removed,
    refusal,
)
from relaxpy.script.parser.source.scope import POISON, ModuleRef, Scope
from relaxpy.script.parser.source.text import Program, too_deep
from relaxpy.script.parser.source.type_params import type_parameters


@contextmanager
def reported(program: Program) -> Iterator[Report]:
    """A report whose errors are raised together at the end.

    Errors:
        ParseError, StructInfoError, WellFormedError: with all diagnostics, by the first of them.
    """
    report = Report()
    try:
        with handling(None), evaluating(None):
            yield report
    except Full:
        pass
    except RecursionError:
        report.errors.append(too_deep(program))
    except RelaxpyError as error:
        report.errors.append(error)
    failure = report.failure()
    if failure is not None:
        raise failure.with_traceback(None) from None


def check(found: IRModule | BaseFunc, kernels: Sequence[PrimFunc]) -> None:
    """Check the function or module that was read, and the kernels that were read for it.

    Errors:
        WellFormedError: with every criterion that is broken.
    """
    wrong = check_well_formed(found)
    wrong += [fault for kernel in kernels for fault in kernel_faults(kernel)]
    if wrong:
        raise WellFormedError(wrong)


@dataclass(slots=True)
class Definition:
    """A function of the module being read, and the names that its own surroundings give it."""

    node: ast.FunctionDef
    options: records.FunctionOptions
    program: Program
    names: Sequence[Mapping[str, object]] = ()
    gvar: GlobalVar = field(init=False)
    signature: Signature | None = None

    def __post_init__(self) -> None:
        name = self.options.name
        self.gvar = GlobalVar(self.node.name if name is None else name)
        pure = declared_pure(self.node)
        if pure is not None:
            self.options = replace(self.options, pure=pure)

    @property
    def symbol(self) -> str | None:
        """The global symbol of a public function."""
        return None if self.options.private else self.gvar.name_hint


def directive_of(
    node: ast.FunctionDef, values: GraphEvaluator
) -> records.FunctionOptions | MacroOptions | None:
    """The first decorator that is R.function, T.prim_func or a macro; None without one."""
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Name) and decorator.id == "staticmethod":
            continue
        value = values.value(decorator)
        if isinstance(value, records.FunctionOptions | MacroOptions):
            return value
    return None


def options_of(node: ast.FunctionDef, values: GraphEvaluator) -> records.FunctionOptions:
    """The options of a function's decorators.

    Errors:
        ParseError: none of them is R.function or T.prim_func.
    """
    options = directive_of(node, values)
    if isinstance(options, records.FunctionOptions):
        return options
    where = node.decorator_list[0] if node.decorator_list else name_of(node)
    raise values.error(
        where,
        f"function {node.name!r} is neither a graph function nor a kernel",
        hint="decorate it with @R.function or @T.prim_func",
    )


@dataclass(frozen=True, slots=True)
class PythonParts:
    """The class that describes a module, as Python made it, and the functions in it."""

    kind: type
    functions: Mapping[str, Callable[..., Any]]


def is_python(node: ast.FunctionDef, values: GraphEvaluator) -> bool:
    """Whether a function is decorated by `I.pyfunc`."""
    marks = [part for part in node.decorator_list if ends_in(part, "pyfunc")]
    return any(isinstance(values.value(mark), records.PythonOptions) for mark in marks)


def text_without_mark(node: ast.FunctionDef, program: Program) -> str:
    """The text of a function less its indentation and the line `@I.pyfunc`."""
    start = min([node.lineno, *(part.lineno for part in node.decorator_list)])
    marks = {part.lineno for part in node.decorator_list if ends_in(part, "pyfunc")}
    kept = [n for n in range(start, (node.end_lineno or node.lineno) + 1) if n not in marks]
    lines = [program.lines[n - 1] for n in kept]
    first = program.lines[node.lineno - 1]
    indent = first[: len(first) - len(first.lstrip())]
    return reindented("\n".join(lines), indent, "")


def macro_of(node: ast.FunctionDef, program: Program, values: GraphEvaluator) -> Macro | None:
    """The macro that a function in a text is decorated to be; None if it is not one."""
    options = directive_of(node, values)
    if not isinstance(options, MacroOptions):
        return None
    return Macro(node, program, values.scope, options)


class FunctionsReader:
    """Reads functions that may call one another."""

    def __init__(self, scope: Scope, report: Report, guard: Guard = OPEN) -> None:
        self.scope = scope
        self.report = report
        self.guard = guard
        self.builder = BlockBuilder()
        self.definitions: dict[str, Definition] = {}
        self.by_symbol: dict[str, Definition] = {}
        self.read: dict[str, BaseFunc] = {}
        self.gvars: dict[str, GlobalVar] = {}
        self.module = ModuleRef(self.gvars)
        self.devices = Devices()
        self.kernels: list[PrimFunc] = []
        self.in_class = False
        self.captured: dict[str, BaseFunc] = {}
        self._adopted: list[str] = []
        self._entries: dict[BaseFunc, GlobalVar] = {}
        self._returns: dict[str, DataType | None] = {}

    def declare(self, definition: Definition) -> None:
        """Add a function under a name.

        Errors:
            ParseError: the name is taken.
        """
        name, symbol = definition.node.name, definition.gvar.name_hint
        self.check_free(name, symbol, definition.program, name_of(definition.node))
        self.definitions[name] = self.by_symbol[symbol] = definition
        self.gvars[name] = definition.gvar
        self.scope.set(name, definition.gvar)

    def check_free(self, name: str, symbol: str | None, program: Program, at: ast.expr) -> None:
        """Errors: ParseError if the text has a function `name`, or the module one named `symbol`.

        Of the module are, before definitions are read, those declared and those complete already.
        """
        taken = symbol in self.by_symbol or symbol in self.read
        twice = name if name in self.gvars else symbol if taken else None
        if twice is not None:
            raise program.error(at, f"the module has two functions named {twice!r}", rule="TOP-1")

    def define(self, name: str, func: BaseFunc) -> None:
        """Add a complete function."""
        self._entries[func] = self.gvars.setdefault(name, GlobalVar(name))
        gvar = self.gvars[name]
        self.scope.set(name, gvar)
        self.read[name] = func
        self.builder.update_func(gvar, func)

    def adopt(self, name: str, func: BaseFunc) -> None:
        """Add a function that was defined elsewhere, under another symbol if necessary."""
        public = func.attrs.get("global_symbol") is not None
        self.define(name, func.with_attr("global_symbol", name) if public else func)
        self._entries[func] = self.gvars[name]
        self._adopted.append(name)

    def run(self) -> None:
        """Read all definitions: kernels, then signatures, then bodies after what they call."""
        for name in self._adopted:
            self._link_adopted(name)
        kernels = [d for d in self.definitions.values() if d.options.dialect == "tir"]
        graphs = [d for d in self.definitions.values() if d.options.dialect == "relax"]
        for definition in kernels:
            self.kernel(definition)
        for definition in graphs:
            definition.signature = self.graph_reader(definition).signature(definition.node)
            if definition.signature.complete:
                info = definition.signature.func_struct_info(pure=definition.options.pure)
                self.builder.declare_global(definition.gvar, info)
            else:
                self.poison(definition)
        for definition in in_order(graphs):
            self.graph(definition)

    def poison(self, definition: Definition) -> None:
        """What calls a function that could not be read is not reported."""
        self.scope.frames[0][definition.node.name] = POISON
        self.module.__lost__.add(definition.node.name)

    def kernel(self, definition: Definition) -> None:
        """Read one kernel."""
        reader = KernelReader(
            definition.program,
            self.scope.for_function(*definition.names),
            guard=self.guard,
            report=self.report,
            returns=self.returns,
        )
        func = reader.function(definition.node, symbol=definition.symbol)
        if func is None:
            self.poison(definition)
            return
        self.define(definition.node.name, func)
        self.kernels.append(func)

    def returns(self, gvar: GlobalVar, count: int) -> DataType | None:
        """The result datatype of a kernel that is called with `count` arguments.

        Errors: MisuseError if it takes another number of them.
        """
        name = gvar.name_hint
        definition, func = self.by_symbol.get(name), self.read.get(name)
        ret: DataType | None = None
        if definition is not None:
            spec = definition.node.args
            expected = len(spec.posonlyargs) + len(spec.args)
            ret = self._declared_result(definition)
        elif isinstance(func, PrimFunc):
            expected, ret = len(func.params), func.ret_type
        else:
            return None
        if count != expected:
            raise MisuseError(f"{name} takes {counted(expected, 'argument')}, found {count}")
        return ret

    def _declared_result(self, definition: Definition) -> DataType | None:
        """The datatype that a kernel declares to return; None if it is no kernel."""
        name, returns = definition.gvar.name_hint, definition.node.returns
        if name not in self._returns:
            self._returns[name] = None
            if returns is not None and definition.options.dialect == "tir":
                scope = self.scope.for_function(*definition.names)
                reader = KernelReader(definition.program, scope, guard=self.guard)
                self._returns[name] = reader.return_type(returns)
        return self._returns[name]

    def graph_reader(self, definition: Definition) -> GraphReader:
        """A reader for one graph function."""
        return GraphReader(
            definition.program,
            self.scope.for_function(*definition.names),
            self.builder,
            guard=self.guard,
            report=self.report,
            devices=self.devices,
            capture=self.capture,
            module_names=self.gvars if self.in_class else None,
        )

    def capture(self, func: BaseFunc, name: str) -> GlobalVar:
        """What `func`, which was defined elsewhere, is in this module: it is entered once.

        It goes by its symbol, or else by `name`, with a number behind it if that is taken.
        """
        found = self._entries.get(func)
        if found is None:
            taken = {*self.by_symbol, *self.read, *self.captured}
            symbol = str(func.attrs.get("global_symbol") or name)
            own, entries = brought_along(func, symbol, self.captured, taken)
            for entry in entries.values():
                self._check_complete(entry, entries)
            self._enter(entries)
            found = self._entries[func] = GlobalVar(own)
        return found

    def _enter(self, entries: Mapping[str, BaseFunc]) -> None:
        for name, entry in entries.items():
            if name not in self.captured:
                self.captured[name] = entry
                self.builder.update_func(GlobalVar(name), entry)

    def _link_adopted(self, name: str) -> None:
        """Enter what the function that was adopted as `name` calls, now that names are known."""
        func = self.read[name]
        if isinstance(func, Function) and func.callees:
            taken = {*self.by_symbol, *self.read, *self.captured}
            callees = cast("Mapping[str, BaseFunc]", func.callees)
            entries = linked(callees, self.captured, taken)
            self._enter(dict(entries.values()))
            func = renamed_in(alone(func), {old: new for old, (new, _) in entries.items()})
            self.define(name, func)
        self.captured[name] = func

    def _check_complete(self, func: BaseFunc, present: Iterable[str]) -> None:
        """Errors: MisuseError if `func` calls functions of another module, which stay behind."""
        known = {*present, *self.by_symbol, *self.read, *self.captured}
        missing = [name for name in mentioned_globals(func) if name not in known]
        if missing:
            raise MisuseError(
                f"this function calls {', '.join(missing)} of the module that it belongs to",
                rule="SC-1",
                hint="decorate it outside the module, or make all of them members of this one",
                about=func,
            )

    def added(self) -> dict[GlobalVar, BaseFunc]:
        """The kernels that reading has added to the module."""
        read = set(self.gvars.values())
        return {v: f for v, f in self.builder.get().items() if v not in read}

    def graph(self, definition: Definition) -> None:
        """Read the body of one graph function."""
        found = definition.signature
        assert found is not None
        options = definition.options
        func = self.graph_reader(definition).function(
            definition.node, found, pure=options.pure, symbol=definition.symbol
        )
        if func is not None:
            self.define(definition.node.name, func)
        elif found.ret is None:
            self.poison(definition)


def in_order(definitions: Sequence[Definition]) -> Iterator[Definition]:
    """Graph functions, those without return annotation before those that mention them (DER-2)."""
    derived = {d.node.name for d in definitions if d.signature is None or d.signature.ret is None}
    if not derived or len(definitions) == 1:
        yield from definitions
        return
    by_name = {d.node.name: d for d in definitions}
    position = {name: k for k, name in enumerate(by_name)}
    mentions = {name: mentioned(d.node, derived) for name, d in by_name.items()}
    for group in strongly_connected(mentions):
        yield from (by_name[name] for name in sorted(group, key=position.__getitem__))


def mentioned(node: ast.FunctionDef, known: Container[str]) -> list[str]:
    """The functions of the module that a function names, by themselves or as attributes.

    A parameter, and what a statement before has bound in any case, is no function of the module.
    """
    spec = node.args
    params = {arg.arg for arg in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)}
    found: dict[str, None] = {}
    bound = set(params)
    for statement in _in_line(node.body):
        for part in ast.walk(statement):
            if isinstance(part, ast.Attribute) and part.attr in known:
                if not (isinstance(part.value, ast.Name) and part.value.id in params):
                    found[part.attr] = None
            elif isinstance(part, ast.Name) and part.id in known and part.id not in bound:
                found[part.id] = None
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.FunctionDef)):
            bound.update(bound_names(statement))
    return list(found)


def _in_line(nodes: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that are read in any case, those of blocks among them."""
    for node in nodes:
        if isinstance(node, ast.With):
            yield from _in_line(node.body)
        else:
            yield node


class ModuleReader:
    """Reads the class of a module."""

    def __init__(
        self,
        program: Program,
        scope: Scope,
        report: Report,
        *,
        guard: Guard = OPEN,
        names_of: Callable[[str], Sequence[Mapping[str, object]]] = lambda _: (),
        python: PythonParts | None = None,
    ) -> None:
        self.python = python
        self.derived = False
        self.program = program
        self.scope = scope
        self.report = report
        self.names_of = names_of
        self.functions = FunctionsReader(scope, report, guard)
        self.functions.in_class = True
        self.values = GraphEvaluator(program, scope, guard)
        self.values.devices = self.functions.devices
        self.attrs: dict[str, object] = {}
        self.infos: dict[str, Sequence[object]] = {}
        self.order: list[str] = []

    def module(self, node: ast.ClassDef) -> IRModule | None:
        """The module that a class describes, or None where something is wrong and reported."""
        before = len(self.report.errors)
        self.read_bases(node)
        type_parameters(node, self.program.error, self.report)
        self.scope.set(node.name, self.functions.module)
        Statements(self.values, self.report).read(docstring_removed(node.body), self.member)
        self.functions.run()
        if len(self.report.errors) > before:
            return None
        read = self.functions.read
        made = IRModule(
            {self.functions.gvars[name]: read[name] for name in self.order}
            | self.functions.added(),
            self.attrs,
            self.infos,
        )
        if not self.derived:
            return made
        return made.written_as(self.python.kind if self.python is not None else _any_python_module)

    def read_bases(self, node: ast.ClassDef) -> None:
        """Read what the class derives from: nothing, or a BasePyModule.

        Errors:
            ParseError: it derives from something else.
        """
        for base in node.bases:
            if self.python is None:  # nothing of a text is run, so the name is all there is to it
                known = ends_in(base, "BasePyModule")
            else:
                known = getattr(self.values.value(base), "__python_module__", False)
            if not known:
                raise self.program.error(
                    base, "the class of a module has no bases, unless that is BasePyModule"
                )
            self.derived = True
        if node.keywords:
            where = node.keywords[0].value
            raise self.program.error(where, "the class of a module takes no options")

    def python_function(self, node: ast.FunctionDef) -> None:
        """Add a Python function, whose body is not parsed."""
        self.functions.check_free(node.name, node.name, self.program, name_of(node))
        if not self.derived:
            raise self.program.error(
                name_of(node),
                f"Python function {node.name!r} needs a class derived from BasePyModule",
                hint="write class M(BasePyModule), with relaxpy.relax.BasePyModule",
            )
        text = text_without_mark(node, self.program)
        functions = {} if self.python is None else self.python.functions
        function = inspect.unwrap(functions[node.name]) if node.name in functions else None
        self.order.append(node.name)
        self.functions.define(node.name, python_function(node.name, text, function))

    def member(self, node: ast.stmt) -> None:
        """Read one statement of the class."""
        match node:
            case ast.FunctionDef(name=name):
                if is_python(node, self.values):
                    self.python_function(node)
                    return
                macro = macro_of(node, self.program, self.values)
                if macro is not None:
                    self.functions.check_free(name, None, self.program, name_of(node))
                    self.scope.set(name, macro)
                    return
                self.order.append(name)
                options = options_of(node, self.values)
                self.functions.declare(Definition(node, options, self.program, self.names_of(name)))
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found = self.values.value(value)
                if isinstance(found, BaseFunc):
                    self.functions.check_free(name, name, self.program, node.targets[0])
                    self.order.append(name)
                    self.functions.adopt(name, found)
                else:
                    self.scope.set(name, found)
            case ast.Expr(value=value):
                self.say(self.values.value(value), value)
            case ast.Pass():
                return
            case _:
                raise refusal(self.program, node, "a module")

    def say(self, form: object, node: ast.expr) -> None:
        """Apply a record of the module."""
        match form:
            case records.AttrsForm(of="module", attrs=attrs):
                if self.attrs and not form.overwrite:
                    raise self.program.error(
                        node,
                        "I.module_attrs is given twice",
                        hint="allow_overwrite=True puts these in place of the others",
                    )
                self.attrs = dict(attrs)
            case records.GlobalInfosForm(infos=infos):
                if self.infos:
                    raise self.program.error(node, "I.module_global_infos is given twice")
                self.infos.update(infos)
                self.functions.devices.infos = self.infos
            case _:
                raise self.program.error(node, "this does nothing in a module")


def _any_python_module(module: IRModule, device: object, target: object) -> Any:
    """An instance of the class that a text says a module to be, less what Python knows of it."""
    return hooks.call("python_module", module, device, target)


def read_function(definition: Definition, scope: Scope, guard: Guard = OPEN) -> BaseFunc:
    """The function that a definition describes by itself.

    Errors:
        ParseError, StructInfoError, WellFormedError: with all that is wrong with it.
    """
    name = definition.node.name
    with reported(definition.program) as report:
        reader = FunctionsReader(scope, report, guard)
        reader.declare(definition)
        reader.run()
        if not report.errors and definition.options.check_well_formed:
            check(reader.read[name], reader.kernels)
    func = reader.read[name]
    if not reader.captured:
        return func
    return replace(func, callees=Attrs(reader.captured)) if isinstance(func, Function) else func


def read_module(
    node: ast.ClassDef,
    program: Program,
    scope: Scope,
    options: records.ModuleOptions,
    *,
    guard: Guard = OPEN,
    names_of: Callable[[str], Sequence[Mapping[str, object]]] = lambda _: (),
    python: PythonParts | None = None,
) -> Any:
    """The module that a class describes, or what the decorator makes of it.

    Errors:
        ParseError, StructInfoError, WellFormedError: with all that is wrong with it.
    """
    found: IRModule | None = None
    with reported(program) as report:
        reader = ModuleReader(program, scope, report, guard=guard, names_of=names_of, python=python)
        found = reader.module(node)
        if found is not None and options.check_well_formed:
            check(found, reader.functions.kernels)
    assert found is not None
    try:
        return options.finish(found)
    except RelaxpyError as error:
        error.located(program.span(class_name_of(node)))
        raise
