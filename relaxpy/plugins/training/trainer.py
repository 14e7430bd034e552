"""Trainer: keeps parameters and states, and runs the functions of SetupTrainer, in epochs.

SetupTrainer makes the functions of a model, a loss and an optimiser. DataParallel trains one model
on several workers, each on its part of the batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from os import PathLike
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from typing_extensions import override

from relaxpy.errors import (
    MisuseError,
    RuntimeCheckError,
    Span,
    TrainerStateError,
    TransformError,
    UnknownNameError,
    check_type,
    close_names,
    counted,
    unexpected,
)
from relaxpy.ir import hooks
from relaxpy.ir.core.dtype import Array, DataType
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.core.tensor import as_numpy, as_torch, has_torch, read_array
from relaxpy.ir.module import IRModule
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.ops.distributed import current_workers
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.passes.gradient import Gradient
from relaxpy.ir.passes.legalize import LegalizeOps
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.nodes import Constant, Function, ShapeExpr, TensorStructInfo, Tuple, Var
from relaxpy.ir.relax.rewrite.map_bindings import copy_with_new_vars
from relaxpy.ir.tir.expr import IntImm
from relaxpy.plugins.training.loss import AppendLoss, Loss
from relaxpy.plugins.training.optimizer import Optimizer, static_shape
from relaxpy.support import progress
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.entry import user_facing
from relaxpy.support.progress import long_work

BACKBONE: Final = "backbone"
LOSS: Final = "backbone_loss"
ADJOINT: Final = "backbone_loss_adjoint"
OPTIMIZER: Final = "optimizer"


@dataclass(frozen=True)
class SetupTrainer(Pass):
    """Adds to a module with a function `backbone` those that a `Trainer` calls.

    The parameters of `backbone` are its inputs, `param_num` parameters to train, and `state_num`
    states, two attributes of the module. It returns predictions and then the new states. Added are

    - `backbone_loss`, by AppendLoss: `loss` is built from `loss_args`, struct infos or variables;
    - `backbone_loss_adjoint`, by Gradient, for the gradients of the parameters;
    - `optimizer`, the function of `optimizer`;
    - the attributes `input_num` and `optim_state`, the state before the first step.

    With `legalize` operators become calls of kernels. A module without `backbone` that has the one
    exported method of a model of `nn` gets it by this name; all its weights are trained.

    Errors:
        UnknownNameError (also KeyError, ValueError): there is no function `backbone`.
        TransformError: `param_num` or `state_num` is missing, or does not fit the parameters; two
            parameters to train, or two states, have one name; or as for AppendLoss and Gradient.
        MisuseError (also TypeError): an option has another type, or as for the optimiser.
    """

    loss: Loss
    optimizer: Optimizer
    loss_args: Sequence[Any]
    legalize: bool = True

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.loss_args) < 2:
            raise unexpected(
                self.loss_args, "loss_args are struct infos of predictions and targets"
            )

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = exported_backbone(mod)
        model = mod.functions_by_name.get(BACKBONE)
        if not isinstance(model, Function):
            raise UnknownNameError(
                f"SetupTrainer: the module has no Relax function {BACKBONE!r}",
                hint=close_names(BACKBONE, mod.functions_by_name)
                or "a model of nn that is exported with one method needs none",
            )
        param_num, state_num = (
            attribute_count(mod.attrs, key) for key in ("param_num", "state_num")
        )
        if not param_num:
            raise TransformError("SetupTrainer: param_num is 0, there is nothing to train")
        input_num = len(model.params) - param_num - state_num
        if input_num < 0:
            raise TransformError(
                f"SetupTrainer: {BACKBONE} has {len(model.params)} parameters, fewer than "
                f"param_num + state_num = {param_num + state_num}",
                about=model,
            )
        last = input_num + param_num
        for variables in (model.params[input_num:last], model.params[last:]):
            _require_names(variables)
        loss = self.loss(*self.loss_args)
        mod = AppendLoss(BACKBONE, loss, self.loss.num_backbone_outputs, LOSS)(mod)
        with_loss = mod.functions_by_name[LOSS]
        assert isinstance(with_loss, Function)
        trained = with_loss.params[input_num:last]
        mod = Gradient(LOSS, require_grads=trained)(mod)
        self.optimizer.init(trained)
        assert self.optimizer.state is not None
        mod = mod.clone()
        mod[OPTIMIZER] = self.optimizer.get_function().with_attr("global_symbol", OPTIMIZER)
        state = Tuple(tuple(Constant(array) for array in self.optimizer.state))
        mod = mod.with_attrs({"input_num": input_num, "optim_state": state})
        return LegalizeOps()(mod) if self.legalize else mod


def _require_names(variables: Sequence[Var]) -> None:
    """Check that each variable has a name of its own, by which a trainer knows its value."""
    names: set[str] = set()
    for var in variables:
        if var.name_hint in names:
            raise TransformError(
                f"SetupTrainer: two parameters of {BACKBONE} have the name {var.name_hint!r:.60}",
                hint="give each a name of its own, by which the trainer saves and loads its value",
                about=var,
            )
        names.add(var.name_hint)


def exported_backbone(mod: IRModule) -> IRModule:
    """The module with the one exported method of a model of `nn` as `backbone`, or `mod` itself."""
    methods = {
        name: func
        for name, func in mod.functions_by_name.items()
        if isinstance(func, Function) and "num_input" in func.attrs
    }
    if BACKBONE in mod.functions_by_name or len(methods) != 1:
        return mod
    [(name, func)] = methods.items()
    inputs = attribute_count(func.attrs, "num_input")
    mod = mod.clone()
    mod[BACKBONE] = func.with_attr("global_symbol", BACKBONE)
    del mod[name]
    known = {"param_num": len(func.params) - inputs, "state_num": 0}
    return mod.with_attrs({**known, **mod.attrs})


def attribute_count(attrs: Attrs, key: str) -> int:
    """An attribute of a module or function that is the number of some parameters."""
    value = attrs.get(key)
    number = getattr(value, "value", value)
    if isinstance(number, int) and not isinstance(value, bool) and number >= 0:
        return number
    found = "is missing" if value is None else f"is {value!r:.60}"
    raise TransformError(
        f"SetupTrainer: the attribute {key} of the module {found}",
        hint='write I.module_attrs({"param_num": ..., "state_num": ...}) in the class',
    )


OF_ONE = f"{ADJOINT}_of_one"
"""The function that computes loss and gradients of the part that one worker has."""


@dataclass(frozen=True)
class DataParallel(Pass):
    """Lets workers train together: loss, gradients and new states become the means over all.

    It changes a module that SetupTrainer has prepared. Each worker calls the trainer with its part
    of the batch, and all have the same parameters, at first those of the first worker. With a loss
    that is a mean, and equal parts, these are the parameters that one worker gets from the whole
    batch. States that are not floats stay those of each worker.

    Errors:
        TransformError: SetupTrainer has not prepared the module.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        of_one = mod.functions_by_name.get(ADJOINT)
        if not isinstance(of_one, rx.Function):
            raise TransformError(
                f"DataParallel: the module has no function {ADJOINT}",
                hint="apply relax.training.SetupTrainer first",
            )
        if OF_ONE in mod.functions_by_name:
            return mod
        params = copy_with_new_vars(of_one).params
        mod = mod.clone()
        del mod[ADJOINT]
        builder = BlockBuilder(mod)
        one = builder.add_func(of_one.without_attr("global_symbol"), OF_ONE)
        with builder.function(ADJOINT, params):
            with builder.dataflow():
                call = rx.Call(one, params, span=of_one.body.span)
                means = _means(builder.emit(call, span=call.span), builder, call.span)
                binding = rx.VarBinding(rx.Var("gv", None), means, call.span)
                result = builder.emit_normalized(binding)
            assert result is not None
            builder.emit_func_output(result)
        return normalize_module(builder.get())


