"""Changes to one dataflow block of a function."""

from relaxpy.ir.relax.binding_rewrite import DataflowBlockRewrite

__all__ = [
    "DataflowBlockRewrite",
]
