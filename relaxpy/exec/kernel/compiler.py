"""Compiles a PrimFunc to a kernel: its plan, its source, and the report of how it runs."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from types import MappingProxyType

from relaxpy.dataclass import dataclass
from relaxpy.errors import CompileError, RelaxpyError
from relaxpy.exec.kernel.emit.emitted import Unchecked
from relaxpy.exec.kernel.emit.nesting import flatten_deep_loops
from relaxpy.exec.kernel.emit.numpy import NumpyEmitter
from relaxpy.exec.kernel.plan.planner import make_plan
from relaxpy.exec.kernel.plan.steps import Plan
from relaxpy.exec.kernel.report import KernelReport, report_of
from relaxpy.ir.tir.prim_func.function import PrimFunc


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """A compiled kernel: `tree` takes the PrimFunc's parameters and writes into its arrays.

    Its free names are `np`, `math`, `rt` (relaxpy.exec.kernel.runtime), and those of functions
    of the module that it calls. `unchecked` is the same code as two functions, if possible. If it
    `is_native`, native code takes the place of `tree`, which runs what native code refuses.
    """

    name: str
    tree: ast.FunctionDef
    report: KernelReport
    plan: Plan
    unchecked: Unchecked | None
    is_native: bool = False


def compile_kernel(
    func: PrimFunc,
    name: str,
    unchecked_name: str = "",
    functions: Mapping[str, str] = MappingProxyType({}),
) -> Kernel:
    """The kernel of `func` for all shapes, a Python function called `name`.

    The function without checks is called `unchecked_name`; the default derives from `name`.
    `functions` has the Python names of other functions of the module.

    Errors:
        CompileError: the kernel uses an operation that cannot run on NumPy.
    """
    try:
        plan = make_plan(func, name)
        unchecked_name = unchecked_name or f"{name}_unchecked"
        emitted = NumpyEmitter(plan, (unchecked_name,), functions).emitted()
    except RelaxpyError as error:
        if isinstance(error, CompileError):
            raise error.located(func.span) from None
        raise
    flatten_deep_loops([*emitted.checks, *emitted.work])
    unchecked = emitted.unchecked(unchecked_name)
    return Kernel(name, emitted.whole(), report_of(plan), plan, unchecked)
