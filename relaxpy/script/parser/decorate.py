"""The decorators, which parse the text of a Python function or class to IR."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import update_wrapper
from types import FrameType, FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, overload

from typing_extensions import override

from relaxpy.errors import MisuseError, ParseError, RelaxpyError, check_type, close_names
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.nodes import BaseFunc
from relaxpy.script.language import records
from relaxpy.script.parser.reading import Definition, PythonClass, read_function, read_module
from relaxpy.script.parser.source import (
    BUILTINS,
    FromText,
    Program,
    Scope,
    captured_names,
    definition_of,
    frame_names,
    source_at,
)
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.entry import attach_position
from relaxpy.support.gc_pause import gc_paused


def _checked_options(options: Mapping[str, object], others: Mapping[str, object]) -> dict[str, Any]:
    """The `options` that are set; `others` are unknown."""
    for name, value in others.items():
        raise MisuseError(
            f"there is no option {name!r}; options are {', '.join(options)}",
            about=value,
            hint=close_names(name, options),
        )
    values = {name: value for name, value in options.items() if value is not None}
    for name, value in values.items():
        kind, expected = (str, "a string") if name == "name" else (bool, "True or False")
        check_type(value, kind, f"option {name} is {expected}")
    return values


T_co = TypeVar("T_co", covariant=True)


class Decorates(Protocol[T_co]):
    """The type of `R.function` and `T.prim_func`: bare, or with options."""

    @overload
    def __call__(self, function: Callable[..., Any], /) -> T_co: ...
    @overload
    def __call__(
        self,
        *,
        private: bool | None = None,
        pure: bool | None = None,
        name: str | None = None,
        check_well_formed: bool | None = None,
    ) -> Callable[[Callable[..., Any]], T_co]: ...


if TYPE_CHECKING:

    class ModuleOfText(IRModule):
        """The module that a decorated class becomes, whose functions are attributes."""

        def __getattr__(self, name: str) -> Any: ...


class DecoratesClass(Protocol):
    """The type of `I.ir_module`: bare, or with options."""

    @overload
    def __call__(self, cls: type, /) -> ModuleOfText: ...
    @overload
    def __call__(
        self, *, check_well_formed: bool | None = None
    ) -> Callable[[type], ModuleOfText]: ...


@dataclass(frozen=True, slots=True)
class FunctionDecorator(records.FunctionOptions):
    """A decorator that parses the text of a function to IR, bare or with options."""

    def __call__(
        self,
        function: Any = None,
        /,
        *,
        private: bool | None = None,
        pure: bool | None = None,
        name: str | None = None,
        check_well_formed: bool | None = None,
        **others: object,
    ) -> Any:
        """Parse `function`; without an argument, return a decorator.

        `name` is the name of the function if that differs from its name in Python.

        Errors:
            ParseError, StructInfoError, WellFormedError: with all diagnostics.
        """
        __tracebackhide__ = True
        if self.dialect != "relax":
            others.pop("s_tir", None)  # of TVM after v0.22: whether kernels may be scheduled
        frame = sys._getframe(1)
        options = {
            "private": private,
            "pure": pure,
            "name": name,
            "check_well_formed": check_well_formed,
        }
        try:
            if function is not None:
                return self.define(function, frame)
            return replace(self, **_checked_options(options, others))
        except RelaxpyError as error:
            attach_position(error, frame, (function,), {**options, **others})
            raise

    def define(self, function: Any, frame: FrameType) -> BaseFunc | Deferred:
        """The IR of `function`, which is decorated in `frame`.

        Errors:
            ParseError, StructInfoError, WellFormedError: with all diagnostics.
            MisuseError (also TypeError): it is not a function.
        """
        if isinstance(function, staticmethod):
            function = function.__func__
        if not isinstance(function, BaseFunc):
            function = inspect.unwrap(function)
        name = getattr(function, "__name__", "")
        is_lambda = isinstance(function, FromText) or name == "<lambda>"
        if is_lambda or not isinstance(function, FunctionType):
            decorator = "R.function" if self.dialect == "relax" else "T.prim_func"
            kind = "lambda" if is_lambda else type(function).__name__
            hint = "classes are decorated with @I.ir_module" if inspect.isclass(function) else None
            raise MisuseError(
                f"{decorator} decorates a function, found {kind}", about=function, hint=hint
            )
        scopes = captured_names(function, frame)
        if is_class_body(frame):
            return Deferred(self, function, scopes)
        return parse_function(self, function, scopes)


class RelaxDecorator(FunctionDecorator):
    """`R.function`: a graph-level function of Relax from the text of a Python function.

    The body is parsed and never runs as Python. The result is called like any function; in a class
    under `@I.ir_module` it is a member of the module. Options, as in `@R.function(private=True)`:

    private: only functions of its own module can call it. It has no `global_symbol`, so passes may
        inline, specialise, rename or remove it. A function is public by default.
    pure: False for a function with effects beyond its result, such as printing, random numbers or
        writing into an argument. It may then call impure functions; calls of it are bound outside
        of `R.dataflow()`, and no pass removes or repeats them.
    name: the name of the function in the module and in its text, where that of Python differs. It
        need not be an identifier.
    check_well_formed: False accepts a program that breaks rules of well-formedness, for tests of
        passes. Errors of the syntax and of struct info are raised all the same.
    """

    __slots__ = ()


class PrimFuncDecorator(FunctionDecorator):
    """`T.prim_func`: a kernel, a function of loops over buffers, from the text of a function.

    The body is parsed and never runs as Python. The result is called like any function, with arrays
    that it fills; `R.call_tir` calls it from graphs. Options, as in `@T.prim_func(private=True)`:

    private: only functions of its own module can call it. It has no `global_symbol`, so passes may
        fuse, inline or remove it. A kernel is public by default.
    pure: accepted, as in TVM, and without effect: a kernel writes into its arguments.
    name: the name of the kernel in the module and in its text, where that of Python differs. It
        need not be an identifier.
    check_well_formed: False accepts a kernel that breaks rules of well-formedness, for tests of
        passes. Errors of the syntax are raised all the same.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ModuleDecorator(records.ModuleOptions):
    """`I.ir_module`, bare or with options."""

    def __call__(
        self, cls: type | None = None, /, *, check_well_formed: bool | None = None, **others: object
    ) -> Any:
        """Parse the module in class `cls`; without an argument, return a decorator.

        Errors:
            ParseError, StructInfoError, WellFormedError: with all diagnostics.
            UnknownNameError, MisuseError: the class of an `R.rewriter` does not describe one.
        """
        __tracebackhide__ = True
        frame = sys._getframe(1)
        others.pop("s_tir", None)
        options = {"check_well_formed": check_well_formed}
        try:
            if cls is None:
                return replace(self, **_checked_options(options, others))
            if not inspect.isclass(cls):
                raise MisuseError(
                    f"{self.display_name} decorates a class, found {type(cls).__name__}",
                    about=cls,
                    hint="functions are decorated with @R.function or @T.prim_func"
                    if inspect.isroutine(cls)
                    else None,
                )
            return parse_class(self, cls, frame)
        except RelaxpyError as error:
            attach_position(error, frame, (cls,), {**options, **others})
            raise


