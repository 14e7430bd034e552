"""The virtual machine."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.runtime.vm")
if TYPE_CHECKING:
    from relaxpy.exec.api.executable import VMExecutable as VMExecutable
    from relaxpy.exec.api.vm import VirtualMachine as VirtualMachine
    from relaxpy.exec.runtime.instrument import VMInstrumentReturnKind as VMInstrumentReturnKind
