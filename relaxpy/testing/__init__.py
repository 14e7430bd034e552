"""Assertions for tests of programs and their results, and what test files of TVM tell pytest.

The latter needs pytest, which is imported when one of its names is first used.
"""

from typing import TYPE_CHECKING

from relaxpy.assertions.golden import assert_golden as assert_golden
from relaxpy.assertions.passes import assert_transforms as assert_transforms, pass_diff as pass_diff
from relaxpy.assertions.strategies import inputs as inputs
from relaxpy.assertions.targets import (
    available_targets as available_targets,
    check_targets as check_targets,
)
from relaxpy.exec.runtime.compare import assert_allclose as assert_allclose
from relaxpy.exec.runtime.random_inputs import random_inputs as random_inputs
from relaxpy.exec.runtime.verify import (
    assert_prim_expr_equal as assert_prim_expr_equal,
    check_bool_expr_is_true as check_bool_expr_is_true,
    check_numerical_grads as check_numerical_grads,
)
from relaxpy.ir.equality.structural import assert_structural_equal as assert_structural_equal
from relaxpy.lazy import finder as _finder, lister as _lister, located as _located

if TYPE_CHECKING:
    from relaxpy.pytest_compare import CompareBeforeAfter as CompareBeforeAfter
    from relaxpy.pytest_helpers import *

_LOCATIONS = _located(
    {
        "relaxpy.pytest_compare": "CompareBeforeAfter",
        "relaxpy.pytest_helpers": "device_enabled enabled_targets fixture main parameter "
        "parameters parametrize_targets requires_cublas requires_cuda "
        "requires_cuda_compute_version "
        "requires_cudagraph requires_cudnn requires_cutlass requires_gpu requires_hexagon "
        "requires_hipblas requires_llvm requires_llvm_minimum_version requires_metal "
        "requires_multi_gpu requires_nccl requires_nvcc_version requires_opencl requires_package "
        "requires_rocm requires_rpc requires_tensorcore requires_vulkan uses_gpu",
    }
)
__all__ = [*_LOCATIONS, *(name for name in globals() if name.islower() and name[0] != "_")]

if not TYPE_CHECKING:  # it would make a type checker accept every name
    __getattr__ = _finder(globals(), _LOCATIONS)
    __dir__ = _lister(globals(), _LOCATIONS)
