"""Compilation of a module to an Executable for a target."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

from relaxpy.entry import user_facing
from relaxpy.errors import CompileError, MisuseError, WellFormedError
from relaxpy.exec.executable import (
    FORMAT,
    VERSION,
    DirectEntryPoint,
    EntryPoint,
    Executable,
    Program,
)
from relaxpy.exec.graph.backend import GraphBackend
from relaxpy.exec.kernel import runtime
from relaxpy.exec.kernel_source import kernel_source
from relaxpy.exec.lower.module import Backend, LoweredModule, NumpyBackend, lower_module
from relaxpy.exec.native.entry import is_entry, with_fallback
from relaxpy.exec.native.machine import obstacle
from relaxpy.exec.native.objects import recorded
from relaxpy.exec.native.pool import pool_object
from relaxpy.exec.native.saved import LoadedCode, load_code, saved_code
from relaxpy.exec.profile import profile_call
from relaxpy.exec.reference.graph import ReferenceEvaluator, check_runnable
from relaxpy.exec.report import ExecutionReport, ReportRow
from relaxpy.exec.runtime import (  # registers functions
    kv_cache as kv_cache,
    vm_builtins as vm_builtins,
)
from relaxpy.exec.runtime.checks import Signature
from relaxpy.exec.runtime.dynamic import dynamic_calls, operator_name
from relaxpy.exec.runtime.instrument import Instrument
from relaxpy.exec.runtime.operands import OperatorCall
from relaxpy.exec.runtime.python_functions import with_instance
from relaxpy.exec.runtime.signatures import public_signatures
from relaxpy.exec.runtime.values import Value
from relaxpy.ir.core.gc_pause import gc_paused
from relaxpy.ir.core.target import DEFAULT, Target, default_target, target_kind
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.serialize import load_json
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.ir.transform import get_pipeline

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
) -> Executable:
    """An executable of every function of `mod` that has a `global_symbol`.

    A single function becomes a module with the function under its symbol, or under `main`. First
    the passes of `relax_pipeline`, a name or a pass, are applied: "default" fuses kernels, and
    "legalize" leaves one for each operator. None applies no pass and omits the check for
    well-formedness.

    The target is "native" (machine code), "numpy", "reference", or a Target. Without one, it is the
    target that was entered. Otherwise, and for TVM's names of processors such as "llvm", it is
    "native" if llvmlite is installed and the processor has AVX2 and FMA, or else "numpy"; the
    environment variable RELAXPY_TARGET decides otherwise. `report()` shows how each kernel runs.

    Errors:
        WellFormedError: the program is not well-formed; all violations are reported.
        StructInfoError: the struct info of the program is inconsistent.
        CompileError: the module cannot run on this target; all reasons are reported.
        MisuseError (also TypeError, ValueError): `mod` is not a module, or the target is unknown,
            as RELAXPY_TARGET may be.
        UnknownNameError (also ValueError): there is no pipeline of that name.
    """
    module = with_instance(_as_module(mod))
    requested = target_kind(Target.current() if target is None else target)
    name, not_native = (requested, "") if requested != DEFAULT else default_target()
    if relax_pipeline == "default":
        relax_pipeline = get_pipeline("default", target=name)
    elif isinstance(relax_pipeline, str):
        relax_pipeline = get_pipeline(relax_pipeline)
    if relax_pipeline is not None:
        diagnostics = check_well_formed(module, check_struct_info=False)
        if diagnostics:
            raise WellFormedError(diagnostics)
        if not callable(relax_pipeline):
            raise MisuseError(
                f"relax_pipeline is a name or a pass, found {relax_pipeline!r:.60}",
                about=relax_pipeline,
            )
        result = relax_pipeline(module)
        if not isinstance(result, IRModule):
            raise MisuseError(
                f"relax_pipeline returns an IRModule, found {type(result).__name__}",
                about=relax_pipeline,
            )
        diagnostics = check_well_formed(result)
        if diagnostics:
            raise WellFormedError(diagnostics)
        module = result
    program = Program(module.clone(), name, requested, executable_of_text)  # users may change it
    return _compiled(program, not_native)


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

    `exec_mode`, `system_lib` and `tir_pipeline` exist for programs of TVM and have no effect.

    Errors:
        MisuseError (also TypeError, ValueError): an option has an unknown value, or `params` are
            not parameters of `main`.
    """
    for name, value, known in (
        ("exec_mode", exec_mode, ("bytecode", "compiled")),
        ("tir_pipeline", tir_pipeline, ("default", None)),
        ("system_lib", system_lib, (None, False, True)),
    ):
        if value not in known:
            listed = " or ".join(map(repr, known))
            raise MisuseError(f"{name} is {listed}, found {value!r:.60}", about=value)
    if params is not None and not isinstance(params, Mapping):
        raise MisuseError(f"params are a mapping of values, found {params!r:.60}", about=params)
    if params:
        module = _as_module(mod).clone()
        main = module.functions_by_name.get("main")
        if not isinstance(main, rx.Function):
            raise MisuseError("params belong to function main, which is missing", about=params)
        module["main"] = main.bind_params(params)  # type: ignore[arg-type]
        mod = module
    return compile(mod, target, relax_pipeline=relax_pipeline)


