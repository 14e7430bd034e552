"""From a module to an Executable, for one of the targets."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError, WellFormedError, close_names
from relaxpy.exec.executable import FORMAT, VERSION, EntryPoint, Executable, Program
from relaxpy.exec.kernel import compile_kernel, runtime
from relaxpy.exec.lower.module import LoweredModule, lower_module
from relaxpy.exec.reference.graph import ReferenceEvaluator, check_runnable
from relaxpy.exec.report import ExecutionReport, ReportRow
from relaxpy.exec.runtime.dynamic import dynamic_calls, operator_name
from relaxpy.exec.runtime.instrument import Instrument
from relaxpy.exec.runtime.operands import OperatorCall
from relaxpy.exec.runtime.python_functions import with_instance
from relaxpy.exec.runtime.signatures import public_signatures
from relaxpy.exec.runtime.values import Value
from relaxpy.ir.core.gc_pause import gc_paused
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.serialize import load_json
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.ir.transform import get_pipeline

Target: TypeAlias = Literal["numpy", "reference"]
#: A decorated class is a module, which type checkers that pass over class decorators do not see.
ModuleLike: TypeAlias = IRModule | rx.BaseFunc | type[Any]


@user_facing
@gc_paused
def compile(
    mod: ModuleLike,
    target: str | None = "numpy",
    *,
    relax_pipeline: str | Callable[[IRModule], IRModule] | None = "default",
) -> Executable:
    """An executable of every function of `mod` that has a `global_symbol`.

    A function by itself becomes a module of that name, or else named `main`. The passes of
    `relax_pipeline` (a name, or a pass) run first; None runs none, on IR that is taken as it is.

    Errors:
        WellFormedError: the program breaks criteria of well-formedness; all of them are named.
        StructInfoError: its infos do not fit together.
        CompileError: something in the module cannot run on this target; all of it is named.
        MisuseError (also TypeError, ValueError): `mod` is no module, or there is no such target.
        UnknownNameError (also ValueError): there is no pipeline of that name.
    """
    module = with_instance(_as_module(mod))
    target = "numpy" if target is None else target
    if target not in get_args(Target):
        raise MisuseError(
            f"there is no target {target!r}; targets are {', '.join(get_args(Target))}",
            hint=close_names(str(target), get_args(Target))
            or "relaxpy runs on NumPy, on any processor: leave the target out",
            about=target,
        )
    if isinstance(relax_pipeline, str):
        relax_pipeline = get_pipeline(relax_pipeline)
    if relax_pipeline is not None:
        faults = check_well_formed(module, check_struct_info=False)
        if faults:
            raise WellFormedError(faults)
        if not callable(relax_pipeline):
            raise MisuseError(
                f"relax_pipeline is a name or a pass, found {relax_pipeline!r:.60}",
                about=relax_pipeline,
            )
        made = relax_pipeline(module)
        if not isinstance(made, IRModule):
            raise MisuseError(
                f"relax_pipeline gives an IRModule, found {type(made).__name__}",
                about=relax_pipeline,
            )
        faults = check_well_formed(made)
        if faults:
            raise WellFormedError(faults)
        module = made
    module = module.clone()  # which users may change later
    check_runnable(module, kernels=target == "reference")
    if target == "reference":
        return _for_reference(module)
    return _for_numpy(module)


@user_facing
def build(
    mod: ModuleLike,
    target: str | None = None,
    params: Mapping[str, object] | None = None,
    relax_pipeline: str | Callable[[IRModule], IRModule] | None = "default",
    tir_pipeline: str | None = "default",
    exec_mode: str = "bytecode",
    *,
    system_lib: bool | None = None,
) -> Executable:
    """An executable as `compile` makes it, with `params` bound in function `main`.

    There is one way to run what is compiled here, so `exec_mode` and `system_lib` change nothing,
    and kernels have one pipeline.

    Errors:
        MisuseError (also TypeError, ValueError): there is no such mode or pipeline of kernels, or
            `params` are no parameters of `main`.
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
        raise MisuseError(f"params are a table of values, found {params!r:.60}", about=params)
    if params:
        module = _as_module(mod).clone()
        main = module.functions_by_name.get("main")
        if not isinstance(main, rx.Function):
            raise MisuseError("params are those of function main, which is not there", about=params)
        module["main"] = main.bind_params(params)  # type: ignore[arg-type]
        mod = module
    return compile(mod, target, relax_pipeline=relax_pipeline)


@user_facing
def load_executable(path: str | PathLike[str]) -> Executable:
    """The executable that `Executable.save` wrote, compiled again for its target.

    Reading runs nothing of what is in the file, and checks the program as `compile` does.

    Errors:
        MisuseError (also ValueError): the file holds no executable, or one of another version.
        MisuseError (also TypeError): `path` is no path.
        OSError: the file cannot be read.
    """
    if not isinstance(path, (str, PathLike)):
        raise MisuseError(f"a file is given by its path, found {path!r:.60}", about=path)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        text = ""
    return _load(text, str(path))