@dataclass(frozen=True, slots=True)
class RewriterDecorator(ModuleDecorator):
    """`R.rewriter`, bare or with options, of a class with `pattern` and `replacement`."""

    display_name: ClassVar[str] = "R.rewriter"

    @override
    def finish(self, module: IRModule) -> Any:
        from relaxpy.ir.relax.dpl.rewriter import rewriter_of_module

        return rewriter_of_module(module)


class Deferred:
    """A decorated function in a class body, which is parsed with the class or on first use."""

    def __init__(
        self,
        options: records.FunctionOptions,
        function: FunctionType,
        scopes: Sequence[Mapping[str, object]],
    ) -> None:
        self.options = options
        self.scopes = scopes
        update_wrapper(self, function)
        self.__wrapped__ = function
        self._read: BaseFunc | None = None

    def __get__(self, owner: object, kind: type | None = None) -> BaseFunc:
        if self._read is None:
            self._read = parse_function(self.options, self.__wrapped__, self.scopes)
        return self._read

    def __call__(self, *args: object) -> Any:
        """Call the function; a staticmethod returns this object, not the result of `__get__`."""
        return self.__get__(None)(*args)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python reads these while it creates the class
            raise AttributeError(name)
        return getattr(self.__get__(None), name)


def is_class_body(frame: FrameType) -> bool:
    """True if `frame` executes the body of a class."""
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # the body of a function
        return False
    return frame.f_locals is not frame.f_globals and "__qualname__" in frame.f_locals


@gc_paused
def parse_function(
    options: records.FunctionOptions, function: FunctionType, scopes: Sequence[Mapping[str, object]]
) -> BaseFunc:
    """Parse the text of `function` to IR."""
    node, program = definition_of(function.__code__)
    result = read_function(Definition(node, options, program), Scope(*scopes, BUILTINS))
    return result.documented_as(function)


def _class_definition(cls: type, frame: FrameType) -> tuple[ast.ClassDef, Program]:
    """The definition of a class that is decorated in `frame`, or that Python finds."""
    program = source_at(frame.f_code.co_filename, frame.f_lineno, cls.__name__, frame.f_code)
    match program.tree.body:
        case [ast.ClassDef(name=name) as node, *_] if name == cls.__name__:
            return node, program
    try:
        line = inspect.getsourcelines(cls)[1]
        program = source_at(inspect.getsourcefile(cls) or "", line, cls.__name__)
    except (OSError, TypeError):
        pass
    match program.tree.body:
        case [ast.ClassDef() as node, *_]:
            return node, program
        case _:
            raise ParseError(f"the text of {cls.__name__!r} is not the definition of a class")


@gc_paused
def parse_class(options: records.ModuleOptions, cls: type, frame: FrameType) -> Any:
    """Parse the text of `cls` to a module; `frame` defines the class."""
    functions = {n: m for n, m in vars(cls).items() if isinstance(m, FunctionType | staticmethod)}
    scopes = {name: m.scopes for name, m in vars(cls).items() if isinstance(m, Deferred)}
    node, program = _class_definition(cls, frame)
    module_names = sys.modules[cls.__module__].__dict__ if cls.__module__ in sys.modules else {}
    scope = Scope(*frame_names(frame), frame.f_globals, module_names, BUILTINS)
    python = PythonClass(cls, functions, scopes)
    result = read_module(node, program, scope, options, python=python)
    if isinstance(result, IRModule):
        result.__name__ = cls.__name__
        for name, member in vars(cls).items():
            func = result.functions_by_name.get(name)
            if isinstance(member, Deferred) and func is not None:
                func.documented_as(member.__wrapped__)
    return result