def _means(value: rx.Expr, builder: BlockBuilder, span: Span | None) -> rx.Expr:
    """The means over all workers of a tensor of floats, or of those in a tuple."""
    match value.struct_info:
        case rx.TupleStructInfo(fields=fields):
            items = (rx.TupleGetItem(value, k, span=span) for k in range(len(fields)))
            means = [_means(builder.emit(item, span=span), builder, span) for item in items]
            return rx.Tuple(tuple(means), span=span)
        case rx.TensorStructInfo(dtype=dtype) if dtype.is_float:
            mean = replace(R.ccl.allreduce(value, "avg", in_group=False), span=span)
            return builder.emit(mean, span=span)
        case _:
            return value


@dataclass(slots=True)
class History:
    """The history of a training: for each epoch the mean loss of its steps, and its seconds."""

    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def epochs(self) -> int:
        """The number of epochs that are complete."""
        return len(self.losses)

    def plot(self) -> Any:
        """The curve of the losses, which a notebook shows and `save` writes to a file .svg."""
        return hooks.call("curve", self.losses)


Callback: TypeAlias = Callable[[History], object]


def fit(
    trainer: Trainer,
    data: Iterable[tuple[Any, Any]],
    epochs: int,
    callbacks: Sequence[Callback],
    checkpoint: str | PathLike[str] | None,
    resume: bool,
) -> History:
    """Train a trainer, as `Trainer.fit` says."""
    if not isinstance(epochs, int) or isinstance(epochs, bool) or epochs < 0:
        raise unexpected(epochs, "epochs is 0, 1, 2, ...")
    check_type(data, Iterable, "data is an iterable of pairs of inputs and targets")
    if resume and checkpoint is None:
        raise MisuseError("resume needs the name of a checkpoint")
    if epochs > 1 and iter(data) is data:
        raise MisuseError(
            "data is an iterator, which has values for one epoch only",
            hint="pass a list of pairs, or an object whose __iter__ begins anew",
            about=data,
        )
    if checkpoint is not None and current_workers().rank == 0:
        hooks.call("require_weights_path", checkpoint)
    history = History()
    if resume and checkpoint is not None and Path(checkpoint).exists():
        known = trainer.load_checkpoint(checkpoint)
        history.losses = [float(loss) for loss in known.get("losses", ())]
        history.seconds = [float(seconds) for seconds in known.get("seconds", ())]
    with long_work("training", epochs) as work:
        work.done = history.epochs
        while history.epochs < epochs:
            start = time.perf_counter()
            loss = _epoch(trainer, data)
            history.losses.append(loss)
            history.seconds.append(time.perf_counter() - start)
            work.advance(f"loss {loss:.4g}")
            if checkpoint is not None:
                losses, seconds = np.array(history.losses), np.array(history.seconds)
                trainer.save_checkpoint(checkpoint, losses=losses, seconds=seconds)
            answers = [callback(history) for callback in callbacks]
            if any(isinstance(answer, (bool, np.bool_)) and not answer for answer in answers):
                break
    return history


