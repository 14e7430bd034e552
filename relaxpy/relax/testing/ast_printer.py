"""The tree of nodes that a program is, as text."""

from relaxpy.ir.relax.dump_ast import ASTPrinter, dump_ast

__all__ = [
    "ASTPrinter",
    "dump_ast",
]
