"""Compilation of a module to an Executable for a target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import chain
from os import PathLike
from typing import Any, Final, TypeAlias

from relaxpy import plugin
from relaxpy.errors import (
    CompileError,
    MisuseError,
    RelaxpyError,
    RuntimeCheckError,
    WellFormedError,
    unexpected,
)
from relaxpy.exec.as_module import as_module
from relaxpy.exec.container import Container, Sections, damaged
from relaxpy.exec.executable import DirectEntryPoint, EntryPoint, Executable, Program
from relaxpy.exec.graph.backend import GraphBackend
from relaxpy.exec.kernel_source import kernel_source
from relaxpy.exec.lower.module import (
    Backend,
    LoweredModule,
    NumpyBackend,
    dynamic_programs,
    lower_module,
)
from relaxpy.exec.native.calls.entry import is_entry, with_fallback
from relaxpy.exec.native.calls.static_entry import enter_object
from relaxpy.exec.native.machine_code.disk_cache import keeps_programs
from relaxpy.exec.native.machine_code.machine import obstacle
from relaxpy.exec.native.machine_code.objects import recorded
from relaxpy.exec.native.machine_code.saved import LoadedCode, damaged_code, load_code, saved_code
from relaxpy.exec.native.threads.memory import CODE as MEMORY
from relaxpy.exec.native.threads.pool import CODE as POOL, native_threads
from relaxpy.exec.paths import as_path
from relaxpy.exec.profiler import ProgramProfiler
from relaxpy.exec.recent import shared_or_new
from relaxpy.exec.reference.graph import ReferenceEvaluator, check_runnable
from relaxpy.exec.report import PASSES, ExecutionReport, ReportRow
from relaxpy.exec.runtime.checks import Signature
from relaxpy.exec.runtime.dynamic import dynamic_calls, operator_name
from relaxpy.exec.runtime.instrument import Instrument
from relaxpy.exec.runtime.operands import OperatorCall
from relaxpy.exec.runtime.python_functions import with_instance
from relaxpy.exec.runtime.signatures import PublicFunctions, public_signatures
from relaxpy.exec.runtime.values import PrimFuncValue, Value
from relaxpy.exec.stored import (
    NOT_A_PROGRAM,
    Source,
    code_of,
    is_default,
    linked_program,
    load_program,
    program_table,
    store_program,
)
from relaxpy.ir.core.fork_lock import ForkLock, Late
from relaxpy.ir.core.target import DEFAULT, Target, default_target, target_facts, target_kind
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.serialize import load_table
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.ir.tir.prim_func.well_formed import kernel_faults
from relaxpy.ir.transform import Pass, PassContext, get_pipeline
from relaxpy.support.dataclass import replace
from relaxpy.support.entry import user_facing
from relaxpy.support.gc_pause import gc_paused
from relaxpy.support.progress import long_work, stage, timed

TargetLike: TypeAlias = str | Mapping[str, Any] | Target
#: A decorated class is a module, but type checkers may ignore class decorators.
ModuleLike: TypeAlias = IRModule | rx.BaseFunc | type[Any]


@user_facing
@gc_paused
def compile(
    mod: ModuleLike,
    target: TargetLike | None = None,
    *,
    relax_pipeline: str | Callable[[IRModule], IRModule] | None = "default",
    tir_pipeline: str | None = "default",
    schedules: str | None = None,
) -> Executable:
    """An executable of every function of `mod` that has a `global_symbol`.

    A single function becomes a module with the function under its symbol, or under `main`. The
    passes of `relax_pipeline`, a name or a pass, are applied first: "default" fuses kernels, and
    "legalize" leaves one for each operator. None applies no pass and omits the check for
    well-formedness. `tir_pipeline` exists for TVM compatibility: targets lower kernels themselves.

    The target is "native" (machine code), "numpy", "reference", or a Target. By default it is the
    target that was entered. Otherwise, and for TVM's names of CPUs such as "llvm", it is that of
    the environment variable RELAXPY_TARGET, or else "native" if llvmlite is installed and the CPU
    has AVX2 and FMA, or else "numpy". `report()` shows how each kernel runs.

    With `schedules="as written"`, native code runs the loops of kernels as scheduled, vectorised
    and parallel only where they are annotated so, to measure a schedule. Otherwise kernels are
    rescheduled for speed.

    Errors:
        WellFormedError: the program is not well-formed; all violations are reported.
        StructInfoError: the struct info of the program is inconsistent.
        CompileError: the module cannot run on this target; all reasons are reported.
        MisuseError (also TypeError, ValueError): `mod` is not a module, or the target is unknown,
            as RELAXPY_TARGET may be.
        UnknownNameError (also ValueError): there is no pipeline of that name.
    """
    _check_option(
        "tir_pipeline",
        tir_pipeline,
        ("default", None),
        hint="omit it, and run passes on kernels before compile: tir_pipeline(mod)",
    )
    _check_option("schedules", schedules, (AS_WRITTEN, None))
    module = with_instance(as_module(mod, "compile"))
    requested = target_kind(Target.current() if target is None else target)
    name, not_native = (requested, "") if requested != DEFAULT else default_target()
    if schedules is not None:
        _check_as_written(name, not_native)
    with long_work("compiling"), timed() as stages:
        default = get_pipeline("default", target=name) if relax_pipeline == "default" else None
        if default is not None and target_facts(name).is_native and schedules is None:
            executable = _kept_or_compiled(module, default, requested)
        else:
            if isinstance(relax_pipeline, str):
                relax_pipeline = default or get_pipeline(relax_pipeline)
            module = _transformed(module, relax_pipeline).clone()  # users may change it
            program = Program(module, name, requested, executable_of_saved, schedules=schedules)
            executable = _compiled(program, not_native)
    return executable.timed(stages)


def _check_as_written(target: str, reason: str) -> None:
    """Check that a target runs loops as scheduled.

    Errors:
        MisuseError: it cannot.
    """
    if not (target_facts(target).is_native or target_facts(target).runs_as_written):
        raise MisuseError(
            f'schedules="{AS_WRITTEN}" needs the target "native", found "{target}"'
            + (f": {reason}" if reason else ""),
            hint='target="reference" runs loops as they are written, too, one element at a time',
            about=target,
        )


AS_WRITTEN: Final = "as written"


@user_facing
def build_kernels(
    mod: ModuleLike, target: TargetLike | None = None, pipeline: str | None = "default"
) -> Executable:
    """Compile a kernel, or a module of kernels, like `compile`; `pipeline` has no effect."""
    return compile(mod, target, tir_pipeline=pipeline)


@user_facing
def build(
    mod: ModuleLike,
    target: TargetLike | None = None,
    params: Mapping[str, object] | None = None,
    relax_pipeline: str | Callable[[IRModule], IRModule] | None = "default",
    tir_pipeline: str | None = "default",
    exec_mode: str = "bytecode",
    *,
    system_lib: bool | None = None,
) -> Executable:
    """Compile a module like `compile`, with `params` bound in the function `main`.

    `exec_mode`, `system_lib` and `tir_pipeline` exist for TVM compatibility and have no effect.

    Errors:
        MisuseError (also TypeError, ValueError): an option has an unknown value, or `params` are
            not parameters of `main`.
    """
    _check_option("exec_mode", exec_mode, ("bytecode", "compiled"))
    _check_option("system_lib", system_lib, (None, False, True))
    if params is not None and not isinstance(params, Mapping):
        raise unexpected(params, "params are a mapping of values")
    if params:
        module = as_module(mod, "compile").clone()
        main = module.functions_by_name.get("main")
        if not isinstance(main, rx.Function):
            raise MisuseError("params belong to function main, which is missing", about=params)
        module["main"] = main.bind_params(params)  # type: ignore[arg-type]
        mod = module
    return compile(mod, target, relax_pipeline=relax_pipeline, tir_pipeline=tir_pipeline)


def _check_option(
    name: str, value: object, known: Sequence[object], *, hint: str | None = None
) -> None:
    if value not in known:
        listed = " or ".join(map(repr, known))
        raise unexpected(value, f"{name} is {listed}", hint=hint)


@user_facing
def load_executable(path: str | PathLike[str], *, native_code: bool = False) -> Executable:
    """Load the executable that `Executable.save` wrote, and compile it again for its target.

    No code of the file is run, and the program is checked as by `compile`. With `native_code`, the
    machine code of the file runs, if it is for this CPU: nothing is compiled, the program is read
    lazily, and llvmlite need not be installed. That code can do whatever this process may do, so
    the file must come from a trusted source. `report()` shows why it was not used.

    The file stays mapped as long as one of its constants is used: replace it, but do not write into
    it.

    Errors:
        MisuseError (also ValueError): the file is not an executable, has another version, or is
            damaged.
        MisuseError (also TypeError, ValueError): `path` is not a path.
        OSError: the file cannot be read.
    """
    with timed() as reading, stage("reading of the file"):
        saved = Container.read(as_path(path))
    executable = load_saved(saved, str(path), native_code=native_code)
    return executable.timed({**reading, **executable.compile_report().stages})


def executable_of_saved(saved: Container) -> Executable:
    """Load an executable from a pickle; a process that gets it repeatedly, in any thread, once.

    Whoever unpickles trusts the author, so the machine code is used if it is for this CPU.

    Errors:
        MisuseError (also ValueError): it is not an executable.
    """
    with _UNPICKLING:
        return _unpickled(saved)


@lru_cache(maxsize=4)
def _unpickled(saved: Container) -> Executable:
    return load_saved(saved, "the pickle", native_code=saved.content.get("native") is not None)


_UNPICKLING: Final = ForkLock()


def saved_module(saved: Container, source: str) -> IRModule:
    """The well-formed module of a saved form, which messages call `source`.

    Errors:
        MisuseError (also ValueError): it is not an executable.
        WellFormedError: the module is not well-formed.
    """
    try:
        module = load_table(saved.content.get("module"), saved.arrays)
        target_kind(str(saved.content.get("target")))
    except RelaxpyError as error:
        raise damaged(source, error.diagnostic.message) from None
    if not isinstance(module, IRModule):
        raise damaged(source, f"it contains a {type(module).__name__}, not a module")
    kernels = (func for func in module.functions.values() if isinstance(func, PrimFunc))
    diagnostics = [*check_well_formed(module), *chain.from_iterable(map(kernel_faults, kernels))]
    if diagnostics:
        raise WellFormedError(diagnostics)
    return module


def load_saved(saved: Container, source: str, *, native_code: bool = False) -> Executable:
    """Compile the program of a saved form, which messages call `source`.

    Errors: as for `load_executable`.
    """
    with long_work("loading"), timed() as stages:
        executable = _loaded(saved, source, native_code=native_code)
    return executable.timed(stages)


def _loaded(saved: Container, source: str, *, native_code: bool) -> Executable:
    content = saved.content
    code = load_code(content.get("native"), saved.arrays, source) if native_code else LoadedCode()
    if code.program is not None and is_default():
        return _linked(saved, code, source)
    module = saved_module(saved, source)
    requested = target_kind(str(content.get("target")))
    schedules = _saved_schedules(saved)

    def compiled(name: str, not_native: str) -> Executable:
        program = Program(
            *(with_instance(module), name, requested, executable_of_saved),
            keep=code,
            schedules=schedules,
        )
        return _compiled(program, not_native, code.problem)

    if code.objects:
        try:
            return compiled("native", "")
        except CompileError as error:
            if not obstacle():
                raise
            # Without llvmlite, kernels for which the file has no code cannot be native.
            reason = error.diagnostic.message
            code = LoadedCode(problem=f"the machine code of the file is not used: {reason}")
    name, not_native = default_target() if requested == DEFAULT else (requested, "")
    if name == "native" and not code.objects and schedules is None:
        return _stored_or_compiled(with_instance(module), None, requested, code.problem)
    return compiled(name, not_native)


def _saved_schedules(saved: Container) -> str | None:
    return AS_WRITTEN if saved.content.get("schedules") == AS_WRITTEN else None


def _linked(saved: Container, code: LoadedCode, source: str) -> Executable:
    """The executable of a program with the machine code of its functions.

    The program itself is read and checked lazily: for its source, or where native code refuses
    arguments.

    Errors:
        MisuseError (also ValueError): the table of the functions is damaged.
    """

    def read() -> IRModule:
        module = with_instance(saved_module(saved, source))
        check_runnable(module, kernels=False)
        return module

    module, schedules = Late(read), _saved_schedules(saved)
    lowered = _Lowered(module, _new_backend("native", schedules))
    assert code.program is not None
    try:
        literals = [*map(rx.Constant, saved.arrays)]
        stored = linked_program(code.program, code.library, literals, lowered)
        assert stored.signatures is not None
        public = public_signatures(stored.signatures)
        functions = {name: stored.functions[name] for name, _ in public.values()}
        requested = target_kind(str(saved.content.get("target")))
    except NOT_A_PROGRAM as error:
        raise damaged_code(source, f"its table of functions has no {error}") from None
    threads = str(native_threads())
    rows = (r if r.threads == "1" else replace(r, threads=threads) for r in stored.rows)
    program = Program(
        *(module, "native", requested, executable_of_saved), keep=code, schedules=schedules
    )
    report = ExecutionReport(tuple(rows))
    return lowered.executable(program, public, functions, report, stored.private_names)


def _transformed(module: IRModule, pipeline: object) -> IRModule:
    """The module after the passes, well-formed before and after; unchanged without passes.

    Errors:
        MisuseError: `pipeline` is not a pass, or does not return a module.
        WellFormedError: it is not well-formed.
    """
    if pipeline is None:
        return module
    with stage(_CHECKS):
        diagnostics = check_well_formed(module, check_struct_info=False)
    if diagnostics:
        raise WellFormedError(diagnostics)
    if not callable(pipeline):
        raise unexpected(pipeline, "relax_pipeline is a name or a pass")
    with stage(PASSES):
        result = pipeline(module)
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


def _kept_or_compiled(module: IRModule, pipeline: Pass, requested: str) -> Executable:
    """The native executable of a module, which users may change later: from memory if possible."""

    def compiled(module: IRModule) -> Executable:
        return _stored_or_compiled(module, pipeline, requested)

    if not keeps_programs() or not is_default() or module.global_infos:
        return compiled(module.clone())
    return shared_or_new(module, requested, compiled)


def _stored_or_compiled(
    module: IRModule, pipeline: Pass | None, requested: str, remark: str = ""
) -> Executable:
    """The native executable of a module, from the disk cache if possible.

    The pipeline is the default one, or none. Anything that is not on disk, such as the program
    after the passes, is computed lazily.
    """

    def transform() -> IRModule:
        with PassContext():
            return _transformed(module, pipeline)

    with stage("hash of the program"):
        source = Source(module, has_passes=pipeline is not None)
    if source.key:
        transformed = Late(transform)
        program = Program(transformed, "native", requested, executable_of_saved)
        lowered = _Lowered(transformed, GraphBackend)
        with stage("loading from the disk"):
            stored = load_program(source, lowered)
        public = public_signatures((stored and stored.signatures) or module)
        if stored is not None and stored.functions.keys() >= {name for name, _ in public.values()}:
            report = ExecutionReport(stored.rows, remark=remark)
            return lowered.executable(
                program, public, stored.functions, report, stored.private_names
            )
    result = _transformed(module, pipeline)
    check_runnable(result, kernels=False)

    def store(lowered: LoweredModule, rows: Sequence[ReportRow]) -> str:
        problem = source.problem
        if source.key:
            changed = _texts(public_signatures(module)) != _texts(public_signatures(result))
            signatures = _signatures(result) if changed else None
            with stage("storing"):
                problem = store_program(source, lowered, rows, _private_names(result), signatures)
        return f"not kept on disk: {problem}" if problem else ""

    program = Program(result, "native", requested, executable_of_saved)
    return _Lowered(lambda: result, GraphBackend).compiled(program, remark=remark, store=store)


def _texts(public: PublicFunctions) -> list[tuple[str, str, str]]:
    return [(symbol, name, str(signature)) for symbol, (name, signature) in public.items()]


def _compiled(program: Program, not_native: str = "", remark: str = "") -> Executable:
    """The executable of a program, whose target has been decided."""
    as_written = target_facts(program.target).runs_as_written
    check_runnable(program.module, kernels=as_written)
    if as_written:
        return _for_reference(program)
    module, new_backend = program.module, _new_backend(program.target, program.schedules)
    return _Lowered(lambda: module, new_backend).compiled(program, not_native, remark)


def _for_reference(program: Program) -> Executable:
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
    return _executable(
        *(program, public_signatures(module), functions(None), module.script, report),
        *(functions, None, module.functions_by_name),
    )


_BACKENDS: Final[Mapping[str, Callable[[], Backend]]] = {
    "native": GraphBackend,
    "numpy": NumpyBackend,
}


def _new_backend(target: str, schedules: str | None) -> Callable[[], Backend]:
    """The factory of a target's back end, which may run kernels with their schedules."""
    if target == "native" and schedules is not None:
        return partial(GraphBackend, as_written=True)
    return _BACKENDS.get(target) or plugin.backend(target)


