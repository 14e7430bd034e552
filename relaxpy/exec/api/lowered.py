"""Programs that are compiled now: passes, lowering, and the executable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from relaxpy import plugin
from relaxpy.errors import MisuseError, RuntimeCheckError, WellFormedError, unexpected
from relaxpy.exec.api.assembled import executable_of, executable_of_table
from relaxpy.exec.api.executable import Executable, Program
from relaxpy.exec.native.calls.entry_table import enter_object
from relaxpy.exec.native.calls.packed import CODE as PACKED
from relaxpy.exec.native.machine_code.machine import with_current
from relaxpy.exec.native.machine_code.objects import recorded, saved_code
from relaxpy.exec.native.threads.freed_memory import CODE as MEMORY
from relaxpy.exec.native.threads.pool import CODE as POOL
from relaxpy.exec.native.values.datatypes import RefusedError
from relaxpy.exec.program.graph.times import Times
from relaxpy.exec.program.graph.whole_modules import GraphBackend
from relaxpy.exec.program.link import library_of, link, linked_kernels
from relaxpy.exec.program.lower.python_module import (
    Backend,
    LoweredModule,
    NumpyBackend,
    lower_module,
)
from relaxpy.exec.program.saved import saved_program
from relaxpy.exec.program.table import CompiledProgram
from relaxpy.exec.reference.runnable import check_runnable
from relaxpy.exec.runtime.checks import (
    PublicFunctions,
    Signature,
    public_signatures,
    with_unused_results,
)
from relaxpy.exec.runtime.dynamic import DynamicPrograms, OperatorCall, dynamic_calls, operator_name
from relaxpy.exec.runtime.instrument import Instrument
from relaxpy.exec.runtime.registry import Answer, answers_in
from relaxpy.exec.runtime.report import PASSES, ExecutionReport, ReportRow
from relaxpy.exec.runtime.values import Value
from relaxpy.exec.store.container import Sections
from relaxpy.exec.store.stored import Source, store_program
from relaxpy.ir.core.fork_lock import Late
from relaxpy.ir.core.memo import noted_reads
from relaxpy.ir.core.target import target_facts
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.transform import Pass, get_pipeline
from relaxpy.support.dataclass import replace
from relaxpy.support.progress import stage

if TYPE_CHECKING:
    from relaxpy.exec.program.lower.text import Loaded


def transformed(module: IRModule, pipeline: object) -> IRModule:
    """The module after the passes, well-formed before and after, with its unused results marked.

    Errors:
        MisuseError: `pipeline` is not a pass, or does not return a module.
        WellFormedError: it is not well-formed.
    """
    if pipeline is None:
        return with_unused_results(module)
    with stage(_CHECKS):
        diagnostics = check_well_formed(module, check_struct_info=False)
    if diagnostics:
        raise WellFormedError(diagnostics)
    if not callable(pipeline):
        hint = "join passes: relaxpy.transform.Sequential([...])"
        raise unexpected(
            pipeline,
            "relax_pipeline is a name or a pass",
            hint=hint if isinstance(pipeline, list | tuple) else None,
        )
    with stage(PASSES):
        result = pipeline(with_unused_results(module))
    if not isinstance(result, IRModule):
        raise MisuseError(
            f"relax_pipeline returns an IRModule, found {type(result).__name__}", about=pipeline
        )
    with stage(_CHECKS):
        diagnostics = check_well_formed(result)
    if diagnostics:
        raise WellFormedError(diagnostics)
    return result


_CHECKS: Final = "checks of the program"


def pipeline(name: str, target: str) -> Pass:
    """The pipeline of a name; the default one is that of a target.

    Errors:
        UnknownNameError (also ValueError): there is no pipeline of that name.
    """
    return get_pipeline(name, target=target) if name == "default" else get_pipeline(name)


def compiled_and_stored(
    program: Program, module: IRModule, source: Source, remark: str, reads: Set[object]
) -> Executable:
    """The executable of a native program, which was `module` before the passes, stored as `source`.

    If it cannot be stored, its report says why. `reads` are what passes have read
    (`noted_reads`), and what is read now.
    """
    check_runnable(program.module, kernels=False)
    lowered = Lowered(lambda: program.module, GraphBackend)
    compiled, functions = lowered.linked()
    problem = source.problem
    if source.key:
        result = program.module
        changed = _texts(public_signatures(module)) != _texts(public_signatures(result))
        signatures = empty_functions(result) if changed or source.is_made else None
        with stage("storing"):
            answered = replace(compiled, answers=answers_in(reads))
            problem = store_program(source, answered, signatures, reads)
    problem = f"not kept on disk: {problem}" if problem else compiled.problem
    return executable_of_table(program, compiled, functions, lambda: lowered, remark or problem)


def _texts(public: PublicFunctions) -> list[tuple[str, ...]]:
    return [
        (symbol, name, str(signature), str(signature.output_tree), str(signature.outputs))
        for symbol, (name, signature) in public.items()
    ]


def compiled(program: Program, not_native: str = "", remark: str = "") -> Executable:
    """The executable of a program, whose target has been decided."""
    as_written = target_facts(program.target).runs_as_written
    check_runnable(program.module, kernels=as_written)
    if as_written:
        return _for_reference(program)
    module, backend = program.module, new_backend(program.target, program.schedules)
    lowered = Lowered(lambda: module, backend)
    table, functions = lowered.linked()
    remark = remark or table.problem
    return executable_of_table(program, table, functions, lambda: lowered, remark, not_native)


def _for_reference(program: Program) -> Executable:
    module, public = program.module, public_signatures(program.module)
    rows = tuple(
        ReportRow(name, "(all)", "reference evaluator", "target is reference")
        for name, func in module.functions_by_name.items()
        if isinstance(func, PrimFunc)
    )
    form, report = _Evaluated(module), ExecutionReport((*rows, *_dynamic_rows(module, module)))
    program.form = lambda: form
    private = private_names(module, public)
    return executable_of(program, public, form.instrumented(None), private, report)


class _Evaluated:
    """The form of a module that the reference evaluator runs."""

    new_backend = None

    def __init__(self, module: IRModule) -> None:
        self._module = module

    def source(self) -> str:
        """The program as text."""
        return self._module.script()

    def instrumented(self, instrument: Instrument | None) -> Mapping[str, Callable[..., Value]]:
        """The functions by name, which report calls to an instrument."""
        from relaxpy.exec.reference.graph_level import ReferenceEvaluator

        evaluator = ReferenceEvaluator(self._module, instrument)
        return {var.name_hint: evaluator.global_value(var) for var in self._module.functions}

    def timed(self, instrument: Instrument) -> tuple[Mapping[str, Callable[..., Value]], None]:
        """The functions with an instrument: there is no native code."""
        return self.instrumented(instrument), None

    def machine_code(self, sections: Sections) -> None:
        """Nothing: a file has the program alone."""


_BACKENDS: Final[Mapping[str, Callable[[], Backend]]] = {
    "native": GraphBackend,
    "numpy": NumpyBackend,
}


def new_backend(target: str, schedules: str | None) -> Callable[[], Backend]:
    """The factory of a target's back end, which may run kernels with their schedules."""
    if target_facts(target).is_native and schedules is not None:
        return partial(GraphBackend, as_written=True)
    return _BACKENDS.get(target) or plugin.backend(target)


