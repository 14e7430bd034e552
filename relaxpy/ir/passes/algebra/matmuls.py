"""Passes that reorder, combine and expand matmuls."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import accumulate
from operator import or_
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

from typing_extensions import override

from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.core.node import Attr
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.passes.append_in_place import upper_bounds
from relaxpy.ir.passes.rewrite_pass import RewritePass
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import (
    Dependencies,
    Effects,
    computable_at_compile_time,
    may_fail,
)
from relaxpy.ir.relax.analysis.variables import mention_counts
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.dpl.graph import sorted_by_use
from relaxpy.ir.relax.dpl.pattern import DFPattern, is_op, is_tuple, wildcard
from relaxpy.ir.relax.dpl.rewriter import ExprPatternRewriter
from relaxpy.ir.relax.known import (
    dims_of,
    have_same_shape,
    rank_of,
    shape_of,
    tensor_of,
    tensor_sinfo,
)
from relaxpy.ir.relax.nodes import Call, Expr, Function, ShapeExpr, VarBinding
from relaxpy.ir.relax.relations.derivation import Context
from relaxpy.ir.relax.rewrite.map_bindings import (
    BindingRewriter,
    Rewritten,
    with_bindings,
    without_unused,
)
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.iteration import Range
from relaxpy.support.dataclass import dataclass, replace


def known_at_compile_time(mod: IRModule) -> set[Expr]:
    """The lifted variables, which functions can compute from weights before they are called."""
    functions = mod.functions_by_name.values()
    known: set[Expr] = set()
    for func in functions:
        if isinstance(func, Function) and "num_input" in func.attrs:
            known.update(computable_at_compile_time(func))
    return known


def have_one_dtype(*tensors: Expr) -> bool:
    """True if operands and matmuls have one datatype, so that all round and wrap alike.

    If none of them is known, no matmul declares its own, and operands have to agree.
    """
    [dtype, *others] = {
        None if sinfo is None else sinfo.dtype for sinfo in map(tensor_sinfo, tensors)
    }
    return not others and dtype is not None


def permutation_of(call: Call) -> tuple[int, ...] | None:
    """The axes of a `permute_dims`, if they are known."""
    axes = call.attrs["axes"]
    sinfo = tensor_sinfo(call.args[0])
    if axes is not None:
        axes = cast("tuple[int, ...]", axes)
        return tuple(axis % len(axes) for axis in axes)
    return None if sinfo is None or sinfo.ndim < 0 else tuple(reversed(range(sinfo.ndim)))


def is_transposition(call: Call) -> bool:
    """True if a `permute_dims` exchanges the last two axes."""
    axes = permutation_of(call)
    if axes is None or len(axes) < 2:
        return False
    first = tuple(range(len(axes)))
    return axes == (*first[:-2], first[-1], first[-2])


def transposed(expr: Expr) -> Expr:
    """A stack of matrices of a known rank, each transposed."""
    sinfo = tensor_of(expr)
    ndim = sinfo.ndim
    axes = None if ndim == 2 else (*range(ndim - 2), ndim - 1, ndim - 2)
    return cast("Expr", R.permute_dims(expr, axes))


Rule: TypeAlias = Callable[[Call, Mapping[DFPattern, Expr]], Expr | None]


class Peephole(Pass):
    """The base class of passes that replace matches of a pattern in a module in normal form."""

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        return ExprPatternRewriter(*self.rule(mod)).transform(mod, ctx)

    @abstractmethod
    def rule(self, mod: IRModule) -> tuple[DFPattern, Rule]:
        """A pattern, and the function that returns the replacement of a match, or None."""


@dataclass(frozen=True)
class AdjustMatmulOrder(Peephole):
    """(a @ b) @ c -> a @ (b @ c), or the other way round, if that takes fewer multiplications.

    The inner matmul may also be transposed. Two of the factors that are known before the function
    is called are multiplied first: see `relax.analysis.computable_at_compile_time`. A matmul that
    has other uses is computed anyway, so that it costs nothing. If it depends on symbolic sizes
    which order is better, the order is the one that is better for one matrix of each stack, or else
    stays; the attribute `tir_var_upper_bound` of a function, a mapping from names, bounds sizes.
    Matmuls that round or wrap in different datatypes stay. Rounding may differ, and so may the
    overflow of intermediate results.
    """

    @override
    def rule(self, mod: IRModule) -> tuple[DFPattern, Rule]:
        early, shared = known_at_compile_time(mod), _shared(mod)
        graphs = (func for func in mod.functions.values() if isinstance(func, Function))
        upper = {var: bound for func in graphs for var, bound in upper_bounds(func).items()}
        a, b, c = wildcard(), wildcard(), wildcard()
        matmul, permute_dims = is_op("relax.matmul"), is_op("relax.permute_dims")
        inner = [matmul(a, b), matmul(b, c), matmul(b, a), matmul(c, b)]
        left, right = matmul(inner[0], c), matmul(a, inner[1])
        left_permuted, right_permuted = permute_dims(inner[2]), permute_dims(inner[3])
        computed = (*inner, left_permuted, right_permuted)

        def adjusted(expr: Call, matches: Mapping[DFPattern, Expr]) -> Expr | None:
            factors = [matches[a], matches[b], matches[c]]
            for pattern, first in ((left_permuted, 0), (right_permuted, 1)):
                permutation = matches.get(pattern)
                if isinstance(permutation, Call):
                    pair = factors[first : first + 2]
                    if not is_transposition(permutation) or not all(map(_is_matrix, pair)):
                        return None
                    if all(factor in early for factor in pair):
                        return None
                    factors[first : first + 2] = [transposed(factor) for factor in pair]
            if not have_one_dtype(expr, *factors, *(matches[p] for p in inner if p in matches)):
                return None
            is_left = left in matches or left_permuted in matches
            stays = any(matches.get(pattern) in shared for pattern in computed)
            return _adjusted(expr, factors, early, upper, is_left=is_left, inner_stays=stays)

        pattern = left | right | matmul(left_permuted, c) | matmul(a, right_permuted)
        return pattern, adjusted


def _shared(mod: IRModule) -> set[Expr | None]:
    """The values that are used more than once."""
    functions = [f for f in mod.functions_by_name.values() if isinstance(f, Function)]
    nodes = [node for func in functions for node in walk(func)]
    uses = mention_counts(*functions)
    # The definition of a variable is one of its uses here.
    return {n.value for n in nodes if isinstance(n, VarBinding) and uses[n.var] > 2}


def _is_matrix(expr: Expr) -> bool:
    sinfo = tensor_sinfo(expr)
    return sinfo is not None and sinfo.ndim >= 2


def _adjusted(
    expr: Call,
    factors: list[Expr],
    early: Collection[Expr],
    upper: Mapping[tir.Var, int],
    *,
    is_left: bool,
    inner_stays: bool,
) -> Expr | None:
    """The matmuls in the other order, or None if the given one is at least as good.

    If the inner matmul stays, it counts for neither.
    """
    a, b, c = factors
    if any(shape_of(factor) is None for factor in factors) or not _associative(*factors):
        return None
    known = [factor in early for factor in factors]
    left_inner, right_inner = R.matmul(a, b), R.matmul(b, c)
    left, right = R.matmul(left_inner, c), R.matmul(a, right_inner)
    if all(known):
        return None
    if known[1] and (known[0] or known[2]):
        prefers_left: bool | None = known[0]
    else:
        orders = [left_inner, left], [right_inner, right]
        if inner_stays:
            del orders[0 if is_left else 1][0]
        prefers_left = _is_less(upper, *(_total(_cost(p) for p in order) for order in orders))
        if prefers_left is None:
            costs = (_total(_cost(p, -2) for p in order) for order in orders)
            prefers_left = _is_less(upper, *costs)
    if prefers_left is None or prefers_left is is_left:
        return None
    return cast("Expr", left if prefers_left else right)


def _associative(a: Expr, b: Expr, c: Expr) -> bool:
    """True if the order does not matter: a vector makes a matrix of the stack next to it."""
    ndims = [len(shape_of(factor) or ()) for factor in (a, b, c)]
    return min(ndims) >= 2 or ndims[1] == 2


def _total(numbers: Iterable[tir.PrimExpr]) -> tir.PrimExpr:
    return reduce(ops.add, numbers)


def _cost(call: Call, first: int | None = None) -> tir.PrimExpr:
    """The number of multiplications of a matmul, over its axes from `first` on."""
    sizes = shape_of(call)
    rows = shape_of(call.args[0])
    assert sizes is not None
    assert rows is not None
    return reduce(ops.mul, sizes[first:], rows[-1])


def _is_less(upper: Mapping[tir.Var, int], one: tir.PrimExpr, other: tir.PrimExpr) -> bool | None:
    """True if one number is always less, or always greater than another, for positive sizes.

    `upper` has the upper bounds of sizes.
    """
    analyzer = Analyzer()
    for var in {v for number in (one, other) for v in walk(number) if isinstance(v, tir.Var)}:
        analyzer.bind(var, Range.from_min_extent(1, upper.get(var, 2**31)))
    if analyzer.can_prove(one < other):
        return True
    return False if analyzer.can_prove(other < one) else None


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
        """True if the user's check lets these be combined."""
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
            by_rank.setdefault(len(dims_of(branch.weight)), []).append(branch)
        for branches in by_rank.values():
            chosen = _chosen(branches)
            if chosen:
                yield chosen