class _Lowered:
    """The lowered form of the module that `source` returns, computed lazily."""

    def __init__(self, source: Callable[[], IRModule], new_backend: Callable[[], Backend]) -> None:
        self._source, self._new_backend = source, new_backend
        self._module = Late(lambda: lower_module(source(), new_backend))

        self.programs = dynamic_programs(new_backend)

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
        backend = self._module().backend
        assert isinstance(backend, GraphBackend)
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
        problem = store(lowered, rows)
        report = ExecutionReport(rows, not_native, remark or problem)
        return self.executable(program, public, functions, report, module.functions_by_name)

    def executable(
        self,
        program: Program,
        public: PublicFunctions,
        functions: Mapping[str, Callable[..., Value]],
        report: ExecutionReport,
        names: Iterable[str],
    ) -> Executable:
        """The executable of compiled functions; `names` are those in the module."""
        program.machine_code = self._machine_code
        source = lambda: self._module().source  # noqa: E731
        return _executable(
            *(program, public, functions, source, report),
            *(self._instrumented, self._new_backend, names),
        )

    def _instrumented(self, instrument: Instrument) -> Mapping[str, Callable[..., Value]]:
        module = self._source()
        lowered = lower_module(module, self._new_backend, instrument)
        return {name: lowered.function(name) for name, _ in public_signatures(module).values()}

    def _machine_code(self, sections: Sections) -> Mapping[str, Any] | None:
        lowered = self._module()
        if not isinstance(lowered.backend, GraphBackend):
            return None
        module = self._source()
        rows = *_kernel_rows(lowered), *_dynamic_rows(module, lowered.program)
        operands = sections.add, rows, _private_names(module), lambda span: None
        program: dict[str, Any] | None = None
        with suppress(MisuseError):  # it uses Python objects, so that it is lowered again
            program = program_table(lowered, *operands, _signatures(module))
        library = code_of(lowered)
        _ = lowered.source  # with the entries of kernels, which the source calls
        with recorded() as objects:
            MEMORY.object()
            POOL.object()
            enter_object()
        found = {**lowered.backend.objects, **objects}
        return saved_code(found, sections.add, library, program)


