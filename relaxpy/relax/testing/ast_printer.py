"""The tree of nodes that a program is, as text."""

from relaxpy.ir.relax.dump_ast import dump_ast

__all__ = [
    "dump_ast",
]