def _is_product(binding: rx.Binding) -> bool:
    """True if a binding is a matmul with a matrix of known shape and datatype."""
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
    if all(biased) and len({rank_of(b.bias) for b in biased if b is not None}) == 1:
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
        is_fixed = isinstance(dims_of(branch.weight)[-1], tir.IntImm)
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
        prove_equal(dims_of(bias)[-1], dims_of(branch.weight)[-1])
        for bias, branch in zip(biases, branches, strict=True)
    )


def _differ_in_last_axis(tensors: Sequence[rx.Expr]) -> bool:
    """True if tensors have known shapes of one rank that are equal up to the last axis."""
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
    """True if tensors have one known datatype and one device."""
    sinfos = [tensor_sinfo(tensor) for tensor in tensors]
    kinds = {(sinfo.dtype, sinfo.vdevice) for sinfo in sinfos if sinfo is not None}
    return len(kinds) == 1 and None not in sinfos and not next(iter(kinds))[0].is_void


def _pieces(branches: Sequence[_Branch]) -> rx.Expr:
    """The results of branches, computed by one matmul."""
    first = branches[0]
    span = first.product.span
    product, result = tensor_sinfo(first.product), tensor_sinfo(first.steps[-1].var)
    assert product is not None
    assert result is not None
    axis = len(dims_of(first.weight)) - 1
    weight = R.concat(tuple(branch.weight for branch in branches), axis=axis, span=span)
    value = R.matmul(first.product.args[0], weight, out_dtype=product.dtype, span=span)
    if first.bias is not None:
        biases = tuple(branch.bias for branch in branches)
        value = R.add(value, R.concat(biases, axis=rank_of(first.bias) - 1, span=span), span=span)
    if first.activation is not None:
        value = rx.Call(first.activation, (value,), span=span)
    sizes = [cast("tir.IntImm", dims_of(branch.weight)[-1]).value for branch in branches[:-1]]
    return cast("rx.Expr", R.split(value, list(accumulate(sizes)), axis=result.ndim - 1, span=span))


