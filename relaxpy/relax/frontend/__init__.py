"""Front ends: other ways to describe models."""

from relaxpy.relax.frontend import nn as nn
