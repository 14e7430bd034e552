"""The native back end: PrimFuncs that have a faster native form, the rest as kernels of NumPy."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

from relaxpy.errors import RelaxpyError
from relaxpy.exec.loops.plan.tree import runs
from relaxpy.exec.loops.report import BlockReport, KernelReport, report_of
from relaxpy.exec.machine.fast_paths import KERNEL_CLASSES, ONLY_PACKED, PACKED_WEIGHTS, WHOLE_GRAPH
from relaxpy.exec.native.calls.called import CalledKernel
from relaxpy.exec.native.calls.entry import Array
from relaxpy.exec.native.calls.entry_table import (
    BY_WORDS,
    PASSED,
    EntryTable,
    entry_table,
    from_words,
    types_of,
)
from relaxpy.exec.native.calls.jit import PartsAhead, compile_code
from relaxpy.exec.native.classes import KernelClass, classes_of
from relaxpy.exec.native.emit import KernelEmitter, KernelMemory
from relaxpy.exec.native.entry_parameters import EntrySignature, signature_of
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.writer import I32, I64, POINTER
from relaxpy.exec.native.machine_code.disk_cache import key_of
from relaxpy.exec.native.machine_code.machine import current
from relaxpy.exec.native.machine_code.objects import compile_assembly, recorded
from relaxpy.exec.native.price import (
    check_length,
    check_native,
    check_price,
    slow_reasons,
    varying_instructions,
)
from relaxpy.exec.native.split import in_tasks
from relaxpy.exec.native.threads.pool import native_threads
from relaxpy.exec.native.trees.chains import with_chains
from relaxpy.exec.native.trees.epilogues import with_epilogues
from relaxpy.exec.native.trees.flat import with_flat_axes
from relaxpy.exec.native.trees.obligations import Obligation
from relaxpy.exec.native.trees.program import KernelProgram, program_of
from relaxpy.exec.native.values.datatypes import RefusedError
from relaxpy.exec.native.values.failures import FailureTable
from relaxpy.exec.native.values.packing import Packing
from relaxpy.exec.native.weights import constant_arguments
from relaxpy.exec.numpy.compiler import Kernel
from relaxpy.ir.core.traverse import occurrences
from relaxpy.ir.module import IRModule
from relaxpy.ir.tir.expr import Var
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Block
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.progress import stage

_KERNEL: Final = "kernel"
"""The name of a kernel's function, until a hash of its text follows."""


def rewritten(program: KernelProgram) -> KernelProgram:
    """`program` with fused epilogues, coalesced short axes, and tasks."""
    return in_tasks(with_flat_axes(with_chains(with_epilogues(program))))


@dataclass(frozen=True, slots=True, eq=False)
class NativeKernel:
    """A kernel that runs natively.

    Fields:
        symbol: its function, in its first form.
        signature: its parameters.
        packings: the possible packings of these, by number.
        forms: its functions, by the parameters that they take packed.
        program: what other forms are emitted from, if there may be some.
    """

    symbol: str
    signature: EntrySignature
    packings: Mapping[int, Packing] = field(default_factory=dict)
    forms: dict[frozenset[int], str] = field(default_factory=dict)
    program: KernelProgram | None = None


