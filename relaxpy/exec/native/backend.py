"""The native back end: PrimFuncs that have a native form, the rest as kernels of NumPy."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from relaxpy.errors import RelaxpyError
from relaxpy.exec.kernel import Kernel, compile_kernel
from relaxpy.exec.kernel.nest.nodes import expressions, external_calls, walk_items
from relaxpy.exec.native.emit import KernelEmitter
from relaxpy.exec.native.entry import PYTHON, emit_entry, entry_name, make_entry
from relaxpy.exec.native.epilogues import with_epilogues
from relaxpy.exec.native.frame import RefusedError
from relaxpy.exec.native.jit import compile_module
from relaxpy.exec.native.llvm import Module
from relaxpy.exec.native.machine import host
from relaxpy.exec.native.objects import compile_assembly
from relaxpy.exec.native.pool import thread_count
from relaxpy.exec.native.price import check_length, check_price
from relaxpy.exec.native.signature import Signature, signature_of
from relaxpy.exec.native.split import in_tasks
from relaxpy.exec.native.tree import program_of
from relaxpy.ir.tir.prim_func.function import PrimFunc


class NativeBackend:
    """Compiles the PrimFuncs of one module; `link` makes those that have a native form run so."""

    def __init__(self) -> None:
        machine = host()
        self.module = Module(machine.triple, machine.vector_bits)
        self.claimed: dict[str, tuple[str, Signature]] = {}
        """The functions of the kernels that run natively, and their parameters, by Python name."""

    def compile_kernel(
        self, func: PrimFunc, name: str, unchecked_name: str, functions: Mapping[str, str]
    ) -> Kernel:
        """The kernel of `func`, as for NumPy, with a report of how it runs."""
        kernel = compile_kernel(func, name, unchecked_name, functions)
        try:
            self._claim(kernel)
        except RefusedError as error:
            reason = f"not native: {error}"
        except RecursionError:
            reason = "not native: an expression nests too deeply"
        else:
            changes = {"reason": "", "backend": "native", "threads": self._threads(name)}
            report = tuple(
                replace(row, method=f"native, {row.method}", **changes) for row in kernel.report
            )
            # Native code checks its arguments in no time, so that there is no other function.
            unchecked = kernel.unchecked
            if unchecked is not None:
                unchecked = replace(unchecked, name=name, sizes=(), may_warn=False)
            return replace(kernel, report=report, unchecked=unchecked, is_native=True)
        report = tuple(replace(row, reason=row.reason or reason) for row in kernel.report)
        return replace(kernel, report=report)

    def _threads(self, name: str) -> str:
        """The number of threads that a claimed kernel runs on, at most."""
        tasks = f"{self.claimed[name][0]}.task"
        is_parallel = any(function.startswith(tasks) for function in self.module.functions)
        return str(thread_count()) if is_parallel else "1"

    def _claim(self, kernel: Kernel) -> None:
        """Emit the native form of a kernel.

        Errors:
            RefusedError: it has none.
        """
        plan, name = kernel.plan, kernel.name
        sources = (e for item in walk_items(plan.nest.items) for e in expressions(item))
        if any(True for source in sources for _ in external_calls(source)):
            raise RefusedError("it calls functions")
        if plan.views or plan.nest.pointers or plan.nest.constants:
            raise RefusedError("it has views of memory, pointers or constants")
        program = program_of(plan)
        check_price(program)
        program = in_tasks(with_epilogues(program))
        signature = signature_of(program)
        symbol = f"kernel{len(self.claimed)}"
        before = self.module.copy()
        try:
            KernelEmitter(self.module, symbol, program, signature).emit()
            check_length(f for n, f in self.module.functions.items() if n not in before.functions)
        except BaseException:
            self.module = before
            raise
        emit_entry(self.module, symbol, signature.params)
        self.claimed[name] = symbol, signature

    def link(self, namespace: dict[str, Any]) -> str:
        """Replace the claimed kernels in the names of a text by native code.

        Where that fails, there is a warning, and the result is the reason.
        """
        if not self.claimed:
            return ""
        try:
            self._link(namespace)
        except RelaxpyError:
            raise
        except (OSError, RuntimeError) as error:  # memory that may not be executed; LLVM
            problem = f"native code cannot be linked: {error}"
            warnings.warn(f"kernels run on NumPy, since {problem}", RuntimeWarning, stacklevel=2)
            return problem
        return ""

    def _link(self, namespace: dict[str, Any]) -> None:
        exports = [s for symbol, _ in self.claimed.values() for s in (symbol, entry_name(symbol))]
        library = compile_module(self.module, [*exports, PYTHON])
        entries = {
            name: make_entry(library, symbol, signature.params, namespace[name])
            for name, (symbol, signature) in self.claimed.items()
        }
        namespace.update(entries)

    def machine_code(self, name: str, kind: Literal["llvm", "asm"]) -> str | None:
        """The LLVM IR or assembly of the kernel of that Python name, if it has any."""
        if name not in self.claimed:
            return None
        module = self.module.copy()
        del module.functions[entry_name(self.claimed[name][0])]  # which is not about the kernel
        return module.text() if kind == "llvm" else compile_assembly(module.text())
