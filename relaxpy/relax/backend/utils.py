"""Conditions that the patterns of backends have in common."""

from relaxpy.ir.relax.transform.fusion.library_checks import (
    has_leaking_intermediate_variables as has_leaking_intermediate_variables,
)
