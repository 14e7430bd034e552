"""Tensors at run time, under the name of TVM up to v0.20."""

from relaxpy.exec.runtime.tensors import empty as empty, from_dlpack as from_dlpack, tensor as array
from relaxpy.ir.core.device import Device as Device, cpu as cpu, cuda as cuda, device as device
from relaxpy.ir.core.tensor import Tensor as NDArray
from relaxpy.missing import hint_at_absent as _hint_at_absent

__all__ = ["Device", "NDArray", "array", "cpu", "cuda", "device", "empty", "from_dlpack"]

_hint_at_absent(globals())
