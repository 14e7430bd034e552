"""Patterns that many backends look for, each with its annotation patterns by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

from relaxpy.errors import unexpected
from relaxpy.ir.relax.dpl.pattern import (
    DFPattern,
    GlobalVarPattern,
    TuplePattern,
    is_const,
    is_op,
    is_tuple_get_item,
    wildcard,
)
from relaxpy.support.entry import user_facing

Annotations: TypeAlias = dict[str, DFPattern]
Named: TypeAlias = tuple[DFPattern, Annotations]
Layout: TypeAlias = Literal["BS3NH", "SBN3H"]
Start: TypeAlias = Literal["split", "strided_slice"]


def _with_epilogue(
    out: DFPattern, annotations: Annotations, with_bias: bool, activation: str | None
) -> Named:
    """The pattern, followed by a bias and an activation if they are requested."""
    if with_bias:
        annotations["bias"] = bias = wildcard()
        out = is_op("relax.add")(out, bias)
    return (out if activation is None else is_op(activation)(out)), annotations


@user_facing
def make_fused_bias_activation_pattern(
    op_name: str, with_bias: bool = False, activation: str | None = None
) -> Named:
    """An operator of two operands, with a bias and an activation if requested.

    Errors:
        UnknownNameError: an operator is not registered; the same holds for all patterns here.
    """
    annotations: Annotations = {"lhs": wildcard(), "rhs": wildcard()}
    annotations["root"] = is_op(op_name)(annotations["lhs"], annotations["rhs"])
    return _with_epilogue(annotations["root"], annotations, with_bias, activation)


@user_facing
def make_residual_block_pattern(
    node_output: DFPattern | Named, binary_op: str = "relax.add", activation: str | None = None
) -> Named:
    """The pattern `node_output`, combined with another value on either side.

    Errors:
        MisuseError (also TypeError): `node_output` is neither a pattern nor a pattern with its
            annotation patterns.
    """
    match node_output:
        case (DFPattern() as output, Mapping() as annotations):
            pass
        case DFPattern() as output:
            annotations = {}
        case _:
            raise unexpected(node_output, "expected a pattern, perhaps with annotations")
    residual = wildcard()
    op = is_op(binary_op)
    sum_ = op(output, residual) | op(residual, output)
    annotations = {**annotations, "residual": residual}
    return _with_epilogue(sum_, annotations, False, activation)


@user_facing
def make_conv2d_pattern(with_bias: bool = False, activation: str | None = None) -> Named:
    """A convolution, with a bias and an activation if requested."""
    annotations: Annotations = {"input": wildcard(), "weight": wildcard()}
    annotations["root"] = is_op("relax.nn.conv2d")(annotations["input"], annotations["weight"])
    return _with_epilogue(annotations["root"], annotations, with_bias, activation)


def _product(transposed_rhs: bool) -> Named:
    annotations: Annotations = {"lhs": wildcard(), "rhs": wildcard()}
    rhs = annotations["rhs"]
    if transposed_rhs:
        rhs = is_op("relax.permute_dims")(rhs)
    annotations["root"] = is_op("relax.matmul")(annotations["lhs"], rhs)
    return annotations["root"], annotations


@user_facing
def make_matmul_pattern(
    with_bias: bool = False, activation: str | None = None, transposed_rhs: bool = False
) -> Named:
    """A matmul, with a bias and an activation if requested."""
    out, annotations = _product(transposed_rhs)
    return _with_epilogue(out, annotations, with_bias, activation)


@user_facing
def make_attention_pattern(with_bias: bool = False, var_len: bool = False) -> Named:
    """Attention, with a bias or for sequences of several lengths if requested."""
    names = ["query", "key", "value"]
    op = "relax.nn.attention"
    if with_bias:
        names, op = [*names, "bias"], "relax.nn.attention_bias"
    elif var_len:
        names += ["seqstart_q", "seqstart_k", "max_seqlen_q", "max_seqlen_k"]
        op = "relax.nn.attention_var_len"
    annotations: Annotations = {name: wildcard() for name in names}
    return is_op(op)(*annotations.values()), annotations


@user_facing
def make_stacked_attention_pattern(
    start_op: Start, with_bias: bool = False, layout: Layout = "BS3NH"
) -> Named:
    """Attention whose three operands are cut from one tensor.

    Errors:
        MisuseError: `start_op` or `layout` is unknown.
    """
    for value, known, what in ((start_op, Start, "start_op"), (layout, Layout, "layout")):
        if value not in get_args(known):
            options = " or ".join(map(repr, get_args(known)))
            raise unexpected(value, f"{what} is {options}")
    annotations: Annotations = {"stacked_qkv": wildcard()}
    if start_op == "split":
        annotations["split"] = whole = is_op("relax.split")(annotations["stacked_qkv"])
        raw: list[DFPattern] = [is_tuple_get_item(whole, index) for index in range(3)]
    else:
        cut = is_op("relax.strided_slice")
        raw = [cut(annotations["stacked_qkv"], varg_default_wildcard=True) for _ in range(3)]
        annotations.update(zip((f"strided_slice_{n}" for n in _OPERANDS), raw, strict=True))
    operands: list[DFPattern] = []
    for name, tensor in zip(_OPERANDS, raw, strict=True):
        if layout == "BS3NH":
            annotations[f"{name}_reshape_list"] = sizes = wildcard()
            operands.append(is_op("relax.reshape")(tensor, sizes))
        else:
            annotations[f"{name[0]}_transpose"] = permuted = is_op("relax.permute_dims")(tensor)
            operands.append(permuted)
    if with_bias:
        annotations["bias"] = bias = wildcard()
        out = is_op("relax.nn.attention_bias")(*operands, bias)
    else:
        out = is_op("relax.nn.attention")(*operands)
    return (is_op("relax.permute_dims")(out) if layout == "SBN3H" else out), annotations


_OPERANDS = ("query", "key", "value")


@user_facing
def make_layer_norm_pattern() -> Named:
    """Layer normalisation of a tensor, with a factor and a bias."""
    return is_op("relax.nn.layer_norm")(wildcard(), wildcard(), wildcard()), {}


@user_facing
def make_rms_norm_pattern() -> Named:
    """A call of a kernel with an input and a weight, as RMS normalisation is after legalisation."""
    annotations: Annotations = {"gv": GlobalVarPattern(), "inp": wildcard(), "weight": wildcard()}
    operands = TuplePattern((annotations["inp"], annotations["weight"]))
    out = is_op("relax.call_tir")(annotations["gv"], operands)
    return out, {"gv": annotations["gv"], "inp": annotations["inp"], "rms_norm": out}


@user_facing
def make_matmul_dequantize_pattern(transposed_rhs: bool = False) -> Named:
    """A matmul that is dequantised by constants."""
    out, annotations = _product(transposed_rhs)
    annotations |= {"scale": is_const(), "zp": is_const()}
    return is_op("relax.dequantize")(out, annotations["scale"], annotations["zp"]), annotations


@user_facing
def make_matmul_multiply_pattern(transposed_rhs: bool = False) -> Named:
    """A matmul times two scales of one element each, in another datatype."""
    out, annotations = _product(transposed_rhs)
    annotations |= {"scaleA": wildcard(), "scaleB": wildcard()}
    scales = (annotations[name].has_shape((1,)) for name in ("scaleA", "scaleB"))
    scaled = is_op("relax.multiply")(out, is_op("relax.multiply")(*scales))
    return is_op("relax.astype")(scaled), annotations
