"""Passes over Relay modules."""

from relaxpy.ir.relay.transform.normal_forms import ToANormalForm, ToGraphNormalForm
from relaxpy.ir.relay.transform.passes import InferType, RelayPass, function_pass

__all__ = ["InferType", "RelayPass", "ToANormalForm", "ToGraphNormalForm", "function_pass"]
