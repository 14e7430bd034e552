"""Compilation of a module to an Executable for a target.

What compiles a program now, `lowered.py`, is imported where it is needed: programs from the disk
start without it, in half the time.

The executables in use are kept by what they were compiled from, so that it is not compiled again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import ref

from relaxpy.errors import CompileError, MisuseError, RelaxpyError, WellFormedError, unexpected
from relaxpy.exec.api.as_module import as_module, is_saved, loaded, named
from relaxpy.exec.api.assembled import executable_of_table
from relaxpy.exec.api.cross import Codes, Native, is_native, with_code_for
from relaxpy.exec.api.executable import Executable, Program
from relaxpy.exec.machine.tuning import Kept
from relaxpy.exec.native.machine_code.disk_cache import keeps_programs
from relaxpy.exec.native.machine_code.machine import generating_for, obstacle, unfit, with_current
from relaxpy.exec.native.machine_code.objects import LoadedCode, damaged_code, load_code
from relaxpy.exec.native.threads.pool import native_threads
from relaxpy.exec.program.link import link
from relaxpy.exec.program.saved import NOT_A_PROGRAM, program_of_saved
from relaxpy.exec.program.table import CompiledProgram
from relaxpy.exec.runtime.python_functions import with_instance
from relaxpy.exec.runtime.registry import Answer, answers_in, still_hold
from relaxpy.exec.runtime.threads import rounding, thread_count
from relaxpy.exec.store.container import Container, damaged, path_text
from relaxpy.exec.store.stored import Source, is_default, load_program
from relaxpy.ir.core.fork_lock import ForkLock, Late
from relaxpy.ir.core.memo import memoised, noted_reads
from relaxpy.ir.core.node import Attrs
from relaxpy.ir.core.target import DEFAULT, Target, default_target, target_facts, target_kind
from relaxpy.ir.core.tensor import may_change
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.serialize import load_table
from relaxpy.ir.tir.prim_func import PrimFunc, kernel_faults
from relaxpy.support.dataclass import replace
from relaxpy.support.entry import user_facing
from relaxpy.support.gc_pause import gc_paused
from relaxpy.support.progress import long_work, stage, timed

if TYPE_CHECKING:
    from relaxpy.exec.api.lowered import Lowered
    from relaxpy.exec.runtime.values import Value

TargetLike: TypeAlias = str | Mapping[str, Any] | Target | Native | Sequence[Native]
#: A decorated class is a module, but type checkers may ignore class decorators.
ModuleLike: TypeAlias = IRModule | rx.BaseFunc | type[Any]


@user_facing
@gc_paused
def compile(
    mod: object,
    target: TargetLike | None = None,
    *,
    args: object = None,
    kwargs: Mapping[str, object] | None = None,
    dynamic: object = None,
    name: str | None = None,
    relax_pipeline: str | Callable[[IRModule], IRModule] | None = "default",
    tir_pipeline: str | None = "default",
    schedules: str | None = None,
) -> Executable:
    """The executable of a model, which is called like a function: `relaxpy.compile(model)(x)`.

    A model is a module or a function of relaxpy; an `ExportedProgram` of torch, or one of its
    modules with example arguments; a `ModelProto` of onnx; or the path of a file with the suffix
    `.onnx`, `.pt2`, `.rxp`, `.json` or `.py`. `relaxpy.load` makes a module of it, and describes
    `args`, `kwargs` and `dynamic`. An executable from a `.rxp` file has its own target.

    The functions of the executable are those of the module that have a `global_symbol`: `ex(x)`
    calls `main`, or the only one, and `ex["name"](x)` another one. A single function
    becomes a module with the function under its symbol, or under `main`; `name` renames the
    function `main`, or the only public one. The passes of `relax_pipeline`, a name or a pass, are
    applied first: "default" fuses kernels, and "legalize" leaves one for each operator. None
    applies no pass and omits the check for well-formedness. `tir_pipeline` exists for TVM
    compatibility: targets lower kernels themselves.

    The target is "native" (machine code), "numpy", "reference", or a Target. By default it is the
    target that was entered. Otherwise, and for TVM's names of CPUs such as "llvm", it is that of
    the environment variable RELAXPY_TARGET, or else "native" if llvmlite is installed and the CPU
    has AVX2 and FMA, or else "numpy". `report()` shows how each kernel runs. With one or several
    targets of `relaxpy.target.Native`, the file that `save` writes has code for these CPUs.

    With `schedules="as written"`, native code runs the loops of kernels as scheduled, vectorised
    and parallel only where they are annotated so, to measure a schedule. Otherwise kernels are
    rescheduled for speed.

    Errors:
        WellFormedError: the program is not well-formed; all violations are reported.
        StructInfoError: the struct info of the program is inconsistent.
        CompileError: the module cannot run on this target; all reasons are reported.
        FrontendError (also ValueError): the model cannot be imported.
        MisuseError (also TypeError, ValueError): `mod` is not a model, or the target is unknown,
            as RELAXPY_TARGET may be.
        OSError: the file cannot be read.
        UnknownNameError (also ValueError): there is no pipeline of that name.
    """
    examples = {"args": args, "kwargs": kwargs, "dynamic": dynamic}
    if is_saved(mod) and target is schedules is name is None and relax_pipeline == "default":
        return load_executable(mod)
    _check_option(
        "tir_pipeline",
        tir_pipeline,
        ("default", None),
        hint="omit it, and run passes on kernels before compile: tir_pipeline(mod)",
    )
    _check_option("schedules", schedules, (AS_WRITTEN, None))
    module = with_instance(loaded(mod, "compile", examples))
    module = module if name is None else named(module, name)
    codes: Codes | None = target if is_native(target) else None  # type: ignore[assignment]
    requested = target_kind(Target.current() if target is None else (codes and DEFAULT) or target)
    name, not_native = (requested, "") if requested != DEFAULT else default_target()
    if codes is not None:
        not_native = unfit()
        name = "numpy" if not_native else "native"
    if schedules is not None:
        _check_as_written(name, not_native)
    written, passes = module.clone(), relax_pipeline
    with long_work("compiling"), timed() as stages:
        is_default = relax_pipeline == "default"
        if is_default and target_facts(name).is_native and schedules is None:
            executable = _kept_or_compiled(module, name, requested)
        else:
            from relaxpy.exec.api import lowered

            if isinstance(relax_pipeline, str):
                relax_pipeline = lowered.pipeline(relax_pipeline, "native" if codes else name)
            module = lowered.transformed(module, relax_pipeline).clone()  # users may change it
            program = Program(module, name, requested, executable_of_saved, schedules=schedules)
            executable = lowered.compiled(program, not_native)
        if codes is not None:
            executable = with_code_for(executable, codes)
    return executable.written_as(written, passes).timed(stages)


@user_facing
@gc_paused
def compile_made(
    make: Callable[[], IRModule], recipe: str, target: TargetLike | None = None
) -> Executable:
    """Compile the module that `make` returns for the target; `recipe` decides what that is.

    The target is the current one in `make`. Native programs come from the disk cache by the recipe:
    the module is made only for what is not there. Positions in it are not kept on disk.

    Errors: as for `compile`.
    """
    requested = target_kind(Target.current() if target is None else target)
    name, _ = (requested, "") if requested != DEFAULT else default_target()

    def module() -> IRModule:
        with Target(name):
            return with_instance(as_module(make(), "compile"))

    made = Late(module)
    source = Source.made(recipe) if target_facts(name).is_native else None
    if source is None or not source.key:
        return compile(made(), target)
    with long_work("compiling"), timed() as stages:
        executable = _from_disk_or_compiled(source, made, name, requested)
    return executable.timed(stages)


def _check_as_written(target: str, reason: str) -> None:
    """Check that a target runs loops as scheduled."""
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
        saved = Container.read(path_text(path))
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
    from relaxpy.ir.relax.analysis.well_formed import check_well_formed  # most start without it

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
    code = LoadedCode()
    if native_code:
        code = load_code(saved.content.get("native"), saved.arrays, source)
    if code.machine is None:
        return _loaded_with(code, saved, source)
    try:
        with generating_for(code.machine, runs_here=True):
            return _loaded_with(code, saved, source)
    except CompileError as error:
        if not obstacle():
            raise
        # Without llvmlite, kernels for which the file has no code cannot be native.
        reason = error.diagnostic.message
    problem = f"the machine code of the file is not used: {reason}"
    return _loaded_with(LoadedCode(problem=problem), saved, source)


def _loaded_with(code: LoadedCode, saved: Container, source: str) -> Executable:
    content = saved.content
    is_usable = code.program is not None and is_default()
    executable = _from_table(saved, code, source) if is_usable else None
    if executable is not None:
        return executable
    module = saved_module(saved, source)
    requested = target_kind(str(content.get("target")))
    schedules = _saved_schedules(saved)

    def compiled(name: str, not_native: str) -> Executable:
        from relaxpy.exec.api import lowered

        program = Program(
            *(with_instance(module), name, requested, executable_of_saved),
            keep=code,
            schedules=schedules,
        )
        return lowered.compiled(program, not_native, code.problem)

    if code.objects:
        return compiled("native", "")
    name, not_native = default_target() if requested == DEFAULT else (requested, "")
    if target_facts(name).is_native and schedules is None:
        return _stored_or_compiled(with_instance(module), None, requested, code.problem)
    return compiled(name, not_native)


def _saved_schedules(saved: Container) -> str | None:
    return AS_WRITTEN if saved.content.get("schedules") == AS_WRITTEN else None


def _from_table(saved: Container, code: LoadedCode, source: str) -> Executable | None:
    """The executable of a program with the machine code of its functions, unless it fits no more.

    The program itself is read and checked lazily: for its source, or where native code refuses
    arguments.
    """

    def read() -> IRModule:
        from relaxpy.exec.reference.runnable import check_runnable

        module = with_instance(saved_module(saved, source))
        check_runnable(module, kernels=False)
        return module

    module, schedules = Late(read), _saved_schedules(saved)
    lowered = _lowered_later(module, schedules)
    assert code.program is not None
    try:
        literals = [*map(rx.Constant, saved.arrays)]
        table = program_of_saved(code.program, code.library, literals, module, lowered)
        functions = None if table is None else _linked(table, lowered)
        requested = target_kind(str(saved.content.get("target")))
    except NOT_A_PROGRAM as error:
        raise damaged_code(source, f"its table of functions has no {error}") from None
    if table is None or functions is None:
        return None
    threads = str(native_threads())
    rows = (
        replace(r, threads=threads) if r.threads.isdigit() and r.threads != "1" else r
        for r in table.rows
    )
    program = Program(
        *(module, "native", requested, executable_of_saved), keep=code, schedules=schedules
    )
    return executable_of_table(program, replace(table, rows=tuple(rows)), functions, lowered)


def _linked(
    program: CompiledProgram, lowered: Callable[[], Lowered]
) -> Mapping[str, Callable[..., Value]] | None:
    """The functions of a program whose lowered form may be needed later; None if it cannot run."""
    try:
        functions = link(program, lowered)
    except OSError:
        return None  # this process may not run it, as code with matrix tiles
    missing = [name for name, _ in program.public.values() if name not in functions]
    if missing:
        raise KeyError(missing[0])
    return functions


def _kept_or_compiled(module: IRModule, target: str, requested: str) -> Executable:
    """The native executable of a module, which users may change later: from memory if possible."""

    def compiled(module: IRModule) -> Executable:
        return _stored_or_compiled(module, target, requested)

    is_shared = keeps_programs() and is_default() and not module.global_infos
    if not is_shared or any(map(_literals_may_change, module.functions_by_name.values())):
        return compiled(module.clone())
    return shared_or_new(module, requested, compiled)


@memoised
def _literals_may_change(func: rx.BaseFunc) -> bool:
    """True if a literal is in memory that others can write, such as that of a tensor of PyTorch."""
    literals = (node for node in walk(func) if isinstance(node, rx.Constant))
    return any(may_change(literal.memory(aligned=False)) for literal in literals)


def _stored_or_compiled(
    module: IRModule, passes_for: str | None, requested: str, remark: str = ""
) -> Executable:
    """The native executable of a module, from the disk cache if possible.

    The passes are those of the default pipeline for a target, or none.
    """
    with stage("hash of the program"):
        source = Source(module, has_passes=passes_for is not None)
    return _from_disk_or_compiled(source, lambda: module, passes_for, requested, remark)


def _from_disk_or_compiled(
    source: Source,
    module: Callable[[], IRModule],
    passes_for: str | None,
    requested: str,
    remark: str = "",
) -> Executable:
    """The native executable of a source. What is not on disk is computed lazily."""

    def transform() -> IRModule:
        from relaxpy.exec.api import lowered

        if passes_for is None:
            return module()
        return lowered.transformed(module(), lowered.pipeline("default", passes_for))

    def transform_later() -> IRModule:
        with PassContext():
            return transform()

    if source.key:
        later = Late(transform_later)
        program = Program(later, "native", requested, executable_of_saved)
        lowered = _lowered_later(later, None)
        with stage("loading from the disk"), suppress(*NOT_A_PROGRAM):  # of another program
            stored = load_program(source, module, lowered)
            functions = None if stored is None else _linked(stored, lowered)
            if stored is not None and functions is not None:
                return executable_of_table(program, stored, functions, lowered, remark)
    from relaxpy.exec.api.lowered import compiled_and_stored

    with noted_reads() as reads:
        program = Program(transform(), "native", requested, executable_of_saved)
        return compiled_and_stored(program, module(), source, remark, reads)


def _lowered_later(source: Callable[[], IRModule], schedules: str | None) -> Late[Lowered]:
    """The lowered form of the native module that `source` returns, computed when it is needed."""

    def lower() -> Lowered:
        from relaxpy.exec.api.lowered import Lowered, new_backend

        return Lowered(source, new_backend("native", schedules))

    return Late(with_current(lower))


_Recent: TypeAlias = tuple[list[ref[Any]], ref[Executable], Attrs, Sequence[Answer]]
_recent: Final[OrderedDict[object, _Recent]] = OrderedDict()
"""An entry keeps the attributes of its module, whose address is a part of its key."""
_lock: Final = ForkLock()


def shared_or_new(
    module: IRModule, target: str, compiled: Callable[[IRModule], Executable]
) -> Executable:
    """The executable of a module with default settings: one that shares code, or a new one.

    It shares the code of an executable that is in use and was compiled from the same functions and
    attributes by identity, for the same target, with the same answers of the registry of packed
    functions. Each has its own stored arguments.
    """
    functions = module.functions_by_name
    identities = tuple((name, id(func)) for name, func in functions.items())
    attrs = module.attrs
    key = identities, id(attrs), target, thread_count(), rounding()
    with _lock:
        known, executable, _, answers = _recent.get(key, ((), lambda: None, attrs, ()))
        same = all(one() is func for one, func in zip(known, functions.values(), strict=False))
        found = executable() if same else None
        if found is not None:
            _recent.move_to_end(key)
    if found is not None and still_hold(answers):
        return found.sharing()
    with noted_reads() as reads:
        new = compiled(module.clone())
    with _lock:
        _recent[key] = [*map(ref, functions.values())], ref(new), attrs, answers_in(reads)
        if len(_recent) > Kept.EXECUTABLES:
            _recent.popitem(last=False)
    return new
