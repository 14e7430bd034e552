"""Optimisers: objects that build a Relax function from parameters and gradients to new ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from relaxpy.entry import user_facing
from relaxpy.errors import BuilderStateError, MisuseError
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.nodes import (
    Constant,
    Function,
    ShapeExpr,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    const,
)
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.tir.expr import IntImm


class Optimizer(ABC):
    """An optimiser of the parameters that `init` declares.

    `state` is the tuple of arrays that the first step takes: the number of steps so far (int64),
    then what the optimiser keeps. A `learning_rate` of a subclass is the first argument.
    """

    name: str

    def __init__(self, **options: object) -> None:
        for option, value in options.items():
            if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
                raise MisuseError(f"{option} is a number, found {value!r:.60}", about=value)
        self.params: tuple[Var, ...] = ()
        self.state: tuple[np.ndarray[Any, Any], ...] | None = None

    @user_facing
    def init(self, params: Var | Sequence[Var]) -> Optimizer:
        """Declare the parameters: tensors of floats of one datatype, with different names.

        Errors:
            MisuseError (also TypeError, ValueError): they are something else.
        """
        if not isinstance(params, (Var, list, tuple)) or not params:
            raise MisuseError(f"params are variables, found {params!r:.60}", about=params)
        variables = (params,) if isinstance(params, Var) else tuple(params)
        for var in variables:
            sinfo = var.struct_info if isinstance(var, Var) else None
            known = isinstance(sinfo, TensorStructInfo) and isinstance(sinfo.shape, ShapeExpr)
            if not known or not sinfo.dtype.is_float:
                raise MisuseError(
                    f"a parameter is a tensor of floats with a known shape, found {var!r:.60} of "
                    f"struct info {sinfo}",
                    about=var,
                )
        if len({_dtype(var) for var in variables}) > 1:
            raise MisuseError("the parameters have different datatypes", about=params)
        if len({var.name_hint for var in variables}) < len(variables):
            raise MisuseError("two parameters have one name", about=params)
        self.params = variables
        self.state = (np.array(0, "int64"), *self.initial_state())
        return self

    @abstractmethod
    def initial_state(self) -> list[np.ndarray[Any, Any]]:
        """The state before the first step, without the number of steps."""

    @abstractmethod
    def step(
        self, builder: BlockBuilder, params: list[Var], gradients: list[Var], state: list[Var]
    ) -> tuple[list[Var], list[Var]]:
        """The new parameters and the new state, as bindings of `builder`."""

    @user_facing
    def get_function(self) -> Function:
        """The step as a function of tuples: of the parameters, of their gradients, of the state.

        It returns the tuple of the new parameters and that of the new state. Its `global_symbol` is
        the name of the optimiser.

        Errors:
            BuilderStateError: `init` has not declared the parameters.
        """
        if self.state is None:
            raise BuilderStateError(f"{self.name}.init declares the parameters first")
        of_params = TupleStructInfo(tuple(_sinfo(var) for var in self.params))
        of_state = TupleStructInfo(
            tuple(TensorStructInfo(a.shape, str(a.dtype)) for a in self.state)  # type: ignore[arg-type]
        )
        params, gradients = Var("params", of_params), Var("gradients", of_params)
        state = Var("optim_states", of_state)
        builder = BlockBuilder()
        with builder.function(self.name, [params, gradients, state]):
            with builder.dataflow():
                results = self._bound(builder, params, gradients, state)
            gvar = builder.emit_func_output(Tuple(results))
        function = builder.get()[gvar]
        assert isinstance(function, Function)
        return function
