"""Tools for importers and passes."""

from relaxpy.ir.relax.nodes import convert_to_expr as convert_to_expr
from relaxpy.ir.relax.rewrite.replace import copy_with_new_vars as copy_with_new_vars
from relaxpy.ir.relax.utils import (
    args_converter as args_converter,
    gen_call_tir_inputs as gen_call_tir_inputs,
)
