"""The matmuls that hipBLAS computes."""

from __future__ import annotations

from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.dpl import graph
from relaxpy.ir.relax.transform.fusion.fuse_ops_by_pattern import FuseOpsByPattern
from relaxpy.support.entry import user_facing
from relaxpy.tvm.libraries import cublas, library_checks as checks


def _is_supported(context: graph.PatternCheckContext) -> bool:
    """Return whether it is a float16 matmul that cuBLAS would compute, too."""
    dtype = checks.dtype_of(context.annotated_expr["lhs"])
    return dtype == "float16" and cublas.is_supported(context)


graph.register_patterns(cublas.products("hipblas", _is_supported))


@user_facing
def partition_for_hipblas(mod: IRModule) -> IRModule:
    """The module with a function for each matmul that hipBLAS computes, for RunCodegen.

    The functions have the attribute `Codegen`, "hipblas". Constants are passed.
    """
    patterns = graph.get_patterns_with_prefix("hipblas")
    return FuseOpsByPattern(patterns, annotate_codegen=True, bind_constants=False)(mod)
