"""Changes to one dataflow block of a function."""

from relaxpy.ir.relax.rewrite.binding_rewrite import DataflowBlockRewrite

__all__ = [
    "DataflowBlockRewrite",
]
