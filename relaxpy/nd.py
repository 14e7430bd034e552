"""Tensors at run time, under the name of TVM up to v0.20."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.nd")
if TYPE_CHECKING:
    from relaxpy.exec.runtime.tensors import empty as empty, from_dlpack as from_dlpack
    from relaxpy.exec.runtime.tensors import tensor as array
    from relaxpy.ir.core.device import Device as Device, cpu as cpu, cuda as cuda, device as device
    from relaxpy.ir.core.tensor import Tensor as NDArray
    __all__ = ['Device', 'NDArray', 'array', 'cpu', 'cuda', 'device', 'empty', 'from_dlpack']
