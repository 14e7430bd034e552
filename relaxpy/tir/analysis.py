"""Analyses of kernels."""

from relaxpy.ir.tir.analysis.facts import (
    assert_pure_function,
    detect_buffer_access_lca,
    estimate_tir_flops,
    expr_deep_equal,
    get_block_access_region,
    get_block_read_write_region,
    is_pure_function,
    undefined_vars,
    verify_ssa,
)
from relaxpy.ir.tir.prim_func.well_formed import verify_well_formed
from relaxpy.missing import hint_at_absent as _hint_at_absent

get_sblock_access_region = get_block_access_region
get_sblock_read_write_region = get_block_read_write_region

__all__ = [
    "assert_pure_function",
    "detect_buffer_access_lca",
    "estimate_tir_flops",
    "expr_deep_equal",
    "get_block_access_region",
    "get_block_read_write_region",
    "get_sblock_access_region",
    "get_sblock_read_write_region",
    "is_pure_function",
    "undefined_vars",
    "verify_ssa",
    "verify_well_formed",
]

_hint_at_absent(globals())
