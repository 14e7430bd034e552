"""Patterns that many backends look for, each with names for its parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError
from relaxpy.ir.relax.dpl.constructors import is_const, is_op, is_tuple_get_item, wildcard
from relaxpy.ir.relax.dpl.pattern import DFPattern, GlobalVarPattern, TuplePattern

Parts: TypeAlias = dict[str, DFPattern]
Named: TypeAlias = tuple[DFPattern, Parts]
Layout: TypeAlias = Literal["BS3NH", "SBN3H"]
Start: TypeAlias = Literal["split", "strided_slice"]


def _finished(out: DFPattern, parts: Parts, with_bias: bool, activation: str | None) -> Named:
    """The pattern with a sum and an activation behind it, where they are asked for."""
    if with_bias:
        parts["bias"] = bias = wildcard()
        out = is_op("relax.add")(out, bias)
    return (out if activation is None else is_op(activation)(out)), parts


@user_facing
def make_fused_bias_activation_pattern(
    op_name: str, with_bias: bool = False, activation: str | None = None
) -> Named:
    """An operator of two operands, with a bias added and an activation where asked for.

    Errors:
        UnknownNameError: an operator is not registered; so for all patterns here.
    """
    parts: Parts = {"lhs": wildcard(), "rhs": wildcard()}
    parts["root"] = is_op(op_name)(parts["lhs"], parts["rhs"])
    return _finished(parts["root"], parts, with_bias, activation)


@user_facing
def make_residual_block_pattern(
    node_output: DFPattern | Named, binary_op: str = "relax.add", activation: str | None = None
) -> Named:
    """What `node_output` matches, combined with another value on either side of it.

    Errors:
        MisuseError (also TypeError): that is neither a pattern nor one with names for its parts.
    """
    match node_output:
        case (DFPattern() as output, Mapping() as parts):
            pass
        case DFPattern() as output:
            parts = {}
        case _:
            raise MisuseError(
                f"expected a pattern, or one with its parts by name, found {node_output!r:.60}",
                about=node_output,
            )
    residual = wildcard()
    op = is_op(binary_op)
    found: DFPattern = op(output, residual) | op(residual, output)
    if activation is not None:
        found = is_op(activation)(found)
    return found, {**parts, "residual": residual}


@user_facing
def make_conv2d_pattern(with_bias: bool = False, activation: str | None = None) -> Named:
    """A convolution, with a bias added and an activation where asked for."""
    parts: Parts = {"input": wildcard(), "weight": wildcard()}
    parts["root"] = is_op("relax.nn.conv2d")(parts["input"], parts["weight"])
    return _finished(parts["root"], parts, with_bias, activation)


def _product(transposed_rhs: bool) -> Named:
    parts: Parts = {"lhs": wildcard(), "rhs": wildcard()}
    rhs = parts["rhs"]
    if transposed_rhs:
        rhs = is_op("relax.permute_dims")(rhs)
    parts["root"] = is_op("relax.matmul")(parts["lhs"], rhs)
    return parts["root"], parts


@user_facing
def make_matmul_pattern(
    with_bias: bool = False, activation: str | None = None, transposed_rhs: bool = False
) -> Named:
    """A product of matrices, with a bias added and an activation where asked for."""
    out, parts = _product(transposed_rhs)
    return _finished(out, parts, with_bias, activation)


@user_facing
def make_attention_pattern(with_bias: bool = False, var_len: bool = False) -> Named:
    """Attention, with a bias or for sequences of several lengths where asked for."""
    names = ["query", "key", "value"]
    op = "relax.nn.attention"
    if with_bias:
        names, op = [*names, "bias"], "relax.nn.attention_bias"
    elif var_len:
        names += ["seqstart_q", "seqstart_k", "max_seqlen_q", "max_seqlen_k"]
        op = "relax.nn.attention_var_len"
    parts: Parts = {name: wildcard() for name in names}
    return is_op(op)(*parts.values()), parts


@user_facing
def make_stacked_attention_pattern(
    start_op: Start, with_bias: bool = False, layout: Layout = "BS3NH"
) -> Named:
    """Attention whose three operands are cut from one tensor.

    Errors:
        MisuseError: `start_op` or `layout` is none of those known.
    """
    for given, known, what in ((start_op, Start, "start_op"), (layout, Layout, "layout")):
        if given not in get_args(known):
            words = " or ".join(repr(word) for word in get_args(known))
            raise MisuseError(f"{what} is {words}, found {given!r:.60}", about=given)
    parts: Parts = {"stacked_qkv": wildcard()}
    if start_op == "split":
        parts["split"] = whole = is_op("relax.split")(parts["stacked_qkv"])
        raw: list[DFPattern] = [is_tuple_get_item(whole, index) for index in range(3)]
    else:
        cut = is_op("relax.strided_slice")
        raw = [cut(parts["stacked_qkv"], varg_default_wildcard=True) for _ in range(3)]
        parts.update(zip((f"strided_slice_{n}" for n in _OPERANDS), raw, strict=True))
    operands: list[DFPattern] = []
    for name, tensor in zip(_OPERANDS, raw, strict=True):
        if layout == "BS3NH":
            parts[f"{name}_reshape_list"] = sizes = wildcard()
            operands.append(is_op("relax.reshape")(tensor, sizes))
        else:
            parts[f"{name[0]}_transpose"] = permuted = is_op("relax.permute_dims")(tensor)
            operands.append(permuted)
    if with_bias:
        parts["bias"] = bias = wildcard()
        out = is_op("relax.nn.attention_bias")(*operands, bias)
    else:
        out = is_op("relax.nn.attention")(*operands)
    return (is_op("relax.permute_dims")(out) if layout == "SBN3H" else out), parts


_OPERANDS = ("query", "key", "value")


@user_facing
def make_layer_norm_pattern() -> Named:
    """Layer normalisation of a tensor, with a factor and a bias."""
    return is_op("relax.nn.layer_norm")(wildcard(), wildcard(), wildcard()), {}


@user_facing
def make_rms_norm_pattern() -> Named:
    """A kernel called on an input and a weight, as normalisation by RMS is once it is lowered."""
    parts: Parts = {"gv": GlobalVarPattern(), "inp": wildcard(), "weight": wildcard()}
    operands = TuplePattern((parts["inp"], parts["weight"]))
    out = is_op("relax.call_tir")(parts["gv"], operands)
    return out, {"gv": parts["gv"], "inp": parts["inp"], "rms_norm": out}


@user_facing
def make_matmul_dequantize_pattern(transposed_rhs: bool = False) -> Named:
    """A product of matrices that is dequantised by constants."""
    out, parts = _product(transposed_rhs)
    parts |= {"scale": is_const(), "zp": is_const()}
    return is_op("relax.dequantize")(out, parts["scale"], parts["zp"]), parts


@user_facing
def make_matmul_multiply_pattern(transposed_rhs: bool = False) -> Named:
    """A product of matrices times two scales of one element each, in another datatype."""
    out, parts = _product(transposed_rhs)
    parts |= {"scaleA": wildcard(), "scaleB": wildcard()}
    scales = (parts[name].has_shape((1,)) for name in ("scaleA", "scaleB"))
    scaled = is_op("relax.multiply")(out, is_op("relax.multiply")(*scales))
    return is_op("relax.astype")(scaled), parts
