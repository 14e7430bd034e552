"""AdjustMatmulOrder: chains of two matmuls in the order that takes fewer operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import reduce
from typing import cast

from typing_extensions import override

from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.core.traverse import children, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.dpl.constructors import is_op, wildcard
from relaxpy.ir.relax.dpl.pattern import DFPattern
from relaxpy.ir.relax.dpl.rewriter import ExprPatternRewriter
from relaxpy.ir.relax.nodes import Call, Expr, Function, Var, VarBinding
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.relax.op.definition.rules import tensor_sinfo
from relaxpy.ir.relax.transform.algebra import products
from relaxpy.ir.relax.transform.lowering.size_bounds import upper_bounds
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.iteration import Range
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class AdjustMatmulOrder(Pass):
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
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        early, shared = products.known_at_compile_time(mod), _shared(mod)
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
                    if not products.is_transposition(permutation) or not all(map(_is_matrix, pair)):
                        return None
                    if all(factor in early for factor in pair):
                        return None
                    factors[first : first + 2] = [products.transposed(factor) for factor in pair]
            if not products.have_one_dtype(
                expr, *factors, *(matches[p] for p in inner if p in matches)
            ):
                return None
            is_left = left in matches or left_permuted in matches
            stays = any(matches.get(pattern) in shared for pattern in computed)
            return _adjusted(expr, factors, early, upper, is_left=is_left, inner_stays=stays)

        pattern = left | right | matmul(left_permuted, c) | matmul(a, right_permuted)
        return ExprPatternRewriter(pattern, adjusted).transform(mod, ctx)


def _shared(mod: IRModule) -> set[Expr | None]:
    """The values that are used more than once."""
    functions = (f for f in mod.functions_by_name.values() if isinstance(f, Function))
    nodes = [node for func in functions for node in walk(func)]
    uses = Counter(child for node in nodes for child in children(node) if isinstance(child, Var))
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
    if any(products.shape_of(factor) is None for factor in factors) or not _associative(*factors):
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
    """Return whether the order does not matter: a vector makes a matrix of the stack next to it."""
    ndims = [len(products.shape_of(factor) or ()) for factor in (a, b, c)]
    return min(ndims) >= 2 or ndims[1] == 2


def _total(numbers: Iterable[tir.PrimExpr]) -> tir.PrimExpr:
    return reduce(ops.add, numbers)


def _cost(call: Call, first: int | None = None) -> tir.PrimExpr:
    """The number of multiplications of a matmul, over its axes from `first` on."""
    sizes = products.shape_of(call)
    rows = products.shape_of(call.args[0])
    assert sizes is not None
    assert rows is not None
    return reduce(ops.mul, sizes[first:], rows[-1])


def _is_less(upper: Mapping[tir.Var, int], one: tir.PrimExpr, other: tir.PrimExpr) -> bool | None:
    """Return whether one number is always less, or always greater than another, for positive sizes.

    `upper` has the upper bounds of sizes.
    """
    analyzer = Analyzer()
    for var in {v for number in (one, other) for v in walk(number) if isinstance(v, tir.Var)}:
        analyzer.bind(var, Range.from_min_extent(1, upper.get(var, 2**31)))
    if analyzer.can_prove(one < other):
        return True
    return False if analyzer.can_prove(other < one) else None
