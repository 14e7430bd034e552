"""Analyses of Relax programs, and the relations between struct infos."""

from relaxpy.ir.relax.analysis.compile_time import (
    computable_at_compile_time as computable_at_compile_time,
)
from relaxpy.ir.relax.analysis.layouts import suggest_layout_transforms as suggest_layout_transforms
from relaxpy.ir.relax.analysis.memory_usage import estimate_memory_usage as estimate_memory_usage
from relaxpy.ir.relax.analysis.op_pattern import (
    OpPatternKind as OpPatternKind,
    op_pattern_kind as op_pattern_kind,
)
from relaxpy.ir.relax.analysis.purity import contains_impure_call as contains_impure_call
from relaxpy.ir.relax.analysis.reshape import has_reshape_pattern as has_reshape_pattern
from relaxpy.ir.relax.analysis.struct_info import (
    derive_call_ret_struct_info as derive_call_ret_struct_info,
    erase_to_well_defined as erase_to_well_defined,
)
from relaxpy.ir.relax.analysis.symbolic import (
    collect_non_negative_expressions as collect_non_negative_expressions,
    definable_tir_vars_in_struct_info as definable_tir_vars_in_struct_info,
    defined_symbolic_vars as defined_symbolic_vars,
    free_symbolic_vars as free_symbolic_vars,
    tir_vars_in_struct_info as tir_vars_in_struct_info,
)
from relaxpy.ir.relax.analysis.variables import (
    all_global_vars as all_global_vars,
    all_vars as all_vars,
    bound_vars as bound_vars,
    free_vars as free_vars,
    get_var2val as get_var2val,
    name_to_binding as name_to_binding,
    post_order_visit as post_order_visit,
    udchain as udchain,
    used_vars as used_vars,
)
from relaxpy.ir.relax.analysis.well_formed import (
    check_well_formed as check_well_formed,
    well_formed as well_formed,
)
from relaxpy.ir.relax.call_graph import detect_recursion as detect_recursion
from relaxpy.ir.relax.relations import (
    BaseCheckResult as BaseCheckResult,
    Compatibility as Compatibility,
    check_compatibility as check_compatibility,
    definable_shape_vars as definable_shape_vars,
    erase_struct_info as erase_struct_info,
    explain_incompatibility as explain_incompatibility,
    free_shape_vars as free_shape_vars,
    is_base_of as is_base_of,
    provably_disjoint as provably_disjoint,
    shape_var_map as shape_var_map,
    struct_info_base_check as struct_info_base_check,
    struct_info_glb as struct_info_glb,
    struct_info_lca as struct_info_lca,
    substitute_info as substitute_info,
    wrap_type as wrap_type,
)
from relaxpy.ir.relax.rewrite.unused import remove_all_unused as remove_all_unused
from relaxpy.missing import hint_at_absent as _hint_at_absent
from relaxpy.relax.analysis import analysis as analysis

get_static_type = erase_struct_info

# Names after v0.22 of TVM, where struct info is called a type.
definable_tir_vars_in_type = definable_tir_vars_in_struct_info
derive_call_ret_type = derive_call_ret_struct_info
tir_vars_in_type = tir_vars_in_struct_info
type_base_check = struct_info_base_check
type_lca = struct_info_lca

_hint_at_absent(globals())
