"""Compiles a PrimFunc to a kernel: its plan, its source, and the report of how it runs.

What emits Python is imported where it is needed: native kernels have plans alone.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from relaxpy.errors import CompileError, MisuseError
from relaxpy.exec.loops.plan.memory import exclusions, reads_sizes_only
from relaxpy.exec.loops.plan.planner import make_plan
from relaxpy.exec.loops.plan.tree import Plan, written_memory
from relaxpy.exec.loops.report import KernelReport, report_of
from relaxpy.exec.numpy.emit.emitted import NativeUnchecked, Unchecked
from relaxpy.exec.runtime.report import PLANNING
from relaxpy.ir.core.fork_lock import late_property
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.progress import stage

if TYPE_CHECKING:
    from relaxpy.exec.numpy.checked_call import CheckedKernel
    from relaxpy.exec.numpy.emit.form import NumpyForm
    from relaxpy.exec.numpy.emit.numpy import NumpyEmitter
    from relaxpy.exec.runtime.signature import KernelSignature


class Kernel:
    """A compiled kernel: `tree` takes the PrimFunc's parameters and writes into its arrays.

    It assumes valid arguments; the decorator `checked` checks them.

    Its free names are `np`, `math`, `rt` (relaxpy.exec.numpy.runtime), and those of functions of
    the module that it calls. `unchecked` is the same code as two functions, if possible. If it
    `is_native`, native code replaces `tree`, which remains as the fallback; both are then emitted
    lazily.
    """

    def __init__(
        self, func: PrimFunc, name: str, unchecked_name: str, functions: Mapping[str, str]
    ) -> None:
        self.name = name
        self.is_native = False
        self._func = func
        self._report: KernelReport | None = None
        self.unchecked_name, self._functions = unchecked_name, functions

    @late_property
    def plan(self) -> Plan:
        """The plan.

        Errors:
            CompileError: a statement has no meaning outside special hardware.
        """
        with _located(self._func), stage(PLANNING):
            return make_plan(self._func, self.name)

    @property
    def report(self) -> KernelReport:
        """The report of how each statement runs: on NumPy, unless another one has been set."""
        if self._report is None:
            self._report = report_of(self._numpy_form.plan.trees)
        return self._report

    @report.setter
    def report(self, report: KernelReport) -> None:
        self._report = report

    @late_property
    def _numpy_form(self) -> NumpyForm:
        from relaxpy.exec.numpy.emit.form import numpy_form

        return numpy_form(self.plan)

    @late_property
    def _definitions(self) -> tuple[ast.FunctionDef, Unchecked | None]:
        with _located(self.plan.func):
            emitted = self._emitter().emitted()
        return emitted.whole(), emitted.unchecked(self.unchecked_name)

    def _emitter(self) -> NumpyEmitter:
        from relaxpy.exec.numpy.emit.numpy import NumpyEmitter

        reserved, summary = (self.unchecked_name,), str(self._signature)
        return NumpyEmitter(self._numpy_form, reserved, self._functions, summary)

    @property
    def _signature(self) -> KernelSignature:
        from relaxpy.exec.runtime.signature import KernelSignature

        return KernelSignature(self.name, self.plan.func)

    @late_property
    def checked(self) -> CheckedKernel:
        """The decorator of `tree` that checks its arguments."""
        from relaxpy.exec.numpy.checked_call import CheckedKernel, Exclusion

        position = self._positions
        excluded = (
            Exclusion(position[target], tuple(position[other] for other in others), same)
            for target, others, same in exclusions(self.plan)
        )
        calls = self.calls_functions
        return CheckedKernel(self._signature, tuple(excluded), self._load_in_text_order, calls)

    @late_property
    def calls_functions(self) -> bool:
        """True if the kernel calls external functions, which may keep its arguments."""
        return self.plan.calls_functions

    @late_property
    def written(self) -> frozenset[int]:
        """The positions of the arguments whose memory the kernel may write.

        A function that it calls may write any object that is an argument.
        """
        plan, position = self.plan, self._positions
        memories = written_memory(plan.trees, lambda b: plan.views.get(b, b))
        written = {position[memory] for memory in memories if memory in position}
        if self.calls_functions:
            known = {*position.values()}
            written.update(n for n, p in enumerate(plan.func.params) if n not in known)
        return frozenset(written)

    @late_property
    def overwritable(self) -> frozenset[tuple[int, int]]:
        """Positions of pairs of a read and a written argument that may be one array, on NumPy."""
        from relaxpy.exec.numpy.emit.form import overwritable

        position, pairs = self._positions, overwritable(self._numpy_form)
        return frozenset((position[source], position[target]) for source, target in pairs)

    @property
    def _positions(self) -> Mapping[Buffer, int]:
        """The position of the argument that has the memory of a buffer."""
        func, pointers = self.plan.func, self.plan.nest.pointers
        positions = {param: number for number, param in enumerate(func.params)}
        memories = (*func.buffer_map.items(), *pointers.items())
        return {memory: positions[param] for param, memory in memories}

    @property
    def in_text_order(self) -> ast.FunctionDef:
        """The function with the loops in source order, for arguments that alias.

        Errors:
            CompileError: as for `tree`.
        """
        with _located(self.plan.func):
            return self._emitter().in_text_order().whole()

    def _load_in_text_order(self, namespace: dict[str, Any]) -> Callable[..., Any]:
        from relaxpy.exec.numpy.python_ast import load_text

        names = load_text([self.in_text_order], self.name, namespace)[1]
        function: Callable[..., Any] = names[self.name]
        return function

    @property
    def tree(self) -> ast.FunctionDef:
        """The function in Python, for valid arguments.

        Errors:
            CompileError: the kernel uses an operation that cannot run on NumPy.
        """
        return self._definitions[0]

    @property
    def unchecked(self) -> Unchecked | NativeUnchecked | None:
        """The function for arguments that are known to be valid, if there is one.

        Errors:
            CompileError: the kernel is not native and uses an operation that cannot run on NumPy.
        """
        if self.is_native:
            return NativeUnchecked(self.name) if reads_sizes_only(self.plan) else None
        return self._definitions[1]


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
    kernel = Kernel(func, name, unchecked_name or f"{name}_unchecked", functions)
    assert kernel.tree is not None
    return kernel


@contextmanager
def _located(func: PrimFunc) -> Iterator[None]:
    """A context that adds the position of `func` to a CompileError."""
    try:
        yield
    except CompileError as error:
        raise error.located(func.span) from None
    except MisuseError as error:
        if error.diagnostic.rule != "DT-8":
            raise
        raise CompileError(error.diagnostic).located(func.span) from None
