"""CombineParallelMatmul: matmuls with one common operand become one matmul."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import Any, cast

from typing_extensions import override

from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.dependencies import Dependencies
from relaxpy.ir.relax.dpl.segment import sorted_by_use
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.relax.op.definition.rules import tensor_sinfo
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, with_bindings
from relaxpy.ir.relax.transform.algebra.products import shape_of
from relaxpy.ir.relax.transform.rewrite_pass import RewritePass
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import dataclass, replace

Check = Callable[[rx.Var, list[rx.Expr], list[rx.Expr], Mapping[rx.Var, rx.Expr]], Any]


@dataclass(frozen=True)
class CombineParallelMatmul(RewritePass):
    """Replaces matmuls with a common left operand by one with concatenated weights, and a split.

    Where all of them are followed by the addition of a bias, or by one activation, or by both, this
    is done once, too: before the split. It takes bindings of one dataflow block, and second
    operands of one rank whose shapes differ in the last axis only. At most one of these axes is
    symbolic. `check(x, [w, ...], [bias, ...], bindings)` decides whether matmuls are combined.
    Rounding may differ.

    Errors:
        MisuseError (also TypeError): `check` is not a function.
    """

    check: Check | None = None

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        return lambda func: _Combining(self.check).expr(func)


@dataclass(frozen=True, slots=True, eq=False)
class _Branch:
    """A matmul `x @ weight`, and the calls that follow it and have no other operand of its depth.

    `steps` are the bindings from the matmul to the last one; only the next one uses each of them.
    """

    steps: tuple[rx.VarBinding, ...]
    bias: rx.Expr | None = None

    @property
    def product(self) -> rx.Call:
        return cast("rx.Call", self.steps[0].value)

    @property
    def weight(self) -> rx.Expr:
        return self.product.args[1]

    @property
    def activation(self) -> Op | None:
        """The activation that is the last step."""
        op = cast("rx.Call", self.steps[-1].value).op
        return op if isinstance(op, Op) and op.record.activation else None


class _Combining(BindingRewriter):
    """Combines the matmuls of each dataflow block."""

    def __init__(self, check: Check | None) -> None:
        super().__init__()
        self._check = check

    @override
    def block(self, block: rx.BindingBlock) -> Sequence[rx.BindingBlock]:
        blocks = super().block(block)
        return [self._combined(b) if isinstance(b, rx.DataflowBlock) else b for b in blocks]

    def _combined(self, block: rx.DataflowBlock) -> rx.BindingBlock:
        replaced: dict[rx.Binding, list[rx.VarBinding]] = {}
        values = {b.var: b.value for b in block.bindings if isinstance(b, rx.VarBinding)}
        positions = {binding: k for k, binding in enumerate(block.bindings)}
        for branches in _parallel_branches(block.bindings):
            if not self._accepts(branches, values):
                continue
            span = branches[0].product.span
            pieces = rx.VarBinding(rx.DataflowVar("lv"), _pieces(branches), span)
            for index, branch in enumerate(branches):
                *before, last = branch.steps
                piece = rx.TupleGetItem(pieces.var, index, span=last.value.span)
                replaced |= {step: [] for step in before}
                replaced[last] = [replace(last, value=piece)]
            first = min((branch.steps[-1] for branch in branches), key=positions.__getitem__)
            replaced[first].insert(0, pieces)
        if not replaced:
            return block
        bindings = [new for b in block.bindings for new in replaced.get(b, (b,))]
        ordered = sorted_by_use(bindings)
        assert ordered is not None
        return with_bindings(block, ordered)

    def _accepts(self, branches: Sequence[_Branch], values: Mapping[rx.Var, rx.Expr]) -> bool:
        """Return whether the user's check lets these be combined."""
        if self._check is None:
            return True
        weights = [branch.weight for branch in branches]
        biases = [branch.bias for branch in branches if branch.bias is not None]
        left = cast("rx.Var", branches[0].product.args[0])
        return bool(self._check(left, weights, biases, MappingProxyType(values)))


def _parallel_branches(bindings: Sequence[rx.Binding]) -> Iterator[list[_Branch]]:
    """The matmuls of a block that can be combined, each with the steps after it.

    The depth of a binding is the maximum number of matmuls with partners on a dependence path to
    it. Matmuls of one depth do not depend on each other, and no two groups of them do so in both
    directions.
    """
    partners: dict[rx.Expr, int] = {}
    for binding in bindings:
        if _is_product(binding):
            left = cast("rx.Call", binding.value).args[0]
            partners[left] = partners.get(left, 0) + 1
    users: dict[object, list[rx.Binding]] = {}
    depths: dict[object, int] = {}
    groups: dict[tuple[rx.Expr, int], list[rx.VarBinding]] = {}
    for binding, needs in Dependencies(bindings).needs.items():
        for definition in needs:
            users.setdefault(definition, []).append(binding)
        depth = max((depths[definition] for definition in needs), default=0)
        if _is_product(binding):
            left = cast("rx.Call", binding.value).args[0]
            if partners[left] > 1:
                depth += 1
                groups.setdefault((left, depth), []).append(cast("rx.VarBinding", binding))
        depths[binding] = depths[binding.var] = depth
    for (_, depth), products in groups.items():
        by_rank: dict[int, list[_Branch]] = {}
        for branch in _with_common_steps(products, users, depths, depth):
            by_rank.setdefault(len(_shape(branch.weight)), []).append(branch)
        for branches in by_rank.values():
            chosen = _chosen(branches)
            if chosen:
                yield chosen