def _epoch(trainer: Trainer, data: Iterable[tuple[Any, Any]]) -> float:
    """Train by one step on each pair, and return the mean loss."""
    losses = []
    for pair in data:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise MisuseError(
                f"data has pairs of inputs and targets, found {type(pair).__name__}", about=pair
            )
        losses.append(float(trainer.update(*pair)))
        progress.now(f"step {len(losses)}, loss {losses[-1]:.4g}")
    if not losses:
        raise MisuseError("data is empty, expected pairs of inputs and targets", about=data)
    return sum(losses) / len(losses)


Values: TypeAlias = Sequence[Any] | Mapping[str, Any]


class Runnable(Protocol):
    """The interface that runs the module's functions: a VirtualMachine or an Executable."""

    def __getitem__(self, name: str) -> Any:
        """The function of this name."""


class _Values:
    """The values of some parameters of a function, by position and by name."""

    def __init__(self, kind: str, variables: Sequence[Var]) -> None:
        self.kind = kind
        self.variables = list(variables)
        self.values: list[Array | None] = [None] * len(self.variables)
        self.are_new = True
        """True if they were set since they were last broadcast to all workers."""

    def agree(self) -> None:
        """Take the floats of the first of the workers, which all call this."""
        if self.are_new:
            workers = current_workers()
            for k, value in enumerate(self.known().values()):
                if DataType(value.dtype).is_float:
                    self.values[k] = workers.of_first(value)
            self.are_new = False

    def load(self, values: Values) -> None:
        """Take values: all of them in order, or some by name."""
        self.values, self.are_new = self.with_loaded(values), True

    def with_loaded(self, values: Values) -> list[Array | None]:
        """The values of all parameters after some have been loaded."""
        names = [var.name_hint for var in self.variables]
        if isinstance(values, Mapping):
            for name in values:
                if name not in names:
                    raise UnknownNameError(
                        f"the model has no {self.kind} {name!r:.60}",
                        hint=close_names(str(name), names),
                        about=name,
                    )
            loaded = {names.index(name): value for name, value in values.items()}
        elif isinstance(values, (list, tuple)):
            if len(values) != len(names):
                raise MisuseError(
                    f"the model has {counted(len(names), self.kind)}, found {len(values)} values",
                    about=values,
                )
            loaded = dict(enumerate(values))
        else:
            raise unexpected(values, f"values of {self.kind}s are a list or a dict")
        arrays = {k: self._fitting(self.variables[k], value) for k, value in loaded.items()}
        return [arrays.get(k, value) for k, value in enumerate(self.values)]

    def _fitting(self, var: Var, value: Any) -> Array:
        """A copy of the value of `var`, which has its datatype and known sizes."""
        try:
            array = np.array(read_array(value))
        except BufferError as error:
            raise MisuseError(f"{self.kind} {var.name_hint}: {error}", about=value) from None
        sinfo = var.struct_info
        if not isinstance(sinfo, TensorStructInfo):
            return array
        shape = sinfo.shape
        sizes = shape.values if isinstance(shape, ShapeExpr) else None
        fits = sizes is None or (
            len(sizes) == array.ndim
            and all(
                not isinstance(size, IntImm) or size.value == number
                for size, number in zip(sizes, array.shape, strict=True)
            )
        )
        if not fits or not (sinfo.dtype.is_void or array.dtype == _dtype(var)):
            raise MisuseError(
                f"{self.kind} {var.name_hint} is {sinfo}, found {array.dtype} of shape "
                f"{array.shape}",
                about=value,
            )
        return array

    def copies(self) -> dict[str, Array]:
        """Copies of the values by name, all of which are known."""
        return {name: value.copy() for name, value in self.known().items()}

    def zero(self) -> None:
        """Set all values to zeros."""
        self.values = [np.zeros(static_shape(var), _dtype(var)) for var in self.variables]
        self.are_new = True

    def known(self) -> dict[str, Array]:
        """The values by name, all of which are known."""
        result: dict[str, Array] = {}
        for var, value in zip(self.variables, self.values, strict=True):
            if value is None:
                raise TrainerStateError(
                    f"{self.kind} {var.name_hint} has no value yet",
                    hint=f"call load_{self.kind}s or zero_init_{self.kind}s before",
                )
            result[var.name_hint] = value
        return result


