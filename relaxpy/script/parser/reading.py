"""Parses definitions: a function, or the functions of a module in the order of their calls."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from functools import partial
from typing import Any, cast

from relaxpy.errors import MisuseError, RelaxpyError, WellFormedError, counted
from relaxpy.ir import hooks
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.core.traverse import strongly_connected
from relaxpy.ir.diagnostics import render
from relaxpy.ir.link import link_function, link_functions, rename_callees, without_callees
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.analysis.well_formed import check_well_formed, recursive_without_annotation
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.call_graph import mentioned_globals
from relaxpy.ir.relax.nodes import BaseFunc, Function, GlobalVar
from relaxpy.ir.relax.nodes.expr import evaluating
from relaxpy.ir.relax.nodes.python_function import python_function, reindented
from relaxpy.ir.te.text import KernelText
from relaxpy.ir.tir.prim_func import PrimFunc, kernel_faults
from relaxpy.ir.tir.stmt import Stmt
from relaxpy.script.language import records
from relaxpy.script.language.annotations import Devices
from relaxpy.script.language.graph_builder import ModuleBuilder
from relaxpy.script.language.records import handling
from relaxpy.script.parser.evaluate.evaluator import Evaluator, TextReader
from relaxpy.script.parser.evaluate.guard import OPEN, Guard
from relaxpy.script.parser.evaluate.macros import Macro, MacroOptions, of_text
from relaxpy.script.parser.graph.expressions import GraphEvaluator
from relaxpy.script.parser.graph.relax_function import GraphReader
from relaxpy.script.parser.graph.signature_reader import Signature
from relaxpy.script.parser.graph.state import class_name_of, declared_pure, ends_in, name_of
from relaxpy.script.parser.source import (
    POISON,
    ModuleRef,
    Program,
    Report,
    Scope,
    Statements,
    TooManyErrors,
    bound_names,
    docstring_removed,
    refusal,
    too_deep,
    type_parameters,
)
from relaxpy.support.dataclass import dataclass, replace


def mentioned(node: ast.FunctionDef, known: Container[str]) -> list[str]:
    """The functions of the module that a function mentions, by name or as attributes.

    Parameters, and variables that a preceding statement always binds, hide functions.
    """
    spec = node.args
    params = {arg.arg for arg in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)}
    functions: dict[str, None] = {}
    bound = set(params)
    for statement in _unconditional(node.body):
        for child in ast.walk(statement):
            if isinstance(child, ast.Attribute) and child.attr in known:
                if not (isinstance(child.value, ast.Name) and child.value.id in params):
                    functions[child.attr] = None
            elif isinstance(child, ast.Name) and child.id in known and child.id not in bound:
                functions[child.id] = None
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.FunctionDef)):
            bound.update(bound_names(statement))
    return list(functions)


def _unconditional(nodes: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that are always parsed, including those of blocks."""
    for node in nodes:
        if isinstance(node, ast.With):
            yield from _unconditional(node.body)
        else:
            yield node


#: The report of the program that is read, which may be a function of a text.
_collecting: ContextVar[Report | None] = ContextVar("_collecting", default=None)


@contextmanager
def collecting_errors(program: Program) -> Iterator[Report]:
    """Collect errors in a report, and raise them together at the end.

    Errors:
        ParseError, StructInfoError, WellFormedError: with all diagnostics, of the class of the
            first one.
    """
    report = Report()
    is_outermost = _collecting.get() is None
    token = _collecting.set(report)
    try:
        with handling(None), evaluating(None):
            yield report
    except TooManyErrors:
        pass
    except RecursionError:
        report.errors.append(too_deep(program))
    except RelaxpyError as error:
        report.errors.append(error)
    finally:
        _collecting.reset(token)
    failure = report.failure()
    if failure is not None:
        if is_outermost:
            render(failure)
        raise failure.with_traceback(None) from None


def check(node: IRModule | BaseFunc, kernels: Sequence[PrimFunc]) -> None:
    """Check a function or module and the kernels that were read for it.

    Errors:
        WellFormedError: with all violations.
    """
    diagnostics = check_well_formed(node)
    diagnostics += [fault for kernel in kernels for fault in kernel_faults(kernel)]
    if diagnostics:
        raise WellFormedError(diagnostics)


