"""Matrix multiplication, linear layers, convolutions, functions of matrices, losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr, TupleGetItem, const
from relaxpy.ir.te.tensor import Tensor, compute, reduce_axis
from relaxpy.ir.te.text import T, kernel_text
from relaxpy.ir.tir import reduce
from relaxpy.ir.tir.expr import Select
from relaxpy.plugins.importing.tensors import (
    as_size,
    call,
    dtype_of,
    kernel,
    product,
    rank_of,
    reshaped,
    scalar,
    shape_of,
    wide_dtype,
)
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.importing.windows import CONVOLUTIONS, TRANSPOSED
from relaxpy.plugins.torch.arrays import part_name
from relaxpy.plugins.torch.complexes import complex_converter, from_pair, is_complex, to_pair
from relaxpy.plugins.torch.context import NARROW, Context
from relaxpy.plugins.torch.ops.control import checked_names
from relaxpy.plugins.torch.registry import Value, converter


@converter("mm", "bmm", "mv", "dot", "vdot", "matmul", "linalg_matmul")
def matmul(cx: Context, a: Expr, b: Expr) -> Expr:
    if dtype_of(a) == "bool":
        count = R.matmul(R.astype(a, "int32"), R.astype(b, "int32"))
        return R.not_equal(count, scalar(0, count))
    return R.matmul(a, b, dtype_of(a))


@converter("tensordot")
def tensordot(cx: Context, a: Expr, b: Expr, axes_a: Sequence[int], axes_b: Sequence[int]) -> Expr:
    """PyTorch's decomposition is for some sizes only."""
    pairs = [(cx.axis(i, a), cx.axis(j, b)) for i, j in zip(axes_a, axes_b, strict=True)]
    for i, j in pairs:  # a single element is that of all
        if cx.is_size(shape_of(b)[j], 1):
            a = R.sum(a, [i], True)
        elif cx.is_size(shape_of(a)[i], 1):
            b = R.sum(b, [j], True)
    inner_a, inner_b = (list(axes) for axes in zip(*pairs, strict=True)) if pairs else ([], [])
    outer_a = [k for k in range(rank_of(a)) if k not in inner_a]
    outer_b = [k for k in range(rank_of(b)) if k not in inner_b]
    sizes_a, sizes_b = shape_of(a), shape_of(b)
    length = product([sizes_a[k] for k in inner_a])
    rows = reshaped(
        R.permute_dims(a, [*outer_a, *inner_a]), [product([sizes_a[k] for k in outer_a]), length]
    )
    columns = reshaped(
        R.permute_dims(b, [*inner_b, *outer_b]), [length, product([sizes_b[k] for k in outer_b])]
    )
    return reshaped(matmul(cx, rows, columns), cx.result_shape())


@converter("linear")
def linear(cx: Context, x: Expr, weight: Expr, bias: Expr | None = None) -> Expr:
    matrix = R.permute_dims(weight) if rank_of(weight) > 1 else weight
    if bias is None:
        return R.matmul(x, matrix, dtype_of(x))
    product = _wide_product(x, matrix)
    return product + cx.tensor(bias, dtype_of(product))


def _wide_product(a: Expr, b: Expr) -> Expr:
    """a @ b to which something is added before it is rounded; the factors are not copied."""
    return R.matmul(a, b, "float32" if dtype_of(a) in NARROW else dtype_of(a))


def _plus(cx: Context, x: Expr, product: Expr, beta: Any, alpha: Any) -> Expr:
    """beta * x + alpha * product, the product first; where beta is 0, `x` may be NaN."""
    dtype = dtype_of(product)
    scaled = cx.emit(product if alpha == 1 else product * cx.tensor(alpha, dtype))
    if beta == 0:
        sizes = cx.result_shape()
        return R.broadcast_to(scaled, tuple(sizes)) if shape_of(scaled) != sizes else scaled
    added = cx.tensor(x, dtype)
    return (added if beta == 1 else added * cx.tensor(beta, dtype)) + scaled


@converter("addmm", "addmv", "baddbmm", "_sparse_addmm")
def addmm(cx: Context, x: Expr, a: Expr, b: Expr, *, beta: Value = 1, alpha: Value = 1) -> Expr:
    return _plus(cx, x, _wide_product(a, b), beta, alpha)


@converter("addbmm")
def addbmm(cx: Context, x: Expr, a: Expr, b: Expr, *, beta: Value = 1, alpha: Value = 1) -> Expr:
    return _plus(cx, x, R.sum(_wide_product(a, b), [0]), beta, alpha)


