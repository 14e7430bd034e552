"""The virtual machine, under the name of TVM up to v0.19."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.runtime.relax_vm")
if TYPE_CHECKING:
    from relaxpy.exec.api.vm import VirtualMachine as VirtualMachine
