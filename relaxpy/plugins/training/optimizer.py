"""Optimisers: objects that build a Relax function from parameters and gradients to new ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, ClassVar, Self, cast

import numpy as np
from typing_extensions import override

from relaxpy.errors import BuilderStateError, MisuseError, unexpected
from relaxpy.ir.core.dtype import Array, DataType
from relaxpy.ir.core.tensor import Tensor
from relaxpy.ir.ops.definition.gradients import is_narrow, narrowed
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.tir.expr import IntImm
from relaxpy.support.entry import user_facing


class Optimizer(ABC):
    """An optimiser of the parameters that `init` declares.

    `state` is the list of arrays that the first step takes: the number of steps so far (int64),
    then those of the optimiser: scalars, and an array like the parameter for each of its `slots`.
    `dtype` is the datatype of the parameters, or float32 if that is narrower: steps are computed,
    and the state is kept, in this one.
    """

    name: ClassVar[str]
    slots: ClassVar[tuple[str, ...]] = ()
    """The states of each parameter: suffixes of names."""

    def __init__(self, lr: float, weight_decay: float = 0) -> None:
        self.lr = as_number("lr", lr)
        self.weight_decay = as_number("weight_decay", weight_decay)
        self.param_list: tuple[rx.Var, ...] | None = None
        self.state: list[Tensor] | None = None
        self.dtype = DataType("float32")

    @user_facing
    def init(self, params: rx.Var | Sequence[rx.Var]) -> Self:
        """Declare the parameters: different tensors of floats with one datatype.

        Errors:
            MisuseError (also TypeError, ValueError): they are something else.
        """
        if isinstance(params, rx.Var):
            params = [params]
        if not isinstance(params, (list, tuple)) or not params:
            raise unexpected(params, "params are variables, at least one")
        sinfos = [_parameter_sinfo(var) for var in params]
        dtypes = {str(sinfo.dtype) for sinfo in sinfos}
        if len(dtypes) > 1:
            listed = ", ".join(sorted(dtypes))
            raise MisuseError(f"the parameters have one datatype, found {listed}", about=params)
        if len(set(params)) < len(params):
            raise MisuseError("a parameter is there twice", about=params)
        self.param_list = tuple(params)
        self.dtype = DataType("float32") if is_narrow(sinfos[0]) else sinfos[0].dtype
        shapes = [static_shape(var) for var in params]
        zeros = [np.zeros(shape, self.dtype.numpy()) for _ in self.slots for shape in shapes]
        state = [np.array(0, "int64"), *self.initial_scalars(), *zeros]
        self.state = [array.view(Tensor) for array in state]
        return self

    def initial_scalars(self) -> list[Array]:
        """The scalars of the state, after the number of steps."""
        return []

    def emit_scalars(self, step: Step) -> None:  # noqa: B027 - most optimisers have none
        """Emit the new scalars of the state."""

    def decayed(self, step: Step, param: rx.Var, gradient: rx.Var) -> tuple[rx.Var, rx.Var]:
        """A parameter and its gradient with the decay of weights."""
        decay = step.emit(R.multiply(self.number(self.weight_decay), param))
        return param, step.emit(R.add(decay, gradient), f"{step.name}_grad_new")

    @abstractmethod
    def updated(self, step: Step, param: rx.Var, gradient: rx.Var, slots: list[rx.Var]) -> Any:
        """The new value of a parameter; `step.save` receives the new values of its slots."""

    @user_facing
    def get_function(self) -> rx.Function:
        """One step as a function of three tuples: the parameters, their gradients, and the state.

        It returns the tuple of the new parameters and that of the new state. Its `global_symbol` is
        the name of the optimiser.

        Errors:
            BuilderStateError (also RuntimeError): `init` has not declared the parameters.
        """
        if self.param_list is None or self.state is None:
            raise BuilderStateError(
                "Please call init() for the optimizer before calling get_function()"
            )
        of_params = rx.TupleStructInfo(tuple(cast("Any", v.struct_info) for v in self.param_list))
        of_state = rx.TupleStructInfo(
            tuple(rx.TensorStructInfo(a.shape, DataType(a.dtype)) for a in self.state)
        )
        variables = (
            rx.Var("params", of_params),
            rx.Var("gradients", of_params),
            rx.Var("optim_states", of_state),
        )
        builder = BlockBuilder()
        with builder.function(self.name, variables):
            with builder.dataflow():
                result = self._emit(Step(builder, *variables))
            gvar = builder.emit_func_output(result)
        function = builder.get()[gvar]
        assert isinstance(function, rx.Function)
        return function

    def _emit(self, step: Step) -> rx.Expr:
        """The results of one step."""
        assert self.param_list is not None
        assert self.state is not None
        count = len(self.param_list)
        first_slot = len(self.state) - count * len(self.slots)
        step.save(
            step.emit(R.add(step.state(0, "num_steps"), rx.const(1, "int64")), "num_steps_new")
        )
        self.emit_scalars(step)
        new_params: list[rx.Var] = []
        for k, declared in enumerate(self.param_list):
            step.name = declared.name_hint
            param, gradient = step.parameter(k)
            slots = [
                step.state(first_slot + number * count + k, f"{step.name}_{suffix}")
                for number, suffix in enumerate(self.slots)
            ]
            if is_narrow(declared.struct_info):
                param, gradient = (step.emit(R.astype(v, self.dtype)) for v in (param, gradient))
            if self.weight_decay:
                param, gradient = self.decayed(step, param, gradient)
            new = self.updated(step, param, gradient, slots)
            new = narrowed(new, declared.struct_info)
            new_params.append(step.emit(new, f"{step.name}_new"))
        scalars, saved = step.saved[:first_slot], step.saved[first_slot:]
        by_slot = [var for slot in range(len(self.slots)) for var in saved[slot :: len(self.slots)]]
        return step.results(new_params, [*scalars, *by_slot])

    def number(self, value: float) -> rx.Constant:
        """A constant of the datatype in which steps are computed."""
        return rx.const(value, str(self.dtype))


class Step:
    """The bindings of one step. `name` is that of the parameter whose new value is computed."""

    def __init__(
        self, builder: BlockBuilder, params: rx.Var, gradients: rx.Var, state: rx.Var
    ) -> None:
        self._builder = builder
        self._params, self._gradients, self._state = params, gradients, state
        self.name = ""
        self.saved: list[rx.Var] = []
        """The new values of the state: scalars, then the slots of each parameter."""

    def emit(self, value: Any, name: str = "") -> rx.Var:
        """Bind a value."""
        return self._builder.emit(value, name)

    def state(self, index: int, name: str = "") -> rx.Var:
        """Field `index` of the state."""
        return self.emit(rx.TupleGetItem(self._state, index), name)

    def parameter(self, index: int) -> tuple[rx.Var, rx.Var]:
        """A parameter and its gradient."""
        param = self.emit(rx.TupleGetItem(self._params, index), self.name)
        return param, self.emit(rx.TupleGetItem(self._gradients, index), f"{self.name}_grad")

    def save(self, value: rx.Var) -> None:
        """Keep the next new value of the state."""
        self.saved.append(value)

    def results(self, params: Sequence[rx.Var], state: Sequence[rx.Var]) -> rx.Expr:
        """The tuples of the new parameters and of the new state."""
        new_params = self._builder.emit_output(rx.Tuple(tuple(params)), "params_new")
        new_state = self._builder.emit_output(rx.Tuple(tuple(state)), "optim_states_new")
        return rx.Tuple((new_params, new_state))


class SGD(Optimizer):
    """Gradient descent: p - lr * g, where g includes weight_decay * p.

    Errors:
        MisuseError (also TypeError, ValueError): an option is not a number.
    """

    name = "SGD"

    @override
    def updated(self, step: Step, param: rx.Var, gradient: rx.Var, slots: list[rx.Var]) -> Any:
        return R.subtract(param, step.emit(R.multiply(self.number(self.lr), gradient)))


class MomentumSGD(Optimizer):
    """Gradient descent with momentum: v = momentum * v + (1 - dampening) * g; p - lr * v.

    With `nesterov`, p - lr * (g + momentum * v).

    Errors:
        MisuseError (also TypeError, ValueError): an option is not a number.
    """

    name = "MomentumSGD"
    slots = ("v",)

    def __init__(
        self,
        lr: float,
        momentum: float,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(lr, weight_decay)
        self.momentum = as_number("momentum", momentum)
        self.dampening = as_number("dampening", dampening)
        self.nesterov = nesterov

    @override
    def updated(self, step: Step, param: rx.Var, gradient: rx.Var, slots: list[rx.Var]) -> Any:
        momentum, added = self.number(self.momentum), gradient
        kept = step.emit(R.multiply(momentum, slots[0]))
        if self.dampening:
            added = step.emit(R.multiply(self.number(one_minus(self.dampening)), gradient))
        velocity = step.emit(R.add(kept, added), f"{step.name}_v_new")
        step.save(velocity)
        if self.nesterov:
            ahead = step.emit(R.multiply(momentum, velocity))
            velocity = step.emit(R.add(gradient, ahead), f"{step.name}_g_nest")
        return R.subtract(param, step.emit(R.multiply(self.number(self.lr), velocity)))


class Adam(Optimizer):
    """Adam: steps by the mean of the gradients over the root of the mean of their squares.

    Both are running means, with factors `betas`, corrected for their start from 0.

    Reference:
        Kingma & Ba, "Adam: a method for stochastic optimization", arXiv:1412.6980, 2014.

    Errors:
        MisuseError (also TypeError, ValueError): an option is not a number.
    """

    name = "Adam"
    slots = ("m", "v")

    def __init__(
        self,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
    ) -> None:
        super().__init__(lr, weight_decay)
        if not isinstance(betas, (list, tuple)) or len(betas) != 2:
            raise unexpected(betas, "betas are two numbers")
        self.betas = tuple(as_number("a beta", beta) for beta in betas)
        self.eps = as_number("eps", eps)

    @override
    def initial_scalars(self) -> list[Array]:
        return [np.ones((), self.dtype.numpy()) for _ in self.betas]

    @override
    def emit_scalars(self, step: Step) -> None:
        for k, beta in enumerate(self.betas, 1):
            product = R.multiply(step.state(k), self.number(beta))
            step.save(step.emit(product, f"beta{k}_prod"))

    @override
    def updated(self, step: Step, param: rx.Var, gradient: rx.Var, slots: list[rx.Var]) -> Any:
        name = step.name
        means = []
        for k, (beta, slot) in enumerate(zip(self.betas, slots, strict=True)):
            kept = step.emit(R.multiply(self.number(beta), slot))
            value = step.emit(R.multiply(gradient, gradient)) if k else gradient
            added = step.emit(R.multiply(self.number(one_minus(beta)), value))
            means.append(step.emit(R.add(kept, added), f"{name}_{self.slots[k]}_new"))
            step.save(means[-1])
        corrected = []
        for mean, product, suffix in zip(means, step.saved[1:3], self.slots, strict=True):
            weight = step.emit(R.subtract(self.number(1), product))
            corrected.append(step.emit(R.divide(mean, weight), f"{name}_{suffix}_hat"))
        root = step.emit(R.sqrt(corrected[1]))
        scale = step.emit(R.add(root, self.number(self.eps)))
        direction = step.emit(R.divide(corrected[0], scale))
        return R.subtract(param, step.emit(R.multiply(self.number(self.lr), direction)))


class AdamW(Adam):
    """Adam with decoupled decay: p - lr * weight_decay * p, and then the step of Adam.

    Reference:
        Loshchilov & Hutter, "Decoupled weight decay regularization", ICLR 2019.

    Errors:
        MisuseError (also TypeError, ValueError): an option is not a number.
    """

    name = "AdamW"

    def __init__(
        self,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(lr, betas, eps, weight_decay)

    @override
    def decayed(self, step: Step, param: rx.Var, gradient: rx.Var) -> tuple[rx.Var, rx.Var]:
        kept = self.number(1 - self.lr * self.weight_decay)
        return step.emit(R.multiply(kept, param), f"{step.name}_decayed"), gradient


def one_minus(value: float) -> float:
    """1 - value, in decimal arithmetic: 0.15 for 0.85."""
    return float(1 - Decimal(repr(value)))


def as_number(name: str, value: object) -> float:
    """A real number as a float."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise unexpected(value, f"{name} is a number")
    return float(value)


def _parameter_sinfo(var: object) -> rx.TensorStructInfo:
    """The struct info of a parameter, a tensor of floats."""
    sinfo = var.struct_info if isinstance(var, rx.Var) else None
    if not isinstance(sinfo, rx.TensorStructInfo) or not sinfo.dtype.is_float:
        raise unexpected(var, "a parameter is a variable for a tensor of floats")
    return sinfo


def static_shape(var: rx.Var) -> tuple[int, ...]:
    """The shape of a parameter, which is known numbers.

    Errors:
        MisuseError (also TypeError, ValueError): it is not.
    """
    sinfo = var.struct_info
    shape = sinfo.shape if isinstance(sinfo, rx.TensorStructInfo) else None
    sizes = shape.values if isinstance(shape, rx.ShapeExpr) else None
    if sizes is None or not all(isinstance(size, IntImm) for size in sizes):
        raise MisuseError(
            f"the shape of parameter {var.name_hint} is known numbers, found {sinfo}",
            hint="bind symbolic sizes: relax.transform.BindSymbolicVars",
            about=var,
        )
    return tuple(size.value for size in sizes if isinstance(size, IntImm))
