"""Analyses of Relay programs."""

from relaxpy.ir.equality.structural import structural_equal as alpha_equal
from relaxpy.ir.relay.analysis.effects import is_dataflow
from relaxpy.ir.relay.analysis.kinds import check_kind
from relaxpy.ir.relay.analysis.matches import unmatched_cases
from relaxpy.ir.relay.analysis.variables import (
    all_type_vars,
    all_vars,
    bound_type_vars,
    bound_vars,
    free_type_vars,
    free_vars,
)
from relaxpy.ir.relay.analysis.well_formed import (
    extract_intermdeiate_expr,
    post_order_visit,
    well_formed,
)
from relaxpy.ir.relay.to_relax.translation import untranslatable
from relaxpy.ir.relay.transform.fold_constant import check_constant
from relaxpy.ir.relay.transform.normal_forms import check_basic_block_normal_form

__all__ = [
    "all_type_vars",
    "all_vars",
    "alpha_equal",
    "bound_type_vars",
    "bound_vars",
    "check_basic_block_normal_form",
    "check_constant",
    "check_kind",
    "extract_intermdeiate_expr",
    "free_type_vars",
    "free_vars",
    "is_dataflow",
    "post_order_visit",
    "unmatched_cases",
    "untranslatable",
    "well_formed",
]
