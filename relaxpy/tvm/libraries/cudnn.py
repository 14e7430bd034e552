"""The convolutions and the attention that cuDNN computes."""

from __future__ import annotations

from functools import partial
from typing import cast

from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.dpl import graph
from relaxpy.ir.relax.nodes import Call, is_call_of
from relaxpy.ir.relax.op.definition.registry import with_all_attributes
from relaxpy.ir.relax.transform.fusion.fuse_ops_by_pattern import FuseOpsByPattern
from relaxpy.support.entry import user_facing
from relaxpy.tvm.libraries import library_checks as checks
from relaxpy.tvm.relax.common import make_conv2d_pattern, make_stacked_attention_pattern

_LAYOUTS = {("NHWC", "OHWI"), ("NCHW", "OIHW")}


def _is_supported_convolution(context: graph.PatternCheckContext) -> bool:
    named = context.annotated_expr
    if checks.has_leaking_intermediate_variables(context):
        return False
    call = with_all_attributes(cast("Call", named["root"]))
    if (call.attrs["data_layout"], call.attrs["kernel_layout"]) not in _LAYOUTS:
        return False
    dtype = checks.dtype_of(named["input"])
    return dtype in ("float16", "float32") and dtype == checks.dtype_of(named["weight"])


def _is_supported_attention(context: graph.PatternCheckContext, axis: int) -> bool:
    values = context.matched_bindings.values()
    attention = next(value for value in values if is_call_of(value, "relax.nn.attention"))
    attrs = with_all_attributes(attention).attrs
    is_masked = attrs["causal_mask"] or attrs["window_size"]
    is_half = checks.dtype_of(context.annotated_expr["stacked_qkv"]) == "float16"
    return is_half and not is_masked and checks.is_stacked_along(context, axis)


graph.register_patterns(
    [
        ("cudnn.conv2d.nhwc_ohwi", *make_conv2d_pattern(), _is_supported_convolution),
        ("cudnn.conv2d.nhwc_ohwi_bias", *make_conv2d_pattern(True), _is_supported_convolution),
        (
            "cudnn.conv2d.nhwc_ohwi_bias_relu",
            *make_conv2d_pattern(True, "relax.nn.relu"),
            _is_supported_convolution,
        ),
        (
            "cudnn.attention.BS3NH",
            *make_stacked_attention_pattern("split", layout="BS3NH"),
            partial(_is_supported_attention, axis=2),
        ),
        (
            "cudnn.attention.SBN3H",
            *make_stacked_attention_pattern("split", layout="SBN3H"),
            partial(_is_supported_attention, axis=3),
        ),
    ]
)


@user_facing
def partition_for_cudnn(mod: IRModule) -> IRModule:
    """The module with a function for each group of operators that cuDNN computes, for RunCodegen.

    The functions have the attribute `Codegen`, "cudnn", and those that compute attention a
    workspace.
    """
    patterns = graph.get_patterns_with_prefix("cudnn")
    fused = FuseOpsByPattern(patterns, bind_constants=False, annotate_codegen=True)(mod)
    return checks.with_workspaces(fused, "cudnn")
