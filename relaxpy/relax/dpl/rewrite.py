"""Rewriting of what patterns match."""

from relaxpy.ir.relax.dpl.rewriter import (
    ExprPatternRewriter,
    OrRewriter,
    PatternMatchingRewriter,
    TupleRewriter,
    rewrite_bindings,
    rewrite_call,
)

__all__ = [
    "ExprPatternRewriter",
    "OrRewriter",
    "PatternMatchingRewriter",
    "TupleRewriter",
    "rewrite_bindings",
    "rewrite_call",
]
