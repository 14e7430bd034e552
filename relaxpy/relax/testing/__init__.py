"""What helps to look at and to test programs."""

from relaxpy.ir.relax.dump_ast import dump_ast
from relaxpy.relax.testing import ast_printer, transform

__all__ = [
    "ast_printer",
    "dump_ast",
    "transform",
]
