"""ReorderPermuteDimsAfterConcat: tensors are joined first, and transposed afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Final, cast

from typing_extensions import override

from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.dpl.constructors import is_op, is_tuple, wildcard
from relaxpy.ir.relax.dpl.pattern import DFPattern
from relaxpy.ir.relax.dpl.rewriter import ExprPatternRewriter
from relaxpy.ir.relax.nodes import Call, Expr
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.relax.transform.algebra.products import permutation_of
from relaxpy.support.dataclass import dataclass

_MOST: Final = 12
"""The number of tensors up to which a concatenation is transposed."""


@dataclass(frozen=True)
class ReorderPermuteDimsAfterConcat(Pass):
    """Transposes the concatenation of tensors, instead of each of them in the same way."""

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        permuted = [is_op("relax.permute_dims")(wildcard()) for _ in range(_MOST)]
        concat = is_op("relax.concat")
        patterns = [concat(is_tuple(permuted[:count])) for count in range(2, _MOST + 1)]

        def reordered(expr: Call, matches: Mapping[DFPattern, Expr]) -> Expr | None:
            calls = [cast("Call", matches[p]) for p in permuted if p in matches]
            return _reordered(expr, calls)

        rewriter = ExprPatternRewriter(reduce(or_, patterns), reordered)
        return rewriter.transform(normalize_module(mod), ctx)


def _reordered(concat: Call, permuted: Sequence[Call]) -> Expr | None:
    orders = {permutation_of(call) for call in permuted}
    axis = concat.attrs["axis"]
    order = orders.pop()
    if orders or order is None or not isinstance(axis, int):
        return None
    joined = R.concat(tuple(call.args[0] for call in permuted), axis=order[axis % len(order)])
    return cast("Expr", R.permute_dims(joined, permuted[0].attrs["axes"]))
