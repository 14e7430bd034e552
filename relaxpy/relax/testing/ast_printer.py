"""The text of the syntax tree of a program."""

from relaxpy.ir.relax.dump_ast import ASTPrinter as ASTPrinter, dump_ast as dump_ast
