"""The names of `tvm.testing` by which test files tell pytest how to run them."""

import pytest

import relaxpy
from relaxpy import testing

number = testing.parameter(1, 2, ids=["one", "two"])
named = testing.parameter(by_dict={"no": False, "yes": True})
seen: list[int] = []


@testing.fixture(cache_return_value=True)
def cached() -> object:
    return object()


def test_a_test_runs_for_each_parameter(number: int, cached: object) -> None:
    assert number in (1, 2)
    seen.append(number)


def test_names_of_parameters(named: bool, request: pytest.FixtureRequest) -> None:
    assert request.node.callspec.id == ("yes" if named else "no")


def test_every_parameter_was_used() -> None:
    assert seen == [1, 2]


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