_Term: TypeAlias = tuple[rx.Expr, tuple[Attr, ...]]
"""A factor, and the axes by which it is permuted, if it is."""


@dataclass(frozen=True)
class ExpandMatmulOfSum(RewritePass):
    """x @ (a + b) -> x @ a + x @ b, and the same for the transposed sum.

    A sum stays if it can be computed before the function is called, from its weights alone: see
    `relax.analysis.computable_at_compile_time`, and if the matmul has another datatype. Rounding
    may differ.
    """

    @override
    def rewriting(self, mod: IRModule) -> Callable[[rx.Function], rx.Function]:
        early = known_at_compile_time(mod)

        def expanded(func: rx.Function) -> rx.Function:
            rewriter = _Expanding(early, Effects(Context(), mod.functions_by_name, func))
            after = rewriter.expr(func)
            superfluous = rewriter.expanded
            return without_unused(after, lambda binding: binding.var not in superfluous)

        return expanded


class _Expanding(BindingRewriter):
    """Expands the matmuls of one function.

    `sums` and `permuted` are calls whose operands may be used here, and `known` has the matmuls
    with their terms: a term of several sums is multiplied once, else there could be exponentially
    many matmuls. The variables that are `expanded` may have become unused.
    """

    def __init__(self, early: Collection[rx.Expr], effects: Effects) -> None:
        super().__init__()
        self.early, self.effects = early, effects
        self.expanded: set[rx.Expr | None] = set()
        self._forget()

    def _forget(self) -> None:
        self.sums: dict[rx.Expr, rx.Call] = {}
        self.permuted: dict[rx.Expr, rx.Call] = {}
        self.known: dict[object, rx.Expr] = {}

    @override
    def function(self, func: rx.Function) -> rx.Function:
        with self.effects.inside(func):
            return super().function(func)

    @override
    def block(self, block: rx.BindingBlock) -> Sequence[rx.BindingBlock]:
        outer = self.sums, self.permuted, self.known
        self._forget()
        after = super().block(block)
        self.sums, self.permuted, self.known = outer
        return after

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        if self.effects.is_barrier(binding):
            self._forget()  # OPT-3
        elif isinstance(binding, rx.VarBinding) and isinstance(call, rx.Call):
            if rx.is_call_of(call, "relax.matmul"):
                return self._expanded(binding, call, block)
            if not isinstance(block, rx.DataflowBlock) and may_fail(binding):
                return None  # OPT-8
            if rx.is_call_of(call, "relax.permute_dims"):
                self.permuted[binding.var] = call
            elif (
                rx.is_call_of(call, "relax.add")
                and have_same_shape(*call.args)
                and not all(term in self.early for term in call.args)
            ):
                self.sums[binding.var] = call
        return None

    def _terms(self, factor: _Term) -> Sequence[_Term]:
        """The terms of a factor that is a sum, or a permuted one; none of any other."""
        expr, axes = factor
        permuted = None if axes else self.permuted.get(expr)
        if permuted is not None and permuted.args[0] in self.sums:
            self.expanded.add(expr)
            expr, axes = permuted.args[0], (permuted.attrs["axes"],)
        total = self.sums.get(expr)
        if total is None:
            return ()
        self.expanded.add(expr)
        return [(term, axes) for term in total.args]

    def _expanded(self, old: rx.VarBinding, call: rx.Call, block: rx.BindingBlock) -> Rewritten:
        """The bindings of the matmuls with the terms of a sum, and of their sum."""
        x, factor = call.args
        if not have_one_dtype(call, x, factor):
            return None
        bindings: list[rx.Binding] = []

        def bound(key: object, value: rx.Call) -> rx.Expr:
            if key not in self.known:
                var = block.var_type("lv", value.struct_info, old.span)
                bindings.append(rx.VarBinding(var, replace(value, span=old.span), old.span))
                self.known[key] = var
            return self.known[key]

        waiting: list[_Term] = [(factor, ())]
        while True:
            term = expr, axes = waiting.pop()
            key = (x, *term)
            terms = self._terms(term)
            missing = [t for t in terms if (x, *t) not in self.known]
            if missing:
                waiting += (term, *reversed(missing))
            elif terms:
                total = R.add(*(self.known[x, *t] for t in terms))
                if not waiting:
                    return [*bindings, replace(old, value=replace(total, span=call.span))]
                bound(key, total)
            elif not waiting:
                return None
            else:
                permuted = bound(term, R.permute_dims(expr, *axes)) if axes else expr
                bound(key, R.matmul(x, permuted))


