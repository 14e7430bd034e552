"""DecomposeOpsForInference and DecomposeOpsForTraining: operators in terms of simpler ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias, cast

from typing_extensions import override

from relaxpy.dataclass import dataclass
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.pass_infra.map_functions import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.relax.op.definition.widening import narrowed, widened
from relaxpy.ir.relax.op.nn.normalization import NormalizedAxes
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten
from relaxpy.ir.relax.rewrite.preceding import PrecedingBindings
from relaxpy.ir.relax.transform.find_function import find_function
from relaxpy.ir.tir import expr as tir


@dataclass(frozen=True)
class DecomposeOpsForInference(Pass):
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

    func_name: str | None = None

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        rules = {"relax.nn.batch_norm": _batch_norm, "relax.tensor_to_shape": _tensor_to_shape}
        return _decomposed(mod, self, rules)


@dataclass(frozen=True)
class DecomposeOpsForTraining(Pass):
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

    func_name: str | None = None

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        rules = {
            "relax.nn.batch_norm": _batch_norm_in_training,
            "relax.nn.layer_norm": _layer_norm,
            "relax.tensor_to_shape": _tensor_to_shape,
        }
        return _decomposed(mod, self, rules)


Decomposition: TypeAlias = Callable[[PrecedingBindings, rx.Call], "rx.Expr | None"]
"""Binds operands, and returns the new value of a call, or None if it stays.

Floats narrower than float32 are float32 in the call, as in the operator; its value is rounded.
"""


def _decomposed(
    mod: IRModule,
    step: DecomposeOpsForInference | DecomposeOpsForTraining,
    rules: Mapping[str, Decomposition],
) -> IRModule:
    only = step.func_name
    mod = normalize_module(mod)
    chosen = None if only is None else find_function(mod, only, type(step).__name__)[1]
    table = {Op.get(name): rule for name, rule in rules.items()}

    def decomposed(func: rx.Function) -> rx.Function:
        return func if chosen not in (None, func) else _Decomposing(table).expr(func)

    return normalize_module(map_functions(mod, rx.Function, decomposed))


class _Decomposing(BindingRewriter):
    def __init__(self, rules: dict[Op, Decomposition]) -> None:
        super().__init__()
        self.rules = rules

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        if not isinstance(binding, rx.VarBinding) or not isinstance(call, rx.Call):
            return None
        rule = self.rules.get(call.op) if isinstance(call.op, Op) else None
        new = PrecedingBindings(binding, block)
        if rule is None:
            return None
        wide = widened(call, new.bound)
        value = rule(new, wide)
        if value is None:
            return None
        if wide is not call:
            value = narrowed(value, call.struct_info)
        var = type(binding.var)(binding.var.name_hint, None, binding.var.span)
        self._images[binding.var] = var
        last = new.bindings[-1]
        if value is last.var:
            return [*new.bindings[:-1], rx.VarBinding(var, last.value, last.span)]
        return [*new.bindings, rx.VarBinding(var, new.located(value), binding.span)]


def _known(call: rx.Call) -> rx.TensorStructInfo | None:
    """The struct info of the data, if its rank, and the datatype and shapes of others are known."""
    sinfos = [arg.struct_info for arg in call.args]
    tensors = [sinfo for sinfo in sinfos if isinstance(sinfo, rx.TensorStructInfo)]
    data = tensors[0]
    if len(tensors) < len(sinfos) or len({sinfo.dtype for sinfo in tensors}) > 1:
        return None
    if any(sinfo.get_shape() is None for sinfo in tensors[1:]):
        return None
    return None if data.ndim < 0 or data.dtype.is_void else data


def _batch_norm(new: PrecedingBindings, call: rx.Call) -> rx.Expr | None:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, along one axis."""
    data = _known(call)
    return None if data is None else _by_statistics(new, call, data.ndim, *call.args[3:])


