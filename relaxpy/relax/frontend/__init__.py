"""Front ends: other ways to describe models."""

from relaxpy.absent import hint_at_absent as _hint_at_absent
from relaxpy.ir.relax.frontend.params import detach_params as detach_params
from relaxpy.relax.frontend import common as common, nn as nn

_hint_at_absent(globals())
