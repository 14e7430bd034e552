"""The virtual machine."""

from relaxpy.exec.executable import VMExecutable as VMExecutable
from relaxpy.exec.runtime.instrument import VMInstrumentReturnKind as VMInstrumentReturnKind
from relaxpy.exec.vm import VirtualMachine as VirtualMachine