def _private_names(module: IRModule) -> set[str]:
    public = public_signatures(module).values()
    return {*module.functions_by_name}.difference(name for name, _ in public)


def _signatures(module: IRModule) -> IRModule:
    """The public functions of a module with the same signatures; Relax functions do nothing."""
    empty = rx.SeqExpr((), rx.Tuple(()))
    functions = {
        name: module.functions_by_name[name] for name, _ in public_signatures(module).values()
    }
    return IRModule(
        {
            name: replace(func, body=empty) if isinstance(func, rx.Function) else func
            for name, func in functions.items()
        }
    )


def _executable(
    program: Program,
    public: PublicFunctions,
    functions: Mapping[str, Callable[..., Value]],
    source: str | Callable[[], str],
    report: ExecutionReport,
    instrumented: Callable[[Instrument], Mapping[str, Callable[..., Value]]],
    new_backend: Callable[[], Backend] | None,
    names: Iterable[str],
) -> Executable:
    def entries(functions: Mapping[str, Callable[..., Value]]) -> dict[str, EntryPoint]:
        return {
            symbol: _entry_point(signature, functions[name], program)
            for symbol, (name, signature) in public.items()
        }

    def instrumented_entries(instrument: Instrument) -> Mapping[str, EntryPoint]:
        return entries(instrumented(instrument))

    return Executable(
        entries(functions),
        program=program,
        source=source,
        report=report,
        private_names=set(names) - {name for name, _ in public.values()},
        instrumented=instrumented_entries,
        kernel_source=lambda name, kind: kernel_source(program.module, new_backend, name, kind),
        profile=ProgramProfiler(lambda: program.module, report, instrumented_entries),
    )


def _entry_point(signature: Signature, run: Callable[..., Value], program: Program) -> EntryPoint:
    if isinstance(run, PrimFuncValue):
        run = run.run  # an entry point checks the arguments as the value would
    if not is_entry(run):
        return EntryPoint(signature, run, program)
    return DirectEntryPoint(signature, run, program, partial(with_fallback, run))


def _dynamic_rows(module: IRModule, program: IRModule) -> tuple[ReportRow, ...]:
    """The calls lowered at run time, in the module or in the one compiled instead."""
    always = {name for name, _ in dynamic_calls(program)}
    rows = []
    for name, call in dynamic_calls(module):
        sinfos = ", ".join(str(arg.struct_info) for arg in OperatorCall(call).open_operands)
        reason = f"operands are {sinfos}" if sinfos else "it was not legalised"
        if name not in always:
            reason = f"sizes may be unequal: {reason}"
        rows.append(ReportRow(operator_name(call), name, "lowered at run time", reason))
    return tuple(rows)


def _kernel_rows(lowered: LoweredModule) -> tuple[ReportRow, ...]:
    rows = (
        ReportRow(name, block.block, block.method, block.reason, block.backend, block.threads)
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
        )
        for row in rows
    )
