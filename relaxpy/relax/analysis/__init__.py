"""Analyses of Relax programs, and the relations between struct infos."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.analysis")
if TYPE_CHECKING:
    from relaxpy.ir.relax.analysis.effects import computable_at_compile_time as computable_at_compile_time, contains_impure_call as contains_impure_call
    from relaxpy.ir.relax.analysis.memory_usage import estimate_memory_usage as estimate_memory_usage
    from relaxpy.ir.relax.analysis.op_pattern import OpPatternKind as OpPatternKind, has_reshape_pattern as has_reshape_pattern, op_pattern_kind as op_pattern_kind
    from relaxpy.ir.relax.analysis.variables import all_global_vars as all_global_vars, all_vars as all_vars, bound_vars as bound_vars, collect_non_negative_expressions as collect_non_negative_expressions, definable_tir_vars_in_struct_info as definable_tir_vars_in_struct_info, defined_symbolic_vars as defined_symbolic_vars, free_symbolic_vars as free_symbolic_vars, free_vars as free_vars, get_var2val as get_var2val, name_to_binding as name_to_binding, post_order_visit as post_order_visit, tir_vars_in_struct_info as tir_vars_in_struct_info, udchain as udchain, used_vars as used_vars
    from relaxpy.ir.relax.analysis.variables import definable_tir_vars_in_struct_info as definable_tir_vars_in_type
    from relaxpy.ir.relax.analysis.variables import tir_vars_in_struct_info as tir_vars_in_type
    from relaxpy.ir.relax.analysis.well_formed import check_well_formed as check_well_formed, well_formed as well_formed
    from relaxpy.ir.relax.call_graph import detect_recursion as detect_recursion
    from relaxpy.ir.relax.relations import BaseCheckResult as BaseCheckResult, Compatibility as Compatibility, check_compatibility as check_compatibility, definable_shape_vars as definable_shape_vars, erase_struct_info as erase_struct_info, explain_incompatibility as explain_incompatibility, free_shape_vars as free_shape_vars, is_base_of as is_base_of, provably_disjoint as provably_disjoint, shape_var_map as shape_var_map, struct_info_base_check as struct_info_base_check, struct_info_glb as struct_info_glb, struct_info_lca as struct_info_lca, substitute_info as substitute_info, wrap_type as wrap_type
    from relaxpy.ir.relax.relations import erase_struct_info as get_static_type
    from relaxpy.ir.relax.relations import struct_info_base_check as type_base_check
    from relaxpy.ir.relax.relations import struct_info_lca as type_lca
    from relaxpy.ir.relax.rewrite.map_bindings import remove_all_unused as remove_all_unused
    from relaxpy.relax.analysis import analysis as analysis
    from relaxpy.tvm.relax.helpers import derive_call_ret_struct_info as derive_call_ret_struct_info, erase_to_well_defined as erase_to_well_defined
    from relaxpy.tvm.relax.helpers import derive_call_ret_struct_info as derive_call_ret_type
    from relaxpy.tvm.relax.kernel_layouts import suggest_layout_transforms as suggest_layout_transforms
    __all__ = ['BaseCheckResult', 'Compatibility', 'OpPatternKind', 'all_global_vars', 'all_vars', 'analysis', 'bound_vars', 'check_compatibility', 'check_well_formed', 'collect_non_negative_expressions', 'computable_at_compile_time', 'contains_impure_call', 'definable_shape_vars', 'definable_tir_vars_in_struct_info', 'definable_tir_vars_in_type', 'defined_symbolic_vars', 'derive_call_ret_struct_info', 'derive_call_ret_type', 'detect_recursion', 'erase_struct_info', 'erase_to_well_defined', 'estimate_memory_usage', 'explain_incompatibility', 'free_shape_vars', 'free_symbolic_vars', 'free_vars', 'get_static_type', 'get_var2val', 'has_reshape_pattern', 'is_base_of', 'name_to_binding', 'op_pattern_kind', 'post_order_visit', 'provably_disjoint', 'remove_all_unused', 'shape_var_map', 'struct_info_base_check', 'struct_info_glb', 'struct_info_lca', 'substitute_info', 'suggest_layout_transforms', 'tir_vars_in_struct_info', 'tir_vars_in_type', 'type_base_check', 'type_lca', 'udchain', 'used_vars', 'well_formed', 'wrap_type']