class Lowered:
    """The module that `source` returns after lowering, which is done when it is needed.

    It is compiled to a table, runs in Python what native code refuses, and reports to an
    `instrument`. With `times`, native code notes those of its steps, and only the calls in Python
    are reported.
    """

    def __init__(
        self,
        source: Callable[[], IRModule],
        new_backend: Callable[[], Backend],
        instrument: Instrument | None = None,
        times: Times | None = None,
    ) -> None:
        self._source, self.new_backend, self._instrument = source, new_backend, instrument
        self._times = times
        self.programs = dynamic_programs(new_backend)
        self._answers: Sequence[Answer] = ()
        self._lowered = Late(with_current(self._lower))
        self._program = Late(with_current(self._compile))
        self._functions = Late(self._load_functions)
        self._kernels = Late(self._load_kernels)
        self._native_kernels = Late(with_current(self._link_kernels))
        self.machine_code = with_current(self._machine_code)

    def _lower(self) -> LoweredModule:
        module = self._source()
        with noted_reads() as reads:
            is_instrumented = self._instrument is not None and self._times is None
            new_backend = self.new_backend if self._times is None else self._timed_backend
            lowered = lower_module(
                module, new_backend, self.programs, is_instrumented=is_instrumented
            )
        self._answers = answers_in(reads)
        return lowered

    def _timed_backend(self) -> Backend:
        backend = self.new_backend()
        if backend.native is not None:
            backend.native.times = self._times
        return backend

    def _compile(self) -> CompiledProgram:
        """The program, whose code is missing if it cannot be generated."""
        lowered, module, text = self._lowered(), self._source(), self._lowered().text()
        native, public = lowered.backend.native, public_signatures(module)
        rows = *_kernel_rows(lowered), *_dynamic_rows(module, lowered.program)
        graphs = {} if native is None else native.graphs
        names = [] if text is None else text.kernels
        program = CompiledProgram(
            functions=graphs,
            python_names={name: lowered.lowering.python_name(name) for name in graphs},
            kernels=(),
            code=b"",
            reports=False,
            text=text,
            public=public,
            private=private_names(module, public),
            rows=rows,
            answers=self._answers,
            times=self._times,
        )
        if native is None:
            return program
        try:
            with native.faults_refused(_LINKING):
                return replace(program, **_code(native, names), problem=native.problem)
        except RefusedError as error:
            return program.without_code(str(error))

    def linked(self) -> tuple[CompiledProgram, Mapping[str, Callable[..., Value]]]:
        """The program, and its functions; if it cannot be linked, without machine code."""
        program, native = self._program(), self._lowered().backend.native
        if program.code:
            assert native is not None
            try:
                with native.faults_refused(_LINKING):
                    return program, link(program, lambda: self, self._finish)
            except RefusedError as error:
                program = program.without_code(str(error))
        return program, link(program, lambda: self, self._finish)

    def run(self, name: str, *args: Value) -> Value:
        """Call the Python form of a Relax function, with native kernels."""
        loaded, python_name = self._functions(), self._lowered().lowering.python_name(name)
        if self._times is not None:
            self._times.take()  # those of native code that has refused the arguments
        function: Callable[..., Value] = loaded.defined[python_name]
        return function(*args)

    def _load_functions(self) -> Loaded:
        from relaxpy.exec.program.lower.text import load_text

        text = self._lowered().text_of_functions()
        return load_text(text, {}, self._run_native_kernel, {}, self._finish)

    def _run_native_kernel(self, python_name: str, *args: Value) -> Value:
        """Call a kernel as native code; those of a function are linked when it calls one."""
        run = self._native_kernels().get(python_name)
        return self.run_kernel(python_name, *args) if run is None else run(*args)

    def _link_kernels(self) -> Mapping[str, Callable[..., Value]]:
        lowered, program = self._lowered(), self._program()
        native = lowered.backend.native
        if native is None or (program.problem and not program.code):
            return {}
        try:
            with native.faults_refused(_LINKING):
                program = replace(program, functions={}, **_code(native, [*native.claimed]))
                return linked_kernels(program, library_of(program, lambda: self), lambda: self)
        except RefusedError:
            return {}

    def run_kernel(self, python_name: str, *args: Value) -> Value:
        """Call the Python form of a kernel."""
        function: Callable[..., Value] = self._kernels().namespace[python_name]
        return function(*args)

    def _load_kernels(self) -> Loaded:
        from relaxpy.exec.program.lower.text import load_text

        return load_text(self._lowered().text_of_kernels(), {}, self.run_kernel, {})

    def in_text_order(self, name: str, namespace: dict[str, Any]) -> Callable[..., Any]:
        """The kernel of that Python name for arguments that alias."""
        kernels = self._lowered().kernels.values()
        kernel = next(kernel for kernel in kernels if kernel.name == name)
        return kernel.checked.in_text_order(namespace)

    def failure(self, number: int, index: int, size: int) -> RuntimeCheckError:
        """The error of an obligation that native code reports."""
        backend = self._lowered().backend.native
        assert backend is not None
        return backend.failures(number, index, size)

    def _finish(self, namespace: dict[str, Any]) -> None:
        """Let the back end replace functions that a text calls, and the instrument see calls."""
        lowered = self._lowered()
        lowered.backend.link(namespace)
        if self._instrument is not None:
            from relaxpy.exec.program.lower.text import instrument_calls

            instrument_calls(lowered.lowering, namespace, self._instrument)

    def source(self) -> str:
        """The Python source of the module."""
        return self._lowered().whole().source

    def instrumented(self, instrument: Instrument) -> Mapping[str, Callable[..., Value]]:
        """The public functions, compiled to report calls to an instrument."""
        return Lowered(self._source, self.new_backend, instrument).linked()[1]

    def timed(self, instrument: Instrument) -> tuple[Mapping[str, Callable[..., Value]], Times]:
        """The public functions, with an instrument for what runs in Python, and native times."""
        times = Times()
        lowered = Lowered(self._source, self.new_backend, instrument, times)
        _, functions = lowered.linked()
        lowering = lowered._lowered().lowering
        times.outlined = frozenset(filter(lowering.is_outlined, lowering.callees))
        return functions, times

    def _machine_code(self, sections: Sections) -> Mapping[str, Any] | None:
        """The machine code, and the form of the compiled program that goes with it, for a file."""
        native = self._lowered().backend.native
        if native is None:
            return None
        program, table = self._program(), None
        with suppress(MisuseError):  # it uses Python objects, so that it is lowered again
            signatures = empty_functions(self._source())
            table = saved_program(program, sections.add, lambda span: None, signatures)
        self._native_kernels()  # which the Python form of native functions calls
        with recorded() as objects:
            MEMORY.object()
            POOL.object()
            enter_object()
            if program.text is not None:
                PACKED.object()
        return saved_code({**native.objects, **objects}, sections.add, program.code, table)


