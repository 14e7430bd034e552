"""Programs that are compiled now: passes, lowering, and the executable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import Any, Final

from relaxpy import plugin
from relaxpy.errors import MisuseError, RuntimeCheckError, WellFormedError, unexpected
from relaxpy.exec.assembled import executable_of, executable_of_lowered
from relaxpy.exec.container import Sections
from relaxpy.exec.executable import Executable, Program
from relaxpy.exec.graph.whole_modules import GraphBackend
from relaxpy.exec.lower.python_module import (
    Backend,
    LoweredModule,
    NumpyBackend,
    dynamic_programs,
    lower_module,
)
from relaxpy.exec.native.calls.entry_table import enter_object
from relaxpy.exec.native.machine_code.machine import with_current
from relaxpy.exec.native.machine_code.objects import recorded, saved_code
from relaxpy.exec.native.threads.freed_memory import CODE as MEMORY
from relaxpy.exec.native.threads.pool import CODE as POOL
from relaxpy.exec.reference.runnable import check_runnable
from relaxpy.exec.report import PASSES, ExecutionReport, ReportRow
from relaxpy.exec.runtime.checks import (
    PublicFunctions,
    Signature,
    public_signatures,
    with_unused_results,
)
from relaxpy.exec.runtime.dynamic import OperatorCall, dynamic_calls, operator_name
from relaxpy.exec.runtime.instrument import Instrument
from relaxpy.exec.runtime.registry import Answer, answers_in
from relaxpy.exec.runtime.values import Value
from relaxpy.exec.stored import Source
from relaxpy.exec.storing import code_of, program_table, store_program
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

    def store(lowered: LoweredModule, rows: Sequence[ReportRow]) -> str:
        problem, result = source.problem, program.module
        if source.key:
            changed = _texts(public_signatures(module)) != _texts(public_signatures(result))
            signatures = empty_functions(result) if changed or source.is_made else None
            with stage("storing"):
                names = private_names(result)
                problem = store_program(source, lowered, rows, names, signatures, reads)
        return f"not kept on disk: {problem}" if problem else ""

    lowered = Lowered(lambda: program.module, GraphBackend)
    return lowered.compiled(program, remark=remark, store=store)


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
    return Lowered(lambda: module, backend).compiled(program, not_native, remark)


def _for_reference(program: Program) -> Executable:
    from relaxpy.exec.reference.graph_level import ReferenceEvaluator

    module = program.module
    rows = tuple(
        ReportRow(name, "(all)", "reference evaluator", "target is reference")
        for name, func in module.functions_by_name.items()
        if isinstance(func, PrimFunc)
    )

    def functions(instrument: Instrument | None) -> Mapping[str, Callable[..., Value]]:
        evaluator = ReferenceEvaluator(module, instrument)
        return {var.name_hint: evaluator.global_value(var) for var in module.functions}

    report = ExecutionReport((*rows, *_dynamic_rows(module, module)))
    return executable_of(
        *(program, public_signatures(module), functions(None), module.script, report),
        *(functions, None, module.functions_by_name),
    )


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
    """The lowered form of the module that `source` returns, computed lazily."""

    def __init__(self, source: Callable[[], IRModule], new_backend: Callable[[], Backend]) -> None:
        self._source, self.new_backend = source, new_backend
        self._module = Late(with_current(self._lower))
        self._answers: Sequence[Answer] = ()
        self.programs = dynamic_programs(new_backend)

    def _lower(self) -> LoweredModule:
        module = self._source()
        with noted_reads() as reads:
            lowered = lower_module(module, self.new_backend)
        self._answers = answers_in(reads)
        return lowered

    def run(self, name: str, *args: Value) -> Value:
        """Call a function of the module."""
        return self._module().function(name)(*args)

    def run_kernel(self, python_name: str, *args: Value) -> Value:
        """Call the Python form of a kernel."""
        return self._module().run_kernel(python_name, *args)

    def in_text_order(self, name: str, namespace: dict[str, Any]) -> Callable[..., Any]:
        """The kernel of that Python name for arguments that alias."""
        return self._module().in_text_order(name, namespace)

    def failure(self, number: int, index: int, size: int) -> RuntimeCheckError:
        """The error of an obligation that native code reports."""
        backend = self._module().backend.native
        assert backend is not None
        return backend.failures(number, index, size)

    def compiled(
        self,
        program: Program,
        not_native: str = "",
        remark: str = "",
        store: Callable[[LoweredModule, Sequence[ReportRow]], str] = lambda lowered, rows: "",
    ) -> Executable:
        """The executable, for which the module is lowered now.

        `store` stores it; what it returns is a remark if there is no other.
        """
        module, lowered = self._source(), self._module()
        public = public_signatures(module)
        functions = {name: lowered.function(name) for name, _ in public.values()}
        rows = *_kernel_rows(lowered), *_dynamic_rows(module, lowered.program)
        native = lowered.backend.native
        problem = store(lowered, rows) or (native.problem if native is not None else "")
        is_native = native is not None
        report = ExecutionReport(rows, not_native, remark or problem, is_native)
        names = module.functions_by_name
        return executable_of_lowered(program, public, functions, lambda: self, report, names)

    def source(self) -> str:
        """The Python source of the module."""
        return self._module().source

    def instrumented(self, instrument: Instrument) -> Mapping[str, Callable[..., Value]]:
        """The public functions, compiled to report calls to an instrument."""
        module = self._source()
        lowered = lower_module(module, self.new_backend, instrument)
        return {name: lowered.function(name) for name, _ in public_signatures(module).values()}

    def machine_code(self, sections: Sections) -> Mapping[str, Any] | None:
        """The machine code, and the form from which `stored.py` links it, for a file."""
        lowered = self._module()
        backend = lowered.backend.native
        if backend is None:
            return None
        module = self._source()
        rows = *_kernel_rows(lowered), *_dynamic_rows(module, lowered.program)
        names = private_names(module), self._answers
        operands = sections.add, rows, *names, lambda span: None
        program: dict[str, Any] | None = None
        with suppress(MisuseError):  # it uses Python objects, so that it is lowered again
            program = program_table(lowered, *operands, empty_functions(module))
        library = code_of(lowered)
        _ = lowered.source  # with the entries of kernels, which the source calls
        with recorded() as objects:
            MEMORY.object()
            POOL.object()
            enter_object()
        found = {**backend.objects, **objects}
        return saved_code(found, sections.add, library, program)


def private_names(module: IRModule) -> set[str]:
    """The names of the functions of a module that are not public."""
    public = public_signatures(module).values()
    return {*module.functions_by_name}.difference(name for name, _ in public)


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


def _kernel_rows(lowered: LoweredModule) -> tuple[ReportRow, ...]:
    rows = (
        ReportRow(
            *(name, block.block, block.method, block.reason, block.backend, block.threads),
            varies=block.varies,
        )
        for name, kernel in lowered.kernels.items()
        for block in kernel.report
    )
    if not lowered.problem:
        return tuple(rows)
    return tuple(
        replace(
            row,
            method=row.method.removeprefix("native, "),
            reason=row.reason or lowered.problem,
            backend="numpy",
            threads="",
            varies="",
        )
        for row in rows
    )
