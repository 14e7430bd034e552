"""Questions about Relax programs and the relations between infos."""

from relaxpy.ir.relax.analysis.compile_time import computable_at_compile_time
from relaxpy.ir.relax.analysis.infos import derive_call_ret_struct_info, erase_to_well_defined
from relaxpy.ir.relax.analysis.layouts import suggest_layout_transforms
from relaxpy.ir.relax.analysis.memory_usage import estimate_memory_usage
from relaxpy.ir.relax.analysis.purity import contains_impure_call
from relaxpy.ir.relax.analysis.reshape import has_reshape_pattern
from relaxpy.ir.relax.analysis.symbolic import (
    collect_non_negative_expressions,
    definable_tir_vars_in_struct_info,
    defined_symbolic_vars,
    free_symbolic_vars,
    tir_vars_in_struct_info,
)
from relaxpy.ir.relax.analysis.variables import (
    all_global_vars,
    all_vars,
    bound_vars,
    free_vars,
    get_var2val,
    name_to_binding,
    post_order_visit,
    udchain,
    used_vars,
)
from relaxpy.ir.relax.analysis.well_formed import check_well_formed, well_formed
from relaxpy.ir.relax.call_graph import detect_recursion
from relaxpy.ir.relax.nodes.static_type import erase_struct_info as get_static_type
from relaxpy.ir.relax.relations import (
    BaseCheckResult,
    Compatibility,
    check_compatibility,
    definable_shape_vars,
    erase_struct_info,
    explain_incompatibility,
    free_shape_vars,
    is_base_of,
    provably_disjoint,
    shape_var_map,
    struct_info_base_check,
    struct_info_glb,
    struct_info_lca,
    substitute_info,
    wrap_type,
)
from relaxpy.ir.relax.rewrite.unused import remove_all_unused

__all__ = [
    "BaseCheckResult",
    "Compatibility",
    "all_global_vars",
    "all_vars",
    "bound_vars",
    "check_compatibility",
    "check_well_formed",
    "collect_non_negative_expressions",
    "computable_at_compile_time",
    "contains_impure_call",
    "definable_shape_vars",
    "definable_tir_vars_in_struct_info",
    "defined_symbolic_vars",
    "derive_call_ret_struct_info",
    "detect_recursion",
    "erase_struct_info",
    "erase_to_well_defined",
    "estimate_memory_usage",
    "explain_incompatibility",
    "free_shape_vars",
    "free_symbolic_vars",
    "free_vars",
    "get_static_type",
    "get_var2val",
    "has_reshape_pattern",
    "is_base_of",
    "name_to_binding",
    "post_order_visit",
    "provably_disjoint",
    "remove_all_unused",
    "shape_var_map",
    "struct_info_base_check",
    "struct_info_glb",
    "struct_info_lca",
    "substitute_info",
    "suggest_layout_transforms",
    "tir_vars_in_struct_info",
    "udchain",
    "used_vars",
    "well_formed",
    "wrap_type",
]
