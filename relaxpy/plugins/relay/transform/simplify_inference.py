"""Replaces normalisation operators by the arithmetic that they do at inference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from relaxpy.ir.core.node import Attrs, Node
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.module import RelayModule
from relaxpy.plugins.relay.op.registry import Op
from relaxpy.plugins.relay.transform.passes import RelayPass, map_typed
from relaxpy.plugins.relay.ty import TensorType
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class SimplifyInference(RelayPass):
    """Write the normalisations as arithmetic, and replace the value of dropout by its operand.

    These are batch_norm, layer_norm, instance_norm, group_norm and l2_normalize. The result of
    batch_norm and dropout is replaced where it is projected. Tensors of unknown rank stay.
    """

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        return map_typed(mod, lambda function: rl.rewrite(function, _rule))


def _rule(node: Node) -> Node | None:
    match node:
        case rl.TupleGetItem(tuple_value=rl.Call(op=Op(name="nn.dropout"), args=(data,)), index=0):
            return data
        case rl.TupleGetItem(tuple_value=rl.Call(op=Op(name="nn.batch_norm")) as call, index=0):
            return _written(call, _batch_norm)
        case rl.Call(op=Op(name=name)) if name in _NORMS:
            return _written(node, _NORMS[name])
        case _:
            return None


def _op(name: str, *args: rl.RelayExpr, **attrs: Any) -> rl.RelayExpr:
    op = Op.get(name)
    return rl.Call(op, args, Attrs(op.record.maker_attrs(attrs)))


class _Norm:
    """A call of a normalisation: its operands and attributes, with the defaults filled in."""

    def __init__(self, call: rl.Call, ty: TensorType, op: Op) -> None:
        self.data, *self.others = call.args
        self.shape: tuple[Any, ...] = ty.shape  # type: ignore[assignment]
        self.dtype = str(ty.dtype)
        self.attrs: Mapping[str, Any] = op.record.text_attrs(call.attrs)

    def const(self, value: float) -> rl.Constant:
        """Return a scalar of the datatype of the data."""
        return rl.const(np.array(value, self.dtype))

    def axis(self) -> int:
        """Return the axis of the channels, counted from 0."""
        return int(self.attrs["axis"]) % len(self.shape)

    def along(self, vector: rl.RelayExpr) -> rl.RelayExpr:
        """Return a vector of channels as it broadcasts against the data."""
        behind = len(self.shape) - self.axis() - 1
        return _op("expand_dims", vector, axis=1, num_newaxis=behind) if behind else vector

    def standardized(self, data: rl.RelayExpr, axes: Sequence[int]) -> rl.RelayExpr:
        """Return data of mean 0 and variance 1 over some axes."""
        centered = data - _op("mean", data, axis=axes, keepdims=True)
        variance = _op("mean", centered * centered, axis=axes, keepdims=True)
        result: rl.RelayExpr = centered * _op("rsqrt", variance + self.const(self.attrs["epsilon"]))
        return result

    def scaled(self, data: rl.RelayExpr) -> rl.RelayExpr:
        """Return data times gamma plus beta, as far as the call asks for them."""
        gamma, beta = self.others
        if self.attrs["scale"]:
            data = data * self.along(gamma)
        if self.attrs["center"]:
            data = data + self.along(beta)
        return data


def _written(call: rl.Call, write: Callable[[_Norm], rl.RelayExpr]) -> rl.RelayExpr | None:
    ty = call.args[0].checked_type_
    if not isinstance(ty, TensorType) or not isinstance(ty.shape, tuple) or not ty.shape:
        return None
    assert isinstance(call.op, Op)
    return write(_Norm(call, ty, call.op)).with_type(ty)


def _batch_norm(norm: _Norm) -> rl.RelayExpr:
    gamma, beta, mean, variance = norm.others
    factor = _op("rsqrt", variance + norm.const(norm.attrs["epsilon"]))
    if norm.attrs["scale"]:
        factor = factor * gamma
    shift = -mean * factor
    if norm.attrs["center"]:
        shift = shift + beta
    result: rl.RelayExpr = norm.data * norm.along(factor) + norm.along(shift)
    return result


def _layer_norm(norm: _Norm) -> rl.RelayExpr:
    return norm.scaled(norm.standardized(norm.data, [norm.axis()]))


def _instance_norm(norm: _Norm) -> rl.RelayExpr:
    axes = [axis for axis in range(1, len(norm.shape)) if axis != norm.axis()]
    return norm.scaled(norm.standardized(norm.data, axes))


def _group_norm(norm: _Norm) -> rl.RelayExpr:
    # The channels of a group become an axis behind that of the groups.
    axis, groups = norm.axis(), int(norm.attrs["num_groups"])
    # 0 copies an axis; -4 splits one into two sizes, and a size of -1 is inferred.
    split = [*(0 for _ in range(axis)), -4, groups, -1, *(0 for _ in norm.shape[axis + 1 :])]
    data = _op("reshape", norm.data, newshape=split)
    axes = [i for i in range(1, len(norm.shape) + 1) if i != axis]
    merged = [*(0 for _ in range(axis)), -3, *(0 for _ in norm.shape[axis + 1 :])]
    return norm.scaled(_op("reshape", norm.standardized(data, axes), newshape=merged))


def _l2_normalize(norm: _Norm) -> rl.RelayExpr:
    axes = norm.attrs["axis"]
    total = _op("sum", norm.data * norm.data, axis=axes, keepdims=True)
    result: rl.RelayExpr = norm.data / _op(
        "sqrt", _op("maximum", total, norm.const(norm.attrs["eps"]))
    )
    return result


_NORMS: Mapping[str, Callable[[_Norm], rl.RelayExpr]] = {
    "nn.layer_norm": _layer_norm,
    "nn.instance_norm": _instance_norm,
    "nn.group_norm": _group_norm,
    "nn.l2_normalize": _l2_normalize,
}