_MOST: Final = 12
"""The number of tensors up to which a concatenation is transposed."""


@dataclass(frozen=True)
class ReorderPermuteDimsAfterConcat(Peephole):
    """Transposes the concatenation of tensors, instead of each of them in the same way."""

    @override
    def rule(self, mod: IRModule) -> tuple[DFPattern, Rule]:
        permuted = [is_op("relax.permute_dims")(wildcard()) for _ in range(_MOST)]
        concat = is_op("relax.concat")
        patterns = [concat(is_tuple(permuted[:count])) for count in range(2, _MOST + 1)]

        def reordered(expr: Call, matches: Mapping[DFPattern, Expr]) -> Expr | None:
            calls = [cast("Call", matches[p]) for p in permuted if p in matches]
            return _reordered(expr, calls)

        return reduce(or_, patterns), reordered


def _reordered(concat: Call, permuted: Sequence[Call]) -> Expr | None:
    orders = {permutation_of(call) for call in permuted}
    axis = concat.attrs["axis"]
    order = orders.pop()
    if orders or order is None or not isinstance(axis, int):
        return None
    joined = R.concat(tuple(call.args[0] for call in permuted), axis=order[axis % len(order)])
    return cast("Expr", R.permute_dims(joined, permuted[0].attrs["axes"]))


