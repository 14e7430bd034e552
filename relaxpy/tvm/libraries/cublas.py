"""The matmuls that cuBLAS computes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.dpl import graph
from relaxpy.ir.relax.nodes import Call, Constant
from relaxpy.ir.relax.op.definition.rules import is_one
from relaxpy.ir.relax.transform.fusion.fuse_ops_by_pattern import FuseOpsByPattern
from relaxpy.ir.tir import expr as tir
from relaxpy.support.entry import user_facing
from relaxpy.tvm.libraries import library_checks as checks
from relaxpy.tvm.relax import common

_ALIGNMENT: Final = 16
"""The alignment of rows of 8-bit floats, in bytes."""


def is_supported(context: graph.PatternCheckContext) -> bool:
    """Return whether cuBLAS supports a match of a pattern of `products`."""
    named = context.annotated_expr
    lhs, rhs, root = named["lhs"], named["rhs"], named["root"]
    left, right = checks.dims_of(lhs), checks.dims_of(rhs)
    if checks.has_leaking_intermediate_variables(context) or left is None or right is None:
        return False
    dtype, out_dtype = checks.dtype_of(lhs), checks.dtype_of(root)
    if dtype != checks.dtype_of(rhs) or not left or not isinstance(left[-1], tir.IntImm):
        return False
    match dtype:
        case "float16" | "float32" | "bfloat16":
            pass
        case "int8":
            if "bias" in named or not (
                checks.is_multiple(left[-1], 4) and checks.is_multiple(right[-1], 4)
            ):
                return False
        case "float8_e4m3fn":
            if out_dtype == "float8_e5m2" or not _is_aligned(context, right, out_dtype):
                return False
        case _:
            return False
    return _is_plain_scaling(context) and _is_vector(context) and _batches_agree(left, right)


def _is_aligned(context: graph.PatternCheckContext, right: checks.Dims, out_dtype: str) -> bool:
    """Return whether the second operand is transposed in the match, and its rows are aligned."""
    root = context.annotated_expr["root"]
    is_transposed = isinstance(root, Call) and root.args[1] in context.matched_bindings
    if not is_transposed or len(right) < 2:
        return False
    rows = _ALIGNMENT // DataType(out_dtype).itemsize
    return checks.is_multiple(right[-1], _ALIGNMENT) and checks.is_multiple(right[-2], rows)


def _is_plain_scaling(context: graph.PatternCheckContext) -> bool:
    """True if a dequantisation, if there is one, is that by one scale, without a zero point."""
    scale, zero = (context.annotated_expr.get(name) for name in ("scale", "zp"))
    if not isinstance(scale, Constant) or not isinstance(zero, Constant):
        return scale is None and zero is None
    return not scale.data.ndim and not zero.data.ndim and not np.any(zero.data)


def _is_vector(context: graph.PatternCheckContext) -> bool:
    """Return whether a bias, if there is one, is a vector."""
    bias = context.annotated_expr.get("bias")
    if bias is None:
        return True
    dims = checks.dims_of(bias)
    return dims is not None and checks.rank_of(bias) > 0 and is_one(checks.product(dims[:-1]))


def _batches_agree(left: checks.Dims, right: checks.Dims) -> bool:
    """True if the batches are equal, or the second operand is one matrix; a variable may agree."""
    first, second = checks.product(left[:-2]), checks.product(right[:-2])
    if isinstance(first, tir.Var) or isinstance(second, tir.Var):
        return True
    return is_one(second) or prove_equal(first, second) is True


def products(library: str, check: graph.Check) -> Iterator[graph.FusionPattern]:
    """The patterns of a library for matmuls, with a bias and an activation where it adds them."""
    for transposed in ("", "_transposed"):
        for bias, activation in (("", ""), ("_bias", ""), ("_bias", "relu"), ("_bias", "gelu")):
            pattern, annotations = common.make_matmul_pattern(
                with_bias=bool(bias),
                activation=f"relax.nn.{activation}" if activation else None,
                transposed_rhs=bool(transposed),
            )
            name = f"{library}.matmul{transposed}{bias}{activation and '_' + activation}"
            yield graph.FusionPattern(name, pattern, annotations, check)


graph.register_patterns(
    [
        *products("cublas", is_supported),
        (
            "cublas.matmul_transposed_dequantize",
            *common.make_matmul_dequantize_pattern(transposed_rhs=True),
            is_supported,
        ),
        (
            "cublas.matmul_transposed_multiply",
            *common.make_matmul_multiply_pattern(transposed_rhs=True),
            is_supported,
        ),
    ]
)


@user_facing
def partition_for_cublas(mod: IRModule, bind_constants: bool = False) -> IRModule:
    """The module with a function for each matmul that cuBLAS computes, for RunCodegen.

    The functions have the attribute `Codegen`, "cublas". Constants stay inside of them if
    `bind_constants`, else they are passed.
    """
    patterns = graph.get_patterns_with_prefix("cublas")
    return FuseOpsByPattern(patterns, bind_constants, annotate_codegen=True)(mod)
