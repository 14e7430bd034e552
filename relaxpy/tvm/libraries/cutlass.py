"""The matmuls, convolutions, attention and normalisations that CUTLASS computes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import cast

from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.traverse import reached
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.dpl import graph
from relaxpy.ir.relax.nodes import Call, Expr, GlobalVar, Var
from relaxpy.ir.relax.op.definition.registry import with_all_attributes
from relaxpy.ir.relax.op.definition.rules import is_one
from relaxpy.ir.relax.transform.fusion.fuse_ops_by_pattern import FuseOpsByPattern
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.support.entry import user_facing
from relaxpy.tvm.libraries import library_checks as checks
from relaxpy.tvm.relax import common


def _dtypes_agree(one: Expr, other: Expr) -> bool:
    dtypes = {checks.dtype_of(one), checks.dtype_of(other)}
    return dtypes in ({"float16"}, {"float32"}) or dtypes <= {"int8", "uint8"}


def _is_supported_product(context: graph.PatternCheckContext) -> bool:
    lhs, rhs = context.annotated_expr["lhs"], context.annotated_expr["rhs"]
    left, right = checks.dims_of(lhs), checks.dims_of(rhs)
    if checks.has_leaking_intermediate_variables(context) or not left or right is None:
        return False
    if not _dtypes_agree(lhs, rhs) or not _residual_fits(context):
        return False
    return isinstance(left[-1], tir.IntImm) and _batches_agree(left[:-2], right[:-2])


def _batches_agree(left: checks.Dims, right: checks.Dims) -> bool:
    """True if one operand is one matrix, or the batches are equal, so that strides are constant."""
    if is_one(checks.product(left)) or is_one(checks.product(right)):
        return True
    pairs = zip_longest(reversed(left), reversed(right), fillvalue=ops.const(1, "int64"))
    return all(prove_equal(a, b) for a, b in pairs)


def _is_supported_convolution(context: graph.PatternCheckContext) -> bool:
    data, weight = context.annotated_expr["lhs"], context.annotated_expr["rhs"]
    sizes, kernel = checks.dims_of(data), checks.dims_of(weight)
    if checks.has_leaking_intermediate_variables(context) or sizes is None or kernel is None:
        return False
    if not _dtypes_agree(data, weight) or any(isinstance(n, tir.Var) for n in sizes):
        return False
    call = with_all_attributes(cast("Call", context.annotated_expr["root"]))
    if (call.attrs["data_layout"], call.attrs["kernel_layout"]) != ("NHWC", "OHWI"):
        return False
    groups = ops.const(cast("int", call.attrs["groups"]), "int64")
    is_depthwise = prove_equal(sizes[3], groups) and prove_equal(kernel[0], groups)
    return not is_depthwise and _residual_fits(context)


def _residual_fits(context: graph.PatternCheckContext) -> bool:
    """True if a residual, if there is one, is as large as the result, and computed without it."""
    residual, bound = context.annotated_expr.get("residual"), context.value_to_bound_var
    if residual is None:
        return True
    root = bound[context.annotated_expr["root"]]
    var = residual if isinstance(residual, Var) else bound.get(residual)
    if var is None or var in _computed_from(root, context):
        return False
    out, dims = checks.dims_of(root), checks.dims_of(var)
    if out is None or not dims:
        return False
    is_bias = bool(prove_equal(dims[-1], out[-1])) and is_one(checks.product(dims[:-1]))
    return is_bias or checks.same_dims(out, dims)


def _computed_from(var: Var, context: graph.PatternCheckContext) -> set[Var]:
    """A variable, and those of the block that are computed from it."""
    return {*reached([var], lambda v: context.var_usages.get(v, ()))}


def _is_supported_attention(context: graph.PatternCheckContext) -> bool:
    return checks.is_stacked_along(context, 2)


def _is_supported_layer_norm(context: graph.PatternCheckContext) -> bool:
    call = with_all_attributes(cast("Call", context.matched_expr))
    axes = cast("tuple[int, ...]", call.attrs["axes"])
    is_last = len(axes) == 1 and axes[0] in (-1, checks.rank_of(call) - 1)
    return is_last and bool(call.attrs["center"]) and bool(call.attrs["scale"])


def _is_rms_norm(context: graph.PatternCheckContext) -> bool:
    kernel = cast("Call", context.annotated_expr["rms_norm"]).args[0]
    return isinstance(kernel, GlobalVar) and "rms_norm" in kernel.name_hint


def _base_patterns() -> Iterator[tuple[object, ...]]:
    """Matmuls and convolutions, those with the highest priority last."""
    for activation in (None, "", "relu", "silu"):
        bias = "" if activation is None else f"_bias{activation and '_' + activation}"
        pattern = common.make_fused_bias_activation_pattern(
            "relax.nn.conv2d", bool(bias), f"relax.nn.{activation}" if activation else None
        )
        yield (f"cutlass.conv2d{bias}", *pattern, _is_supported_convolution)
    for transposed in ("", "_transposed"):
        for activation in (None, "", "relu", "gelu"):
            bias = "" if activation is None else f"_bias{activation and '_' + activation}"
            product_ = common.make_matmul_pattern(
                bool(bias), f"relax.nn.{activation}" if activation else None, bool(transposed)
            )
            yield (f"cutlass.matmul{transposed}{bias}", *product_, _is_supported_product)


def _residual_patterns() -> Iterator[tuple[object, ...]]:
    """Matmuls and convolutions with a bias, and a residual that is added or multiplied."""
    for activation in ("", "relu"):
        for name, pattern, parts, check in _base_patterns():
            for op in ("add", "multiply") if "_bias" in cast("str", name) else ():
                block = common.make_residual_block_pattern(
                    (pattern, parts),  # type: ignore[arg-type]
                    f"relax.{op}",
                    f"relax.nn.{activation}" if activation else None,
                )
                end = activation and f"_{activation}"
                yield (f"{name}_residual_{op}{end}", *block, check)


def _attention_patterns() -> Iterator[tuple[object, ...]]:
    yield ("cutlass.attention", *common.make_attention_pattern())
    yield ("cutlass.attention_bias", *common.make_attention_pattern(with_bias=True))
    for start in ("split", "strided_slice"):
        for bias in (False, True):
            pattern = common.make_stacked_attention_pattern(start, bias)
            yield ("cutlass.stacked_attention", *pattern, _is_supported_attention)
    yield ("cutlass.attention_var_len", *common.make_attention_pattern(var_len=True))


graph.register_patterns(
    [
        *_base_patterns(),
        *_residual_patterns(),
        *_attention_patterns(),
        ("cutlass.layer_norm", *common.make_layer_norm_pattern(), _is_supported_layer_norm),
        ("cutlass.rms_norm", *common.make_rms_norm_pattern(), _is_rms_norm),
    ]
)


@user_facing
def partition_for_cutlass(mod: IRModule, annotate_codegen: bool = True) -> IRModule:
    """The module with a function for each group of operators that CUTLASS computes, for RunCodegen.

    The functions have the attribute `Codegen`, "cutlass", if `annotate_codegen`, and those that
    compute attention a workspace.
    """
    patterns = graph.get_patterns_with_prefix("cutlass")
    fused = FuseOpsByPattern(patterns, bind_constants=False, annotate_codegen=annotate_codegen)(mod)
    return checks.with_workspaces(fused, "cutlass")
