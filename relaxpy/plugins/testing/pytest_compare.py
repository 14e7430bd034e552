"""`CompareBeforeAfter`, the base class of TVM's tests that compare programs before and after."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

import pytest
from typing_extensions import override

from relaxpy.errors import MisuseError
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.ir.function import BaseFunc
from relaxpy.ir.module import IRModule
from relaxpy.script.parser.decorate import Deferred
from relaxpy.script.tir import prim_func

Program: TypeAlias = IRModule | BaseFunc
Fixture = type(pytest.fixture(lambda: None))


class CompareBeforeAfter:
    """A test whose class has a program `before`, a pass `transform` and the program `expected`.

    A program is a module, a PrimFunc, the text of one as a method without `self`, a class of
    these, a method that returns one, or a fixture; so is the pass. `expected` may be the class of
    the error that the pass raises. `Before` and `Expected` are the same names.
    """

    check_well_formed: ClassVar[bool] = True

    @override
    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        for name, convert in (
            ("before", cls._program),
            ("expected", cls._program),
            ("transform", lambda value: value),
        ):
            spellings = [key for key in (name, name.capitalize()) if key in vars(cls)]
            if len(spellings) > 1:
                raise MisuseError(f"a test has {name} or {name.capitalize()}, found both")
            for key in spellings:
                setattr(cls, name, _fixture(vars(cls)[key], convert))

    @classmethod
    def _program(cls, value: Any) -> Any:
        """The program that the attribute of a class describes."""
        if inspect.isclass(value) and not issubclass(value, BaseException):
            members = {k: cls._program(v) for k, v in vars(value).items() if k[0] != "_"}
            return IRModule({k: f.with_attr("global_symbol", k) for k, f in members.items()})
        if isinstance(value, Deferred):
            return value.__get__(cls)
        if inspect.isfunction(value):
            return prim_func(check_well_formed=cls.check_well_formed)(value)
        return value

    def test_compare(self, before: Any, expected: Any, transform: Any) -> None:
        """Compare the result of the pass on the program `before` with `expected`."""
        if not isinstance(expected, (IRModule, BaseFunc)):
            with pytest.raises(expected):
                _apply(transform, before)
            return
        after = _apply(transform, before)
        if isinstance(after, BaseFunc):  # the names of functions are not compared
            after = after.with_attr("global_symbol", "main")
            expected = expected.with_attr("global_symbol", "main")
        assert_structural_equal(after, expected)


def _fixture(value: Any, convert: Callable[[object], object]) -> Any:
    """The fixture of an attribute, which is converted, or called, when a test needs it."""
    if isinstance(value, Fixture) and not inspect.isfunction(value):
        return value
    is_method = inspect.isfunction(value) and "self" in inspect.signature(value).parameters

    def fixture(self: object) -> object:
        return value(self) if is_method else convert(value)

    return pytest.fixture(fixture)


def _apply(transform: Callable[[IRModule], IRModule], program: Program) -> Program:
    """Apply a pass to a module, or to a function as `main` of a module."""
    if isinstance(program, IRModule):
        return transform(program)
    return transform(IRModule({"main": program.with_attr("global_symbol", "main")}))["main"]
