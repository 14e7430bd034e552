"""Modules with one attention."""

from relaxpy.ir.relax.frontend.testing import (
    get_relax_attention_module as get_relax_attention_module,
    get_relax_stacked_attention_module as get_relax_stacked_attention_module,
)
