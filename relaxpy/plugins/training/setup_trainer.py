"""SetupTrainer: from a model, a loss and an optimiser to the functions that a trainer calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from typing_extensions import override

from relaxpy.errors import TransformError, UnknownNameError, close_names, unexpected
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.nodes import Constant, Function, Tuple
from relaxpy.ir.relax.transform.gradient import Gradient
from relaxpy.ir.relax.transform.legalize import LegalizeOps
from relaxpy.plugins.training.append_loss import AppendLoss
from relaxpy.plugins.training.loss import Loss
from relaxpy.plugins.training.optimizer import Optimizer
from relaxpy.support.dataclass import dataclass

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
        TransformError: `param_num` or `state_num` is missing, or does not fit the parameters; or as
            for AppendLoss and Gradient.
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
        loss = self.loss(*self.loss_args)
        mod = AppendLoss(BACKBONE, loss, self.loss.num_backbone_outputs, LOSS)(mod)
        with_loss = mod.functions_by_name[LOSS]
        assert isinstance(with_loss, Function)
        trained = with_loss.params[input_num : input_num + param_num]
        mod = Gradient(LOSS, require_grads=trained)(mod)
        self.optimizer.init(trained)
        assert self.optimizer.state is not None
        mod = mod.clone()
        mod[OPTIMIZER] = self.optimizer.get_function().with_attr("global_symbol", OPTIMIZER)
        state = Tuple(tuple(Constant(array) for array in self.optimizer.state))
        mod = mod.with_attrs({"input_num": input_num, "optim_state": state})
        return LegalizeOps()(mod) if self.legalize else mod


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
