"""Names of `tvm.testing` with which test files of TVM tell pytest how to run their tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, TypeVar

import pytest

from relaxpy.ir.core.device import Device, cpu

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
    """A fixture, which is computed once for the file if `cache_return_value`."""
    decorator = pytest.fixture(scope="module" if cache_return_value else "function")
    return decorator if func is None else decorator(func)


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
