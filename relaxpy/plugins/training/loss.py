"""Losses: objects that build Relax functions from predictions and targets; and AppendLoss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

from typing_extensions import override

from relaxpy.errors import MisuseError, TransformError, counted, unexpected
from relaxpy.ir.core.traverse import rebuild, rename
from relaxpy.ir.module import IRModule
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.passes.rewrite_pass import find_function, name_of_function
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.known import tensor_of
from relaxpy.ir.relax.rewrite.bind import in_place_of_parameters
from relaxpy.ir.relax.rewrite.map_bindings import copy_with_new_vars, replace_variables
from relaxpy.support.dataclass import dataclass
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
        weights: rx.Var | rx.StructInfo | None = None,
    ) -> rx.Function:
        """The loss as a function, whose `global_symbol` is the name of the loss.

        Its parameters are the variables, or new ones of the struct infos.

        Errors:
            MisuseError (also TypeError): a parameter is neither a variable nor struct info, or
                there are too many.
            StructInfoError: predictions, targets and weights do not fit together.
        """
        given = (predictions, targets) if weights is None else (predictions, targets, weights)
        if len(given) > self.num_params:
            raise MisuseError(
                f"{self.name} has {self.num_params} parameters at most, found {len(given)}",
                about=given,
            )
        names = ("predictions", "targets", "weights")
        params = [_parameter(param, name) for param, name in zip(given, names, strict=False)]
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
        return builder.emit(R.nn.log_softmax(scores, 1 if ndim > 2 else -1), "log_probabilities")


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
        dtype = tensor_of(logits).dtype
        probabilities = targets if tensor_of(targets).dtype == dtype else R.astype(targets, dtype)
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


@dataclass(frozen=True)
class AppendLoss(Pass):
    """Adds the function that computes `func_name` and then the loss of its results.

    The first parameters of the loss are the first `num_backbone_outputs` results of the function;
    its other parameters follow those of the function. The new function, `new_func_name` or
    `<func_name>_loss`, returns the loss, and in a tuple with it the other results of the function.
    Both bodies are one DataflowBlock, and so is the new one.

    Errors:
        UnknownNameError (also KeyError, ValueError): the module has no such function.
        MisuseError (also TypeError): an option has another type.
        TransformError: the module has a function of the new name.
        TransformError: one of the functions has another form, or the loss takes fewer results, or
            is not a float of rank 0.
        StructInfoError: a result does not fit the parameter of the loss.
    """

    func_name: str | rx.GlobalVar
    loss_function: rx.Function
    num_backbone_outputs: int = 1
    new_func_name: str | rx.GlobalVar | None = None

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "func_name", name_of_function(self.func_name))
        if self.new_func_name is not None:
            name = name_of_function(self.new_func_name, "new_func_name")
            object.__setattr__(self, "new_func_name", name)

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        old_name, model = find_function(mod, self.func_name, "AppendLoss")
        name = f"{old_name}_loss" if self.new_func_name is None else str(self.new_func_name)
        if name in mod.functions_by_name:
            raise TransformError(
                f"AppendLoss: the module has a function {name} already",
                hint="name the new function in new_func_name",
                about=mod[name],
            )
        loss = BlockBuilder().normalize_function(self.loss_function)
        combined = _combined(model, loss, self.num_backbone_outputs, old_name)
        if "global_symbol" in model.attrs:
            combined = combined.with_attr("global_symbol", name)
        result = mod.clone()
        result[name] = combined
        return normalize_module(result)


def _combined(model: rx.Function, loss: rx.Function, count: int, name: str) -> rx.Function:
    model, loss = copy_with_new_vars(model), copy_with_new_vars(loss)
    bindings = _dataflow(model, name)
    results = _results(model, name)
    if not 0 < count <= min(len(results), len(loss.params)):
        raise TransformError(
            f"AppendLoss: {name} returns {counted(len(results), 'result')} and the loss takes "
            f"{counted(len(loss.params), 'parameter')}, so there are no {count} to pass"
        )
    used, kept = results[:count], results[count:]
    _dataflow(loss, "the loss")
    pairs = list(zip(loss.params, used, strict=False))
    checked, images = in_place_of_parameters(pairs, loss.body)
    loss = replace_variables(rebuild(loss, params=loss.params[count:], body=checked), images)
    value = loss.body.body
    sinfo = value.struct_info
    scalar = isinstance(sinfo, rx.TensorStructInfo) and sinfo.ndim == 0 and sinfo.dtype.is_float
    if not isinstance(value, rx.Var) or not scalar:
        raise TransformError(
            f"AppendLoss: a loss is a float of rank 0, found {sinfo}",
            hint='use the reduction "mean" or "sum"',
            about=loss,
        )
    bindings += [binding for block in loss.body.blocks for binding in block.bindings]
    body = rx.SeqExpr(
        (rx.DataflowBlock(tuple(bindings)),), rx.Tuple((value, *kept)) if kept else value
    )
    returned = {value, *kept}
    hidden: dict[rx.Var, rx.Var] = {}
    for binding in bindings:
        var = binding.var
        if var is not None and not isinstance(var, rx.DataflowVar) and var not in returned:
            hidden[var] = rx.DataflowVar(var.name_hint, var.struct_info, var.span)
    return rebuild(
        model, params=(*model.params, *loss.params), body=rename(body, hidden), ret_struct_info=None
    )


def _dataflow(func: rx.Function, name: str) -> list[rx.Binding]:
    """The bindings of a body that is one dataflow block."""
    blocks = func.body.blocks
    if len(blocks) == 1 and isinstance(blocks[0], rx.DataflowBlock):
        return list(blocks[0].bindings)
    raise TransformError(
        f"AppendLoss: the body of {name} is not one DataflowBlock",
        hint="apply relax.transform.ConvertToDataflow(min_size=1) to pure code before",
        about=func,
    )


def _results(func: rx.Function, name: str) -> Sequence[rx.Expr]:
    """The variables that a function returns."""
    result = func.body.body
    fields = result.fields if isinstance(result, rx.Tuple) else (result,)
    if not all(isinstance(field, rx.Var) for field in fields):
        raise TransformError(
            f"AppendLoss: {name} returns a variable or a tuple of variables, found "
            f"{func.body.struct_info}",
            about=func,
        )
    return fields
