"""Rewriting of the expressions that patterns match."""

from relaxpy.ir.relax.dpl.rewriter import (
    ExprPatternRewriter as ExprPatternRewriter,
    OrRewriter as OrRewriter,
    PatternMatchingRewriter as PatternMatchingRewriter,
    TupleRewriter as TupleRewriter,
    rewrite_bindings as rewrite_bindings,
    rewrite_call as rewrite_call,
)
