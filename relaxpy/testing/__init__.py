"""Assertions for tests of programs and their results, and what test files of TVM tell pytest.

The latter needs pytest, which is imported when one of its names is first used.
"""

from typing import TYPE_CHECKING

from relaxpy.assertions.golden import assert_golden
from relaxpy.assertions.passes import assert_transforms, pass_diff
from relaxpy.assertions.strategies import inputs
from relaxpy.assertions.targets import available_targets, check_targets
from relaxpy.exec.runtime.compare import assert_allclose
from relaxpy.exec.runtime.random_inputs import random_inputs
from relaxpy.exec.runtime.verify import (
    assert_prim_expr_equal,
    check_bool_expr_is_true,
    check_numerical_grads,
)
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.lazy import finder as _finder

if TYPE_CHECKING:
    from relaxpy.pytest_compare import CompareBeforeAfter
    from relaxpy.pytest_helpers import (
        device_enabled,
        enabled_targets,
        fixture,
        main,
        parameter,
        parameters,
        parametrize_targets,
        requires_cublas,
        requires_cuda,
        requires_cuda_compute_version,
        requires_cudagraph,
        requires_cudnn,
        requires_cutlass,
        requires_gpu,
        requires_hexagon,
        requires_hipblas,
        requires_llvm,
        requires_llvm_minimum_version,
        requires_metal,
        requires_multi_gpu,
        requires_nccl,
        requires_nvcc_version,
        requires_opencl,
        requires_package,
        requires_rocm,
        requires_rpc,
        requires_tensorcore,
        requires_vulkan,
        uses_gpu,
    )

__all__ = [
    "CompareBeforeAfter",
    "assert_allclose",
    "assert_golden",
    "assert_prim_expr_equal",
    "assert_structural_equal",
    "assert_transforms",
    "available_targets",
    "check_bool_expr_is_true",
    "check_numerical_grads",
    "check_targets",
    "device_enabled",
    "enabled_targets",
    "fixture",
    "inputs",
    "main",
    "parameter",
    "parameters",
    "parametrize_targets",
    "pass_diff",
    "random_inputs",
    "requires_cublas",
    "requires_cuda",
    "requires_cuda_compute_version",
    "requires_cudagraph",
    "requires_cudnn",
    "requires_cutlass",
    "requires_gpu",
    "requires_hexagon",
    "requires_hipblas",
    "requires_llvm",
    "requires_llvm_minimum_version",
    "requires_metal",
    "requires_multi_gpu",
    "requires_nccl",
    "requires_nvcc_version",
    "requires_opencl",
    "requires_package",
    "requires_rocm",
    "requires_rpc",
    "requires_tensorcore",
    "requires_vulkan",
    "uses_gpu",
]

if not TYPE_CHECKING:  # it would make a type checker accept every name
    _LOCATIONS = {name: f"relaxpy.pytest_helpers:{name}" for name in __all__}
    _LOCATIONS["CompareBeforeAfter"] = "relaxpy.pytest_compare:CompareBeforeAfter"
    __getattr__ = _finder(globals(), _LOCATIONS)