class NativeBackend:
    """Compiles the PrimFuncs of one module that have a native form.

    Loops may run `as_written`, with their schedules.
    """

    def __init__(self, *, as_written: bool = False) -> None:
        self.as_written = as_written
        machine = current()
        self.module = machine.module()
        self.claimed: dict[str, NativeKernel] = {}
        """The kernels that run natively, by Python name."""
        self.failures = FailureTable()
        """The obligations that kernels report."""
        self.objects: dict[str, bytes] = {}
        """The parts of `code`, by key."""
        self._classes: dict[PrimFunc, _Class] = {}
        """The classes of kernels that have one."""
        self._constants: Mapping[PrimFunc, Set[int]] = {}
        """The numbers of the arguments of kernels that are always constants."""
        self.memory: dict[str, KernelMemory] = {}
        """The memory that kernels take, by function."""
        self.refusals: dict[str, str] = {}
        """Why kernels, by Python name, and Relax functions, by name, have no native form."""
        self.problem = ""
        """The first failure of native code that was not expected, if there was one."""
        self._code = b""
        self._ahead = PartsAhead()
        self._entries: frozenset[str] = frozenset()

    def find_classes(self, module: IRModule) -> None:
        """Find the kernels of `module` that are compiled as one."""
        if KERNEL_CLASSES and not self.as_written:
            kernels = [f for f in module.functions_by_name.values() if isinstance(f, PrimFunc)]
            with (
                suppress(RefusedError),
                self.faults_refused(
                    "classes of kernels are not known", "kernels are compiled one by one"
                ),
            ):
                for found in classes_of(kernels):
                    self._classes.update(dict.fromkeys(found.members, _Class(found)))

    def find_weights(self, module: IRModule) -> None:
        """Find the arguments of the kernels of `module` that are always constants."""
        if ONLY_PACKED and PACKED_WEIGHTS and WHOLE_GRAPH and not self.as_written:
            with (
                suppress(RefusedError),
                self.faults_refused(
                    "constant arguments are not known", "kernels have forms for all arrays"
                ),
            ):
                self._constants = constant_arguments(module)

    def compile_kernel(
        self, func: PrimFunc, name: str, unchecked_name: str, functions: Mapping[str, str]
    ) -> Kernel:
        """The kernel of `func`, as for NumPy, with a report of how it runs."""
        kernel = Kernel(func, name, unchecked_name, functions)
        try:
            with stage("emission of kernels"), self.faults_refused(f"{name} cannot be native code"):
                if self.as_written:
                    return self._compiled_as_written(kernel)
                if func in self._classes and self._claim_in_class(kernel, func):
                    return kernel
                program = self._program(kernel)
                constants = frozenset(self._constants.get(func, ()))
                written = self._emit(name, rewritten(program), constants=constants)
        except RefusedError as error:
            self.refusals[name] = str(error)
            reason = f"not native: {error}"
        else:
            kernel.report = self._report(name, program, written)
            kernel.is_native = True
            return kernel
        kernel.report = tuple(
            replace(row, reason=reason if self.as_written else row.reason or reason)
            for row in kernel.report
        )
        return kernel

    def _report(self, name: str, program: KernelProgram, written: Sequence[str]) -> KernelReport:
        """The report of a claimed kernel, which has the functions `written`."""
        threads, varies = self._threads(name, written), varying_instructions(program)
        return tuple(
            replace(
                row,
                method=f"native, {row.method}",
                reason=reason,
                backend="native",
                threads=threads,
                varies=varies,
            )
            for row, reason in zip(
                report_of(program.plan.trees), slow_reasons(program), strict=True
            )
        )

    def _claim_in_class(self, kernel: Kernel, func: PrimFunc) -> bool:
        """Claim a kernel of a class, which is emitted for the first one.

        Return whether the class has a native form.
        """
        shared = self._classes[func]
        found = shared.found
        if shared.kernel is None:
            shared.kernel = Kernel(found.func, kernel.name, "", {})
            try:
                with self.faults_refused(
                    f"a class of kernels like {kernel.name} cannot be native code",
                    "kernels are compiled one by one",
                ):
                    program = self._program(shared.kernel, is_short=found.is_short)
                    written = self._emit(kernel.name, rewritten(program), found.multiples)
            except RefusedError:
                for member in found.members:
                    del self._classes[member]
                return False
            shared.kernel.report = self._report(kernel.name, program, written)
            shared.claimed = self.claimed[kernel.name]
        assert shared.claimed is not None
        signature = shared.claimed.signature.of_member(func, found.members[func])
        self.claimed[kernel.name] = NativeKernel(shared.claimed.symbol, signature)
        blocks = dict(zip(*map(_block_names, (found.func, func)), strict=True))
        kernel.report = tuple(
            replace(row, block=blocks.get(row.block, row.block)) for row in shared.kernel.report
        )
        kernel.is_native, kernel.written = True, shared.kernel.written
        return True

    def _compiled_as_written(self, kernel: Kernel) -> Kernel:
        """The kernel, with the loops of its source."""
        from relaxpy.exec.loops.plan.planner import plan_as_written
        from relaxpy.exec.native.trees.as_written import (
            description,
            program_as_written,
            without_vectors,
        )

        plan = plan_as_written(kernel.plan.func, kernel.name)
        check_native(plan)
        program, reason = program_as_written(plan)
        try:
            written = self._emit(kernel.name, program)
        except RefusedError as error:
            serial = without_vectors(program)
            if len(serial.annotated) == len(program.annotated):
                raise
            program, why = serial, f"vectorized loops are serial: {error}"
            reason = f"{reason}; {why}" if reason else why
            written = self._emit(kernel.name, program)
        method, threads = f"native, {description(program)}", self._threads(kernel.name, written)
        names = dict.fromkeys(run.statement.name for run in runs(plan.trees))
        rows = (BlockReport(name, method, reason, "native", threads) for name in names)
        kernel.report, kernel.is_native = tuple(rows), True
        return kernel

    def _threads(self, name: str, functions: Iterable[str]) -> str:
        """The most threads that a claimed kernel, which has `functions`, runs on."""
        tasks = f"{self.claimed[name].symbol}.task"
        is_parallel = any(function.startswith(tasks) for function in functions)
        return str(native_threads()) if is_parallel else "1"

    def _program(self, kernel: Kernel, *, is_short: bool = False) -> KernelProgram:
        """The native program of a kernel before loop fusion, with the statements of the source."""
        check_native(kernel.plan)
        program = program_of(kernel.plan, is_short=is_short)
        check_price(program)
        return program

    def _emit(
        self,
        name: str,
        program: KernelProgram,
        multiples: Mapping[Var, int] | None = None,
        constants: frozenset[int] = frozenset(),
    ) -> Sequence[str]:
        """Emit the program of a kernel; the names of its functions.

        That of a class has parameters with `multiples`, and reports no obligations. It takes the
        arguments at the positions `constants` packed, if they can be packed.
        """
        signature = signature_of(program)
        emitter, symbol, written = self._written(program, signature, multiples, constants)
        packings = emitter.packings
        forms = {constants.intersection(packings): symbol}
        kept = program if packings else None
        self.claimed[name] = NativeKernel(symbol, signature, packings, forms, kept)
        return written

    def _written(
        self,
        program: KernelProgram,
        signature: EntrySignature,
        multiples: Mapping[Var, int] | None,
        constants: frozenset[int],
    ) -> tuple[KernelEmitter, str, Sequence[str]]:
        """The emitter of a kernel that is now in the module, and the names of its functions.

        The first of these is that of the kernel.
        """
        emitter, emitted = self._emitted(program, signature, multiples, constants)
        functions = (self.module.functions[function] for function in emitted)
        own = (each.text() for each in functions if each.name.startswith(_KERNEL))
        symbol = f"{_KERNEL}.{key_of(*own)[:24]}"
        is_new = symbol not in self.module.functions
        written = self.module.rename(emitted, _KERNEL, symbol)
        if is_new:
            self._ahead.add(self.module, written)  # a thread may read their text from here on
        self.memory[symbol] = emitter.memory
        return emitter, symbol, written

    def _emitted(
        self,
        program: KernelProgram,
        signature: EntrySignature,
        multiples: Mapping[Var, int] | None,
        constants: frozenset[int],
    ) -> tuple[KernelEmitter, Sequence[str]]:
        """The emitter of a kernel that is in the module as `_KERNEL`, and its functions."""
        plan = program.plan
        before, reported = self.module.copy(), len(self.failures.entries)
        try:
            report = (
                _refused
                if multiples is not None
                else partial(self.failures.add, plan.name, plan.func)
            )
            operands = self.module, _KERNEL, program, signature, report, multiples or {}
            emitter = KernelEmitter(*operands, constants)
            emitter.emit()
            written = list(islice(self.module.functions, len(before.functions), None))
            functions = [self.module.functions[function] for function in written]
            check_length(functions)
            for function in functions:
                function.close()
        except BaseException:
            self.module = before
            del self.failures.entries[reported:]
            raise
        return emitter, written

    def form(self, name: str, packed: frozenset[int] = frozenset()) -> str:
        """The function of a kernel that takes these parameters packed, which it gets now.

        Errors:
            RefusedError: a part of it has no native form.
        """
        kernel = self.claimed[name]
        if kernel.program is None:
            return kernel.symbol
        if packed not in kernel.forms:
            emitter, symbol, _ = self._written(kernel.program, kernel.signature, None, packed)
            assert emitter.packings == kernel.packings, "forms of a kernel pack in one way"
            kernel.forms[packed] = symbol
        return kernel.forms[packed]

    def _takes_arrays(self, name: str) -> bool:
        """True if a kernel has a form for arrays, which it gets now."""
        try:
            with self.faults_refused(f"{name} cannot be native code"):
                self.form(name)
        except RefusedError:
            return False
        return True

    @contextmanager
    def faults_refused(
        self, failure: str, consequence: str = "kernels run on NumPy"
    ) -> Iterator[None]:
        """A context in which exceptions that native code does not expect become refusals.

        A warning has the `failure` and its `consequence`. The system or LLVM may refuse code, and
        relaxpy may have faults; errors in programs and of memory pass.

        Errors:
            RefusedError: there was such an exception, or an expression nests too deeply.
        """
        try:
            yield
        except RecursionError:
            raise RefusedError("an expression nests too deeply") from None
        except (RefusedError, RelaxpyError, MemoryError):
            raise
        except Exception as error:  # of any kind: a fault of ours is a refusal with a warning
            found = str(error)
            if not isinstance(error, OSError | RuntimeError):
                place = traceback.extract_tb(error.__traceback__)[-1]
                position = f"{Path(place.filename).name}:{place.lineno}"
                found = f"{type(error).__name__} at {position} {found}".rstrip()
            problem = f"{failure}: {found}"
            self.problem = self.problem or problem
            warnings.warn(f"{consequence}, since {problem}", RuntimeWarning, stacklevel=3)
            raise RefusedError(problem) from error

    def link(self, namespace: dict[str, Any]) -> None:
        """Leave a text unchanged: machine code replaces kernels where its program is linked."""

    def kernels_called(self, names: Iterable[str]) -> list[CalledKernel]:
        """Those of the kernels of these Python names that Python can call as native code."""
        return [
            self._called_kernel(name)
            for name in names
            if name in self.claimed and self._takes_arrays(name)
        ]

    def _called_kernel(self, name: str) -> CalledKernel:
        kernel = self.claimed[name]
        kept = [
            n
            for n, param in enumerate(kernel.signature.params)
            if isinstance(param, Array) and (param.written or param.strides is not None)
        ]
        return CalledKernel(name, kernel.symbol, self._entry(name), kept)

    def code(self, called: Sequence[CalledKernel] = ()) -> bytes:
        """The machine code, with entries of the kernels that are `called` by Python."""
        entries = self._entries.union(kernel.name for kernel in called)
        if not self._code or entries != self._entries:
            module = self.without_entries()
            if entries:
                module = self.module.copy()
                for name in self.claimed.keys() & entries:
                    entry = self._entry(name)
                    if entry.tasks == BY_WORDS:
                        signature = self.claimed[name].signature
                        emit_by_words(module, entry.function, self.form(name), signature)
            with recorded() as objects:
                self._code = compile_code(module, ahead=self._ahead)
            self.objects.update(objects)
            self._entries = entries
        return self._code

    def _entry(self, name: str) -> EntryTable:
        """The entry of a kernel that Python calls."""
        symbol, signature = self.form(name), self.claimed[name].signature
        params = signature.params
        if signature.constants or len(types_of(params)) > PASSED:
            return entry_table(f"{symbol}.{name}.words", params, tasks=BY_WORDS)
        return entry_table(symbol, params)

    def without_entries(self) -> Module:
        """The functions of a library without entries of kernels."""
        return self.module

    def loops(self, func: PrimFunc, kernel: Kernel) -> KernelProgram:
        """The loops of the kernel of `func`, which may be those of its class."""
        if self.as_written:
            from relaxpy.exec.loops.plan.planner import plan_as_written
            from relaxpy.exec.native.trees.as_written import program_as_written

            return program_as_written(plan_as_written(func, kernel.name))[0]
        shared = self._classes.get(func)
        if shared is None or shared.kernel is None or not kernel.is_native:
            return rewritten(program_of(kernel.plan))
        return rewritten(program_of(shared.kernel.plan, is_short=shared.found.is_short))

    def machine_code(self, name: str, kind: Literal["llvm", "asm"]) -> str | None:
        """The LLVM IR or assembly of the kernel of that Python name, if it has any."""
        if name not in self.claimed:
            return None
        text = self.module.text()
        return text if kind == "llvm" else compile_assembly(text)


def emit_by_words(module: Module, name: str, kernel: str, signature: EntrySignature) -> None:
    """Write a function `name` that calls a kernel with the words at an address, and its constants.

    A kernel of a class has the constants of a member.
    """
    f = module.function(name, [(POINTER, "words")], I32, optimised=False)
    arguments, count = from_words(f, types_of(signature.params)), len(signature.params)
    constants = [f.const(I64, value) for value in signature.constants]
    f.ret(f.call(kernel, I32, *arguments[:count], *constants, *arguments[count:]))


def _refused(_: Obligation) -> int:
    raise RefusedError("the kernels of a class report other errors")


class _Class:
    """A class with its kernel, in both forms if that is native."""

    def __init__(self, found: KernelClass) -> None:
        self.found = found
        self.kernel: Kernel | None = None
        self.claimed: NativeKernel | None = None


def _block_names(func: PrimFunc) -> list[str]:
    return [block.name_hint for block in occurrences(func.body, Block)]
