"""Matmul, outer products and einsum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from string import ascii_letters
from typing import TYPE_CHECKING, Any, cast

from relaxpy.ir import ops as op
from relaxpy.ir.core.dtype import DataType, accumulator
from relaxpy.ir.ops.definition import gradients, rules
from relaxpy.ir.ops.definition.axis_rules import matmul_axes
from relaxpy.ir.ops.definition.registry import R, register
from relaxpy.ir.ops.elementwise import BINARY
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.known import literal_shape, tensor_of, tensor_sinfo
from relaxpy.ir.te import topi
from relaxpy.ir.te.topi.shapes import Subscripts, label_sizes, parse_subscripts
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.support.entry import user_facing

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder
    from relaxpy.ir.te.tensor import Tensor


def _product(x1: Tensor, x2: Tensor, out_dtype: str | None, dtype: str) -> Tensor:
    from relaxpy.ir.te.topi.elementwise import as_dtype

    return as_dtype(topi.matmul(x1, x2, out_dtype=out_dtype), DataType(dtype))


def _legalize_matmul(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
    sinfo = tensor_of(builder.struct_info_of(call))
    a, b = (rules.known_shape(builder, operand) for operand in call.args)
    if not rules.same(a[-1], b[-2:][0]):
        return call
    wide = call.attrs["out_dtype"]
    return rules.te_kernel(
        builder, _product, "matmul", *call.args, out_dtype=wide, dtype=str(sinfo.dtype)
    )


def _transposed(matrix: rx.Expr) -> rx.Expr:
    """A stack of matrices, each transposed."""
    ndim = gradients.require_rank(matrix, "matmul")
    return op.permute_dims(matrix, (*range(ndim - 2), ndim - 1, ndim - 2))


def _gradient_matmul(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    """Vectors are converted to matrices of one row or column in between."""
    if not gradients.is_differentiable(var):
        return gradients.no_gradient(var, call, gradient, builder)
    a, b = call.args
    is_row, is_column = (gradients.require_rank(operand, "matmul") == 1 for operand in (a, b))
    rows = R.expand_dims(a, 0) if is_row else a
    columns = R.expand_dims(b, 1) if is_column else b
    if is_row or is_column:
        gradient = R.expand_dims(gradient, [-2] * is_row + [-1] * is_column)

    def factors_of(axis: int, operand: rx.Expr) -> tuple[rx.Expr, rx.Expr] | None:
        """The factors of the gradient of an operand, if it has one, the transposed one bound."""
        sinfo = tensor_sinfo(operand)
        if sinfo is None or not gradients.is_differentiable(operand):
            return None
        is_cast = call.attrs["out_dtype"] not in (None, "", sinfo.dtype)
        g = R.astype(gradient, sinfo.dtype) if is_cast else gradient
        other = _transposed(rows if axis else columns)
        partner = tensor_sinfo(a if axis else b)
        if partner is not None and partner.dtype not in (None, sinfo.dtype):
            other = R.astype(other, sinfo.dtype)
        other = builder.emit(other)
        return (other, g) if axis else (g, other)

    def gradient_of(
        axis: int, operand: rx.Expr, matrix: rx.Expr, factors: tuple[rx.Expr, rx.Expr] | None
    ) -> rx.Expr:
        if factors is None:
            return cast("rx.Expr", R.grad.no_grad(operand))
        product = gradients.unbroadcast(matmul(*factors), matrix)
        return product if operand is matrix else cast("rx.Expr", R.squeeze(product, axis))

    first, second = factors_of(0, a), factors_of(1, b)
    return [gradient_of(0, a, rows, first), gradient_of(1, b, columns, second)]


def _partial_matmul(call: rx.Call, bound: Callable[[Any], Any]) -> Any:
    """With sums in float32, which is rounded once they are combined."""
    sinfo: Any = call.args[0].struct_info
    dtype = cast("DataType", call.attrs["out_dtype"] or sinfo.dtype)
    wide = accumulator(dtype)
    if wide == dtype:
        return call
    return R.astype(bound(matmul(*call.args, out_dtype=wide)), dtype)


@register(
    "relax.matmul",
    axes=matmul_axes,
    partial=_partial_matmul,
    precision_policy=0,
    pure=True,
    sign="@",
    legalize=_legalize_matmul,
    gradient=_gradient_matmul,
)
def matmul(
    x1: rx.TensorStructInfo, x2: rx.TensorStructInfo, out_dtype: DataType | None = None
) -> rx.TensorStructInfo:
    """Matmul: at [..., i, j] the sum over k of x1[..., i, k] * x2[..., k, j].

    Shapes:
        x1      (..., n, k), or (k,) as one row that the result does not have
        x2      (..., k, m), or (k,) as one column that the result does not have
        result  (..., n, m), the leading axes broadcast; in `out_dtype`, in which sums are taken
    Errors:
        StructInfoError: an operand has rank 0, the sizes k provably differ, leading axes do not
            broadcast, or the datatypes differ and `out_dtype` is missing.
    """
    dtype = out_dtype or rules.joint_dtype(x1, x2, ("x1", "x2"))
    vdevice = rules.joint_vdevice((x1, x2), strict=False)
    for sinfo, name in ((x1, "x1"), (x2, "x2")):
        if sinfo.ndim == 0:
            raise rules.refuse_type(f"{name} has rank at least 1, found {sinfo}", sinfo)
    if x1.ndim < 0 or x2.ndim < 0:
        return rules.tensor(None, dtype, vdevice)
    is_row, is_column = x1.ndim == 1, x2.ndim == 1
    ndim = max(x1.ndim, x2.ndim, 2) - is_row - is_column
    a, b = literal_shape(x1), literal_shape(x2)
    if a is None or b is None:
        return rules.tensor(None, dtype, vdevice, ndim)
    summed = b[-2:][0]
    if rules.differ(a[-1], summed):
        raise rules.refuse(
            f"the last dimension of x1 is {rules.shown(a[-1])}, but x2 is summed over "
            f"{rules.shown(summed)}: "
            f"x1 is {x1}, x2 is {x2}",
            x2,
        )
    batch = rules.broadcast_sizes(a[:-2], b[:-2], ("the leading axes of x1", "those of x2"), x2)
    if batch is None:
        return rules.tensor(None, dtype, vdevice, ndim)
    rows = () if is_row else (a[-2],)
    columns = () if is_column else (b[-1],)
    return rules.tensor((*batch, *rows, *columns), dtype, vdevice)


def _outer(x1: Tensor, x2: Tensor) -> Tensor:
    return topi.einsum("i,j->ij", x1, x2)


@register(
    "relax.outer",
    precision_policy=0,
    pure=True,
    legalize=rules.by_te(_outer, "outer"),
    gradient=gradients.of_operands(lambda g, x1, x2: [matmul(g, x2), matmul(x1, g)]),
)
def outer(x1: rx.TensorStructInfo, x2: rx.TensorStructInfo) -> rx.TensorStructInfo:
    """The products of all pairs of elements: at [i, j] x1[i] * x2[j].

    Shapes:
        x1      (n,)
        x2      (m,)
        result  (n, m)
    Errors:
        StructInfoError: an operand is known to have another rank than 1, or the datatypes differ.
    """
    dtype = rules.joint_dtype(x1, x2, ("x1", "x2"))
    for sinfo, name in ((x1, "x1"), (x2, "x2")):
        if sinfo.ndim not in (-1, 1):
            raise rules.refuse(f"{name} is a vector, found {sinfo}", sinfo)
    vdevice = rules.joint_vdevice((x1, x2), strict=False)
    a, b = literal_shape(x1), literal_shape(x2)
    if a is None or b is None:
        return rules.tensor(None, dtype, vdevice, 2)
    return rules.tensor((*a, *b), dtype, vdevice)


def _gradient_einsum(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    """For each operand, the gradient contracted with the others.

    A label that has its size only on this operand gets it from a vector of ones, and one that
    occurs twice on it becomes two labels of an identity matrix.
    """
    operand = call.args[0]
    count = len(cast("rx.TupleStructInfo", builder.struct_info_of(operand)).fields)
    if isinstance(operand, rx.Tuple):
        tensors = list(operand.fields)
    else:
        tensors = [rx.TupleGetItem(operand, k) for k in range(count)]
    shapes = [gradients.require_shape(x, "einsum") for x in tensors]
    dtype = cast("rx.TensorStructInfo", tensor_sinfo(tensors[0])).dtype
    labels = parse_subscripts(cast("str", call.attrs["subscripts"]), [len(s) for s in shapes])
    sizes = label_sizes(labels, shapes, lambda label, a, b: a)
    out: list[rx.Expr] = []
    for k, (x, own_labels) in enumerate(zip(tensors, labels.operands, strict=True)):
        if not gradients.is_differentiable(x):
            out.append(R.grad.no_grad(x))
            continue
        factors = [gradient, *tensors[:k], *tensors[k + 1 :]]
        terms = [labels.result, *labels.operands[:k], *labels.operands[k + 1 :]]
        other_sizes = label_sizes(
            Subscripts((*labels.operands[:k], *labels.operands[k + 1 :]), labels.result),
            [*shapes[:k], *shapes[k + 1 :]],
            lambda label, a, b: a,
        )
        sized = {
            *labels.result,
            *(label for label in other_sizes if not rules.is_one(other_sizes[label])),
        }
        free = (letter for letter in ascii_letters if letter not in sizes)
        target = ""
        for label in own_labels:
            if label in target:
                twin = next(free)
                factors.append(R.eye(sizes[label], dtype=dtype))
                terms.append(label + twin)
                label = twin
            elif label not in sized:
                factors.append(R.ones((sizes[label],), dtype))
                terms.append(label)
            target += label
        product = einsum(factors, f"{','.join(terms)}->{target}")
        out.append(gradients.unbroadcast(product, x))
    return [rx.Tuple(tuple(out))]


def _einsum(operands: Sequence[Tensor], subscripts: str) -> Tensor:
    return topi.einsum(subscripts, *operands)


@register(
    "relax.einsum", pure=True, legalize=rules.by_te(_einsum, "einsum"), gradient=_gradient_einsum
)
def einsum(operands: rx.TupleStructInfo, subscripts: str) -> rx.TensorStructInfo:
    """The sum of products of elements with equal labels, as NumPy's einsum.

    Shapes:
        operands  tensors of one datatype, each of as many axes as its term has labels; axes of one
                  label have one size, or size 1
        result    the axes of the labels after `->`; without it those of an ellipsis, then the
                  labels that occur once, in alphabetical order
    Errors:
        StructInfoError: there is no operand, datatypes differ, the subscripts are malformed or do
            not fit the ranks, or known sizes of one label differ.
    """
    sinfos: list[rx.TensorStructInfo] = []
    for k, sinfo in enumerate(operands.fields):
        if not isinstance(sinfo, rx.TensorStructInfo):
            raise rules.refuse_type(
                f"operands holds tensors, found {sinfo} as number {k + 1}", sinfo
            )
        sinfos.append(sinfo)
    if not sinfos:
        raise rules.refuse("operands holds at least one tensor, found none", operands)
    dtype, vdevice = (
        rules.common_dtype(sinfos, "operands"),
        rules.joint_vdevice(sinfos, strict=False),
    )
    if any(sinfo.ndim < 0 for sinfo in sinfos):
        return rules.tensor(None, dtype, vdevice)
    labels = parse_subscripts(
        subscripts, [sinfo.ndim for sinfo in sinfos], lambda text: rules.refuse(text, subscripts)
    )
    shapes = [literal_shape(sinfo) for sinfo in sinfos]
    decided = all(shape is not None for shape in shapes)

    def joined(label: str, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        nonlocal decided
        if rules.differ(a, b):
            listed = ", ".join(map(str, sinfos))
            raise rules.refuse(
                f"label {label!r} of {subscripts!r} has sizes {rules.shown(a)} and "
                f"{rules.shown(b)}: the "
                f"operands are {listed}",
                operands,
            )
        decided = decided and rules.same(a, b)
        return a

    known_operands = [k for k, shape in enumerate(shapes) if shape is not None]
    sizes = label_sizes(
        Subscripts(tuple(labels.operands[k] for k in known_operands), labels.result),
        [shape for shape in shapes if shape is not None],
        joined,
    )
    if not decided:
        return rules.tensor(None, dtype, vdevice, len(labels.result))
    return rules.tensor([sizes[label] for label in labels.result], dtype, vdevice)


@user_facing
def linear(
    data: rx.Expr, weight: rx.Expr, bias: rx.Expr | None = None, out_dtype: str | None = None
) -> rx.Expr:
    """data @ weight.T + bias: no operator, but calls of `matmul`, `permute_dims` and `add`.

    Shapes:
        data    (..., k)
        weight  (m, k)
        bias    broadcasts with (..., m)
        result  (..., m)
    """
    product = matmul(data, op.permute_dims(weight), out_dtype=out_dtype)
    return product if bias is None else cast("rx.Expr", BINARY["add"](product, bias))