@user_facing
def load_executable(path: str | PathLike[str], *, native_code: bool = False) -> Executable:
    """Load the executable that `Executable.save` wrote, and compile it again for its target.

    No code of the file is run, and the program is checked as `compile` does. With `native_code`,
    the machine code of the file runs, if it is for this processor: then llvmlite needs not be
    installed. That code can do whatever this process may do, so it has to be from somebody who is
    trusted. `report()` shows why it was not used.

    Errors:
        MisuseError (also ValueError): the file is not an executable, or has another version, or its
            machine code, which was requested, is damaged.
        MisuseError (also TypeError): `path` is not a path.
        OSError: the file cannot be read.
    """
    if not isinstance(path, (str, PathLike)):
        raise MisuseError(f"expected the path of a file, found {path!r:.60}", about=path)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        text = ""
    return _load(text, str(path), native_code=native_code)


@lru_cache(maxsize=4)
def executable_of_text(text: str) -> Executable:
    """Load an executable from its saved text; a worker that gets it repeatedly compiles it once.

    Errors:
        MisuseError (also ValueError): the text is not an executable of this version.
    """
    return _load(text, "the text")


def _load(text: str, source: str, *, native_code: bool = False) -> Executable:
    """Compile the program of a saved text, which messages call `source`."""
    try:
        table = json.loads(text)
    except (ValueError, RecursionError):
        table = None
    if not isinstance(table, dict) or table.get("format") != FORMAT:
        raise MisuseError(
            f"{source} is not a saved executable",
            hint="write one with Executable.save",
            about=source,
        )
    if table.get("version") != VERSION:
        raise MisuseError(
            f"{source} has version {table.get('version')!r}, expected version {VERSION}"
        )
    module = load_json(str(table.get("module")))
    if not isinstance(module, IRModule):
        raise MisuseError(f"{source} contains a {type(module).__name__}, not a module")
    diagnostics = check_well_formed(module)
    if diagnostics:
        raise WellFormedError(diagnostics)
    code = load_code(table.get("native"), source) if native_code else LoadedCode()
    requested = target_kind(str(table.get("target")))

    def compiled(name: str, not_native: str) -> Executable:
        program = Program(with_instance(module), name, requested, executable_of_text, keep=code)
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
    return compiled(*(default_target() if requested == DEFAULT else (requested, "")))


