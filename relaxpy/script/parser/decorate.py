"""The decorators: from a Python function or class to the IR that its text describes."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import FrameType, FunctionType
from typing import Any, Literal

from relaxpy.errors import MisuseError, ParseError, RelaxpyError
from relaxpy.ir.relax.nodes import BaseFunc
from relaxpy.script.parser.kernel import KernelReader
from relaxpy.script.parser.report import Full, Report
from relaxpy.script.parser.scope import BUILTINS, Scope, captured_names
from relaxpy.script.parser.text import Program, source_of


@dataclass(frozen=True, slots=True)
class FunctionDecorator:
    """`R.function` and `T.prim_func`, bare or with options."""

    dialect: Literal["relax", "tir"]
    private: bool = False
    pure: bool = True
    check_well_formed: bool = True

    def __call__(
        self,
        function: Any = None,
        /,
        *,
        private: bool | None = None,
        pure: bool | None = None,
        check_well_formed: bool | None = None,
    ) -> Any:
        """The function that the text of `function` describes; without one, a decorator.

        Errors:
            ParseError, StructInfoError, WellFormedError: with all that is wrong with the text.
        """
        __tracebackhide__ = True
        if function is None:
            return self._with(private=private, pure=pure, check_well_formed=check_well_formed)
        if isinstance(function, staticmethod):
            function = function.__func__
        function = inspect.unwrap(function)
        if not isinstance(function, FunctionType):
            raise MisuseError(f"this decorates a function, found {type(function).__name__}")
        frame = sys._getframe(1)
        if is_class_body(frame):
            return Deferred(self, function, captured_names(function, frame))
        try:
            return read_function(self, function, captured_names(function, frame))
        except RelaxpyError as error:
            raise error.with_traceback(None) from None

    def _with(self, **options: bool | None) -> FunctionDecorator:
        given = {name: value for name, value in options.items() if value is not None}
        for name, value in given.items():
            if not isinstance(value, bool):
                raise MisuseError(f"option {name} is True or False, found {value!r}", about=value)
        return replace(self, **given)  # type: ignore[arg-type]


class Deferred:
    """A decorated function in the body of a class: read with the class, or at its first use."""

    def __init__(
        self,
        decorator: FunctionDecorator,
        function: FunctionType,
        names: list[Mapping[str, object]],
    ) -> None:
        self.decorator = decorator
        self.function = function
        self.names = names
        self._read: BaseFunc | None = None
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__wrapped__ = function

    def __get__(self, owner: object, kind: type | None = None) -> BaseFunc:
        if self._read is None:
            self._read = read_function(self.decorator, self.function, self.names)
        return self._read


def is_class_body(frame: FrameType) -> bool:
    """Whether `frame` runs the body of a class."""
    optimised = frame.f_code.co_flags & inspect.CO_OPTIMIZED
    return (
        not optimised and frame.f_locals is not frame.f_globals and "__qualname__" in frame.f_locals
    )


def read_function(
    decorator: FunctionDecorator, function: FunctionType, names: list[Mapping[str, object]]
) -> BaseFunc:
    """The IR that the text of `function` describes.

    Errors:
        ParseError, StructInfoError, WellFormedError: with all that is wrong with the text.
    """
    __tracebackhide__ = True
    program = source_of(function.__code__)
    node = definition_in(program, function.__name__)
    scope = Scope(*names, BUILTINS)
    report = Report()
    result: BaseFunc | None = None
    try:
        result = read_definition(decorator, node, program, scope, report)
    except Full:
        result = None
    except RecursionError:
        report.errors.append(ParseError(f"{function.__name__} is nested too deeply to be read"))
    failure = report.failure()
    if failure is not None:
        raise failure
    assert result is not None
    return result


def definition_in(program: Program, name: str) -> ast.FunctionDef:
    """The definition that a text consists of.

    Errors:
        ParseError: it is something else, such as a lambda or an async function.
    """
    match program.tree.body:
        case [ast.FunctionDef() as node, *_]:
            return node
        case [ast.AsyncFunctionDef() as node, *_]:
            raise program.error(
                node, "a program waits for nothing: write def in place of async def"
            )
        case _:
            raise ParseError(f"the text of {name!r} is no definition of a function")


def read_definition(
    decorator: FunctionDecorator,
    node: ast.FunctionDef,
    program: Program,
    scope: Scope,
    report: Report,
) -> BaseFunc | None:
    """The function defined at `node`, or None where something in it is wrong and reported."""
    reader = KernelReader(program, scope, report=report)
    return reader.function(node, private=decorator.private)