@lru_cache(maxsize=4)
def executable_of_text(text: str) -> Executable:
    """The executable whose saved text this is; workers that get it with each task compile it once.

    Errors:
        MisuseError (also ValueError): the text is not that of an executable of this version.
    """
    return _load(text, "the text")


def _load(text: str, source: str) -> Executable:
    """Compile the program of a saved text; messages call where it comes from `source`."""
    try:
        table = json.loads(text)
    except (ValueError, RecursionError):
        table = None
    if not isinstance(table, dict) or table.get("format") != FORMAT:
        raise MisuseError(
            f"{source} is no saved executable", hint="write one with Executable.save", about=source
        )
    if table.get("version") != VERSION:
        raise MisuseError(
            f"{source} was saved in version {table.get('version')!r}, this reads {VERSION}"
        )
    module = load_json(str(table.get("module")))
    if not isinstance(module, IRModule):
        raise MisuseError(f"{source} holds a {type(module).__name__}, not a module")
    faults = check_well_formed(module)
    if faults:
        raise WellFormedError(faults)
    return compile(module, str(table.get("target")), relax_pipeline=None)


def _as_module(mod: object) -> IRModule:
    if isinstance(mod, IRModule):
        return mod
    if isinstance(mod, (rx.Function, PrimFunc)):
        if "global_symbol" not in mod.attrs:
            mod = mod.with_attr("global_symbol", "main")
        return IRModule.from_expr(mod)
    found, hint = type(mod).__name__, None
    if isinstance(mod, type):
        found, hint = f"the class {mod.__name__}", f"decorate it: @I.ir_module class {mod.__name__}"
    elif callable(mod) and hasattr(mod, "__code__"):
        found, hint = "a plain Python function", "decorate it with @R.function or @T.prim_func"
    elif isinstance(mod, str):
        found, hint = "a string", "relaxpy.script.from_source(text) reads a program"
    raise MisuseError(
        f"compile takes an IRModule or a function, found {found}", about=mod, hint=hint
    )


def _for_reference(module: IRModule) -> Executable:
    rows = tuple(
        ReportRow(name, "(all)", "reference evaluator", "target is reference")
        for name, func in module.functions_by_name.items()
        if isinstance(func, PrimFunc)
    )

    def functions(instrument: Instrument | None) -> Mapping[str, Callable[..., Value]]:
        evaluator = ReferenceEvaluator(module, instrument)
        return {var.name_hint: evaluator.global_value(var) for var in module.functions}

    return _executable(module, "reference", functions(None), module.script, rows, functions)


def _for_numpy(module: IRModule) -> Executable:
    lowered = lower_module(module, compile_kernel, runtime)

    def functions(instrument: Instrument) -> Mapping[str, Callable[..., Value]]:
        return lower_module(module, compile_kernel, runtime, instrument).functions

    return _executable(
        module, "numpy", lowered.functions, lowered.source, _rows(lowered), functions
    )


def _executable(
    module: IRModule,
    target: Target,
    functions: Mapping[str, Callable[..., Value]],
    source: str | Callable[[], str],
    rows: tuple[ReportRow, ...],
    watched: Callable[[Instrument], Mapping[str, Callable[..., Value]]],
) -> Executable:
    public = public_signatures(module)
    program = Program(module, target, executable_of_text)

    def entries(functions: Mapping[str, Callable[..., Value]]) -> dict[str, EntryPoint]:
        return {
            symbol: EntryPoint(signature, functions[name], program)
            for symbol, (name, signature) in public.items()
        }

    names = {name for name, _ in public.values()}
    return Executable(
        entries(functions),
        program=program,
        source=source,
        report=ExecutionReport((*rows, *_dynamic_rows(module))),
        private_names=module.functions_by_name.keys() - names,
        watched=lambda instrument: entries(watched(instrument)),
    )


def _dynamic_rows(module: IRModule) -> tuple[ReportRow, ...]:
    rows = []
    for name, call in dynamic_calls(module):
        infos = ", ".join(str(arg.struct_info) for arg in OperatorCall(call).open_operands)
        reason = f"operands are {infos}" if infos else "it was not legalised before"
        rows.append(ReportRow(operator_name(call), name, "lowered at run time", reason))
    return tuple(rows)


def _rows(lowered: LoweredModule) -> tuple[ReportRow, ...]:
    return tuple(
        ReportRow(name, block.block, block.method, block.reason)
        for name, kernel in lowered.kernels.items()
        for block in kernel.report
    )
