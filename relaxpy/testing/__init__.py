"""Assertions for tests of programs and their results, and what test files of TVM tell pytest.

The latter needs pytest, which is imported when one of its names is first used."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.testing")
if TYPE_CHECKING:
    from relaxpy.ir.equality.structural import assert_structural_equal as assert_structural_equal
    from relaxpy.plugins.testing.golden import assert_golden as assert_golden
    from relaxpy.plugins.testing.pytest_helpers import CompareBeforeAfter as CompareBeforeAfter, device_enabled as device_enabled, enabled_targets as enabled_targets, fixture as fixture, main as main, parameter as parameter, parameters as parameters, parametrize_targets as parametrize_targets, requires_cublas as requires_cublas, requires_cuda as requires_cuda, requires_cuda_compute_version as requires_cuda_compute_version, requires_cudagraph as requires_cudagraph, requires_cudnn as requires_cudnn, requires_cutlass as requires_cutlass, requires_gpu as requires_gpu, requires_hexagon as requires_hexagon, requires_hipblas as requires_hipblas, requires_llvm as requires_llvm, requires_llvm_minimum_version as requires_llvm_minimum_version, requires_metal as requires_metal, requires_multi_gpu as requires_multi_gpu, requires_nccl as requires_nccl, requires_nvcc_version as requires_nvcc_version, requires_opencl as requires_opencl, requires_package as requires_package, requires_rocm as requires_rocm, requires_rpc as requires_rpc, requires_tensorcore as requires_tensorcore, requires_vulkan as requires_vulkan, uses_gpu as uses_gpu
    from relaxpy.plugins.testing.random_inputs import random_inputs as random_inputs
    from relaxpy.plugins.testing.strategies import inputs as inputs
    from relaxpy.plugins.testing.targets import assert_transforms as assert_transforms, available_targets as available_targets, check_targets as check_targets, pass_diff as pass_diff
    from relaxpy.plugins.testing.verify import assert_allclose as assert_allclose, assert_prim_expr_equal as assert_prim_expr_equal, check_bool_expr_is_true as check_bool_expr_is_true, check_numerical_grads as check_numerical_grads
