"""ShareSums: the mean and the variance of a tensor are computed from one sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from typing_extensions import override

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import mutates
from relaxpy.ir.relax.known import literal_shape, tensor_sinfo
from relaxpy.ir.relax.op.definition.gradients import count_reduced
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.relax.op.definition.rules import normal_axes
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, PrecedingBindings, Rewritten
from relaxpy.ir.relax.transform.rewrite_pass import RewritePass
from relaxpy.support.dataclass import dataclass

_Key: TypeAlias = tuple[rx.Expr, tuple[int, ...]]
"""A tensor, and the axes that are reduced."""
_MOMENTS: Mapping[rx.Expr | Op, str] = {
    Op.get(f"relax.{name}"): name for name in ("sum", "mean", "variance", "std")
}


_DATATYPES = (DataType("float32"), DataType("float64"))


@dataclass(frozen=True)
class ShareSums(RewritePass):
    """mean(x) -> sum(x) / n, where another reduction of a dataflow block needs that sum, too.

    These are sums, means, variances and standard deviations of the same tensor along the same axes,
    which have known sizes. Only of float32 and float64, whose means are rounded as their sums.
    """

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        return _Sharing().expr


@dataclass
class _Sum:
    """The reductions of one tensor along some axes that have been computed, without these axes."""

    total: rx.Expr | None = None
    mean: rx.Expr | None = None


class _Sharing(BindingRewriter):
    def __init__(self) -> None:
        super().__init__()
        self.sums: dict[_Key, _Sum] = {}

    @override
    def block(self, block: rx.BindingBlock) -> Sequence[rx.BindingBlock]:
        outer, self.sums = self.sums, {}
        if isinstance(block, rx.DataflowBlock) and not any(map(mutates, block.bindings)):
            calls: dict[_Key, set[str]] = {}
            for binding in block.bindings:
                key = _key(binding.value)
                if key is not None:
                    calls.setdefault(key, set()).add(_MOMENTS[cast("rx.Call", binding.value).op])
            self.sums = {key: _Sum() for key, names in calls.items() if len(names) > 1}
        after = super().block(block)
        self.sums = outer
        return after

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        key = _key(binding.value)
        if key not in self.sums or not isinstance(binding, rx.VarBinding):
            return None
        return _Moment(binding, block, key, self.sums[key]).computed()


class _Moment(PrecedingBindings):
    """The bindings that compute one of the reductions."""

    def __init__(
        self, binding: rx.VarBinding, block: rx.BindingBlock, key: _Key, known: _Sum
    ) -> None:
        super().__init__(binding, block)
        self.call = cast("rx.Call", binding.value)
        self.key, self.known = key, known

    def computed(self) -> Sequence[rx.Binding]:
        name, keepdims = _MOMENTS[self.call.op], bool(self.call.attrs["keepdims"])
        if name == "sum" and not keepdims and self.known.total is None:
            self.known.total = self.binding.var
            return [self.binding]
        value: Any = self._total() if name == "sum" else None
        if name == "mean":
            if not keepdims and self.known.mean is None:
                value = self._quotient(self._total())
                self.known.mean = self.binding.var
            else:
                value = self._mean()
        if name in ("sum", "mean"):
            return self.ended(R.expand_dims(value, self.key[1]) if keepdims else value)
        x: Any = self.key[0]
        distance = self.bound(R.subtract(x, self.bound(R.expand_dims(self._mean(), self.key[1]))))
        squares = R.multiply(distance, distance)
        total = self.bound(R.sum(self.bound(squares), self.key[1], keepdims))
        variance = self._quotient(total)
        return self.ended(variance if name == "variance" else R.sqrt(self.bound(variance)))

    def _total(self) -> rx.Expr:
        if self.known.total is None:
            self.known.total = self.bound(R.sum(self.key[0], self.key[1]))
        return self.known.total

    def _mean(self) -> rx.Expr:
        if self.known.mean is None:
            self.known.mean = self.bound(self._quotient(self._total()))
        return self.known.mean

    def _quotient(self, total: rx.Expr) -> rx.Expr:
        dtype = cast("rx.TensorStructInfo", self.call.struct_info).dtype
        return cast("rx.Expr", R.divide(total, count_reduced(self.call, dtype)))


def _key(value: rx.Expr) -> _Key | None:
    """The tensor that a call reduces and the axes, if the call may share the sum."""
    if not isinstance(value, rx.Call) or value.op not in _MOMENTS:
        return None
    [x] = value.args
    sinfo = tensor_sinfo(x)
    if sinfo is None or sinfo.dtype not in _DATATYPES:
        return None
    shape = literal_shape(sinfo)
    if shape is None:
        return None
    axis = cast("Any", value.attrs["axis"])
    return x, tuple(range(len(shape)) if axis is None else normal_axes(axis, len(shape)))
