"""The names of `tvm.testing` by which test files tell pytest how to run them."""

from typing import Any, ClassVar

import pytest

import relaxpy
from relaxpy import testing
from relaxpy.script import ir as I, tir as T

number = testing.parameter(1, 2, ids=["one", "two"])
named = testing.parameter(by_dict={"no": False, "yes": True})
left, right = testing.parameters((1, "a"), (2, "b"), ids=["first", "second"])


computed: list[object] = []


@testing.fixture
def both(left: int, right: str) -> tuple[int, str]:
    return left, right


@testing.fixture(cache_return_value=True)
def cached(number: int, both: tuple[int, str]) -> list[object]:
    computed.append((number, both))
    return [number, *both]


def test_a_test_runs_for_each_parameter(number: int) -> None:
    assert number in (1, 2)


@pytest.mark.parametrize("repeated", [0, 1])
def test_a_cached_fixture_is_computed_once_for_its_arguments(
    number: int, left: int, cached: list[object], repeated: int
) -> None:
    assert cached == [number, left, "ab"[left - 1]]
    cached.clear()
    assert len(computed) == len(set(computed))


class TestCachedMethods:
    @testing.fixture(cache_return_value=True)
    def cached(self, number: int) -> list[object]:
        return [number]

    def test_a_method_is_a_fixture(self, number: int, cached: list[object]) -> None:
        assert cached == [number]


def test_names_of_parameters(named: bool, request: pytest.FixtureRequest) -> None:
    assert request.node.callspec.id == ("yes" if named else "no")


def test_rows_of_parameters(left: int, right: str, request: pytest.FixtureRequest) -> None:
    assert (left, right, request.node.callspec.id) in {(1, "a", "first"), (2, "b", "second")}


class TestParametersOfAClass:
    member: ClassVar[Any] = testing.parameter(1, 2)

    def test_it_is_a_fixture(self, member: int, left: int) -> None:
        assert member in (1, 2)


class CompareWithTwo(testing.CompareBeforeAfter):
    """Tests of a pass that writes 2 where a kernel writes 1."""

    def transform(self):
        @relaxpy.transform.module_pass(opt_level=0)
        def replace(mod, ctx):
            return relaxpy.script.from_source(mod.script().replace("= 1", "= 2"))

        return replace


class TestKernels(CompareWithTwo):
    def before(a: T.Buffer((1,), "int32")):  # noqa: N805
        a[0] = 1

    def expected(a: T.Buffer((1,), "int32")):  # noqa: N805
        a[0] = 2


class TestKernelsWithoutNames(testing.CompareBeforeAfter):
    def transform(self):
        return lambda mod: relaxpy.IRModule({"main": mod["main"].without_attr("global_symbol")})

    def before(a: T.Buffer((1,), "int32")):  # noqa: N805
        a[0] = 1

    expected = before


class TestParsedKernels(CompareWithTwo):
    @T.prim_func
    def before(a: T.Buffer((1,), "int32")):
        a[0] = 1

    @T.prim_func
    def expected(a: T.Buffer((1,), "int32")):
        a[0] = 2


class TestModules(CompareWithTwo):
    @I.ir_module
    class Before:
        @T.prim_func
        def kernel(a: T.Buffer((1,), "int32")):
            a[0] = 1

    class Expected:
        def kernel(a: T.Buffer((1,), "int32")):  # noqa: N805
            a[0] = 2


class TestErrors(CompareWithTwo):
    transform = relaxpy.relax.transform.BindSymbolicVars({"n": 1}, "nothing")
    expected = relaxpy.errors.RelaxpyError

    @pytest.fixture
    def before(self):
        return TestModules.Before


def test_a_program_has_one_name() -> None:
    with pytest.raises(TypeError, match="before or Before, found both"):

        class Both(testing.CompareBeforeAfter):
            before = Before = None


def test_there_is_a_test_for_every_parameter(request: pytest.FixtureRequest) -> None:
    module = request.node.getparent(pytest.Module)
    name = "test_a_test_runs_for_each_parameter"
    assert {item.name for item in module.collect()} >= {f"{name}[one]", f"{name}[two]"}


@testing.parametrize_targets
def test_the_default_target_is_a_processor(target: str, dev: relaxpy.Device) -> None:
    assert (target, dev) == ("llvm", relaxpy.cpu())


@testing.parametrize_targets("llvm", "cuda")
def test_other_targets_are_skipped(target: str, dev: relaxpy.Device) -> None:
    assert testing.device_enabled(target)


@testing.requires_gpu
def test_there_is_no_gpu() -> None:
    raise AssertionError


@testing.requires_package("a_package_that_is_not_there")
def test_there_is_no_such_package() -> None:
    raise AssertionError


def test_marks_say_what_is_missing() -> None:
    assert testing.requires_llvm.marks() == []
    assert testing.requires_package("numpy").marks() == []
    assert testing.requires_llvm_minimum_version(8).marks() == []
    assert testing.requires_cuda().marks()[0].kwargs == {"reason": "cuda is not available"}
    assert testing.enabled_targets() == [("llvm", relaxpy.cpu())]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = testing.nothing  # type: ignore[attr-defined]


def test_the_names_of_errors() -> None:
    assert relaxpy.TVMError is relaxpy.error.TVMError is relaxpy.errors.RelaxpyError
    for result in ("R.add(x, y)", "R.memory.view(x, R.shape([3]))", "f(", "R.nothing(x)"):
        with pytest.raises(relaxpy.error.DiagnosticError):
            relaxpy.script.from_source(
                f'@R.function\ndef f(x: R.Tensor((2,), "float32")):\n    return {result}\n'
            )
