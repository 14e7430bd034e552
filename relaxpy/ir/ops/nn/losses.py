"""Losses: distances of predictions from targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from relaxpy.ir.core.dtype import BOOL, VOID, DataType
from relaxpy.ir.ops.definition import gradients, rules
from relaxpy.ir.ops.definition.registry import R, find, register
from relaxpy.ir.relax.known import literal_shape, tensor_of
from relaxpy.ir.relax.nodes import Call, Expr, TensorStructInfo, Var
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import accumulator, as_dtype
from relaxpy.ir.tir import ops

if TYPE_CHECKING:
    from relaxpy.ir.op import Op
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

Reduction: TypeAlias = Literal["none", "mean", "sum"]


def _cross_entropy(predictions: Tensor, labels: Tensor) -> Tensor:
    wide = accumulator(predictions.dtype)
    product = topi.multiply(as_dtype(predictions, wide), as_dtype(labels, wide))
    total = topi.negative(topi.sum(product))
    if predictions.ndim > 1:
        total = topi.divide(total, ops.cast_to(predictions.shape[0], wide))
    return as_dtype(total, predictions.dtype)


def _gradient_cross_entropy(scale: Any, predictions: Any, labels: Any) -> list[Expr]:
    if gradients.require_rank(predictions, "cross_entropy_with_logits") > 1:
        size = gradients.require_shape(predictions, "cross_entropy_with_logits")[0]
        scale = scale / gradients.scalar(size, predictions.struct_info.dtype)
    scale = -scale
    return [
        scale * labels,
        scale * predictions if gradients.is_differentiable(labels) else R.grad.no_grad(labels),
    ]


@register(
    "relax.nn.cross_entropy_with_logits",
    pure=True,
    legalize=rules.by_te(_cross_entropy, "cross_entropy_with_logits"),
    gradient=gradients.gradient_in_float32(gradients.of_operands(_gradient_cross_entropy)),
)
def cross_entropy_with_logits(
    predictions: TensorStructInfo, labels: TensorStructInfo
) -> TensorStructInfo:
    """-sum(predictions * labels), the mean over the first axis of tensors of rank at least 2.

    Shapes:
        predictions  log-probabilities, of any shape
        labels       probabilities, of the same shape and datatype
        result       ()
    Errors:
        StructInfoError: an operand holds no floats, or ranks, datatypes or known sizes differ.
    """
    rules.require_float(predictions, "predictions")
    rules.require_float(labels, "labels")
    dtype = rules.joint_dtype(predictions, labels, ("predictions", "labels"))
    vdevice = rules.joint_vdevice((predictions, labels), strict=True)
    if predictions.ndim >= 0 and labels.ndim >= 0 and predictions.ndim != labels.ndim:
        raise rules.refuse(f"predictions {predictions} and labels {labels} have one rank", labels)
    first, second = predictions.get_shape(), labels.get_shape()
    for axis, (a, b) in enumerate(zip(first or (), second or (), strict=False)):
        if rules.differ(a, b):
            raise rules.refuse(
                f"dimension {axis} of predictions {rules.shape_text(first or ())} is "
                f"{rules.shown(a)}, of "
                f"labels {rules.shape_text(second or ())} {rules.shown(b)}",
                labels,
            )
    return rules.tensor((), dtype, vdevice)


def _loss_operands(call: Call) -> tuple[Any, Any, Any, Any, int]:
    """Predictions, targets, weights or None, whether each target counts, and the class axis."""
    operator = find(cast("Op", call.op))
    assert operator is not None
    predictions, targets, *weights = cast("Any", operator.operands(call))
    # Unsigned targets have no negative number to ignore, int64 has.
    counts = R.not_equal(R.astype(targets, "int64"), cast("int", call.attrs["ignore_index"]))
    axis = min(1, gradients.require_rank(predictions, "nll_loss") - 1)
    return predictions, targets, weights[0] if weights else None, counts, axis


def _classes(targets: Any, counts: Any) -> Any:
    """The targets as indices; 0 for those that do not count."""
    if tensor_of(targets).dtype == BOOL:
        targets = R.astype(targets, "int32")
    return R.where(counts, targets, R.zeros_like(targets))


def _picked(predictions: Any, targets: Any, axis: int) -> Any:
    """The prediction of each target; for an ignored target, that of class 0."""
    gathered = R.gather_elements(predictions, R.expand_dims(targets, axis), axis=axis)
    return R.squeeze(gathered, axis)


def _gradient_nll_loss(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
    predictions, targets, weights, counts, axis = _loss_operands(call)
    weight_operand = [] if weights is None else [weights]
    backward = R.grad.nll_loss_backward(
        gradient, predictions, targets, *weight_operand, **call.attrs
    )
    out = [backward, R.grad.no_grad(targets)]
    if weights is None:
        return [*out, *map(R.grad.no_grad, call.args[2:])]
    classes = _classes(targets, counts)
    term = -_picked(predictions, classes, axis)
    if call.attrs["reduction"] == "mean":
        term = (term - var) / R.sum(gradients.masked(R.take(weights, classes, axis=0), counts))
    term = gradients.masked(term * gradient, counts)
    flat = R.flatten(classes), R.flatten(term)
    return [*out, R.scatter_elements(R.zeros_like(weights), *flat, reduction="add")]


def _check_nll(
    predictions: TensorStructInfo, targets: TensorStructInfo, weights: TensorStructInfo | None
) -> None:
    """Check that the operands of a negative log-likelihood fit each other."""
    rules.require_float(predictions, "predictions")
    if not targets.dtype.is_void and not targets.dtype.is_int:
        text = f"targets holds integers, found {targets}"
        raise rules.refuse_type(text, targets, hint=rules.CONVERT)
    rank = predictions.ndim
    if rank == 0:
        raise rules.refuse(f"predictions has rank at least 1, found {predictions}", predictions)
    expected = 0 if rank == 1 else rank - 1
    if rank >= 0 and targets.ndim not in (-1, expected):
        raise rules.refuse(
            f"targets has rank {expected} for predictions {predictions}, found {targets}", targets
        )
    shape, target_shape = literal_shape(predictions), literal_shape(targets)
    if shape is not None and target_shape is not None and rank > 1:
        sizes = (shape[0], *shape[2:])
        for axis, (a, b) in enumerate(zip(sizes, target_shape, strict=True)):
            if rules.differ(a, b):
                raise rules.refuse(
                    f"targets has shape {rules.shape_text(sizes)} for predictions "
                    f"{rules.shape_text(shape)}, "
                    f"found {rules.shape_text(target_shape)}: dimension {axis} differs",
                    targets,
                )
    if weights is None:
        return
    rules.require_dtype_of(weights, "weights", predictions, "predictions")
    if weights.ndim not in (-1, 1):
        raise rules.refuse(
            f"weights is a vector with one element a class, found {weights}", weights
        )
    classes = literal_shape(weights)
    if shape is not None and classes is not None:
        count = shape[min(1, rank - 1)]
        if rules.differ(classes[0], count):
            raise rules.refuse(
                f"weights {rules.shape_text(classes)} has {rules.shown(classes[0])} elements, but "
                f"predictions "
                f"{rules.shape_text(shape)} has {rules.shown(count)} classes",
                weights,
            )


@register(
    "relax.nn.nll_loss",
    pure=True,
    legalize=rules.by_te("nn.nll_loss", "nll_loss"),
    gradient=gradients.gradient_in_float32(_gradient_nll_loss),
)
def nll_loss(
    predictions: TensorStructInfo,
    targets: TensorStructInfo,
    weights: TensorStructInfo | None = None,
    reduction: Reduction = "mean",
    ignore_index: int = -100,
) -> TensorStructInfo:
    """The negative log-likelihood of targets, times the weights of their classes.

    "mean" divides the sum by the sum of the weights; targets equal to `ignore_index` count neither
    as losses nor as weights.

    Shapes:
        predictions  log-probabilities (classes,) or (N, classes, ...)
        targets      integers or Booleans, () or (N, ...)
        weights      (classes,), 1 by default
        result       (N, ...) without a reduction, else ()
    Errors:
        StructInfoError: predictions hold no floats or targets are known not to be integers, or
            ranks, known sizes or datatypes do not belong together.
    """
    _check_nll(predictions, targets, weights)
    dtype = predictions.dtype if weights is None or not weights.dtype.is_void else VOID
    return _losses(predictions, reduction, dtype)


def _losses(
    predictions: TensorStructInfo, reduction: Reduction, dtype: DataType
) -> TensorStructInfo:
    """The losses of predictions, of this datatype."""
    if reduction != "none" or predictions.ndim == 1:
        return rules.tensor((), dtype, predictions.vdevice)
    shape = literal_shape(predictions)
    sizes = None if shape is None else (shape[0], *shape[2:])
    ndim = -1 if predictions.ndim < 0 else predictions.ndim - 1
    return rules.tensor(sizes, dtype, predictions.vdevice, ndim)


def _legalize_nll_backward(builder: BlockBuilder, call: Call) -> Expr:
    """Scatter the negative factor of each loss to the prediction of its target."""
    gradient, *operands = call.args
    loss = Call(R.nn.nll_loss.op, tuple(operands), call.attrs)
    predictions, targets, weights, counts, axis = _loss_operands(loss)
    classes = _classes(targets, counts)
    mask = R.astype(counts, tensor_of(predictions).dtype)
    factor = mask if weights is None else mask * R.take(weights, classes, axis=0)
    if call.attrs["reduction"] == "mean":
        factor = factor / R.sum(factor)
    update = R.expand_dims(gradients.masked(-factor * cast("Any", gradient), counts), axis)
    zeros = R.zeros_like(predictions)
    return cast(
        "Expr",
        R.scatter_elements(zeros, R.expand_dims(classes, axis), update, axis=axis, reduction="add"),
    )


def _gradient_nll_backward(
    var: Var, call: Call, gradient: Expr, builder: BlockBuilder
) -> list[Expr]:
    """The result is linear in output_grad: the sum of its products with g is a loss of g."""
    output_grad, predictions, targets, *weights = call.args
    loss = R.nn.nll_loss(gradient, targets, *weights, **call.attrs)
    value = builder.emit(loss)
    others = _gradient_nll_loss(value, loss, output_grad, builder)[1:]
    return [value, R.grad.no_grad(predictions), *others]


@register(
    "relax.grad.nll_loss_backward",
    pure=True,
    legalize=gradients.legalization_in_float32(_legalize_nll_backward),
    gradient=gradients.gradient_in_float32(_gradient_nll_backward),
)
def nll_loss_backward(
    output_grad: TensorStructInfo,
    predictions: TensorStructInfo,
    targets: TensorStructInfo,
    weights: TensorStructInfo | None = None,
    reduction: Reduction = "mean",
    ignore_index: int = -100,
) -> TensorStructInfo:
    """The gradient of predictions in `nll_loss`, from that of the result.

    Shapes:
        output_grad                    as the result of `nll_loss`
        predictions, targets, weights  as those of `nll_loss`
        result                         as predictions
    Errors:
        StructInfoError: as for `nll_loss`, or output_grad has another datatype or known shape.
    """
    _check_nll(predictions, targets, weights)
    rules.joint_dtype(output_grad, predictions, ("output_grad", "predictions"))
    rules.require_float(output_grad, "output_grad")
    losses = _losses(predictions, reduction, output_grad.dtype)
    if -1 not in (losses.ndim, output_grad.ndim):
        found, sizes = literal_shape(output_grad), literal_shape(losses)
        if output_grad.ndim != losses.ndim or (
            found is not None and sizes is not None and any(map(rules.differ, found, sizes))
        ):
            raise rules.refuse(
                f"output_grad is as the result of nll_loss, {losses}, found {output_grad}",
                output_grad,
            )
    return predictions