@dataclass(frozen=True)
class ReorderTakeAfterMatmul(Peephole):
    """Multiplies by a whole table of weights, and takes slices of the result.

    x @ take(weights, indices, axis=-1) becomes take(x @ weights, indices, axis=-1), for a matrix of
    weights. Where `indices` choose a matrix of weights for each batch of x, x is multiplied by all
    of them at once. Rounding may differ.
    """

    @override
    def rule(self, mod: IRModule) -> tuple[DFPattern, Rule]:
        x, taken = wildcard(), is_op("relax.take")(wildcard(), wildcard())
        return is_op("relax.matmul")(x, taken), lambda expr, matches: _taken_after(
            expr, matches[x], cast("Call", matches[taken])
        )


def _taken_after(expr: Call, x: Expr, take: Call) -> Expr | None:
    """The matmul after reordering, or None if ranks or sizes forbid that or are not known."""
    table, indices = take.args
    sinfos = [tensor_sinfo(e) for e in (x, table, indices, expr)]
    if any(sinfo is None or sinfo.ndim < 0 for sinfo in sinfos):
        return None
    x_ndim, table_ndim, index_ndim, ndim = (sinfo.ndim for sinfo in sinfos if sinfo is not None)
    axis, mode = take.attrs["axis"], take.attrs["mode"]
    if not isinstance(axis, int) or index_ndim != 1:
        return None
    axis %= table_ndim
    if axis == table_ndim - 1 == 1:
        whole = _product(x, table, expr)
        return cast("Expr", R.take(whole, indices, axis=ndim - 1, mode=mode))
    sizes, x_sizes = shape_of(table), shape_of(x)
    if x_ndim != 3 or table_ndim != 3 or axis != 0 or sizes is None or x_sizes is None:
        return None
    count, rows, columns = sizes
    matrix = R.reshape(R.permute_dims(table, (1, 0, 2)), ShapeExpr((rows, count * columns)))
    shape = ShapeExpr((x_sizes[0], x_sizes[1], count, columns))
    chosen = R.take(R.reshape(_product(x, matrix, expr), shape), indices, axis=2, mode=mode)
    return cast("Expr", R.einsum((chosen,), "ijik->ijk"))


def _product(x: Expr, y: Expr, like: Expr) -> Call:
    """The matmul, with the datatype of another matmul."""
    sinfo = tensor_sinfo(like)
    dtypes = {info.dtype for info in map(tensor_sinfo, (x, y)) if info is not None}
    if sinfo is None or sinfo.dtype.is_void or dtypes == {sinfo.dtype}:
        return cast("Call", R.matmul(x, y))
    return cast("Call", R.matmul(x, y, out_dtype=sinfo.dtype))
