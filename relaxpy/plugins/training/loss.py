"""Losses: objects that build Relax functions from predictions and targets to a loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final

from typing_extensions import override

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.relax.op.nn.losses import sinfo_dtype
from relaxpy.support.entry import user_facing

REDUCTIONS: Final = ("mean", "sum", "none")


class Loss(ABC):
    """A loss whose elements are reduced to their "mean", to their "sum", or not at all ("none").

    Errors:
        MisuseError (also TypeError, ValueError): the reduction is unknown.
    """

    name: str
    num_backbone_outputs = 1
    """How many of the first parameters of the loss are results of the model."""
    num_params = 2
    """The largest number of parameters of the loss."""

    def __init__(self, reduction: str = "mean") -> None:
        if reduction not in REDUCTIONS:
            raise unexpected(reduction, f"a reduction is one of {', '.join(REDUCTIONS)}")
        self.reduction = reduction

    @abstractmethod
    def emit(self, builder: BlockBuilder, *params: rx.Var) -> Any:
        """The loss of these parameters; `builder` receives the bindings before it."""

    def reduced(self, losses: Any) -> Any:
        """The losses of elements after the reduction."""
        if self.reduction == "none":
            return losses
        return R.mean(losses) if self.reduction == "mean" else R.sum(losses)

    @user_facing
    def __call__(
        self,
        predictions: rx.Var | rx.StructInfo,
        targets: rx.Var | rx.StructInfo,
        *weights: rx.Var | rx.StructInfo,
    ) -> rx.Function:
        """The loss as a function, whose `global_symbol` is the name of the loss.

        Its parameters are the variables, or new ones of the struct infos.

        Errors:
            MisuseError (also TypeError): a parameter is neither a variable nor struct info, or
                there are too many.
            StructInfoError: predictions, targets and weights do not fit together.
        """
        given = (predictions, targets, *weights)
        if len(given) > self.num_params:
            raise MisuseError(
                f"{self.name} has {self.num_params} parameters at most, found {len(given)}",
                about=given,
            )
        names = ("predictions", "targets", *["weights"] * len(weights))
        params = [_parameter(param, name) for param, name in zip(given, names, strict=True)]
        builder = BlockBuilder()
        with builder.function(self.name, params):
            with builder.dataflow():
                result = builder.emit_output(self.emit(builder, *params))
            gvar = builder.emit_func_output(result)
        function = builder.get()[gvar]
        assert isinstance(function, rx.Function)
        return function


class L1Loss(Loss):
    """The absolute differences of predictions and targets, which have one shape."""

    name = "l1_loss"

    @override
    def emit(self, builder: BlockBuilder, *params: rx.Var) -> Any:
        predictions, targets = params
        difference = builder.emit(R.subtract(predictions, targets))
        return self.reduced(builder.emit(R.abs(difference)))


class MSELoss(Loss):
    """The squared differences of predictions and targets, which have one shape."""

    name = "mse_loss"

    @override
    def emit(self, builder: BlockBuilder, *params: rx.Var) -> Any:
        predictions, targets = params
        difference = builder.emit(R.subtract(predictions, targets))
        return self.reduced(builder.emit(R.multiply(difference, difference)))


class _CrossEntropy(Loss):
    """Losses of scores, whose classes are on axis 1, or axis 0 of a single sample."""

    num_params = 3

    def __init__(self, reduction: str = "mean", ignore_index: int = -100) -> None:
        super().__init__(reduction)
        if isinstance(ignore_index, bool) or not isinstance(ignore_index, int):
            raise unexpected(ignore_index, "ignore_index is an int")
        self.ignore_index = ignore_index

    @staticmethod
    def log_probabilities(builder: BlockBuilder, scores: rx.Var) -> rx.Var:
        """The logarithms of the probabilities of the classes."""
        sinfo = scores.struct_info
        ndim = sinfo.ndim if isinstance(sinfo, rx.TensorStructInfo) else -1
        return builder.emit(R.nn.log_softmax(scores, 1 if ndim > 2 else -1))


class CrossEntropyLoss(_CrossEntropy):
    """The cross entropy of scores (N, classes, ...) and the indices (N, ...) of classes.

    A third parameter of the loss are the weights of the classes. Targets that are `ignore_index` do
    not count.
    """

    name = "cross_entropy_loss"

    @override
    def emit(self, builder: BlockBuilder, *params: rx.Var) -> Any:
        scores, targets, *weights = params
        weight = weights[0] if weights else None
        logits = self.log_probabilities(builder, scores)
        return R.nn.nll_loss(logits, targets, weight, self.reduction, self.ignore_index)


class CategoricalCrossEntropyLoss(_CrossEntropy):
    """The cross entropy of scores (N, classes) and the probabilities of classes as targets.

    There is a loss for each probability, so "mean" divides by N * classes, as in TVM. A third
    parameter of the loss are the weights of the classes. With an `ignore_index` of 0 or more the
    targets are taken to be one-hot: only the most probable class counts, and that class does not.
    """

    name = "categorical_cross_entropy_loss"

    @override
    def emit(self, builder: BlockBuilder, *params: rx.Var) -> Any:
        scores, targets, *weights = params
        logits = self.log_probabilities(builder, scores)
        if self.ignore_index >= 0:
            weight = weights[0] if weights else None
            classes = builder.emit(R.argmax(targets, axis=1))
            match targets.struct_info:
                case rx.TensorStructInfo(shape=rx.ShapeExpr(values=(count, _))):
                    classes = builder.emit(R.reshape(classes, (count,)))  # as TVM does
                case _:
                    pass
            return R.nn.nll_loss(logits, classes, weight, self.reduction, self.ignore_index)
        losses = builder.emit(R.negative(logits))
        dtype = sinfo_dtype(logits)
        probabilities = targets if sinfo_dtype(targets) == dtype else R.astype(targets, dtype)
        losses = builder.emit(R.multiply(losses, probabilities))
        if weights:
            losses = builder.emit(R.multiply(losses, weights[0]))
        return self.reduced(losses)


def _parameter(param: rx.Var | rx.StructInfo, name: str) -> rx.Var:
    """`param` as a variable: one of this name for struct info."""
    if isinstance(param, rx.Var):
        return param
    try:
        return rx.Var(name, rx.as_struct_info(param))
    except MisuseError:
        raise unexpected(param, f"{name} are a Var or struct info") from None
