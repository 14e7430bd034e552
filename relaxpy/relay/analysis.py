"""Analyses of Relay programs."""

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
from relaxpy.ir.relay.analysis.well_formed import post_order_visit, well_formed
from relaxpy.ir.relay.to_relax.translation import untranslatable

__all__ = [
    "all_type_vars",
    "all_vars",
    "bound_type_vars",
    "bound_vars",
    "check_kind",
    "free_type_vars",
    "free_vars",
    "is_dataflow",
    "post_order_visit",
    "unmatched_cases",
    "untranslatable",
    "well_formed",
]
