"""Analyses of Relay programs."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relay.analysis")
if TYPE_CHECKING:
    from relaxpy.plugins.relay.analysis import check_kind as check_kind, is_dataflow as is_dataflow, post_order_visit as post_order_visit, unmatched_cases as unmatched_cases, well_formed as well_formed
    from relaxpy.plugins.relay.to_relax import untranslatable as untranslatable
    from relaxpy.plugins.relay.variables import all_type_vars as all_type_vars, all_vars as all_vars, bound_type_vars as bound_type_vars, bound_vars as bound_vars, free_type_vars as free_type_vars, free_vars as free_vars
