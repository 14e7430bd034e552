"""Operators of Relay: their registry, their relations, and one file for each family."""

from relaxpy.plugins.relay.op import elements as elements, nn as nn, slices as slices

from relaxpy.plugins.relay.op import quantized as quantized  # isort: skip  # of operators before
from relaxpy.plugins.relay.op import functions as functions  # isort: skip  # of all operators before
