"""Normalisations by simpler operators: the decompositions in their records.

Floats narrower than float32 are float32 in these calls, as in the operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.op.definition import rules
from relaxpy.ir.relax.op.definition.gradients import require_rank
from relaxpy.ir.relax.op.definition.registry import R

if TYPE_CHECKING:
    from relaxpy.ir.relax.rewrite.preceding import PrecedingBindings


class NormalizedAxes:
    """The axes of a normalisation in the order of its parameters, and the remaining axes."""

    def __init__(self, call: rx.Call) -> None:
        rank = require_rank(call.args[0], cast("Op", call.op).name)
        self.axes = rules.normal_axes(cast("Sequence[int]", call.attrs["axes"]), rank, "axes:")
        self.others = tuple(axis for axis in range(rank) if axis not in self.axes)
        self._ascending = sorted(range(len(self.axes)), key=self.axes.__getitem__)

    def beside_data(self, parameter: Any) -> Any:
        """Permute and expand a parameter to broadcast along its axes of the data."""
        if self.axes == tuple(range(len(self.others), len(self.others) + len(self.axes))):
            return parameter
        if self._ascending != list(range(len(self.axes))):
            parameter = R.permute_dims(parameter, self._ascending)
        return R.expand_dims(parameter, self.others) if self.others else parameter

    def of_parameter(self, gradient: Any) -> Any:
        """The gradient of a parameter, from one in the shape of the data."""
        total = R.sum(gradient, self.others) if self.others else gradient
        if self._ascending == list(range(len(self.axes))):
            return total
        return R.permute_dims(total, [self._ascending.index(k) for k in range(len(self.axes))])


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


def _by_statistics(
    new: PrecedingBindings, call: rx.Call, ndim: int, mean: rx.Expr, variance: rx.Expr
) -> rx.Tuple:
    """The results of a `batch_norm` with these statistics instead of the moving ones."""
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
    """Values divided by their standard deviation, with the scale and shift that `call` requests."""
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


def batch_norm(new: PrecedingBindings, call: rx.Call, training: bool) -> rx.Expr | None:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, along one axis.

    In training, the mean and variance are those of the batch; part of them is added to the old.
    """
    data = _known(call)
    if data is None:
        return None
    if not training or not call.attrs["training"]:
        return _by_statistics(new, call, data.ndim, *call.args[3:])
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


def layer_norm(new: PrecedingBindings, call: rx.Call, training: bool) -> rx.Expr | None:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta over some axes, in training."""
    if not training or _known(call) is None:
        return None
    x, axes = call.args[0], call.attrs["axes"]
    centered = new.bound(R.subtract(x, new.bound(R.mean(x, axes, keepdims=True))))
    along = NormalizedAxes(call)
    variance = new.bound(R.variance(x, axes, keepdims=True))
    return _scaled(new, call, centered, variance, lambda v: new.bound(along.beside_data(v)))
