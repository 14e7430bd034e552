"""The relations between infos, all under one name; each has its home in a module of its own."""

from relaxpy.ir.relax.nodes.static_type import erase_struct_info, wrap_type
from relaxpy.ir.relax.relations.bounds import struct_info_glb, struct_info_lca
from relaxpy.ir.relax.relations.compatibility import (
    BaseCheckResult,
    Compatibility,
    check_compatibility,
    explain_disjointness,
    explain_incompatibility,
    is_base_of,
    provably_disjoint,
    struct_info_base_check,
)
from relaxpy.ir.relax.relations.erase import erase_to_well_defined
from relaxpy.ir.relax.relations.mapping import map_params, shape_var_map
from relaxpy.ir.relax.relations.shape_vars import (
    alpha_rename,
    bound_shape_vars,
    definable_shape_vars,
    free_shape_vars,
    map_sizes,
    substitute_info,
)

__all__ = [
    "BaseCheckResult",
    "Compatibility",
    "alpha_rename",
    "bound_shape_vars",
    "check_compatibility",
    "definable_shape_vars",
    "erase_struct_info",
    "erase_to_well_defined",
    "explain_disjointness",
    "explain_incompatibility",
    "free_shape_vars",
    "is_base_of",
    "map_params",
    "map_sizes",
    "provably_disjoint",
    "shape_var_map",
    "struct_info_base_check",
    "struct_info_glb",
    "struct_info_lca",
    "substitute_info",
    "wrap_type",
]
