"""The state of a kernel while it is read."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from typing_extensions import override

from relaxpy.errors import ParseError, RelaxpyError, Span
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.relax.nodes import BaseFunc, GlobalVar
from relaxpy.ir.tir import expr as tir, ops, stmt
from relaxpy.ir.tir.buffer import Buffer, BufferRegion
from relaxpy.ir.tir.expr import Var
from relaxpy.script.language.eager import PendingFrame, handling, is_helper
from relaxpy.script.language.kernel_frames import FRAMES, RecordBuilder
from relaxpy.script.language.records import Form
from relaxpy.script.language.wording import as_parse_error, describe
from relaxpy.script.parser.evaluate import door
from relaxpy.script.parser.evaluate.displays import VALUE_ERRORS
from relaxpy.script.parser.evaluate.evaluator import Evaluator
from relaxpy.script.parser.evaluate.guard import OPEN, Guard
from relaxpy.script.parser.evaluate.macros import Macro, Unrolling, expanded
from relaxpy.script.parser.source.report import Report, Statements
from relaxpy.script.parser.source.scope import Scope
from relaxpy.script.parser.source.text import Positioned, Program


class KernelEvaluator(Evaluator):
    """Expressions of a kernel; functions of the module are called by the dtype that they return."""

    def __init__(
        self,
        program: Program,
        scope: Scope,
        guard: Guard,
        returns: Callable[[GlobalVar, int], DataType | None],
    ) -> None:
        Evaluator.__init__(self, program, scope, guard)
        self.returns = returns
        self.expand: Callable[[Macro, list[Any], dict[str, Any], ast.Call], None] | None = None
        self.help: Callable[[Any, list[Any], dict[str, Any], ast.Call], object] | None = None

    @override
    def operand(self, value: Any) -> Any:
        return ops.convert(value) if isinstance(value, BufferRegion) else value

    @override
    def on_call(
        self, function: Any, args: list[Any], kwargs: dict[str, Any], node: ast.Call
    ) -> object:
        if isinstance(function, GlobalVar):
            if kwargs:
                raise self.error(node.keywords[0], "a function of the module takes no keywords")
            values = [a.data if isinstance(a, Buffer) else ops.convert(a) for a in args]
            return tir.Call(self.returns(function, len(values)) or "", function, values)
        if isinstance(function, BaseFunc):
            raise self.error(
                node.func,
                "a kernel calls kernels of its own module",
                rule="TOP-7",
                hint="put both into the class of an @I.ir_module, and write Module.name(...)",
            )
        if isinstance(function, Macro) and self.expand is not None:
            return self.expand(function, args, kwargs, node)
        if is_helper(function) and self.help is not None:
            return self.help(function, args, kwargs, node)
        return door.call(function, args, kwargs)


class KernelState(RecordBuilder):
    """The state of a kernel while it is read, and the location of errors in it."""

    def __init__(
        self,
        program: Program,
        scope: Scope,
        *,
        guard: Guard = OPEN,
        report: Report | None = None,
        returns: Callable[[GlobalVar, int], DataType | None] = lambda _, __: None,
    ) -> None:
        RecordBuilder.__init__(self)
        self.report = report if report is not None else Report()
        self.values = KernelEvaluator(program, scope, guard, returns)
        self.values.expand = self.expand
        self.values.help = self.help
        self.values.size_of = self.size
        self.statements = Statements(self.values, self.report)
        self.sizes: dict[str, Var] = {}
        self.unrolling = Unrolling()

    @property
    def program(self) -> Program:
        """The text that is being read; during the expansion of a macro, its text."""
        return self.values.program

    @property
    def scope(self) -> Scope:
        """The scope of names in that text."""
        return self.values.scope

    def size(self, name: str) -> Var:
        """The variable for a TypeVar of this name."""
        if name not in self.sizes:
            self.sizes[name] = Var(name, INT64)
            self.named.add(self.sizes[name])
        return self.sizes[name]

    def expand(self, macro: Macro, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> None:
        """Read the statements of a macro here.

        Errors:
            ParseError: it is a macro of Relax.
        """
        if macro.options.dialect != "tir":
            raise self.error(node.func, "a macro of Relax cannot be used in a kernel")
        for part in ast.walk(macro.node):
            if isinstance(part, ast.Return):
                hint = "write its result to a buffer, or make it a Python function"
                raise macro.program.error(part, "a macro of a kernel returns nothing", hint=hint)
        self.unrolling.add(len(macro.node.body), node, self.values)
        with expanded(self.values, macro, args, kwargs, node):
            self.statements.read(macro.body(), self.statement)

    def help(
        self, function: Any, args: list[Any], kwargs: dict[str, Any], node: ast.Call
    ) -> object:
        """The result of a user's function, in which the directives of T are eager.

        Errors:
            ParseError: it makes a frame that it neither enters nor gives back, or leaves one open.
        """
        made: list[PendingFrame] = []
        opened: list[PendingFrame] = []

        def handler(form: Form) -> Any:
            if not isinstance(form, FRAMES):
                return self.apply(form, node)
            made.append(PendingFrame(form, self.unnamed_frame(form, node), opened))
            return made[-1]

        try:
            with handling(handler):
                found = door.call(function, args, kwargs)
            for held in made:
                if held in opened or not (held.is_used or held is found):
                    fault = "entered and never left" if held in opened else "made and never entered"
                    raise self.error(node, f"{describe(held.form)} is {fault}", hint="with ...:")
        finally:
            while opened:
                opened[-1].__exit__(GeneratorExit, GeneratorExit(), None)
            for held in made:
                held.is_used = True
        return found.form if isinstance(found, PendingFrame) else found

    @override
    def error(self, at: Positioned, message: str, **details: Any) -> ParseError:
        return self.program.error(at, message, **details)

    @override
    def span(self, at: Positioned) -> Span:
        return self.program.span(at)

    @override
    def call_at(self, at: Positioned, make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return make(*args, **kwargs)
        except RelaxpyError as error:
            raise as_parse_error(error, self.program.span(at)) from None
        except VALUE_ERRORS as error:
            raise self.error(at, str(error)) from None

    def statement(self, node: ast.stmt) -> None:
        """Read one statement."""
        raise AssertionError("given by the reader of statements")

    def inner(self, nodes: Sequence[ast.stmt]) -> stmt.Stmt:
        """Read `nodes` as one statement, in a new scope."""
        with self.body() as body:
            self.read_inside(nodes)
        return body.fold()

    def read_inside(
        self, nodes: Sequence[ast.stmt], names: dict[str, object] | None = None
    ) -> None:
        """Read `nodes` into the innermost body, in a new scope."""
        with self.scope.inner(names):
            self.statements.read(nodes, self.statement)
