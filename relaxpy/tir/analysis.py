"""Analyses of kernels."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.tir.analysis")
if TYPE_CHECKING:
    from relaxpy.ir.tir.prim_func import verify_well_formed as verify_well_formed
    from relaxpy.tvm.tir.facts import assert_pure_function as assert_pure_function, detect_buffer_access_lca as detect_buffer_access_lca, estimate_tir_flops as estimate_tir_flops, expr_deep_equal as expr_deep_equal, get_block_access_region as get_block_access_region, get_block_read_write_region as get_block_read_write_region, is_pure_function as is_pure_function, undefined_vars as undefined_vars, verify_ssa as verify_ssa
    from relaxpy.tvm.tir.facts import get_block_access_region as get_sblock_access_region
    from relaxpy.tvm.tir.facts import get_block_read_write_region as get_sblock_read_write_region
    __all__ = ['assert_pure_function', 'detect_buffer_access_lca', 'estimate_tir_flops', 'expr_deep_equal', 'get_block_access_region', 'get_block_read_write_region', 'get_sblock_access_region', 'get_sblock_read_write_region', 'is_pure_function', 'undefined_vars', 'verify_ssa', 'verify_well_formed']
