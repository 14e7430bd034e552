"""`R.dist`: the words of tensors that several devices hold together."""

from relaxpy.ir.relax.distributed import device_mesh
from relaxpy.script.parser.annotations import DTensor

__all__ = ["DTensor", "device_mesh"]