class Trainer:
    """Trains the model of a module that SetupTrainer has prepared.

    `vm` runs the compiled module, for example `relaxpy.VirtualMachine(relaxpy.compile(train_mod))`.
    `device` exists for programs of TVM. With `zero_init_param_state` parameters and states begin
    with zeros; otherwise they have no values until they are set. Results are tensors of torch where
    inputs or targets are.

    Errors:
        MisuseError (also TypeError, ValueError): SetupTrainer has not prepared the module.
    """

    @user_facing
    def __init__(
        self,
        train_mod: IRModule,
        vm: Runnable,
        device: object = None,
        zero_init_param_state: bool = True,
    ) -> None:
        check_type(train_mod, IRModule, "expected an IRModule")
        adjoint, state = (
            train_mod.functions_by_name.get(ADJOINT),
            train_mod.attrs.get("optim_state"),
        )
        if not isinstance(adjoint, Function) or not isinstance(state, Tuple):
            raise MisuseError(
                f"the module has no function {ADJOINT}",
                hint="apply relax.training.SetupTrainer to it",
                about=train_mod,
            )
        self.mod = train_mod.without_attr("optim_state")
        self._is_parallel = OF_ONE in train_mod.functions_by_name
        self.vm, self.device = vm, device
        self._optim_state = tuple(f.data for f in state.fields if isinstance(f, Constant))
        inputs, params, states = (
            attribute_count(train_mod.attrs, f"{kind}_num") for kind in ("input", "param", "state")
        )
        self._input_num = inputs
        self._target_num = len(adjoint.params) - inputs - params - states
        self._params = _Values("param", adjoint.params[inputs : inputs + params])
        self._states = _Values("state", adjoint.params[inputs + params :][:states])
        if zero_init_param_state:
            self._params.zero()
            self._states.zero()

    def xavier_uniform_init_params(self, seed: int | None = None) -> None:
        """Draw the parameters from (-a, a), a = sqrt(6 / the sum of their sizes).

        `seed` makes the numbers the same each time.

        Reference:
            Glorot & Bengio, "Understanding the difficulty of training deep feedforward neural
            networks", AISTATS 2010.
        Errors:
            MisuseError: the shape of a parameter is not known numbers.
        """
        random = np.random.default_rng(seed)
        values: list[Array] = []
        for var in self._params.variables:
            shape = static_shape(var)
            limit = np.sqrt(6 / max(1, sum(shape)))
            values.append(random.uniform(-limit, limit, shape).astype(_dtype(var)))
        self._params.load(values)

    xaiver_uniform_init_params = xavier_uniform_init_params
    """As TVM spells it."""

    def zero_init_params(self) -> None:
        """Set all parameters to zeros."""
        self._params.zero()

    def zero_init_states(self) -> None:
        """Set all states to zeros."""
        self._states.zero()

    @user_facing
    def load_params(self, params: Values) -> None:
        """Set all parameters to copies of a list, or some to those of a dict from their names.

        Errors:
            UnknownNameError (also KeyError, ValueError): the model has no parameter of a name.
            MisuseError (also TypeError, ValueError): the list has another length, or an array
                another shape or datatype than its parameter.
        """
        self._params.load(params)

    @user_facing
    def load_states(self, states: Values) -> None:
        """Set all states to copies of a list, or some to those of a dict from their names.

        Errors:
            UnknownNameError (also KeyError, ValueError): the model has no state of a name.
            MisuseError (also TypeError, ValueError): the list has another length, or an array
                another shape or datatype than its state.
        """
        self._states.load(states)

    @user_facing
    def export_params(self) -> dict[str, Array]:
        """Copies of the parameters by name.

        Errors:
            TrainerStateError (also RuntimeError): a parameter has no value yet.
        """
        return self._params.copies()

    @user_facing
    def export_states(self) -> dict[str, Array]:
        """Copies of the states by name.

        Errors:
            TrainerStateError (also RuntimeError): a state has no value yet.
        """
        return self._states.copies()

    @user_facing
    def save_checkpoint(self, path: str | PathLike[str], **progress: Any) -> None:
        """Write parameters, states and the state of the optimiser to a file of safetensors.

        `progress` are numbers and arrays to be stored as well, such as `epoch=3`. A file of this
        name is replaced when the new one is complete. Where several workers train, each calls this,
        the first one writes, and all go on when the file is there.

        Errors:
            TrainerStateError (also RuntimeError): a parameter or state has no value yet.
            MisuseError (also TypeError, ValueError): the name does not end in .safetensors, or
                safetensors lacks the datatype of a value.
            OSError: the file cannot be written.
            RuntimeCheckError: the first worker could not write the file.
        """
        parts: Mapping[str, Mapping[str, Any]] = {
            "param": self._params.known(),
            "state": self._states.known(),
            "optimizer": {str(k): value for k, value in enumerate(self._optim_state)},
            "progress": progress,
        }
        values = {f"{kind}.{name}": x for kind, part in parts.items() for name, x in part.items()}
        workers, failure = current_workers(), None
        if workers.rank == 0:
            try:
                hooks.call("save_weights", path, values)
            except (OSError, MisuseError) as error:
                failure = error
        is_written = workers.of_first(np.array([failure is None], "int8"))
        if failure is not None:
            raise failure
        if not is_written.all():
            raise RuntimeCheckError(f"worker 0 could not write the checkpoint {str(path)!r:.80}")

    @user_facing
    def load_checkpoint(self, path: str | PathLike[str]) -> dict[str, Array]:
        """Resume from a file of `save_checkpoint`; return its `progress`.

        The number of workers may differ. On an error nothing is changed.

        Errors:
            MisuseError (also TypeError, ValueError): the file is not a checkpoint of this model
                and optimiser.
            UnknownNameError (also KeyError, ValueError): the model lacks a name of it.
            FrontendError (also ValueError): the file is damaged.
            FileNotFoundError: there is no such file.
            ModuleNotFoundError: safetensors is not installed.
        """
        parts: dict[str, dict[str, Array]] = {
            kind: {} for kind in ("param", "state", "optimizer", "progress")
        }
        for name, value in hooks.call("open_weights", path).items():
            kind, _, own_name = name.partition(".")
            if kind not in parts:
                raise MisuseError(
                    f"{str(path)!r:.80} is not a checkpoint: it has a tensor {name!r:.60}",
                    about=path,
                )
            parts[kind][own_name] = np.array(value)
        new_values = []
        for known in (self._params, self._states):
            found = parts[known.kind]
            missing = [v.name_hint for v in known.variables if v.name_hint not in found]
            if missing:
                raise MisuseError(
                    f"the checkpoint {str(path)!r:.80} has no {known.kind} {missing[0]!r:.60}",
                    about=path,
                )
            new_values.append(known.with_loaded(found))
        numbers = [str(k) for k in range(len(parts["optimizer"]))]
        state = tuple(parts["optimizer"].get(k, np.empty(0, object)) for k in numbers)
        if _kinds(state) != _kinds(self._optim_state):
            raise MisuseError(
                f"the checkpoint {str(path)!r:.80} has the state of another optimizer", about=path
            )
        self._params.values, self._states.values = new_values
        self._params.are_new = self._states.are_new = True
        self._optim_state = state
        return parts["progress"]

    @user_facing
    def predict(self, *input_instances: Any) -> Any:
        """The result of the model for these inputs, without new states.

        Errors:
            TrainerStateError (also RuntimeError): a parameter or state has no value yet.
            MisuseError (also TypeError): the model takes another number of inputs.
        """
        result = self.vm[BACKBONE](*self._arguments(input_instances))
        if count := len(self._states.variables):
            predictions = result[:-count]
            result = predictions[0] if len(predictions) == 1 else predictions
        return as_torch(result) if has_torch(input_instances) else result

    @user_facing
    def update(self, input_instances: Any, targets: Any) -> Any:
        """Train by one step on inputs and targets, one of each or lists; return the loss.

        In a module of DataParallel all workers call this, and the first step after parameters and
        states have been set begins with those of rank 0 (floats only).

        Errors:
            TrainerStateError (also RuntimeError): a parameter or state has no value yet.
            MisuseError (also TypeError): the model takes another number of inputs or targets.
        """
        if self._is_parallel:
            self._params.agree()
            self._states.agree()
        result, gradients = self.vm[ADJOINT](*self._training_arguments(input_instances, targets))
        params = tuple(self._params.known().values())
        new_params, self._optim_state = self.vm[OPTIMIZER](params, gradients, self._optim_state)
        self._params.values = list(new_params)
        if self._states.variables:
            result, *states = result
            self._states.values = states
        return as_torch(result) if has_torch([input_instances, targets]) else result

    @user_facing
    def fit(
        self,
        data: Iterable[tuple[Any, Any]],
        epochs: int = 1,
        *,
        callbacks: Sequence[Callback] = (),
        checkpoint: str | PathLike[str] | None = None,
        resume: bool = False,
    ) -> History:
        """Train on all pairs of inputs and targets, `epochs` times; return the losses.

        After each epoch a checkpoint is written if it has a name. Then the callbacks are called
        with the history; one that returns False ends the training. With `resume` the training goes
        on from the checkpoint, if there is one. An interruption leaves the last checkpoint whole.

        Errors:
            MisuseError (also TypeError, ValueError): the data are empty, are not pairs, or can be
                read once only; or `epochs` is not a natural number.
            As for `update`, `save_checkpoint` and `load_checkpoint`.
        """
        return fit(self, data, epochs, callbacks, checkpoint, resume)

    @user_facing
    def profile_adjoint(self, input_instances: Any, targets: Any) -> Any:
        """The report of the virtual machine on one run of the loss and its gradients.

        Errors:
            As for `update`.
        """
        vm: Any = self.vm
        return vm.profile(ADJOINT, *self._training_arguments(input_instances, targets))

    def _training_arguments(self, inputs: Any, targets: Any) -> list[Any]:
        given = list(targets) if isinstance(targets, (list, tuple)) else [targets]
        if len(given) != self._target_num:
            raise MisuseError(
                f"the loss takes {counted(self._target_num, 'target')}, found {len(given)}",
                about=targets,
            )
        given_inputs = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        return [*self._arguments(given_inputs), *as_numpy(given)]

    def _arguments(self, inputs: Sequence[Any]) -> list[Any]:
        if len(inputs) != self._input_num:
            raise MisuseError(
                f"the model takes {counted(self._input_num, 'input')}, found {len(inputs)}",
                about=inputs,
            )
        return [
            *as_numpy(list(inputs)),
            *self._params.known().values(),
            *self._states.known().values(),
        ]


def _kinds(values: Sequence[Array]) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
    return [(value.shape, value.dtype) for value in values]


def _dtype(var: Var) -> np.dtype[Any]:
    assert isinstance(var.struct_info, TensorStructInfo)
    return var.struct_info.dtype.numpy()