@converter("outer", "ger")
def outer(cx: Context, a: Expr, b: Expr) -> Expr:
    dtype = cx.result_dtype()
    return R.outer(cx.tensor(a, dtype), cx.tensor(b, dtype))


@converter("einsum")
def einsum(cx: Context, equation: str, operands: Sequence[Expr]) -> Expr:
    return R.einsum(list(operands), equation)


def each(value: Any, count: int) -> list[int]:
    """A number for each axis: PyTorch takes one for all."""
    items = [value] if isinstance(value, int) else list(value)
    return items * count if len(items) == 1 else items


@converter("convolution")
def convolution(
    cx: Context,
    x: Expr,
    weight: Expr,
    bias: Expr | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Expr:
    count = rank_of(weight) - 2
    strides, dilations = each(stride, count), each(dilation, count)
    pads = each(padding, count)
    batched = x if rank_of(x) == count + 2 else R.expand_dims(x, 0)
    # A bias is added before the sum is rounded to 16 bits.
    dtype = "float32" if bias is not None and dtype_of(x) in NARROW else dtype_of(x)
    if transposed:
        # Output padding first undoes the cropping at the end, then adds zeros.
        more = each(output_padding, count)
        behind = [max(pad - extra, 0) for pad, extra in zip(pads, more, strict=True)]
        zeros = [max(extra - pad, 0) for pad, extra in zip(pads, more, strict=True)]
        sides = [*pads, *behind]
        y = TRANSPOSED[count](
            batched, weight, strides, sides, [0] * count, dilations, groups, out_dtype=dtype
        )
        if any(zeros):
            y = R.nn.pad(y, [0, 0, 0, 0, *(side for width in zeros for side in (0, width))])
    else:
        y = CONVOLUTIONS[count](batched, weight, strides, pads, dilations, groups, out_dtype=dtype)
    if bias is not None:
        y = y + R.reshape(cx.tensor(bias, dtype_of(y)), [1, -1, *[1] * count])
    return y if batched is x else R.squeeze(y, [0])


@converter("conv1d", "conv2d", "conv3d")
def conv(
    cx: Context,
    x: Expr,
    weight: Expr,
    bias: Expr | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Expr:
    return convolution(cx, x, weight, bias, stride, padding, dilation, False, [0], groups)


@converter("conv_tbc")
def conv_tbc(cx: Context, x: Expr, weight: Expr, bias: Expr, pad: int = 0) -> Expr:
    """A convolution of (time, batch, channels) with a filter (time, channels, outputs)."""
    rows, filters = R.permute_dims(x, [1, 2, 0]), R.permute_dims(weight, [2, 1, 0])
    y = convolution(cx, rows, filters, bias, [1], [pad], [1], False, [0], 1)
    return R.permute_dims(y, [2, 0, 1])


@converter("_int_mm")
def matmul_of_int8(cx: Context, a: Expr, b: Expr) -> Expr:
    return R.matmul(a, b, "int32")


@converter("_weight_int8pack_mm")
def matmul_by_int8(cx: Context, x: Expr, weight: Expr, scales: Expr) -> Expr:
    wide = (cx.tensor(item, "float32") for item in (x, R.permute_dims(weight)))
    return R.matmul(*wide) * cx.tensor(scales, "float32")


@converter("_scaled_mm")
def scaled_matmul(
    cx: Context,
    a: Expr,
    b: Expr,
    scale_a: Expr,
    scale_b: Expr,
    bias: Expr | None = None,
    scale_result: Expr | None = None,
    dtype: Any = None,
    fast: bool = False,
) -> Expr:
    """Matmul of matrices that have one scale each, or one for each row and column."""
    if any(rank_of(scale) > 1 and 1 not in shape_of(scale) for scale in (scale_a, scale_b)):
        raise UnsupportedError("a scale for each block of a matrix")
    product = R.matmul(cx.tensor(a, "float32"), cx.tensor(b, "float32"))
    y = product * scale_a * scale_b
    if bias is not None:
        y = y + cx.tensor(bias, "float32")
    return y if scale_result is None else y * scale_result


@converter("_grouped_mm")
@converter("grouped_mm_fallback", namespace="transformers")
def grouped_matmul(
    cx: Context,
    x: Expr,
    matrices: Expr,
    ends: Expr | None = None,
    bias: Expr | None = None,
    dtype: Any = None,
) -> Expr:
    """Grouped matmul: groups of rows, of columns, or of the reduction axis, given by their ends."""
    if ends is None and rank_of(x) == rank_of(matrices) == 3:
        return R.matmul(x, matrices)
    if ends is None:
        raise UnsupportedError("groups without ends")
    if rank_of(matrices) == 3:
        product = _grouped_rows(cx, x, matrices, ends)
    elif rank_of(x) == 3:
        rows, each = R.permute_dims(matrices), R.permute_dims(x, [0, 2, 1])
        product = R.permute_dims(_grouped_rows(cx, cx.emit(rows), cx.emit(each), ends))
    else:
        product = _summed_in_groups(cx, x, matrices, ends)
    return cx.tensor(product, cx.result_dtype())


def _grouped_rows(cx: Context, x: Expr, matrices: Expr, ends: Expr) -> Expr:
    """Each row times the matrix of its group; rows after the last group are zeros."""
    rows, inner = shape_of(x)
    groups, _, columns = shape_of(matrices)
    numbers = R.expand_dims(R.arange(0, rows, 1, "int64"), 1)
    before = R.expand_dims(cx.tensor(ends, "int64"), 0) <= numbers
    group = cx.emit(R.sum(R.astype(before, "int64"), [1]))
    wide = wide_dtype(x)

    def grouped_mm(x: Any, matrices: Any, group: Any) -> Tensor:
        k = reduce_axis((0, as_size(inner)), "k")
        last = as_size(groups) - 1

        def element(row: Any, column: Any) -> Any:
            at = Select(group[row] < last, group[row], last)
            left, right = (v.astype(wide) for v in (x[row, k], matrices[at, k, column]))
            return reduce.sum(left * right, axis=k)

        return compute((as_size(rows), as_size(columns)), element)

    product = cx.te(grouped_mm, x, matrices, group)
    is_beyond = R.expand_dims(R.equal(group, cx.tensor(groups, "int64")), 1)
    return R.where(is_beyond, cx.tensor(0.0, wide), product)


def _summed_in_groups(cx: Context, x: Expr, y: Expr, ends: Expr) -> Expr:
    """For each group, its columns of the first matrix times its rows of the second one."""
    (groups,) = shape_of(ends)
    bounds = cx.emit(R.nn.pad(cx.tensor(ends, "int64"), [1, 0]))
    outputs = {"out": ([groups, shape_of(x)[0], shape_of(y)[1]], wide_dtype(x))}
    inputs = {"x": x, "y": y, "bounds": bounds}
    (out,) = kernel(cx, "grouped_mm", outputs, inputs, _sum_in_groups)
    return out


@kernel_text
def _sum_in_groups(x: Any, y: Any, bounds: Any, out: Any) -> None:
    for group, row in T.grid(*out.shape[:2]):
        for column in T.serial(out.shape[2]):
            out[group, row, column] = 0
        for j in T.serial(bounds[group], bounds[group + 1]):
            for column in T.serial(out.shape[2]):
                product = x[row, j].astype(out.dtype) * y[j, column].astype(out.dtype)
                out[group, row, column] += product


@converter("grouped_mm_fallback_backward", namespace="transformers")
def grouped_matmul_backward(
    cx: Context, x: Expr, matrices: Expr, ends: Expr, grad: Expr
) -> tuple[Expr, Expr]:
    turned = cx.emit(R.permute_dims(matrices, [0, 2, 1]))
    of_x = _grouped_rows(cx, grad, turned, ends)
    of_matrices = _summed_in_groups(cx, cx.emit(R.permute_dims(x)), grad, ends)
    return cx.tensor(of_x, dtype_of(x)), cx.tensor(of_matrices, dtype_of(matrices))


_NAMES = (
    *("linalg_eig", "linalg_eigvals", "_linalg_eigvals", "_linalg_eigh", "_linalg_svd"),
    *("linalg_svd", "linalg_svdvals", "linalg_qr", "geqrf", "linalg_householder_product", "ormqr"),
    *("linalg_solve_triangular", "triangular_solve", "linalg_cholesky_ex", "cholesky"),
    *("cholesky_solve", "cholesky_inverse", "linalg_lu_factor_ex", "linalg_lu_factor", "lu_unpack"),
    *("linalg_lu", "linalg_lu_solve", "_linalg_det", "_linalg_slogdet", "_linalg_solve_ex"),
    *("linalg_inv_ex", "linalg_pinv.atol_rtol_tensor", "linalg_matrix_exp"),
    *("linalg_ldl_factor_ex", "linalg_ldl_solve"),
)
#: The results that are factors or vectors, without which NumPy's LAPACK computes the others at
#: once, and the options that request them.
_FACTORS = {
    "linalg_solve_ex": ("factors", (1, 2)),
    "linalg_det": ("factors", (1, 2)),
    "linalg_slogdet": ("factors", (2, 3)),
    "linalg_eigh": ("compute_v", (1,)),
    "linalg_svd": ("compute_uv", (0, 2)),
}


@complex_converter(*_NAMES)
@converter(*_NAMES)
def _packed(cx: Context, *unused: Value) -> Any:
    """A call of the packed function that has the name of the operator."""
    args, kwargs = cx.values(cx.node.args), cx.values(cx.node.kwargs)
    tensors: list[Expr] = []
    pairs: list[int] = []
    names: list[str] = []
    options: dict[str, Any] = {}
    for k, declared in enumerate(cx.node.target._schema.arguments):
        default = declared.default_value if declared.has_default_value() else None
        value = args[k] if k < len(args) else kwargs.get(declared.name, default)
        if is_complex(value) or isinstance(value, Expr):
            pairs += [len(tensors)] if is_complex(value) else []
            names += [declared.name] if declared.kwarg_only else []
            tensors.append(cx.emit(to_pair(value)) if is_complex(value) else value)
        elif value is not None and declared.name not in ("check_errors", "driver"):
            options[declared.name] = value
        elif value and declared.name == "check_errors":
            options["checked"] = cx.node.target._opname
    name = cx.node.target._schema.name.partition("::")[2].removeprefix("_").removesuffix("_")
    for checked in checked_names(cx.node):
        options["checked"] = checked
    if name in _FACTORS:
        option, numbers = _FACTORS[name]
        options[option] = options.get(option, True) and cx.uses(*numbers)
    meta = cx.meta()
    is_single = not isinstance(meta, (tuple, list))
    metas = [meta] if is_single else meta
    wanted = [
        (k, cx.sizes(m.shape), part_name(m.dtype), m.dtype.is_complex)
        for k, m in enumerate(metas)
        if is_single or cx.uses(k)
    ]
    found = cx.emit(call(name, tensors, wanted, pairs=pairs, names=names, **options))
    parts = [found] if len(wanted) == 1 else [TupleGetItem(found, k) for k in range(len(wanted))]
    results: list[Any] = [None] * len(metas)
    for part, (k, *_, is_pair) in zip(map(cx.emit, parts), wanted, strict=True):
        results[k] = from_pair(cx, part) if is_pair else part
    return results[0] if is_single else results


def _each(
    cx: Context,
    x: Expr,
    weight: Expr,
    classes: Expr,
    bias: Expr | None,
    importance: Expr | None,
    ignored: int,
) -> tuple[Expr, Expr]:
    """The loss of each row, and its weight, which is 0 for the class that is ignored."""
    logits = R.matmul(x, R.permute_dims(weight, [1, 0]))
    if bias is not None:
        logits = logits + bias
    target = cx.emit(R.astype(classes, "int64"))
    kept = cx.emit(R.not_equal(target, const(ignored, "int64")))
    place = cx.emit(R.where(kept, target, const(0, "int64")))
    logs = R.nn.log_softmax(logits, -1)
    chosen = R.squeeze(R.gather_elements(logs, R.expand_dims(place, 1), 1), [1])
    weights = R.astype(kept, dtype_of(x))
    if importance is not None:
        weights = weights * R.take(importance, place, 0)
    shared = cx.emit(weights)
    return -(shared * chosen), shared


@converter("_linear_cross_entropy_batch_chunked_no_reduction", namespace="torch_nn", wide=True)
def linear_cross_entropy_of_each(
    cx: Context, x: Expr, weight: Expr, classes: Expr, bias: Expr | None,
    importance: Expr | None, ignored: int, *rest: Any,
) -> Expr:  # fmt: skip
    return _each(cx, x, weight, classes, bias, importance, ignored)[0]


@converter("_linear_cross_entropy_batch_chunked", namespace="torch_nn", wide=True)
def linear_cross_entropy(
    cx: Context, x: Expr, weight: Expr, classes: Expr, bias: Expr | None,
    importance: Expr | None, reduction: str, ignored: int, smoothing: float, *rest: Any,
) -> tuple[Expr, ...]:  # fmt: skip
    if cx.uses(1, 2, 3) or smoothing:
        raise UnsupportedError("its results for gradients, and smoothed labels")
    losses, weights = _each(cx, x, weight, classes, bias, importance, ignored)
    total = R.sum(losses)
    if reduction == "mean":
        total = total / R.sum(weights)
    none = R.zeros((0,), dtype_of(x))
    return total, none, none, none
