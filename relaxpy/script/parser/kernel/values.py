"""The values of expressions in a kernel, and calls of macros and of Python functions there."""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from relaxpy.errors import RelaxpyError, StructInfoTypeError
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relax.nodes import BaseFunc, Expr, GlobalVar
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, BufferRegion
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.script.language import tir_directives
from relaxpy.script.language.annotations import is_annotation
from relaxpy.script.language.eager import PendingFrame, handling, is_helper
from relaxpy.script.language.kernel_builder import FRAMES
from relaxpy.script.language.records import BufferSpec, Form, LoopForm, MetaVar
from relaxpy.script.language.wording import as_parse_error, describe, shown
from relaxpy.script.parser.evaluate import user_calls
from relaxpy.script.parser.evaluate.evaluator import Evaluator
from relaxpy.script.parser.evaluate.guard import Guard
from relaxpy.script.parser.evaluate.macros import Macro, Unrolling, macro_expansion
from relaxpy.script.parser.source.scope import Scope
from relaxpy.script.parser.source.text import Program
from relaxpy.support.entry import argument_node

if TYPE_CHECKING:
    from relaxpy.script.parser.kernel.function import KernelReader


class KernelEvaluator(Evaluator):
    """Evaluates the expressions of a kernel; functions called there may add statements to it."""

    def __init__(self, program: Program, scope: Scope, guard: Guard, reader: KernelReader) -> None:
        Evaluator.__init__(self, program, scope, guard)
        self.reader = reader
        self.shape_var_of = reader.shape_var
        self.unrolling = Unrolling()
        self.open_macros = 0

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
            return tir.Call(self.reader.returns(function, len(values)) or "", function, values)
        if isinstance(function, BaseFunc):
            raise self.error(
                node.func,
                "a kernel calls kernels of its own module",
                rule="TOP-7",
                hint="put both into the class of an @I.ir_module, and write Module.name(...)",
            )
        if isinstance(function, Macro):
            self.expand(function, args, kwargs, node)
            return None
        if is_helper(function):
            return self.call_helper(function, args, kwargs, node)
        try:
            result = user_calls.call(function, args, kwargs)
        except StructInfoTypeError as error:
            raise error.hinted(self._scalar_hint(node)) from None
        if isinstance(result, Expr):
            message = f"{ast.unparse(node.func)} is an operator of tensors"
            raise self.error(node.func, message, rule="TOP-7", hint=self._scalar_hint(node))
        return result

    def _scalar_hint(self, node: ast.Call) -> str:
        """The hint for a tensor operator in a kernel: the scalar function to use instead."""
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        name = {"maximum": "max", "minimum": "min", "power": "pow"}.get(name, name)
        if name in getattr(self.scope.find("T"), "__all__", ()):
            return f"a kernel computes numbers: write T.{name}(...)"
        return "a kernel computes numbers with operators and functions of T, such as T.max(x, y)"

    def loop_form(self, node: ast.expr) -> LoopForm:
        """Return the record of the iterations of a loop."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            function = self.value(node.func)
            if function is builtins.range:
                args, kwargs = self.arguments(node)
                if kwargs or len(args) not in (1, 2, 3):
                    raise self.error(
                        node, "range in a kernel takes an end, or a start, an end and a step"
                    )
                try:
                    return tir_directives.serial(*args[:2], step=args[2] if args[2:] else 1)
                except RelaxpyError as error:
                    at = argument_node(node, args, kwargs, error.about) or node
                    raise as_parse_error(error, self.program.span(at)) from None
        value = self.value(node)
        if isinstance(value, LoopForm):
            return value
        if isinstance(value, range):
            return tir_directives.serial(value.start, value.stop, step=value.step)
        raise self.error(
            node,
            f"a loop in a kernel runs over range, T.grid or the like, found {describe(value)}",
            hint=f"write range({shown(node)})"
            if isinstance(value, (int, PrimExpr))
            else "a Python function that the kernel calls can loop over values of Python",
        )

    def expand(self, macro: Macro, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> None:
        """Parse the statements of a macro here.

        Errors:
            ParseError: it is a macro of Relax, or it returns a value.
        """
        if macro.options.dialect != "tir":
            raise self.error(node.func, "a macro of Relax cannot be used in a kernel")
        for child in ast.walk(macro.node):
            if isinstance(child, ast.Return):
                hint = "write its result to a buffer, or make it a Python function"
                raise macro.program.error(child, "a macro of a kernel returns nothing", hint=hint)
        self.unrolling.add(len(macro.node.body), node, self)
        self.open_macros += 1
        try:
            with macro_expansion(self, macro, args, kwargs, node):
                self.reader.read(macro.body())
        except RecursionError:
            if self.open_macros > 1:
                raise
            raise self.error(node, f"macro {macro.node.name} uses itself too often") from None
        finally:
            self.open_macros -= 1

    def call_helper(
        self, function: Any, args: list[Any], kwargs: dict[str, Any], node: ast.Call
    ) -> object:
        """Return the result of a user's function, in which the directives of T are eager.

        Errors:
            ParseError: it creates a frame that it neither enters nor returns, or leaves one open.
        """
        frames: list[PendingFrame] = []
        opened: list[PendingFrame] = []

        def handler(form: Form) -> Any:
            if not isinstance(form, FRAMES):
                return self.reader.apply(form, node)
            frames.append(PendingFrame(form, self.reader.unnamed_frame(form, node), opened))
            return frames[-1]

        try:
            with handling(handler):
                result = user_calls.call(function, args, kwargs)
            for frame in frames:
                if frame in opened or not (frame.is_used or frame is result):
                    fault = "entered and never left" if frame in opened else "never entered"
                    raise self.error(node, f"{describe(frame.form)} is {fault}", hint="with ...:")
        finally:
            while opened:
                opened[-1].__exit__(GeneratorExit, GeneratorExit(), None)
            for frame in frames:
                frame.is_used = True
        return result.form if isinstance(result, PendingFrame) else result


def parameter_hint(annotation: object) -> str | None:
    """Return a replacement for an annotation that declares no parameter."""
    if annotation is BufferSpec:
        return 'a buffer has a shape and a datatype, as in T.Buffer((4, 4), "float32")'
    if is_annotation(annotation):
        return 'tensors of a kernel are buffers, as in T.Buffer((4, 4), "float32")'
    if annotation in (int, float, bool):
        return "scalars are of a datatype, as in n: T.int32"
    if isinstance(annotation, str):
        return "annotations are not strings: write n: T.int32"
    return None


def is_same(present: object, value: object) -> bool:
    """Return whether a name for `present` may be bound again, to `value`."""
    if isinstance(value, MetaVar):
        value = value.value
        if isinstance(value, (bool, int, float, str)):
            return type(present) is type(value) and present == value
    return present is value


def may_read(value: PrimExpr) -> bool:
    """Return whether `value` may depend on memory, which later stores change."""
    return any(isinstance(child, (BufferLoad, tir.Call)) for child in walk(value))
