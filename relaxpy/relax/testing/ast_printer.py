"""The text of the syntax tree of a program."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.testing.ast_printer")
if TYPE_CHECKING:
    from relaxpy.tvm.relax.dump_ast import ASTPrinter as ASTPrinter, dump_ast as dump_ast