_LINKING: Final = "native code cannot be linked"


def _code(native: GraphBackend, names: Sequence[str]) -> dict[str, Any]:
    """The fields of a program about machine code, where Python calls the kernels `names`."""
    kernels = native.kernels_called(names)
    is_used = bool(native.graphs or kernels)
    return {
        "kernels": kernels,
        "code": native.code(kernels) if is_used else b"",
        "reports": is_used and bool(native.failures.entries),
    }


def dynamic_programs(new_backend: Callable[[], Backend]) -> DynamicPrograms:
    """The cache of operators that are lowered at run time by new back ends."""

    def build(program: IRModule) -> Callable[..., Value]:
        return Lowered(lambda: program, new_backend).linked()[1]["main"]

    return DynamicPrograms(build)


def private_names(module: IRModule, public: PublicFunctions) -> frozenset[str]:
    """The names of the functions of a module that are not public."""
    return frozenset(module.functions_by_name).difference(name for name, _ in public.values())


def _empty(func: rx.Function) -> rx.Function:
    """A function with the same signature, whose result is a variable that is not bound."""
    result = rx.Var("result", Signature.of(func, "").result or rx.ObjectStructInfo())
    return replace(func, body=rx.SeqExpr((), result))


def empty_functions(module: IRModule) -> IRModule:
    """The public functions of a module with the same signatures; Relax functions do nothing."""
    functions = {
        name: module.functions_by_name[name] for name, _ in public_signatures(module).values()
    }
    return IRModule(
        {
            name: _empty(func) if isinstance(func, rx.Function) else func
            for name, func in functions.items()
        }
    )


def _dynamic_rows(module: IRModule, program: IRModule) -> tuple[ReportRow, ...]:
    """The calls lowered at run time, in the module or in the one compiled instead.

    Then the packed functions that the module calls.
    """
    always = {name for name, _ in dynamic_calls(program)}
    rows = []
    for name, call in dynamic_calls(module):
        sinfos = ", ".join(str(arg.struct_info) for arg in OperatorCall(call).open_operands)
        reason = f"operands are {sinfos}" if sinfos else "it was not legalised"
        if name not in always:
            reason = f"sizes may be unequal: {reason}"
        rows.append(ReportRow(operator_name(call), name, "lowered at run time", reason))
    packed = (
        (node.global_symbol, name)
        for name, func in module.functions_by_name.items()
        for node in walk(func)
        if isinstance(node, rx.ExternFunc)
    )
    rows += [ReportRow(*each, "packed function", "", "python") for each in dict.fromkeys(packed)]
    return tuple(rows)


def _kernel_rows(lowered: LoweredModule) -> Iterator[ReportRow]:
    for name, kernel in lowered.kernels.items():
        for block in kernel.report:
            how = block.block, block.method, block.reason, block.backend, block.threads
            yield ReportRow(name, *how, varies=block.varies)
