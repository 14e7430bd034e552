"""From models to modules of Relax functions."""

from relaxpy.ir.relax.frontend.nn.exporter import add_extern as add_extern
