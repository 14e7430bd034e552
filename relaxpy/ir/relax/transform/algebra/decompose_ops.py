"""DecomposeOpsForInference and DecomposeOpsForTraining: operators in terms of simpler ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from typing_extensions import override

from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.op.definition.gradients import narrowed, widened
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten
from relaxpy.ir.relax.rewrite.preceding import PrecedingBindings
from relaxpy.ir.relax.transform.find_function import find_function
from relaxpy.ir.relax.transform.rewrite_pass import RewritePass
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class _Decompose(RewritePass):
    """A pass that replaces calls by the decompositions of their operators."""

    func_name: str | None = None
    training: ClassVar[bool] = False

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        only = self.func_name
        chosen = None if only is None else find_function(mod, only, type(self).__name__)[1]

        def decomposed(func: rx.Function) -> rx.Function:
            return func if chosen not in (None, func) else _Decomposing(self.training).expr(func)

        return decomposed


@dataclass(frozen=True)
class DecomposeOpsForInference(_Decompose):
    """Computes `batch_norm` by simpler operators, from the moving mean and variance.

    Its other two results are these themselves. `tensor_to_shape` becomes a call of a packed
    function, whose result is cast to a shape of new variables. If `func_name` is not None, only
    this function changes. A normalisation of unknown rank or datatype stays, and one by vectors of
    unknown shape.

    Errors:
        UnknownNameError (also KeyError, ValueError): the module has no such function.
        TransformError: it is not a Relax function.
        MisuseError (also TypeError, ValueError): `func_name` is not a name.
    """


@dataclass(frozen=True)
class DecomposeOpsForTraining(_Decompose):
    """Computes `batch_norm` by simpler operators, from the mean and variance of the batch.

    Its other two results are the updated moving mean and variance. If its `training` is False, the
    moving ones are used. `layer_norm` and `tensor_to_shape` are decomposed, too. If `func_name` is
    not None, only this function changes. A normalisation of unknown rank or datatype stays, and one
    by vectors of unknown shape.

    Errors:
        UnknownNameError (also KeyError, ValueError): the module has no such function.
        TransformError: it is not a Relax function.
        MisuseError (also TypeError, ValueError): `func_name` is not a name.
    """

    training = True


class _Decomposing(BindingRewriter):
    def __init__(self, training: bool) -> None:
        super().__init__()
        self.training = training

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        if not isinstance(binding, rx.VarBinding) or not isinstance(call, rx.Call):
            return None
        rule = call.op.record.decompose if isinstance(call.op, Op) else None
        new = PrecedingBindings(binding, block)
        if rule is None:
            return None
        wide = widened(call, new.bound)
        value = rule(new, wide, self.training)
        if value is None:
            return None
        if wide is not call:
            value = narrowed(value, call.struct_info)
        var = type(binding.var)(binding.var.name_hint, None, binding.var.span)
        self._remap[binding.var] = var
        last = new.bindings[-1]
        if value is last.var:
            return [*new.bindings[:-1], rx.VarBinding(var, last.value, last.span)]
        return [*new.bindings, rx.VarBinding(var, new.located(value), binding.span)]
