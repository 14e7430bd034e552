"""Trainer: keeps parameters and states, and runs the functions of SetupTrainer on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Protocol, TypeAlias

import numpy as np

from relaxpy.errors import (
    MisuseError,
    RuntimeCheckError,
    TrainerStateError,
    UnknownNameError,
    check_type,
    close_names,
    counted,
    unexpected,
)
from relaxpy.ir import hooks
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.tensor import as_numpy, as_torch, has_torch, read_array
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.nodes import Constant, Function, ShapeExpr, TensorStructInfo, Tuple, Var
from relaxpy.ir.relax.op.distributed import current_workers
from relaxpy.ir.tir.expr import IntImm
from relaxpy.plugins.training.data_parallel import OF_ONE
from relaxpy.plugins.training.fit import Callback, History, fit
from relaxpy.plugins.training.optimizer import static_shape
from relaxpy.plugins.training.setup_trainer import ADJOINT, BACKBONE, OPTIMIZER, attribute_count
from relaxpy.support.entry import user_facing

Array: TypeAlias = "np.ndarray[Any, Any]"
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
                    f"{str(path)!r:.80} is no checkpoint: it has a tensor {name!r:.60}", about=path
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