def _by_statistics(
    new: PrecedingBindings, call: rx.Call, ndim: int, mean: rx.Expr, variance: rx.Expr
) -> rx.Tuple:
    """The results of a `batch_norm` with these statistics in place of the moving ones."""
    axis = cast("int", call.attrs["axis"]) % ndim
    others = [k for k in range(ndim) if k != axis]

    def beside(vector: rx.Expr) -> rx.Expr:
        return new.bound(R.expand_dims(vector, others)) if others else vector

    centered = new.bound(R.subtract(call.args[0], beside(mean)))
    return rx.Tuple((_scaled(new, call, centered, beside(variance), beside), mean, variance))


def _scaled(
    new: PrecedingBindings,
    call: rx.Call,
    centered: rx.Expr,
    variance: rx.Expr,
    beside: Callable[[rx.Expr], rx.Expr],
) -> rx.Expr:
    """Numbers divided by their standard deviation, times gamma and plus beta if `call` says so."""
    x, *vectors = call.args[:3]
    sinfo = x.struct_info
    assert isinstance(sinfo, rx.TensorStructInfo)
    positive = new.bound(R.add(variance, rx.const(call.attrs["epsilon"], sinfo.dtype)))
    result = new.bound(R.divide(centered, new.bound(R.sqrt(positive))))
    for name, operator, vector in zip(
        ("scale", "center"), (R.multiply, R.add), vectors, strict=True
    ):
        if call.attrs[name]:
            result = new.bound(operator(result, beside(vector)))
    return result


def _batch_norm_in_training(new: PrecedingBindings, call: rx.Call) -> rx.Expr | None:
    """As `_batch_norm` by the mean and variance of the batch, of which part is added to the old."""
    data = _known(call)
    if data is None or not call.attrs["training"]:
        return _batch_norm(new, call)
    x, moving = call.args[0], call.args[3:]
    axis = cast("int", call.attrs["axis"]) % data.ndim
    others = [k for k in range(data.ndim) if k != axis]
    batch = [new.bound(R.mean(x, others)), new.bound(R.variance(x, others))]
    inner = _by_statistics(new, call, data.ndim, *batch)
    momentum = cast("float", call.attrs["momentum"])
    result = new.bound(rx.TupleGetItem(new.bound(inner), 0))
    updated: list[rx.Expr] = []
    for old, now in zip(moving, batch, strict=True):
        kept = new.bound(R.multiply(rx.const(1 - momentum, data.dtype), old))
        added = new.bound(R.multiply(rx.const(momentum, data.dtype), now))
        updated.append(new.bound(R.add(kept, added)))
    return rx.Tuple((result, *updated))


def _layer_norm(new: PrecedingBindings, call: rx.Call) -> rx.Expr | None:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, over some axes."""
    if _known(call) is None:
        return None
    x, axes = call.args[0], call.attrs["axes"]
    centered = new.bound(R.subtract(x, new.bound(R.mean(x, axes, keepdims=True))))
    along = NormalizedAxes(call)
    variance = new.bound(R.variance(x, axes, keepdims=True))
    return _scaled(new, call, centered, variance, lambda v: new.bound(along.beside_data(v)))


def _tensor_to_shape(new: PrecedingBindings, call: rx.Call) -> rx.Expr | None:
    """A shape of variables that the elements of a tensor define."""
    sinfo = call.struct_info
    if not isinstance(sinfo, rx.ShapeStructInfo) or sinfo.ndim < 0:
        return None
    callee = rx.ExternFunc("vm.builtin.tensor_to_shape")
    any_shape = rx.ShapeStructInfo(ndim=sinfo.ndim)
    value = new.bound(R.call_pure_packed(callee, call.args[0], sinfo_args=any_shape))
    sizes = tuple(tir.Var("x", INT64) for _ in range(sinfo.ndim))
    cast_to = rx.ShapeStructInfo(sizes)
    new.bindings.append(rx.MatchCast(type(value)("y"), value, cast_to, new.binding.span))
    return rx.ShapeExpr(sizes)
