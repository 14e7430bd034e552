"""Patterns of cuBLAS, cuDNN, CUTLASS and hipBLAS: matmuls, convolutions, attention, norms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import Final, Literal, TypeAlias, cast, get_args

import numpy as np

from relaxpy.errors import unexpected
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.traverse import reached, rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.ops.definition.registry import with_all_attributes
from relaxpy.ir.ops.definition.rules import is_one
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.passes.fusion.codegen import FuseOpsByPattern
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.dpl import graph, pattern as dp
from relaxpy.ir.relax.known import equal_shapes, literal_shape, rank_of
from relaxpy.ir.relax.nodes import Call, Constant, Expr, GlobalVar, Var, is_call_of
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.support.dataclass import replace
from relaxpy.support.entry import user_facing
from relaxpy.tvm.lowering.static_plan_block_memory import AllocateWorkspace

Annotations: TypeAlias = dict[str, dp.DFPattern]
Named: TypeAlias = tuple[dp.DFPattern, Annotations]
Layout: TypeAlias = Literal["BS3NH", "SBN3H"]
Start: TypeAlias = Literal["split", "strided_slice"]


def _with_epilogue(
    out: dp.DFPattern, annotations: Annotations, with_bias: bool, activation: str | None
) -> Named:
    """The pattern, followed by a bias and an activation if they are requested."""
    if with_bias:
        annotations["bias"] = bias = dp.wildcard()
        out = dp.is_op("relax.add")(out, bias)
    return (out if activation is None else dp.is_op(activation)(out)), annotations


@user_facing
def make_fused_bias_activation_pattern(
    op_name: str, with_bias: bool = False, activation: str | None = None
) -> Named:
    """An operator of two operands, with a bias and an activation if requested.

    Errors:
        UnknownNameError: an operator is not registered; the same holds for all patterns here.
    """
    annotations: Annotations = {"lhs": dp.wildcard(), "rhs": dp.wildcard()}
    annotations["root"] = dp.is_op(op_name)(annotations["lhs"], annotations["rhs"])
    return _with_epilogue(annotations["root"], annotations, with_bias, activation)


@user_facing
def make_residual_block_pattern(
    node_output: dp.DFPattern | Named, binary_op: str = "relax.add", activation: str | None = None
) -> Named:
    """The pattern `node_output`, combined with another value on either side.

    Errors:
        MisuseError (also TypeError): `node_output` is neither a pattern nor a pattern with its
            annotation patterns.
    """
    match node_output:
        case (dp.DFPattern() as output, Mapping() as annotations):
            pass
        case dp.DFPattern() as output:
            annotations = {}
        case _:
            raise unexpected(node_output, "expected a pattern, perhaps with annotations")
    residual = dp.wildcard()
    op = dp.is_op(binary_op)
    sum_ = op(output, residual) | op(residual, output)
    annotations = {**annotations, "residual": residual}
    return _with_epilogue(sum_, annotations, False, activation)


@user_facing
def make_conv2d_pattern(with_bias: bool = False, activation: str | None = None) -> Named:
    """A convolution, with a bias and an activation if requested."""
    annotations: Annotations = {"input": dp.wildcard(), "weight": dp.wildcard()}
    annotations["root"] = dp.is_op("relax.nn.conv2d")(annotations["input"], annotations["weight"])
    return _with_epilogue(annotations["root"], annotations, with_bias, activation)


def _product(transposed_rhs: bool) -> Named:
    annotations: Annotations = {"lhs": dp.wildcard(), "rhs": dp.wildcard()}
    rhs = annotations["rhs"]
    if transposed_rhs:
        rhs = dp.is_op("relax.permute_dims")(rhs)
    annotations["root"] = dp.is_op("relax.matmul")(annotations["lhs"], rhs)
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
    annotations: Annotations = {name: dp.wildcard() for name in names}
    return dp.is_op(op)(*annotations.values()), annotations


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
    annotations: Annotations = {"stacked_qkv": dp.wildcard()}
    if start_op == "split":
        annotations["split"] = whole = dp.is_op("relax.split")(annotations["stacked_qkv"])
        raw: list[dp.DFPattern] = [dp.is_tuple_get_item(whole, index) for index in range(3)]
    else:
        cut = dp.is_op("relax.strided_slice")
        raw = [cut(annotations["stacked_qkv"], varg_default_wildcard=True) for _ in range(3)]
        annotations.update(zip((f"strided_slice_{n}" for n in _OPERANDS), raw, strict=True))
    operands: list[dp.DFPattern] = []
    for name, tensor in zip(_OPERANDS, raw, strict=True):
        if layout == "BS3NH":
            annotations[f"{name}_reshape_list"] = sizes = dp.wildcard()
            operands.append(dp.is_op("relax.reshape")(tensor, sizes))
        else:
            annotations[f"{name[0]}_transpose"] = permuted = dp.is_op("relax.permute_dims")(tensor)
            operands.append(permuted)
    if with_bias:
        annotations["bias"] = bias = dp.wildcard()
        out = dp.is_op("relax.nn.attention_bias")(*operands, bias)
    else:
        out = dp.is_op("relax.nn.attention")(*operands)
    return (dp.is_op("relax.permute_dims")(out) if layout == "SBN3H" else out), annotations


_OPERANDS = ("query", "key", "value")


@user_facing
def make_layer_norm_pattern() -> Named:
    """Layer normalisation of a tensor, with a factor and a bias."""
    return dp.is_op("relax.nn.layer_norm")(dp.wildcard(), dp.wildcard(), dp.wildcard()), {}


@user_facing
def make_rms_norm_pattern() -> Named:
    """A call of a kernel with an input and a weight, as RMS normalisation is after legalisation."""
    annotations: Annotations = {
        "gv": dp.GlobalVarPattern(),
        "inp": dp.wildcard(),
        "weight": dp.wildcard(),
    }
    operands = dp.TuplePattern((annotations["inp"], annotations["weight"]))
    out = dp.is_op("relax.call_tir")(annotations["gv"], operands)
    return out, {"gv": annotations["gv"], "inp": annotations["inp"], "rms_norm": out}


@user_facing
def make_matmul_dequantize_pattern(transposed_rhs: bool = False) -> Named:
    """A matmul that is dequantised by constants."""
    out, annotations = _product(transposed_rhs)
    annotations |= {"scale": dp.is_const(), "zp": dp.is_const()}
    return dp.is_op("relax.dequantize")(out, annotations["scale"], annotations["zp"]), annotations


@user_facing
def make_matmul_multiply_pattern(transposed_rhs: bool = False) -> Named:
    """A matmul times two scales of one element each, in another datatype."""
    out, annotations = _product(transposed_rhs)
    annotations |= {"scaleA": dp.wildcard(), "scaleB": dp.wildcard()}
    scales = (annotations[name].has_shape((1,)) for name in ("scaleA", "scaleB"))
    scaled = dp.is_op("relax.multiply")(out, dp.is_op("relax.multiply")(*scales))
    return dp.is_op("relax.astype")(scaled), annotations


Dims: TypeAlias = Sequence[tir.PrimExpr]

SYMBOLIC_WORKSPACE: Final = 8
"""The bytes of the workspace of a function whose result has symbolic dimensions."""


def has_leaking_intermediate_variables(context: graph.PatternCheckContext) -> bool:
    """True if a variable of the match, other than its result, may be used outside of it."""
    result = context.value_to_bound_var[context.matched_expr]
    return any(
        not isinstance(var, rx.DataflowVar)
        or any(user not in context.matched_bindings for user in context.var_usages.get(var, ()))
        for var in context.matched_bindings
        if var is not result
    )


def dtype_of(expr: rx.Expr) -> str:
    """The datatype of a tensor; "" if it is not known."""
    sinfo = expr.struct_info
    return str(sinfo.dtype) if isinstance(sinfo, rx.TensorStructInfo) else ""


def is_multiple(dim: tir.PrimExpr, factor: int) -> bool:
    """True if a dimension is a literal, and a multiple of a factor."""
    return isinstance(dim, tir.IntImm) and dim.value % factor == 0


def product(dims: Dims) -> tir.PrimExpr:
    """The product of dimensions."""
    result: tir.PrimExpr = ops.const(1, "int64")
    for dim in dims:
        result = result * dim
    return result


def is_stacked_along(context: graph.PatternCheckContext, axis: int) -> bool:
    """True if the operands of attention are neighbours along this last axis of their tensor."""
    named = context.annotated_expr
    if has_leaking_intermediate_variables(context) or rank_of(named["stacked_qkv"]) != axis + 1:
        return False
    if "split" in named:
        split = with_all_attributes(cast("rx.Call", named["split"]))
        return split.attrs["axis"] in (axis, -1)
    start = 0
    for name in ("query", "key", "value"):
        _, *operands = cast("rx.Call", named[f"strided_slice_{name}"]).args
        axes, begin, end, strides = (_integers(operand) for operand in (*operands, None)[:4])
        if axes != [axis] or begin != [start] or strides not in ([1], []) or len(end) != 1:
            return False
        start = end[0]
    return True


def _integers(operand: rx.Expr | None) -> list[int]:
    """The literals of a tuple; others are left out."""
    fields = operand.fields if isinstance(operand, rx.Tuple) else ()
    values = [field.value for field in fields if isinstance(field, rx.PrimValue)]
    return [value.value for value in values if isinstance(value, tir.IntImm)]


def with_workspaces(mod: IRModule, library: str) -> IRModule:
    """The module with a workspace for each function of a library that computes attention."""

    def annotated(func: rx.Function) -> rx.Function:
        size = _workspace(func, library)
        if size is not None:
            return func.with_attr("WorkspaceSize", size)
        if func.attrs.get("Codegen") != library:
            return func
        first, *others = func.body.blocks
        binding, *rest = first.bindings
        inner = binding.value
        size = _workspace(inner, library) if isinstance(inner, rx.Function) else None
        if (
            size is None
            or not isinstance(inner, rx.Function)
            or not isinstance(binding, rx.VarBinding)
        ):
            return func
        binding = replace(binding, value=inner.with_attr("WorkspaceSize", size))
        blocks = (replace(first, bindings=(binding, *rest)), *others)
        body = rebuild(func.body, blocks=blocks)
        return rebuild(func, body=body).with_attr("WorkspaceSize", size)

    return AllocateWorkspace()(map_functions(mod, rx.Function, annotated))


def _workspace(func: rx.Function, library: str) -> int | None:
    """The bytes that a composite function needs; None if it needs none."""
    name = func.attrs.get("Composite")
    if not isinstance(name, str) or "attention" not in name or not name.startswith(library):
        return None
    sinfo = func.body.struct_info
    dims = literal_shape(func.body)
    if dims is None or not isinstance(sinfo, rx.TensorStructInfo):
        return SYMBOLIC_WORKSPACE
    size = product(dims)
    return size.value * sinfo.dtype.itemsize if isinstance(size, tir.IntImm) else SYMBOLIC_WORKSPACE


_ALIGNMENT: Final = 16
"""The alignment of rows of 8-bit floats, in bytes."""


def is_supported(context: graph.PatternCheckContext) -> bool:
    """True if cuBLAS supports a match of a pattern of `products`."""
    named = context.annotated_expr
    lhs, rhs, root = named["lhs"], named["rhs"], named["root"]
    left, right = literal_shape(lhs), literal_shape(rhs)
    if has_leaking_intermediate_variables(context) or left is None or right is None:
        return False
    dtype, out_dtype = dtype_of(lhs), dtype_of(root)
    if dtype != dtype_of(rhs) or not left or not isinstance(left[-1], tir.IntImm):
        return False
    match dtype:
        case "float16" | "float32" | "bfloat16":
            pass
        case "int8":
            if "bias" in named or not (is_multiple(left[-1], 4) and is_multiple(right[-1], 4)):
                return False
        case "float8_e4m3fn":
            if out_dtype == "float8_e5m2" or not _is_aligned(context, right, out_dtype):
                return False
        case _:
            return False
    return _is_plain_scaling(context) and _is_vector(context) and _batches_agree(left, right)


def _is_aligned(context: graph.PatternCheckContext, right: Dims, out_dtype: str) -> bool:
    """True if the second operand is transposed in the match, and its rows are aligned."""
    root = context.annotated_expr["root"]
    is_transposed = isinstance(root, Call) and root.args[1] in context.matched_bindings
    if not is_transposed or len(right) < 2:
        return False
    rows = _ALIGNMENT // DataType(out_dtype).itemsize
    return is_multiple(right[-1], _ALIGNMENT) and is_multiple(right[-2], rows)


def _is_plain_scaling(context: graph.PatternCheckContext) -> bool:
    """True if a dequantisation, if there is one, is that by one scale, without a zero point."""
    scale, zero = (context.annotated_expr.get(name) for name in ("scale", "zp"))
    if not isinstance(scale, Constant) or not isinstance(zero, Constant):
        return scale is None and zero is None
    return not scale.data.ndim and not zero.data.ndim and not np.any(zero.data)


def _is_vector(context: graph.PatternCheckContext) -> bool:
    """True if a bias, if there is one, is a vector."""
    bias = context.annotated_expr.get("bias")
    if bias is None:
        return True
    dims = literal_shape(bias)
    return dims is not None and rank_of(bias) > 0 and is_one(product(dims[:-1]))


def _batches_agree(left: Dims, right: Dims) -> bool:
    """True if the batches are equal, or the second operand is one matrix; a variable may agree."""
    first, second = product(left[:-2]), product(right[:-2])
    if isinstance(first, tir.Var) or isinstance(second, tir.Var):
        return True
    return is_one(second) or prove_equal(first, second) is True


def products(library: str, check: graph.Check) -> Iterator[graph.FusionPattern]:
    """The patterns of a library for matmuls, with a bias and an activation where it adds them."""
    for transposed in ("", "_transposed"):
        for bias, activation in (("", ""), ("_bias", ""), ("_bias", "relu"), ("_bias", "gelu")):
            pattern, annotations = make_matmul_pattern(
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
            *make_matmul_dequantize_pattern(transposed_rhs=True),
            is_supported,
        ),
        (
            "cublas.matmul_transposed_multiply",
            *make_matmul_multiply_pattern(transposed_rhs=True),
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


_LAYOUTS = {("NHWC", "OHWI"), ("NCHW", "OIHW")}


def _is_supported_convolution(context: graph.PatternCheckContext) -> bool:
    named = context.annotated_expr
    if has_leaking_intermediate_variables(context):
        return False
    call = with_all_attributes(cast("Call", named["root"]))
    if (call.attrs["data_layout"], call.attrs["kernel_layout"]) not in _LAYOUTS:
        return False
    dtype = dtype_of(named["input"])
    return dtype in ("float16", "float32") and dtype == dtype_of(named["weight"])


def _is_supported_attention(context: graph.PatternCheckContext, axis: int) -> bool:
    values = context.matched_bindings.values()
    attention = next(value for value in values if is_call_of(value, "relax.nn.attention"))
    attrs = with_all_attributes(attention).attrs
    is_masked = attrs["causal_mask"] or attrs["window_size"]
    is_half = dtype_of(context.annotated_expr["stacked_qkv"]) == "float16"
    return is_half and not is_masked and is_stacked_along(context, axis)


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
    return with_workspaces(fused, "cudnn")


def _dtypes_agree(one: Expr, other: Expr) -> bool:
    dtypes = {dtype_of(one), dtype_of(other)}
    return dtypes in ({"float16"}, {"float32"}) or dtypes <= {"int8", "uint8"}


def _is_supported_product(context: graph.PatternCheckContext) -> bool:
    lhs, rhs = context.annotated_expr["lhs"], context.annotated_expr["rhs"]
    left, right = literal_shape(lhs), literal_shape(rhs)
    if has_leaking_intermediate_variables(context) or not left or right is None:
        return False
    if not _dtypes_agree(lhs, rhs) or not _residual_fits(context):
        return False
    return isinstance(left[-1], tir.IntImm) and _cutlass_batches_agree(left[:-2], right[:-2])


def _cutlass_batches_agree(left: Dims, right: Dims) -> bool:
    """True if one operand is one matrix, or the batches are equal, so that strides are constant."""
    if is_one(product(left)) or is_one(product(right)):
        return True
    pairs = zip_longest(reversed(left), reversed(right), fillvalue=ops.const(1, "int64"))
    return all(prove_equal(a, b) for a, b in pairs)


def _cutlass_supports_convolution(context: graph.PatternCheckContext) -> bool:
    data, weight = context.annotated_expr["lhs"], context.annotated_expr["rhs"]
    sizes, kernel = literal_shape(data), literal_shape(weight)
    if has_leaking_intermediate_variables(context) or sizes is None or kernel is None:
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
    if var is None or var in reached([root], lambda v: context.var_usages.get(v, ())):
        return False
    out, dims = literal_shape(root), literal_shape(var)
    if out is None or not dims:
        return False
    is_bias = bool(prove_equal(dims[-1], out[-1])) and is_one(product(dims[:-1]))
    return is_bias or equal_shapes(out, dims)


def _cutlass_supports_attention(context: graph.PatternCheckContext) -> bool:
    return is_stacked_along(context, 2)


def _is_supported_layer_norm(context: graph.PatternCheckContext) -> bool:
    call = with_all_attributes(cast("Call", context.matched_expr))
    axes = cast("tuple[int, ...]", call.attrs["axes"])
    is_last = len(axes) == 1 and axes[0] in (-1, rank_of(call) - 1)
    return is_last and bool(call.attrs["center"]) and bool(call.attrs["scale"])


def _is_rms_norm(context: graph.PatternCheckContext) -> bool:
    kernel = cast("Call", context.annotated_expr["rms_norm"]).args[0]
    return isinstance(kernel, GlobalVar) and "rms_norm" in kernel.name_hint


def _base_patterns() -> Iterator[tuple[object, ...]]:
    """Matmuls and convolutions, those with the highest priority last."""
    for activation in (None, "", "relu", "silu"):
        bias = "" if activation is None else f"_bias{activation and '_' + activation}"
        pattern = make_fused_bias_activation_pattern(
            "relax.nn.conv2d", bool(bias), f"relax.nn.{activation}" if activation else None
        )
        yield (f"cutlass.conv2d{bias}", *pattern, _cutlass_supports_convolution)
    for transposed in ("", "_transposed"):
        for activation in (None, "", "relu", "gelu"):
            bias = "" if activation is None else f"_bias{activation and '_' + activation}"
            product_ = make_matmul_pattern(
                bool(bias), f"relax.nn.{activation}" if activation else None, bool(transposed)
            )
            yield (f"cutlass.matmul{transposed}{bias}", *product_, _is_supported_product)


def _residual_patterns() -> Iterator[tuple[object, ...]]:
    """Matmuls and convolutions with a bias, and a residual that is added or multiplied."""
    for activation in ("", "relu"):
        for name, pattern, parts, check in _base_patterns():
            for op in ("add", "multiply") if "_bias" in cast("str", name) else ():
                block = make_residual_block_pattern(
                    (pattern, parts),  # type: ignore[arg-type]
                    f"relax.{op}",
                    f"relax.nn.{activation}" if activation else None,
                )
                end = activation and f"_{activation}"
                yield (f"{name}_residual_{op}{end}", *block, check)


def _attention_patterns() -> Iterator[tuple[object, ...]]:
    yield ("cutlass.attention", *make_attention_pattern())
    yield ("cutlass.attention_bias", *make_attention_pattern(with_bias=True))
    for start in ("split", "strided_slice"):
        for bias in (False, True):
            pattern = make_stacked_attention_pattern(start, bias)
            yield ("cutlass.stacked_attention", *pattern, _cutlass_supports_attention)
    yield ("cutlass.attention_var_len", *make_attention_pattern(var_len=True))


graph.register_patterns(
    [
        *_base_patterns(),
        *_residual_patterns(),
        *_attention_patterns(),
        ("cutlass.layer_norm", *make_layer_norm_pattern(), _is_supported_layer_norm),
        ("cutlass.rms_norm", *make_rms_norm_pattern(), _is_rms_norm),
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
    return with_workspaces(fused, "cutlass")


def _is_supported(context: graph.PatternCheckContext) -> bool:
    """True if it is a float16 matmul that cuBLAS would compute, too."""
    dtype = dtype_of(context.annotated_expr["lhs"])
    return dtype == "float16" and is_supported(context)


graph.register_patterns(products("hipblas", _is_supported))


@user_facing
def partition_for_hipblas(mod: IRModule) -> IRModule:
    """The module with a function for each matmul that hipBLAS computes, for RunCodegen.

    The functions have the attribute `Codegen`, "hipblas". Constants are passed.
    """
    patterns = graph.get_patterns_with_prefix("hipblas")
    return FuseOpsByPattern(patterns, annotate_codegen=True, bind_constants=False)(mod)
