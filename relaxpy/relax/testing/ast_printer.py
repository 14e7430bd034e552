"""The text of the syntax tree of a program."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.relax.dump_ast import ASTPrinter as ASTPrinter, dump_ast as dump_ast
else:
    _face(globals(), """
        relaxpy.ir.relax.dump_ast: ASTPrinter dump_ast
    """)
