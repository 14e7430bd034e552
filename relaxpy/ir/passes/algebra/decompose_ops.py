"""DecomposeOpsForInference and DecomposeOpsForTraining: operators in terms of simpler ones.

FoldBatchnormToConv2D: a normalisation after a convolution becomes part of its weight.

ShareSums: the mean and the variance of a tensor are computed from one sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, TypeAlias, cast

import numpy as np
from typing_extensions import override

from relaxpy.ir.core.dtype import Array, DataType
from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.ops.definition.gradients import count_reduced, narrowed, widened
from relaxpy.ir.ops.definition.registry import R, with_all_attributes
from relaxpy.ir.ops.definition.rules import normal_axes
from relaxpy.ir.passes.cleanup.dead_code_elimination import without_dead_code
from relaxpy.ir.passes.rewrite_pass import RewritePass, find_function
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import mutates
from relaxpy.ir.relax.analysis.variables import mention_counts
from relaxpy.ir.relax.known import literal_shape, tensor_sinfo
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, PrecedingBindings, Rewritten
from relaxpy.ir.tir.layout import Layout
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
        var = self.rederived(binding.var)
        last = new.bindings[-1]
        if value is last.var:
            return [*new.bindings[:-1], rx.VarBinding(var, last.value, last.span)]
        return [*new.bindings, rx.VarBinding(var, new.located(value), binding.span)]


_DATATYPES = {DataType("float32"), DataType("float64")}


@dataclass(frozen=True)
class FoldBatchnormToConv2D(RewritePass):
    """Scales the weight of a `conv2d` and adds a bias, instead of the `batch_norm` of its result.

    The normalisation is the only use of the convolution, and only its first result is used.
    A normalisation with `training=True`, which is the default, stays: it uses the mean and variance
    of the batch. So does one of narrower floats than float32, which computes in float32.

    Constants are folded now, if the weight and the bias that they give are finite. With
    `constants_only`, a convolution whose weight is not a constant stays, and so does one whose
    normalisation has other vectors than constants.
    """

    constants_only: bool = False

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        return partial(_folded, constants_only=self.constants_only)


def _folded(func: rx.Function, *, constants_only: bool) -> rx.Function:
    after = _Folding(func, constants_only=constants_only).expr(func)
    return func if after is func else without_dead_code(after)


class _Folding(BindingRewriter):
    """Folds the normalisations of one function."""

    def __init__(self, func: rx.Function, *, constants_only: bool) -> None:
        super().__init__()
        self._constants_only = constants_only
        self._mentions = mention_counts(func)

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        match binding:
            case rx.VarBinding(value=rx.TupleGetItem(tuple_value=result, index=0)):
                norm = self._only_use(result, "relax.nn.batch_norm")
            case _:
                return None
        conv = None if norm is None else self._only_use(norm.args[0], "relax.nn.conv2d")
        if norm is None or conv is None or not _can_be_folded(conv, norm):
            return None
        constants = [arg for arg in (conv.args[1], *norm.args[1:]) if isinstance(arg, rx.Constant)]
        are_constants = len(constants) == len(norm.args)
        if self._constants_only and not are_constants:
            return None
        folded = _Folded(binding, block)
        return folded.fold(conv, norm, [c.data for c in constants] if are_constants else None)

    def _only_use(self, var: rx.Expr, name: str) -> rx.Call | None:
        """The call of an operator to which a variable is bound that is used once."""
        value = self.value_of(var)
        if not rx.is_call_of(value, name):
            return None
        is_only_use = self._mentions[cast("rx.Var", var)] == 2  # bound, and used once
        return with_all_attributes(value) if is_only_use else None


def _can_be_folded(conv: rx.Call, norm: rx.Call) -> bool:
    """True if moving moments of channels, which are one axis, are used in float32 or float64."""
    if norm.attrs["training"]:
        return False
    sinfos = [arg.struct_info for arg in (conv.args[1], *norm.args)]
    if not all(isinstance(s, rx.TensorStructInfo) for s in sinfos):
        return False
    dtypes = {cast("rx.TensorStructInfo", sinfo).dtype for sinfo in sinfos}
    if len(dtypes) > 1 or not dtypes <= _DATATYPES:
        return False
    out, kernel = _out_layout(conv), Layout.of(cast("str", conv.attrs["kernel_layout"]))
    axis = cast("int", norm.attrs["axis"]) % len(out)
    return out.factor_of("C") < 0 and kernel.factor_of("O") < 0 and axis == out.index_of("C")


def _out_layout(conv: rx.Call) -> Layout:
    return Layout.of(cast("str", conv.attrs["out_layout"] or conv.attrs["data_layout"]))


class _Folded(PrecedingBindings):
    """The bindings that replace one of a normalised tensor."""

    def fold(
        self, conv: rx.Call, norm: rx.Call, arrays: Sequence[Array] | None
    ) -> list[rx.Binding] | None:
        """The convolution with the scaled weight, and the bias added to it.

        These are computed now from the `arrays` of the weight and of the vectors, if all are
        constants; None if a result is not finite, so that the order of operations matters.
        """
        dtype = cast("rx.TensorStructInfo", norm.args[0].struct_info).dtype
        operands: Any = (conv.args[1], *norm.args[1:]) if arrays is None else arrays
        weight, gamma, beta, mean, variance = operands

        def of(name: str, *args: Any) -> Any:
            if arrays is not None:
                return getattr(np, name)(*args)
            return self.bound(getattr(R, name)(*args))

        def number(value: Any) -> Any:
            literal = rx.const(value, dtype)
            return literal if arrays is None else literal.data

        kernel, out = Layout.of(cast("str", conv.attrs["kernel_layout"])), _out_layout(conv)
        with np.errstate(all="ignore"):
            deviation = of("sqrt", of("add", variance, number(norm.attrs["epsilon"])))
            scale = of("divide", gamma if norm.attrs["scale"] else number(1), deviation)
            scaled = of("multiply", weight, of("expand_dims", scale, _others(kernel, "O")))
            filters = scaled if arrays is None else rx.const(scaled, dtype)
            result = self.bound(rebuild(conv, args=(conv.args[0], filters)))
            shift = of("multiply", mean, scale)
            bias = of("subtract", beta, shift) if norm.attrs["center"] else of("negative", shift)
            bias = of("expand_dims", bias, _others(out, "C"))
        if arrays is not None:
            if not (np.isfinite(scaled).all() and np.isfinite(bias).all()):
                return None
            bias = rx.const(bias, dtype)
        return self.ended(R.add(result, bias))


def _others(layout: Layout, letter: str) -> list[int]:
    """The axes of a layout other than the one with a letter."""
    return [axis for axis in range(len(layout)) if axis != layout.index_of(letter)]


_Key: TypeAlias = tuple[rx.Expr, tuple[int, ...]]
"""A tensor, and the axes that are reduced."""
_MOMENTS: Mapping[rx.Expr | Op, str] = {
    Op.get(f"relax.{name}"): name for name in ("sum", "mean", "variance", "std")
}


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