@dataclass(slots=True)
class Definition:
    """A function to parse, and the names of its enclosing Python scopes."""

    node: ast.FunctionDef
    options: records.FunctionOptions
    program: Program
    scopes: Sequence[Mapping[str, object]] = ()
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
    node: ast.FunctionDef, values: Evaluator
) -> records.FunctionOptions | MacroOptions | None:
    """The first decorator that is R.function, T.prim_func or a macro; None if none is."""
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Name) and decorator.id == "staticmethod":
            continue
        value = values.value(decorator)
        if isinstance(value, records.FunctionOptions | MacroOptions):
            return value
    return None


def options_of(node: ast.FunctionDef, values: Evaluator) -> records.FunctionOptions:
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
        hint="leave it out: a module has functions only"
        if node.name == "__init__"
        else "decorate it with @R.function or @T.prim_func",
    )


@dataclass(frozen=True, slots=True)
class PythonClass:
    """The Python class of a module, its functions, and the enclosing scopes of decorated ones."""

    kind: type
    functions: Mapping[str, Callable[..., Any]]
    scopes: Mapping[str, Sequence[Mapping[str, object]]]


def is_python(node: ast.FunctionDef, values: Evaluator) -> bool:
    """True if a function is decorated by `I.pyfunc`."""
    return any(
        isinstance(values.value(decorator), records.PythonOptions)
        for decorator in node.decorator_list
        if ends_in(decorator, "pyfunc")
    )


def text_without_decorator(node: ast.FunctionDef, program: Program) -> str:
    """The text of a function without its indentation and the line `@I.pyfunc`."""
    start = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    removed = {d.lineno for d in node.decorator_list if ends_in(d, "pyfunc")}
    numbers = range(start, (node.end_lineno or node.lineno) + 1)
    lines = [program.lines[n - 1] for n in numbers if n not in removed]
    first = program.lines[node.lineno - 1]
    indent = first[: len(first) - len(first.lstrip())]
    return reindented("\n".join(lines), indent, "")


def macro_of(node: ast.FunctionDef, program: Program, values: Evaluator) -> Macro | None:
    """The macro that a function of a text defines; None if it is not one."""
    options = directive_of(node, values)
    if not isinstance(options, MacroOptions):
        return None
    return Macro(node, program, values.scope, options)


