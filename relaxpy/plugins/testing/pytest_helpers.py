"""Names of `tvm.testing` with which test files of TVM tell pytest how to run their tests.

`CompareBeforeAfter` is the base class of TVM's tests that compare programs before and after.
"""

from __future__ import annotations

import copy
import inspect
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from importlib.util import find_spec
from typing import Any, ClassVar, TypeAlias, TypeVar, cast

import pytest
from typing_extensions import override

from relaxpy.errors import MisuseError
from relaxpy.ir.core.device import Device, cpu
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.nodes import BaseFunc
from relaxpy.script.parser.decorate import Deferred
from relaxpy.script.tir import prim_func

F = TypeVar("F", bound=Callable[..., Any])

TARGETS = ("llvm",)
"""The targets of TVM whose programs run here."""


def main() -> None:
    """Run the tests of the file that is executed, and exit with the code of pytest."""
    sys.exit(pytest.main([sys.argv[0], *sys.argv[1:]]))


def parameter(
    *values: object, ids: Sequence[str] | None = None, by_dict: Mapping[str, object] | None = None
) -> Any:
    """A fixture that runs every test that uses it once for each of `values`.

    The names of these are `ids`, or the keys of `by_dict`, which has the values.
    """
    if by_dict is not None:
        values, ids = tuple(by_dict.values()), list(by_dict)

    @pytest.fixture(params=values, ids=ids)
    def as_fixture(*_self: object, request: pytest.FixtureRequest) -> Any:
        return request.param

    return as_fixture


def parameters(*rows: Sequence[object], ids: Sequence[str] | None = None) -> list[Any]:
    """A fixture for each column of the table `rows`; a test that uses some runs once for each row.

    The pytest plugin of relaxpy joins them.
    """
    group = ParameterGroup(rows, ids)
    return [group.column(i) for i in range(len(rows[0]))]


class ParameterGroup:
    """The rows of values that the fixtures of one table take together."""

    def __init__(self, rows: Sequence[Sequence[object]], ids: Sequence[str] | None) -> None:
        self.rows, self.ids = rows, ids

    def column(self, index: int) -> Any:
        """The fixture of a column."""

        def as_fixture(*_self: object) -> Any:
            raise AssertionError("the pytest plugin of relaxpy passes the value")

        as_fixture.relaxpy_column = (self, index)  # type: ignore[attr-defined]
        return pytest.fixture(as_fixture)


def fixture(func: F | None = None, *, cache_return_value: bool = False) -> Any:
    """A fixture; with `cache_return_value`, it is computed once for equal arguments.

    The arguments are values that can be pickled, and each test has a copy of the result.
    """
    if func is None:
        return partial(fixture, cache_return_value=cache_return_value)
    return pytest.fixture(_cached(func) if cache_return_value else func)


def _cached(func: F) -> F:
    results: dict[bytes, object] = {}

    @wraps(func)
    def cached(*args: object, **kwargs: object) -> object:
        key = pickle.dumps((args, kwargs))
        if key not in results:
            results[key] = func(*args, **kwargs)
        return copy.deepcopy(results[key])

    return cast("F", cached)


def enabled_targets() -> list[tuple[str, Device]]:
    """The target that tests run for by default, and its device."""
    return [("llvm", cpu())]


def device_enabled(target: object) -> bool:
    """True if programs for a target of TVM run here."""
    return str(target).split(" ", 1)[0] in TARGETS


def parametrize_targets(*targets: Any) -> Any:
    """Run a test for each of the targets, as arguments `target` and `dev`.

    Tests of targets that are not available are skipped. Without targets, it is the default one.
    """
    if len(targets) == 1 and callable(targets[0]):
        return parametrize_targets()(targets[0])
    cases = [
        pytest.param(target, cpu(), marks=_skip_unless(device_enabled(target), str(target)))
        for target in targets or TARGETS[:1]
    ]
    return pytest.mark.parametrize(("target", "dev"), cases)


def _skip_unless(available: bool, name: str) -> list[pytest.MarkDecorator]:
    return [] if available else [pytest.mark.skip(reason=f"{name} is not available")]


class Feature:
    """Something that a test requires; the test is skipped where it is not available."""

    def __init__(self, name: str, available: bool = False) -> None:
        self.name, self.available = name, available
        there = (
            "relaxpy has it or needs none" if available else "relaxpy has none, so it is skipped"
        )
        self.__doc__ = f"Marks a test of TVM that requires {name}: {there}."

    def __call__(self, func: F | None = None) -> Any:
        """Mark a test, or return the decorator that does."""
        if func is None:
            return self
        marked: Any = func
        for mark in self.marks():
            marked = mark(marked)
        return marked

    def marks(self) -> list[pytest.MarkDecorator]:
        """The marks of a test that requires the feature."""
        return _skip_unless(self.available, self.name)


def requires_package(*packages: str) -> Feature:
    """The feature that all of the packages of Python are installed."""
    missing = [name for name in packages if find_spec(name) is None]
    return Feature(", ".join(missing), not missing)


def requires_llvm_minimum_version(major_version: int) -> Feature:
    """The feature of a compiler, which no program needs here."""
    return Feature(f"LLVM {major_version}", True)


def requires_cuda_compute_version(major_version: int, minor_version: int = 0) -> Feature:
    """The feature of a GPU."""
    return Feature(f"CUDA compute capability {major_version}.{minor_version}")


def requires_nvcc_version(
    major_version: int, minor_version: int = 0, release_version: int = 0
) -> Feature:
    """The feature of a compiler for GPUs."""
    return Feature(f"nvcc {major_version}.{minor_version}.{release_version}")


requires_llvm = Feature("llvm", True)
requires_gpu = uses_gpu = Feature("gpu")
requires_multi_gpu = Feature("several gpus")
requires_cuda = Feature("cuda")
requires_cudagraph = Feature("cudagraph")
requires_cudnn = Feature("cudnn")
requires_cublas = Feature("cublas")
requires_cutlass = Feature("cutlass")
requires_hipblas = Feature("hipblas")
requires_nccl = Feature("nccl")
requires_tensorcore = Feature("tensorcore")
requires_rocm = Feature("rocm")
requires_metal = Feature("metal")
requires_vulkan = Feature("vulkan")
requires_opencl = Feature("opencl")
requires_hexagon = Feature("hexagon")
requires_rpc = Feature("rpc")


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
    module = transform(IRModule({"main": program.with_attr("global_symbol", "main")}))
    return module.functions_by_name["main"]
