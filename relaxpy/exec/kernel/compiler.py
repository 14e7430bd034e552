"""From a PrimFunc to a kernel: plan, source, and the report of how it runs."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from relaxpy.errors import CompileError, RelaxpyError
from relaxpy.exec.kernel.numpy_emitter import emit
from relaxpy.exec.kernel.plan import Plan
from relaxpy.exec.kernel.planner import make_plan
from relaxpy.exec.kernel.report import KernelReport, report_of
from relaxpy.ir.tir.function import PrimFunc


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """A compiled kernel: `tree` takes the PrimFunc's parameters and writes into its arrays.

    Its free names are `np`, `math` and `rt` (relaxpy.exec.kernel.runtime).
    """

    name: str
    tree: ast.FunctionDef
    report: KernelReport
    plan: Plan


def compile_kernel(func: PrimFunc, name: str) -> Kernel:
    """The kernel of `func`, a Python function called `name`; one for all sizes.

    Errors:
        CompileError: the kernel uses what cannot run on NumPy.
    """
    try:
        plan = make_plan(func, name)
        tree = emit(plan)
    except RelaxpyError as error:
        if isinstance(error, CompileError):
            raise error.located(func.span) from None
        raise
    return Kernel(name, tree, report_of(plan), plan)