def _is_product(binding: rx.Binding) -> bool:
    """Return whether a binding is a matmul with a matrix of known shape and datatype."""
    value = binding.value
    if not isinstance(binding, rx.VarBinding) or not rx.is_call_of(value, "relax.matmul"):
        return False
    if not isinstance(value.args[0], rx.Var):
        return False
    result, weight = tensor_sinfo(value), tensor_sinfo(value.args[1])
    if result is None or weight is None or result.dtype.is_void or weight.dtype.is_void:
        return False
    return result.ndim > 0 and len(shape_of(value.args[1]) or ()) > 1


def _with_common_steps(
    products: Sequence[rx.VarBinding],
    users: Mapping[object, Sequence[rx.Binding]],
    depths: Mapping[object, int],
    depth: int,
) -> list[_Branch]:
    """The branches that begin with these matmuls, with the steps that all of them have."""

    def next_step(step: rx.VarBinding) -> rx.VarBinding | None:
        match users.get(step):
            case [rx.VarBinding(value=rx.Call()) as user] if isinstance(step.var, rx.DataflowVar):
                return user
            case _:
                return None

    def with_bias(branch: _Branch) -> _Branch | None:
        step = next_step(branch.steps[-1])
        if step is None or not rx.is_call_of(step.value, "relax.add"):
            return None
        others = [arg for arg in step.value.args if arg is not branch.steps[-1].var]
        if len(others) != 1 or depths.get(others[0], 0) >= depth:
            return None
        return _Branch((*branch.steps, step), others[0])

    def with_activation(branch: _Branch) -> _Branch | None:
        step = next_step(branch.steps[-1])
        after = None if step is None else _Branch((*branch.steps, step), branch.bias)
        return None if after is None or after.activation is None else after

    branches = [_Branch((product,)) for product in products]
    biased = list(map(with_bias, branches))
    if all(biased) and len({_rank(b.bias) for b in biased if b is not None}) == 1:
        branches = cast("list[_Branch]", biased)
    active = list(map(with_activation, branches))
    if all(active) and len({b.activation for b in active if b is not None}) == 1:
        branches = cast("list[_Branch]", active)
    return branches


def _chosen(branches: list[_Branch]) -> list[_Branch]:
    """The branches that can be combined, in the order of their slices of the result."""
    weights = [branch.weight for branch in branches]
    if not _differ_in_last_axis(weights):
        return []
    fixed: list[_Branch] = []
    symbolic: list[_Branch] = []
    for branch in branches:
        is_fixed = isinstance(_shape(branch.weight)[-1], tir.IntImm)
        (fixed if is_fixed else symbolic).append(branch)
    chosen = fixed + symbolic[:1]
    products = [branch.product for branch in chosen]
    if len(chosen) < 2 or not _have_one_type(products):
        return []
    if not _have_one_type([branch.weight for branch in chosen]):
        return []
    biases = [branch.bias for branch in chosen if branch.bias is not None]
    if biases and not _are_rows(biases, chosen):
        return []
    return chosen


def _are_rows(biases: Sequence[rx.Expr], branches: Sequence[_Branch]) -> bool:
    """True if biases have the last axis of their matmuls, and can be concatenated along it."""
    if not _differ_in_last_axis(biases) or not _have_one_type(biases):
        return False
    return all(
        prove_equal(_shape(bias)[-1], _shape(branch.weight)[-1])
        for bias, branch in zip(biases, branches, strict=True)
    )


def _differ_in_last_axis(tensors: Sequence[rx.Expr]) -> bool:
    """Return whether tensors have known shapes of one rank that are equal up to the last axis."""
    first, *others = map(shape_of, tensors)
    if not first:
        return False
    return all(
        shape is not None
        and len(shape) == len(first)
        and all(prove_equal(m, n) for m, n in zip(first[:-1], shape[:-1], strict=True))
        for shape in others
    )


def _have_one_type(tensors: Iterable[rx.Expr]) -> bool:
    """Return whether tensors have one known datatype and one device."""
    sinfos = [tensor_sinfo(tensor) for tensor in tensors]
    kinds = {(sinfo.dtype, sinfo.vdevice) for sinfo in sinfos if sinfo is not None}
    return len(kinds) == 1 and None not in sinfos and not next(iter(kinds))[0].is_void


def _shape(tensor: rx.Expr) -> tuple[tir.PrimExpr, ...]:
    shape = shape_of(tensor)
    assert shape is not None
    return shape


def _rank(tensor: rx.Expr | None) -> int:
    sinfo = None if tensor is None else tensor_sinfo(tensor)
    return -1 if sinfo is None else sinfo.ndim


def _pieces(branches: Sequence[_Branch]) -> rx.Expr:
    """The results of branches, computed by one matmul."""
    first = branches[0]
    span = first.product.span
    product, result = tensor_sinfo(first.product), tensor_sinfo(first.steps[-1].var)
    assert product is not None
    assert result is not None
    axis = len(_shape(first.weight)) - 1
    weight = R.concat(tuple(branch.weight for branch in branches), axis=axis, span=span)
    value = R.matmul(first.product.args[0], weight, out_dtype=product.dtype, span=span)
    if first.bias is not None:
        biases = tuple(branch.bias for branch in branches)
        value = R.add(value, R.concat(biases, axis=_rank(first.bias) - 1, span=span), span=span)
    if first.activation is not None:
        value = rx.Call(first.activation, (value,), span=span)
    sizes = [cast("tir.IntImm", _shape(branch.weight)[-1]).value for branch in branches[:-1]]
    return cast("rx.Expr", R.split(value, list(accumulate(sizes)), axis=result.ndim - 1, span=span))
