"""ExpandMatmulOfSum: the product with a sum becomes the sum of products."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from typing_extensions import override

from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.dpl.constructors import is_op, wildcard
from relaxpy.ir.relax.dpl.pattern import DFPattern
from relaxpy.ir.relax.dpl.rewriter import ExprPatternRewriter
from relaxpy.ir.relax.nodes import Call, Expr
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.relax.transform.algebra.products import has_same_sizes, known_early, product


@dataclass(frozen=True)
class ExpandMatmulOfSum(Pass):
    """x @ (a + b) -> x @ a + x @ b, and the same for the transposed sum.

    A sum stays if it can be computed before the function is called, from its weights alone: see
    `relax.analysis.computable_at_compile_time`. Rounding may differ.

    Example:
        @I.ir_module
        class Before:
            @R.function
            def main(
                x: R.Tensor((2, 3), "float32"),
                a: R.Tensor((3, 4), "float32"),
                b: R.Tensor((3, 4), "float32"),
            ):
                weight = R.add(a, b)
                y = R.matmul(x, weight)
                return y

        @I.ir_module
        class After:
            @R.function
            def main(
                x: R.Tensor((2, 3), "float32"),
                a: R.Tensor((3, 4), "float32"),
                b: R.Tensor((3, 4), "float32"),
            ):
                p = R.matmul(x, a)
                q = R.matmul(x, b)
                y = R.add(p, q)
                return y

    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        early = known_early(mod)
        x, a, b = wildcard(), wildcard(), wildcard()
        total = is_op("relax.add")(a, b)
        transposed = is_op("relax.permute_dims")(total)

        def expanded(expr: Call, matches: Mapping[DFPattern, Expr]) -> Expr:
            terms = matches[a], matches[b]
            if all(term in early for term in terms) or not has_same_sizes(*terms):
                return expr
            permutation = matches.get(transposed)
            if isinstance(permutation, Call):
                axes = permutation.attrs["axes"]
                terms = R.permute_dims(terms[0], axes), R.permute_dims(terms[1], axes)
            left, right = (product(matches[x], term, expr) for term in terms)
            return cast("Expr", R.add(left, right))

        pattern = is_op("relax.matmul")(x, total | transposed)
        return ExprPatternRewriter(pattern, expanded).transform(mod, ctx)
