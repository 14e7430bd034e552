"""The relations between struct infos; the modules of this package define them."""

from relaxpy.ir.relax.nodes.static_type import (
    erase_struct_info as erase_struct_info,
    wrap_type as wrap_type,
)
from relaxpy.ir.relax.relations.compatibility import (
    BaseCheckResult as BaseCheckResult,
    Compatibility as Compatibility,
    check_compatibility as check_compatibility,
    explain_disjointness as explain_disjointness,
    explain_incompatibility as explain_incompatibility,
    is_base_of as is_base_of,
    placed_like as placed_like,
    provably_disjoint as provably_disjoint,
    struct_info_base_check as struct_info_base_check,
    struct_info_glb as struct_info_glb,
    struct_info_lca as struct_info_lca,
)
from relaxpy.ir.relax.relations.shape_vars import (
    alpha_rename as alpha_rename,
    bound_shape_vars as bound_shape_vars,
    definable_shape_vars as definable_shape_vars,
    erase_to_well_defined as erase_to_well_defined,
    free_shape_vars as free_shape_vars,
    map_params as map_params,
    map_sizes as map_sizes,
    shape_var_map as shape_var_map,
    substitute_info as substitute_info,
)