class FunctionsReader:
    """Reads functions that may call one another; `as_written` leaves what is wrong to a check."""

    def __init__(
        self, scope: Scope, report: Report, guard: Guard = OPEN, *, as_written: bool = False
    ) -> None:
        self.scope = scope
        self.report = report
        self.guard = guard
        self.builder = BlockBuilder()
        self.builder.context.as_written = as_written
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
        """Errors: ParseError if the text has a function `name` or the module one of this symbol."""
        is_taken = symbol in self.by_symbol or symbol in self.read
        taken = name if name in self.gvars else symbol if is_taken else None
        if taken is not None:
            message = f"the module has two functions named {taken!r}"
            raise program.error(at, message, rule="TOP-1", hint="rename one")

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
        """Read all definitions: kernels, then signatures, then bodies, callees before callers."""
        for name in self._adopted:
            self._link_adopted(name)
        kernels = [d for d in self.definitions.values() if d.options.dialect == "tir"]
        graphs = [d for d in self.definitions.values() if d.options.dialect == "relax"]
        for definition in kernels:
            self.kernel(definition)
        for definition in graphs:
            definition.signature = self.graph_reader(definition).signature(definition.node)
            if definition.signature.complete:
                sinfo = definition.signature.func_struct_info(pure=definition.options.pure)
                self.builder.declare_global(definition.gvar, sinfo)
            else:
                self.poison(definition)
        for definition in derivation_order(graphs):
            self.graph(definition)

    def poison(self, definition: Definition) -> None:
        """Suppress errors at the uses of a function that could not be read."""
        self.scope.frames[0][definition.node.name] = POISON
        self.module.__poisoned__.add(definition.node.name)

    def kernel(self, definition: Definition) -> None:
        """Read one kernel."""
        from relaxpy.script.parser.kernel import KernelReader  # modules without kernels need none

        reader = KernelReader(
            definition.program,
            self.scope.for_function(*definition.scopes),
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

        Errors: MisuseError if the kernel takes another number of arguments.
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
        """The declared result datatype of a kernel; None if the function is not a kernel."""
        name, returns = definition.gvar.name_hint, definition.node.returns
        if name not in self._returns:
            self._returns[name] = None
            if returns is not None and definition.options.dialect == "tir":
                from relaxpy.script.parser.kernel import KernelReader

                scope = self.scope.for_function(*definition.scopes)
                reader = KernelReader(definition.program, scope, guard=self.guard)
                self._returns[name] = reader.return_type(returns)
        return self._returns[name]

    def graph_reader(self, definition: Definition) -> GraphReader:
        """Create a reader for one graph function."""
        return GraphReader(
            definition.program,
            self.scope.for_function(*definition.scopes),
            self.builder,
            guard=self.guard,
            report=self.report,
            devices=self.devices,
            capture=self.capture,
            module_names=self.gvars if self.in_class else None,
        )

    def capture(self, func: BaseFunc, name: str) -> GlobalVar:
        """Add a function that was defined elsewhere to this module, and return its GlobalVar.

        Its name is the symbol of the function, or else `name`; a number is appended if it is taken.
        """
        gvar = self._entries.get(func)
        if gvar is None:
            taken = {*self.by_symbol, *self.read, *self.captured}
            symbol = str(func.attrs.get("global_symbol") or name)
            symbol, entries = link_function(func, symbol, self.captured, taken)
            for entry in entries.values():
                self._check_complete(entry, entries)
            self._enter(entries)
            gvar = self._entries[func] = GlobalVar(symbol)
        return gvar

    def _enter(self, entries: Mapping[str, BaseFunc]) -> None:
        for name, entry in entries.items():
            if name not in self.captured:
                self.captured[name] = entry
                self.builder.update_func(GlobalVar(name), entry)

    def _link_adopted(self, name: str) -> None:
        """Add the callees of the adopted function `name`, now that all names are known."""
        func = self.read[name]
        if isinstance(func, Function) and func.callees:
            taken = {*self.by_symbol, *self.read, *self.captured}
            callees = cast("Mapping[str, BaseFunc]", func.callees)
            entries = link_functions(callees, self.captured, taken)
            self._enter(dict(entries.values()))
            func = rename_callees(
                without_callees(func), {old: new for old, (new, _) in entries.items()}
            )
            self.define(name, func)
        self.captured[name] = func

    def _check_complete(self, func: BaseFunc, present: Iterable[str]) -> None:
        """Errors: MisuseError if `func` calls functions that remain in another module."""
        known = {*present, *self.by_symbol, *self.read, *self.captured}
        missing = [name for name in mentioned_globals(func) if name not in known]
        if missing:
            raise MisuseError(
                f"this function calls {', '.join(missing)} of the module that it belongs to",
                rule="SC-1",
                hint="decorate it outside the module, or define all of them in this module",
                about=func,
            )

    def added(self) -> dict[GlobalVar, BaseFunc]:
        """The functions that parsing has added to the module."""
        defined = set(self.gvars.values())
        return {v: f for v, f in self.builder.get().items() if v not in defined}

    def graph(self, definition: Definition) -> None:
        """Read the body of one graph function."""
        signature, pure = definition.signature, definition.options.pure
        assert signature is not None
        reader = self.graph_reader(definition)
        if signature.ret is None and not self.builder.context.as_written:
            gvar, name = definition.gvar, name_of(definition.node)
            error = recursive_without_annotation(gvar.name_hint, definition.program.span(name))
            reader.not_recursive = gvar, error
        func = reader.function(definition.node, signature, pure=pure, symbol=definition.symbol)
        if func is not None:
            self.define(definition.node.name, func)
        elif signature.ret is None:
            self.poison(definition)


def derivation_order(definitions: Sequence[Definition]) -> Iterator[Definition]:
    """Order graph functions so that those without a return annotation precede callers (DER-2)."""
    derived = {d.node.name for d in definitions if d.signature is None or d.signature.ret is None}
    if not derived or len(definitions) == 1:
        yield from definitions
        return
    by_name = {d.node.name: d for d in definitions}
    position = {name: k for k, name in enumerate(by_name)}
    mentions = {name: mentioned(d.node, derived) for name, d in by_name.items()}
    for group in strongly_connected(mentions):
        yield from (by_name[name] for name in sorted(group, key=position.__getitem__))


class ModuleReader(TextReader, ModuleBuilder):
    """Parses the class of a module; `python` is the Python class, if there is one."""

    def __init__(
        self,
        program: Program,
        scope: Scope,
        report: Report,
        guard: Guard,
        python: PythonClass | None,
        *,
        as_written: bool,
    ) -> None:
        ModuleBuilder.__init__(self)
        self.python = python
        self.is_derived = False
        self.report = report
        self.values = GraphEvaluator(program, scope, guard)
        self.functions = FunctionsReader(scope, report, guard, as_written=as_written)
        self.functions.in_class = True
        self.functions.devices = self.values.devices = self.devices
        self.order: list[str] = []

    def module(self, node: ast.ClassDef) -> IRModule | None:
        """The module that a class describes, or None if errors have been reported."""
        previous = len(self.report.errors)
        self.read_bases(node)
        type_parameters(node, self.error, self.report)
        self.scope.set(node.name, self.functions.module)
        Statements(self.values, self.report).read(docstring_removed(node.body), self.member)
        self.functions.run()
        if len(self.report.errors) > previous:
            return None
        gvars, read = self.functions.gvars, self.functions.read
        functions = {gvars[name]: read[name] for name in self.order} | self.functions.added()
        module = IRModule(functions, self.attrs, self.devices.global_infos)
        if not self.is_derived:
            return module
        # The class of a text is unknown to Python.
        kind = partial(hooks.call, "python_module") if self.python is None else self.python.kind
        return module.written_as(kind)

    def read_bases(self, node: ast.ClassDef) -> None:
        """Errors: ParseError if the class has a base other than BasePyModule, or options."""
        for base in node.bases:
            if self.python is None:  # a text is not run, so only the name is known
                is_allowed = ends_in(base, "BasePyModule")
            else:
                is_allowed = getattr(self.values.value(base), "__python_module__", False)
            if not is_allowed:
                raise self.error(base, "the class of a module has no base other than BasePyModule")
            self.is_derived = True
        if node.keywords:
            where = node.keywords[0].value
            raise self.error(where, "the class of a module takes no options")

    def python_function(self, node: ast.FunctionDef) -> None:
        """Add a Python function, whose body is not parsed."""
        self.functions.check_free(node.name, node.name, self.program, name_of(node))
        if not self.is_derived:
            raise self.error(
                name_of(node),
                f"Python function {node.name!r} needs a class derived from BasePyModule",
                hint="write class M(BasePyModule), with relaxpy.relax.BasePyModule",
            )
        text = text_without_decorator(node, self.program)
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
                scopes = () if self.python is None else self.python.scopes.get(name, ())
                self.functions.declare(Definition(node, options, self.program, scopes))
            case ast.Assign(targets=[ast.Name(id=name)], value=expr):
                value = self.values.value(expr)
                if isinstance(value, BaseFunc):
                    self.functions.check_free(name, name, self.program, node.targets[0])
                    self.order.append(name)
                    self.functions.adopt(name, value)
                else:
                    self.scope.set(name, value)
            case ast.Expr(value=expr):
                self.apply(self.values.value(expr), expr)
            case ast.Pass():
                return
            case _:
                raise refusal(self.program, node, "a module")


def read_function(definition: Definition, scope: Scope, guard: Guard = OPEN) -> BaseFunc:
    """Parse a definition outside of a module to a function.

    Errors:
        ParseError, StructInfoError, WellFormedError: with all diagnostics.
    """
    name = definition.node.name
    with collecting_errors(definition.program) as report:
        checked = definition.options.check_well_formed
        reader = FunctionsReader(scope, report, guard, as_written=not checked)
        reader.declare(definition)
        reader.run()
        if checked and not report.errors:
            check(reader.read[name], reader.kernels)
    func = reader.read[name]
    if reader.captured and isinstance(func, Function):
        return replace(func, callees=Attrs(reader.captured))
    return func


def read_module(
    node: ast.ClassDef,
    program: Program,
    scope: Scope,
    options: records.ModuleOptions,
    *,
    guard: Guard = OPEN,
    python: PythonClass | None = None,
) -> Any:
    """Parse a class to a module, or to the object that its decorator builds from the module.

    Errors:
        ParseError, StructInfoError, WellFormedError: with all diagnostics.
    """
    module: IRModule | None = None
    with collecting_errors(program) as report:
        checked = options.check_well_formed
        reader = ModuleReader(program, scope, report, guard, python, as_written=not checked)
        module = reader.module(node)
        if module is not None and checked:
            check(module, reader.functions.kernels)
    assert module is not None
    try:
        return options.finish(module)
    except RelaxpyError as error:
        error.located(program.span(class_name_of(node)))
        raise


def statements(text: KernelText, arguments: Mapping[str, object]) -> Stmt:
    """The statements of `text`, where its parameters have these values.

    Errors:
        ParseError: with all diagnostics.
    """
    from relaxpy.script.parser.kernel import KernelReader

    macro = of_text(text)
    with collecting_errors(macro.program) as report:
        reader = KernelReader(macro.program, macro.scope.for_function(), report=report)
        with reader.scope.inner(arguments), reader.body("function") as body:
            reader.read(macro.body())
    return body.fold()
