"""`R.macro` and `T.macro`: statements that are parsed again at each use."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from types import FunctionType
from typing import Any, Literal

from relaxpy.errors import MisuseError, ParseTypeError, RelaxpyError, check_type
from relaxpy.ir.te.text import KernelText
from relaxpy.script.parser.evaluate.evaluator import Evaluator, signature_fault
from relaxpy.script.parser.source import (
    BUILTINS,
    FromText,
    Program,
    Scope,
    captured_names,
    definition_of,
    docstring_removed,
)
from relaxpy.support.dataclass import dataclass, replace

MAX_UNROLLED = 50_000


@dataclass(frozen=True, slots=True)
class MacroOptions:
    """The options of a macro's decorator."""

    dialect: Literal["relax", "tir"]
    hygienic: bool = True


@dataclass(frozen=True, slots=True)
class Macro(FromText):
    """A macro and its definition; `bound` are arguments that precede those of a call."""

    node: ast.FunctionDef
    program: Program
    scope: Scope
    options: MacroOptions
    bound: tuple[object, ...] = ()

    @property
    def hygienic(self) -> bool:
        """True if the macro is hygienic: names refer to the scope of its definition."""
        return self.options.hygienic

    def __get__(self, owner: object, kind: type | None = None) -> Macro:
        """The macro as a method."""
        return self if owner is None else replace(self, bound=(owner,))

    def __call__(self, *args: object, **kwargs: object) -> None:
        """Reject a call by Python: a macro can be used only where a program is parsed.

        Errors: MisuseError, since no program is being parsed here.
        """
        raise MisuseError(f"macro {self.node.name!r} can be used only in a parsed function")

    def body(self) -> list[ast.stmt]:
        """The statements without the docstring."""
        return docstring_removed(self.node.body)

    def signature(self, values: Evaluator) -> inspect.Signature:
        """The parameters of the macro; `values` evaluates the defaults in its scope."""
        spec, kinds = self.node.args, inspect.Parameter
        for error in self.program.repeated(spec):
            raise error
        plain = [*spec.posonlyargs, *spec.args]
        required: list[ast.expr | None] = [None] * (len(plain) - len(spec.defaults))
        parameters = [
            _parameter(arg, kinds.POSITIONAL_OR_KEYWORD, default, values)
            for arg, default in zip(plain, [*required, *spec.defaults], strict=True)
        ]
        if spec.vararg is not None:
            parameters.append(kinds(spec.vararg.arg, kinds.VAR_POSITIONAL))
        for arg, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
            parameters.append(_parameter(arg, kinds.KEYWORD_ONLY, default, values))
        if spec.kwarg is not None:
            parameters.append(kinds(spec.kwarg.arg, kinds.VAR_KEYWORD))
        return inspect.Signature(parameters)


def _parameter(
    arg: ast.arg, kind: Any, default: ast.expr | None, values: Evaluator
) -> inspect.Parameter:
    if default is None:
        return inspect.Parameter(arg.arg, kind)
    return inspect.Parameter(arg.arg, kind, default=values.value(default))


@dataclass(frozen=True, slots=True)
class MacroDecorator(MacroOptions):
    """`R.macro` and `T.macro`, bare or with options."""

    def __call__(self, function: Any = None, /, *, hygienic: bool | None = None) -> Any:
        """Parse `function` as a macro; without an argument, return a decorator.

        Errors:
            MisuseError (also TypeError, ValueError): the decorated object is not a function.
            ParseError: the text of the function cannot be found.
        """
        __tracebackhide__ = True
        if function is None:
            check_type(hygienic, bool | None, "option hygienic is True or False")
            return self if hygienic is None else replace(self, hygienic=hygienic)
        if not isinstance(function, FunctionType):
            actual = "a lambda" if isinstance(function, FromText) else f"{function!r:.60}"
            raise MisuseError(
                f"a macro decorates a function, found {actual}",
                about=function,
                hint="options are written with their names: macro(hygienic=False)",
            )
        names = captured_names(function, sys._getframe(1))
        try:
            node, program = definition_of(function.__code__)
            return Macro(node, program, Scope(*names, BUILTINS), self)
        except RelaxpyError as error:
            raise error.with_traceback(None) from None


@cache
def of_text(text: KernelText) -> Macro:
    """A text of relaxpy's own as a macro."""
    node, program = definition_of(text.function.__code__)
    scope = Scope(text.function.__globals__, BUILTINS)
    return Macro(node, program, scope, MacroOptions("tir"))


class Unrolling:
    """Counts statements that are parsed repeatedly, to limit the work that a short text causes."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, statements: int, node: ast.expr, values: Evaluator) -> None:
        """Count `statements` that `node` expands to.

        Errors:
            ParseError: there are too many now.
        """
        if self.count + statements > MAX_UNROLLED:
            raise values.error(
                node, f"loops and macros unroll to more than {MAX_UNROLLED} statements"
            )
        self.count += statements


@contextmanager
def macro_expansion(
    values: Evaluator, macro: Macro, args: Sequence[Any], kwargs: Mapping[str, Any], node: ast.Call
) -> Iterator[None]:
    """Open the text and the scope in which the macro's statements are parsed."""
    definition = macro.scope.for_function()
    with values.reading(macro.program, definition):
        signature = macro.signature(values)
    fault = signature_fault(node, signature, [*macro.bound, *args], kwargs)
    if fault is not None:
        raise values.error(fault.node, fault.message, ParseTypeError, hint=fault.hint)
    bound = signature.bind(*macro.bound, *args, **kwargs)
    bound.apply_defaults()
    scope = definition if macro.options.hygienic else values.scope
    with values.reading(macro.program, scope), scope.inner(bound.arguments):
        yield
