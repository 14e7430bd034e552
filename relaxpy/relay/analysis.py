"""Analyses of Relay programs."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.plugins.relay.analysis.effects import is_dataflow as is_dataflow
    from relaxpy.plugins.relay.analysis.kinds import check_kind as check_kind
    from relaxpy.plugins.relay.analysis.matches import unmatched_cases as unmatched_cases
    from relaxpy.plugins.relay.analysis.variables import all_type_vars as all_type_vars, all_vars as all_vars, bound_type_vars as bound_type_vars, bound_vars as bound_vars, free_type_vars as free_type_vars, free_vars as free_vars
    from relaxpy.plugins.relay.analysis.well_formed import post_order_visit as post_order_visit, well_formed as well_formed
    from relaxpy.plugins.relay.to_relax.translation import untranslatable as untranslatable
else:
    _face(globals(), """
        relaxpy.plugins.relay.analysis.effects: is_dataflow
        relaxpy.plugins.relay.analysis.kinds: check_kind
        relaxpy.plugins.relay.analysis.matches: unmatched_cases
        relaxpy.plugins.relay.analysis.variables: all_type_vars all_vars bound_type_vars bound_vars free_type_vars free_vars
        relaxpy.plugins.relay.analysis.well_formed: post_order_visit well_formed
        relaxpy.plugins.relay.to_relax.translation: untranslatable
    """)
