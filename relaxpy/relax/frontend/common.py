"""What importers share."""

from relaxpy.ir.relax.frontend.autopad import autopad as autopad
from relaxpy.ir.relax.frontend.params import detach_params as detach_params
