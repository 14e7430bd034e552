"""The virtual machine, under the name of TVM up to v0.19."""

from relaxpy.exec.vm import VirtualMachine as VirtualMachine
