"""The kernel compiler: a PrimFunc becomes a plan, and the plan a Python function over NumPy."""

from relaxpy.exec.kernel.compiler import Kernel, compile_kernel
from relaxpy.exec.kernel.emit.emitted import NativeUnchecked, Unchecked
from relaxpy.exec.kernel.report import BlockReport, KernelReport

__all__ = [
    "BlockReport",
    "Kernel",
    "KernelReport",
    "NativeUnchecked",
    "Unchecked",
    "compile_kernel",
]
