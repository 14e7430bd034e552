"""Passes over Relay modules."""

from relaxpy.ir.relay.transform.passes import InferType, RelayPass, function_pass

__all__ = ["InferType", "RelayPass", "function_pass"]
