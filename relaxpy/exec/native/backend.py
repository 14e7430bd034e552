"""The native back end: PrimFuncs that have a native form, the rest as kernels of NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from relaxpy.dataclass import dataclass
from relaxpy.exec.kernel import Kernel, compile_kernel
from relaxpy.exec.kernel.plan.steps import Plan
from relaxpy.exec.native.emit import KernelEmitter
from relaxpy.exec.native.frame import RefusedError
from relaxpy.exec.native.jit import Library, compile_module
from relaxpy.exec.native.llvm import Module
from relaxpy.exec.native.machine import host
from relaxpy.exec.native.price import is_worthwhile
from relaxpy.exec.native.tree import program_of
from relaxpy.ir.tir.expr import Var
from relaxpy.ir.tir.prim_func.function import PrimFunc


@dataclass(frozen=True, slots=True, eq=False)
class Claimed:
    """A kernel that runs natively: its function, and how its arguments become those of the code.

    `sizes` are the parameter and the dimension that each further argument is read from.
    """

    symbol: str
    is_array: tuple[bool, ...]
    sizes: tuple[tuple[int, int], ...]


class NativeBackend:
    """Compiles the PrimFuncs of one module; `link` makes those that have a native form run so."""

    def __init__(self) -> None:
        machine = host()
        self.module = Module(machine.triple, machine.vector_bits)
        self.claimed: dict[str, Claimed] = {}
        """By the Python name of the function that does the work of a kernel."""

    def compile_kernel(
        self, func: PrimFunc, name: str, unchecked_name: str, functions: Mapping[str, str]
    ) -> Kernel:
        """The kernel of `func`, as for NumPy, with a report of how it runs."""
        kernel = compile_kernel(func, name, unchecked_name, functions)
        try:
            claimed = self._claim(kernel)
        except RefusedError as error:
            reason = f"not native: {error}"
        except RecursionError:
            reason = "not native: an expression nests too deeply"
        else:
            assert kernel.unchecked is not None
            self.claimed[kernel.unchecked.name] = claimed
            report = tuple(
                replace(row, method=f"native, {row.method}", reason="") for row in kernel.report
            )
            return replace(kernel, report=report, is_native=True)
        report = tuple(replace(row, reason=row.reason or reason) for row in kernel.report)
        return replace(kernel, report=report)

    def _claim(self, kernel: Kernel) -> Claimed:
        plan = kernel.plan
        if kernel.unchecked is None:
            raise RefusedError("its arguments have strides, or it calls functions")
        if plan.views or plan.nest.pointers or plan.nest.constants:
            raise RefusedError("it has views of memory, pointers or constants")
        program = program_of(plan)
        is_worthwhile(program)
        sizes = _sizes(plan)
        symbol = kernel.unchecked.name
        before = self.module.copy()
        try:
            KernelEmitter(self.module, symbol, program, list(sizes)).emit()
        except BaseException:
            self.module = before
            raise
        is_array = tuple(plan.func.buffer_of(p) is not None for p in plan.func.params)
        return Claimed(symbol, is_array, tuple(sizes.values()))

    def link(self, namespace: dict[str, Any]) -> None:
        """Replace the work of the claimed kernels in the names of a text by native code."""
        if not self.claimed:
            return
        library = compile_module(self.module, [c.symbol for c in self.claimed.values()])
        for name, claimed in self.claimed.items():
            namespace[name] = _entry(library, claimed, namespace[name])


def _sizes(plan: Plan) -> dict[Var, tuple[int, int]]:
    """The variables that are read from shapes, and where."""
    found: dict[Var, tuple[int, int]] = {}
    for number, param in enumerate(plan.func.params):
        buffer = plan.func.buffer_of(param)
        for axis, size in enumerate(() if buffer is None else buffer.shape):
            if isinstance(size, Var) and size not in plan.func.params:
                found.setdefault(size, (number, axis))
    return found


def _entry(
    library: Library, claimed: Claimed, otherwise: Callable[..., None]
) -> Callable[..., None]:
    """The Python function that runs native code, or `otherwise` where that does not fit."""
    types = [ctypes.c_void_p if is_array else ctypes.c_int64 for is_array in claimed.is_array]
    types += [ctypes.c_int64] * len(claimed.sizes)
    run = ctypes.CFUNCTYPE(ctypes.c_int32, *types)(library[claimed.symbol])
    kinds, sizes = claimed.is_array, claimed.sizes

    def entry(*args: Any, keep: Library = library) -> None:
        values: list[int] = []
        for arg, is_array in zip(args, kinds, strict=False):
            if is_array:
                if not arg.flags.c_contiguous:
                    return otherwise(*args)
                values.append(arg.ctypes.data)
            else:
                values.append(arg)
        for number, axis in sizes:
            values.append(args[number].shape[axis])
        if run(*values):
            otherwise(*args)
        return None

    return entry
