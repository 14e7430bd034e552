"""Operators of Relay: their registry, their relations, and one file for each family."""

from relaxpy.ir.relay.op import elementwise as elementwise, nn as nn, tensor as tensor
