"""Front ends: other ways to describe models."""

from relaxpy.ir.relax.frontend.params import detach_params as detach_params
from relaxpy.relax.frontend import common as common, nn as nn
