"""Tools for those who write importers and passes."""

from relaxpy.ir.relax.nodes import convert_to_expr
from relaxpy.ir.relax.rewrite.replace import copy_with_new_vars
from relaxpy.ir.relax.utils import args_converter, gen_call_tir_inputs

__all__ = [
    "args_converter",
    "convert_to_expr",
    "copy_with_new_vars",
    "gen_call_tir_inputs",
]
