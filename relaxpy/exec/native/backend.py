"""The native back end: PrimFuncs that have a native form, the rest as kernels of NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from relaxpy.exec.kernel import Kernel, compile_kernel
from relaxpy.exec.kernel.plan.steps import Plan
from relaxpy.exec.native.emit import KernelEmitter
from relaxpy.exec.native.entry import (
    DTYPES,
    PYTHON,
    Array,
    Integer,
    Param,
    emit_entry,
    entry_name,
    make_entry,
)
from relaxpy.exec.native.frame import RefusedError
from relaxpy.exec.native.jit import compile_module
from relaxpy.exec.native.llvm import Module
from relaxpy.exec.native.machine import host
from relaxpy.exec.native.price import is_worthwhile
from relaxpy.exec.native.tree import Program, program_of
from relaxpy.ir.tir.expr import IntImm, Var
from relaxpy.ir.tir.prim_func.function import PrimFunc


class NativeBackend:
    """Compiles the PrimFuncs of one module; `link` makes those that have a native form run so."""

    def __init__(self) -> None:
        machine = host()
        self.module = Module(machine.triple, machine.vector_bits)
        self.claimed: dict[str, Sequence[Param]] = {}
        """The parameters of kernels, by the Python name of the function that does the work."""

    def compile_kernel(
        self, func: PrimFunc, name: str, unchecked_name: str, functions: Mapping[str, str]
    ) -> Kernel:
        """The kernel of `func`, as for NumPy, with a report of how it runs."""
        kernel = compile_kernel(func, name, unchecked_name, functions)
        try:
            params = self._claim(kernel)
        except RefusedError as error:
            reason = f"not native: {error}"
        except RecursionError:
            reason = "not native: an expression nests too deeply"
        else:
            assert kernel.unchecked is not None
            self.claimed[kernel.unchecked.name] = params
            report = tuple(
                replace(row, method=f"native, {row.method}", reason="") for row in kernel.report
            )
            return replace(kernel, report=report, is_native=True)
        report = tuple(replace(row, reason=row.reason or reason) for row in kernel.report)
        return replace(kernel, report=report)

    def _claim(self, kernel: Kernel) -> Sequence[Param]:
        plan = kernel.plan
        if kernel.unchecked is None:
            raise RefusedError("its arguments have strides, or it calls functions")
        if plan.views or plan.nest.pointers or plan.nest.constants:
            raise RefusedError("it has views of memory, pointers or constants")
        program = program_of(plan)
        is_worthwhile(program)
        params = _params(program)
        symbol = kernel.unchecked.name
        before = self.module.copy()
        try:
            KernelEmitter(self.module, symbol, program, _sizes(plan)).emit()
            emit_entry(self.module, symbol, params, is_checked=True)
        except BaseException:
            self.module = before
            raise
        return params

    def link(self, namespace: dict[str, Any]) -> None:
        """Replace the work of the claimed kernels in the names of a text by native code."""
        if not self.claimed:
            return
        entries = map(entry_name, self.claimed)
        library = compile_module(self.module, [PYTHON, *self.claimed, *entries])
        for name, params in self.claimed.items():
            namespace[name] = make_entry(library, name, params, namespace[name], is_checked=True)


def _params(program: Program) -> list[Param]:
    """The parameters of the code of a kernel; its function in Python has checked the arguments.

    Errors:
        RefusedError: an array is of a datatype that has no native form.
    """
    func = program.plan.func
    names: dict[Var, str] = {}
    params: list[Param] = []
    for param in func.params:
        buffer = func.buffer_of(param)
        if buffer is None:
            params.append(Integer(names.setdefault(param, f"n{len(names)}")))
            continue
        shape: list[int | str | None] = []
        for size in buffer.shape:
            match size:
                case IntImm(value=value):
                    shape.append(value)
                case Var():
                    shape.append(names.setdefault(size, f"n{len(names)}"))
                case _:
                    shape.append(None)
        if str(buffer.dtype) not in DTYPES:
            raise RefusedError(f"it has arrays of {buffer.dtype}")
        written = buffer in program.written
        params.append(Array(str(buffer.dtype), tuple(shape), written=written))
    return params


def _sizes(plan: Plan) -> list[Var]:
    """The variables that are read from shapes."""
    buffers = [plan.func.buffer_of(param) for param in plan.func.params]
    sizes = [size for buffer in buffers if buffer is not None for size in buffer.shape]
    found = dict.fromkeys(size for size in sizes if isinstance(size, Var))
    return [size for size in found if size not in plan.func.params]