def _as_module(mod: object) -> IRModule:
    if isinstance(mod, IRModule):
        return mod
    if isinstance(mod, (rx.Function, PrimFunc)):
        if "global_symbol" not in mod.attrs:
            mod = mod.with_attr("global_symbol", "main")
        return IRModule.from_expr(mod)
    found, hint = type(mod).__name__, None
    if isinstance(mod, type):
        found, hint = (
            f"the class {mod.__name__}",
            f"decorate it: @I.ir_module class {mod.__name__}",
        )
    elif callable(mod) and hasattr(mod, "__code__"):
        found, hint = (
            "a plain Python function",
            "decorate it with @R.function or @T.prim_func",
        )
    elif isinstance(mod, str):
        found, hint = "a string", "relaxpy.script.from_source(text) reads a program"
    raise MisuseError(
        f"compile takes an IRModule or a function, found {found}", about=mod, hint=hint
    )


def _compiled(program: Program, not_native: str = "", remark: str = "") -> Executable:
    """The executable of a program, whose target has been decided."""
    check_runnable(program.module, kernels=program.target == "reference")
    if program.target == "reference":
        return _for_reference(program)
    return _with_backend(program, not_native, remark)


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

    report = _report(module, rows)
    return _executable(program, functions(None), module.script, report, functions, None)


def _with_backend(program: Program, not_native: str, remark: str) -> Executable:
    module = program.module
    new_backend: Callable[[], Backend] = (
        GraphBackend if program.target == "native" else NumpyBackend
    )
    lowered = lower_module(module, new_backend, runtime)
    names = [name for name, _ in public_signatures(module).values()]

    def functions_of(lowered: LoweredModule) -> Mapping[str, Callable[..., Value]]:
        return {name: lowered.function(name) for name in names}

    def functions(instrument: Instrument) -> Mapping[str, Callable[..., Value]]:
        return functions_of(lower_module(module, new_backend, runtime, instrument))

    def machine_code() -> Mapping[str, Any] | None:
        if new_backend is not GraphBackend:
            return None
        with recorded() as objects:
            # Also the entries of kernels, which the text calls.
            assert lower_module(module, new_backend, runtime).source
            pool_object()
        return saved_code(objects)

    report = _report(module, _kernel_rows(lowered), not_native, remark)
    program.machine_code = machine_code
    source = lambda: lowered.source  # noqa: E731
    return _executable(program, functions_of(lowered), source, report, functions, new_backend)


def _executable(
    program: Program,
    functions: Mapping[str, Callable[..., Value]],
    source: str | Callable[[], str],
    report: ExecutionReport,
    instrumented: Callable[[Instrument], Mapping[str, Callable[..., Value]]],
    new_backend: Callable[[], Backend] | None,
) -> Executable:
    module = program.module
    public = public_signatures(module)

    def entries(functions: Mapping[str, Callable[..., Value]]) -> dict[str, EntryPoint]:
        return {
            symbol: _entry_point(signature, functions[name], program)
            for symbol, (name, signature) in public.items()
        }

    def instrumented_entries(instrument: Instrument) -> Mapping[str, EntryPoint]:
        return entries(instrumented(instrument))

    names = {name for name, _ in public.values()}
    return Executable(
        entries(functions),
        program=program,
        source=source,
        report=report,
        private_names=module.functions_by_name.keys() - names,
        instrumented=instrumented_entries,
        kernel_source=partial(kernel_source, module, new_backend),
        profile=partial(profile_call, module, report, instrumented_entries),
    )


def _entry_point(signature: Signature, run: Callable[..., Value], program: Program) -> EntryPoint:
    if not is_entry(run):
        return EntryPoint(signature, run, program)
    return DirectEntryPoint(signature, run, program, partial(with_fallback, run))


def _report(
    module: IRModule, rows: Iterable[ReportRow], not_native: str = "", remark: str = ""
) -> ExecutionReport:
    return ExecutionReport((*rows, *_dynamic_rows(module)), not_native, remark)


def _dynamic_rows(module: IRModule) -> tuple[ReportRow, ...]:
    rows = []
    for name, call in dynamic_calls(module):
        sinfos = ", ".join(str(arg.struct_info) for arg in OperatorCall(call).open_operands)
        reason = f"operands are {sinfos}" if sinfos else "it was not legalised"
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
