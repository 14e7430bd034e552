"""The commands: each takes the parsed options, writes its result, and returns the exit code."""

from __future__ import annotations

import json
import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from relaxpy.errors import Diagnostic, MisuseError, RelaxpyError, WellFormedError, counted, warn
from relaxpy.plugins.cli import programs
from relaxpy.plugins.cli.show import FORMATS, UsageError, show_error, show_os_error, writing

if TYPE_CHECKING:
    from relaxpy.exec.api.cross import Native
    from relaxpy.exec.api.executable import EntryPoint, Executable
    from relaxpy.ir.module import IRModule
    from relaxpy.ir.relax.nodes import BaseFunc

_SECONDS: Final = 0.3


def watch(paths: Sequence[str], run: Callable[[], int]) -> int:
    """Call `run` now and after each change of a file, until Ctrl-C; return its last result.

    A file may be created or deleted meanwhile.

    Errors:
        UsageError: one of the paths is standard input, or names a module.
    """
    for path in paths:
        if path == programs.STDIN or not Path(path).exists():
            raise UsageError(f"--watch takes files and folders, found {path!r:.60}")
    code, before = 0, None
    try:
        while True:
            now = {file: _time(file) for path in paths for file in programs.files_in(path)}
            if now != before:
                code, before = run(), now
            time.sleep(_SECONDS)
    except KeyboardInterrupt:
        return code


def _time(path: str) -> int:
    """When the file was changed, in nanoseconds; 0 if it does not exist."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def check(options: Namespace) -> int:
    """Print the errors of each program; the exit code is 1 if there are any.

    It is 2 if a file cannot be read, also if others are then checked.
    """
    if options.watch:
        return watch(options.files, lambda: _check(options))
    return _check(options)


def _check(options: Namespace) -> int:
    from relaxpy.plugins.cli.lsp.findings import special_size_errors

    found: list[tuple[str, Diagnostic]] = []
    read = unread = 0
    for path in (file for given in options.files for file in programs.files_in(given)):
        name = path
        try:
            source = programs.program_source(path, options.imported)
            name = source.name
            program = source.module()
            for doubt in special_size_errors(program):
                warn(doubt)
        except OSError as error:
            show_os_error(error)
            unread += 1
            continue
        except UsageError as error:
            show_error(error, sys.stderr, "relaxpy")
            unread += 1
            continue
        except RelaxpyError as error:
            if options.format == "text":
                show_error(error, sys.stdout, name)
            found += ((name, diagnostic) for diagnostic in error.diagnostics)
        read += 1
    if options.format != "text":
        print(FORMATS[options.format](found))
    elif (found or not unread) and not options.quiet:
        errors = len(found)
        where = f"in {counted(read, 'file')}" if read else "as no file has a program"
        print(f"{counted(errors, 'error') if errors else 'no errors'} {where}")
    return 2 if unread else int(bool(found))


def print_(options: Namespace) -> int:
    """Print the program in normal form."""
    _write(_source(options).program(), options.output)
    return 0


def opt(options: Namespace) -> int:
    """Print the module after the passes, or which of them is wrong; then the exit code is 1.

    A reproducer has passes of its own.
    """
    from relaxpy.exec.inspect.explain import explain
    from relaxpy.ir.pass_infra.reproducer import read_header
    from relaxpy.ir.transform import get_pipeline
    from relaxpy.plugins.cli.named_passes import sequence
    from relaxpy.plugins.testing.bisect import bisect

    file = _source(options)
    header = (read_header(file.text) if isinstance(file, programs.ProgramFile) else None) or {}
    text = options.passes
    if options.pipeline is None and text is None:
        text = header.get("passes")
        if text is None:
            raise UsageError(
                f"{file.name} has no passes of its own, as reproducers have",
                hint="write --passes 'LegalizeOps,FuseOps' or --pipeline default",
            )
    pipeline = get_pipeline(options.pipeline) if text is None else sequence(text)
    module = file.module()
    with _reproduced(header if text is not options.passes else {}):
        if options.bisect:
            wrong = bisect(module, pipeline, seed=options.random or 0)
            print("no pass changes what the program computes" if wrong is None else wrong)
            return int(wrong is not None)
        if not (options.explain or options.diff):
            _write(pipeline(module), options.output)
            return 0
        explanation = explain(module, pipeline)
        print(explanation.diff() if options.diff else explanation)
        if options.output is not None:
            _write(explanation.mod, options.output)
        return 0


@contextmanager
def _reproduced(header: Mapping[str, str]) -> Iterator[None]:
    """Enter the target and the context that a reproducer names."""
    from relaxpy.ir.core.target import Target
    from relaxpy.ir.pass_infra.passes import PassContext
    from relaxpy.ir.pass_infra.reproducer import read_context

    with ExitStack() as entered:
        if header.get("target"):
            entered.enter_context(Target(header["target"]))
        if header:
            entered.enter_context(PassContext(**read_context(header.get("context", "{}"))))
        yield


def compile_(options: Namespace) -> int:
    """Save the executable of a program."""
    executable = _executable(options)
    if options.file != programs.STDIN and _is_same_file(options.file, options.output):
        raise UsageError(f"{options.output} is the program, which the executable would replace")
    with writing(options.output):
        executable.save(options.output)
    print(f"{options.output}: {executable!r}")
    return 0


def export(options: Namespace) -> int:
    """Write the library of a program, and its header."""
    from relaxpy.plugins.cli.inputs import sizes_of

    systems = options.systems or [None]
    if len(systems) > 1:
        raise UsageError(f"a library is for one system, found {' and '.join(systems)}")
    is_language_model = options.file.endswith(".gguf") or os.path.isdir(options.file)
    others = ("target", "pipeline", "sizes", "imported", "at_most")
    names = (
        others
        if is_language_model
        else ("quantize", "context", "cache_dtype", "page", "tokens", "sequences")
    )
    if given := [name for name in names if getattr(options, name)]:
        option = {"sizes": "dim", "imported": "import"}.get(given[0], given[0].replace("_", "-"))
        kind = "programs" if is_language_model else "language models"
        raise UsageError(f"--{option} is for {kind}, which {options.file} is not")
    if is_language_model:
        from relaxpy.plugins.cli.language_models import load_model

        of_model = Namespace(**vars(options), threads=None)
        lm = load_model(of_model, options.file, sequences=1)
        write: Callable[..., tuple[Path, ...]] = partial(
            lm.export, page=options.page, tokens=options.tokens, sequences=options.sequences or 1
        )
    else:
        bounds = sizes_of(options.at_most or (), "--at-most")
        write = partial(_executable(options).export, at_most=bounds)
    try:
        with writing(options.output):
            files = write(
                options.output,
                target=systems[0],
                name=options.name,
                weights=options.weights,
                pool=options.pool,
                extern=options.extern,
            )
    except MisuseError as error:
        raise UsageError(error.diagnostics) from None
    for file in files:
        print(f"{file}: {file.stat().st_size} bytes")
    return 0


def warm(options: Namespace) -> int:
    """Compile programs, and print what the disk cache then has of each.

    The exit code is 1 if a program is wrong, and 2 if a file cannot be read.
    """
    from relaxpy.exec.native.machine_code import disk_cache

    place = disk_cache.usage()
    if place.problem or not disk_cache.keeps_programs():
        reason = place.problem or f"{disk_cache.SWITCH}=code"
        raise UsageError(f"programs are not kept on disk: {reason}")
    code = 0
    for path in (file for given in options.files for file in programs.files_in(given)):
        before = disk_cache.usage().size
        try:
            source = programs.program_source(path, options.imported)
            is_saved = isinstance(source, programs.ProgramFile) and source.saved is not None
            executable = source.executable(None if is_saved else options.target)
        except OSError as error:
            show_os_error(error)
            code = 2
            continue
        except RelaxpyError as error:
            show_error(error, sys.stderr, path)
            code = max(code, 2 if isinstance(error, UsageError) else 1)
            continue
        report = executable.compile_report()
        stored = disk_cache.usage().size - before
        if report.remark:
            found = report.remark
        elif stored > 0:
            found = f"{_in_kib(stored)} stored, compiled in {report.seconds:.1f} s"
        elif report.is_new:
            found = f"nothing is kept on disk for the target {executable.target}"
        else:
            found = "it was stored before"
        print(f"{path}: {counted(len(executable), 'function')}, {found}", flush=True)
    place = disk_cache.usage()
    print(f"{place.path}: {counted(place.files, 'file')}, {_in_kib(place.size)}")
    return code


def cache(options: Namespace) -> int:
    """Print what the disk cache has, or remove all of it."""
    from relaxpy.exec.native.machine_code import disk_cache

    place = disk_cache.usage()
    if place.problem:
        raise UsageError(f"nothing is kept on disk: {place.problem}")
    if options.clear:
        disk_cache.clear()
        now = disk_cache.usage()
        files, size = counted(place.files - now.files, "file"), _in_kib(place.size - now.size)
        print(f"{place.path}: {files} removed, {size}")
    else:
        print(f"{place.path}: {counted(place.files, 'file')}, {_in_kib(place.size)}")
    return 0


def _in_kib(size: int) -> str:
    return f"{-(-size // 1024)} KiB"


def _words(options: Namespace) -> list[str]:
    """The inputs of a call, those of `--input` last."""
    return [*options.inputs, *options.input]


def _seed(options: Namespace) -> int | None:
    """The seed of random inputs; an ONNX model has some where none are given."""
    if options.random is None and not _words(options) and _source(options).draws_inputs:
        return 0
    seed: int | None = options.random
    return seed


def run(options: Namespace) -> int:
    """Call a function, and print or save its result."""
    from relaxpy.plugins.cli.inputs import arguments, print_value, save_value

    function = _function(_executable(options), options.function)
    result = function(*arguments(function, _words(options), options.dim, _seed(options)))
    if options.output is None:
        print_value(result)
    else:
        save_value(result, options.output)
    return 0


def profile(options: Namespace) -> int:
    """Print the time of a call by kernel, or that of a language model."""
    from relaxpy.plugins.cli.inputs import arguments

    of_model = {"quantize": "quantize", "context": "context", "cache_dtype": "cache-dtype"}
    of_program = {"inputs": "", "input": "input", "random": "random", "dim": "dim"}
    of_program |= {"function": "function", "trace": "trace", "pipeline": "pipeline"}
    of_program |= {"imported": "import"}
    is_language_model = options.prompt is not None
    for name, option in (of_program if is_language_model else of_model).items():
        value = getattr(options, name)
        if not (value is None or value is False or value == []):
            what = f"--{option}" if option else "an input"
            other = "cannot be with" if is_language_model else "needs"
            raise UsageError(f"{what} {other} --prompt, which is for language models")
    if is_language_model:
        from relaxpy.plugins.cli.language_models import load_model

        lm = load_model(Namespace(**vars(options), threads=None), options.file, sequences=1)
        measured = lm.profile(options.prompt, repeat=options.repeat)
        print(json.dumps(measured.record(), indent=2) if options.json else measured)
        return 0
    if Path(options.file).is_dir():
        raise UsageError(f"{options.file} is a folder: a language model needs --prompt TEXT")
    executable = _executable(options)
    function = _function(executable, options.function)
    args = arguments(function, _words(options), options.dim, _seed(options))
    name = function.signature.name
    repeat, trace = options.repeat, options.trace
    found = executable.profile(*args, function=name, repeat=repeat, trace=trace)
    print(json.dumps([asdict(row) for row in found], indent=2) if options.json else found)
    return 0


def report(options: Namespace) -> int:
    """Print how each kernel runs."""
    found = _executable(options).report()
    print(json.dumps([asdict(row) for row in found], indent=2) if options.json else found)
    return 0


def source(options: Namespace) -> int:
    """Print the generated code: all of it in Python, or that of kernels."""
    executable = _executable(options)
    if options.kind == "python" and options.kernel is None:
        print(executable.source)
        return 0
    if options.kernel is not None:
        print(executable.kernel_source(options.kernel, options.kind))
        return 0
    printed = 0
    for kernel in dict.fromkeys(row.kernel for row in executable.report()):
        try:
            print(executable.kernel_source(kernel, options.kind))
            printed += 1
        except RelaxpyError as error:  # the other kernels may have machine code
            show_error(error, sys.stderr, kernel)
    return 0 if printed else 1


def graph(options: Namespace) -> int:
    """Draw the dataflow; the exit code is 1 if the program is wrong, which is drawn, too."""
    from relaxpy.ir.transform import get_pipeline
    from relaxpy.plugins.pictures.graph import graph as draw

    source = _source(options)
    program, found = source.sketch()
    if options.pipeline is not None:
        program, found = get_pipeline(options.pipeline)(source.module()), []
    picture = draw(program, {"all": True, "none": False}.get(options.fold), found)
    if options.output in (None, programs.STDIN):
        print(picture.to_mermaid(), end="")
    else:
        try:
            with writing(options.output):
                picture.save(options.output)
        except MisuseError as error:
            raise UsageError(error.diagnostics) from None
        print(f"{options.output}: {picture!r}")
    if found:
        show_error(WellFormedError(found), sys.stderr, source.name)
    return int(bool(found))


def lsp(options: Namespace) -> int:
    """Answer an editor over standard input and output until it ends the connection."""
    try:
        from relaxpy.plugins.cli.lsp.server import serve
    except ImportError as error:
        raise UsageError(
            f"the language server cannot be loaded: {error}",
            hint="python -m pip install 'relaxpy[lsp]'",
        ) from None
    serve()
    return 0


def passes(options: Namespace) -> int:
    """Print the passes and pipelines, or the documentation of one pass."""
    from relaxpy.ir.transform import pipelines
    from relaxpy.plugins.cli.named_passes import described, listed, public_passes

    if options.name is not None:
        print(described(options.name))
        return 0
    _print_columns("passes", listed(public_passes()))
    print()
    _print_columns("pipelines", listed(pipelines()))
    return 0


def targets(options: Namespace) -> int:
    """Print the targets, and which is the default here."""
    from relaxpy.ir.core.target import NAMES, default_target

    name, reason = default_target()
    about = {
        "numpy": "generated Python code on NumPy, everywhere",
        "native": "machine code, where llvmlite is installed and the CPU has AVX2 and FMA",
        "reference": "the reference evaluator: slow, one scalar at a time",
    }
    _print_columns("targets", ((target, about[target]) for target in NAMES))
    print(f"\nthe default is {name}" + (f": {reason}" if reason else ""))
    return 0


def doctor(options: Namespace) -> int:
    """Print what affects speed on this machine."""
    from relaxpy.exec.inspect.doctor import doctor as examine

    print(examine())
    return 0


def explain_rule(options: Namespace) -> int:
    """Print the text of rules that errors cite."""
    from relaxpy.rules import explain

    print("\n\n".join(str(explain(rule)) for rule in options.rules))
    return 0


def _source(options: Namespace) -> programs.ProgramSource:
    return programs.program_source(options.file, options.imported)


def _executable(options: Namespace) -> Executable:
    from relaxpy.ir.core.target import target_kind

    try:
        target_kind(options.target)
        target: str | list[Native] | None = options.target
        if codes := getattr(options, "codes", None):
            from relaxpy.exec.api.cross import Native

            if options.target is not None:
                raise UsageError("--for is for native code, and --target another target: omit one")
            target = [Native.of_text(text) for text in codes]
    except MisuseError as error:
        raise UsageError(error.diagnostics) from None
    source = _source(options)
    if getattr(options, "sizes", None):
        return _with_sizes(source, options.sizes, target, options.pipeline)
    return source.executable(target, options.pipeline)


def _with_sizes(
    source: programs.ProgramSource,
    words: Sequence[str],
    target: str | list[Native] | None,
    pipeline: str | None,
) -> Executable:
    """The executable of a program whose dimensions are those of `--dim`."""
    from relaxpy.exec.api.compile import compile
    from relaxpy.ir.passes.bind_params import BindSymbolicVars
    from relaxpy.plugins.cli.inputs import sizes_of

    if isinstance(source, programs.ProgramFile) and source.saved is not None:
        raise UsageError(
            f"{source.name} is a saved executable, whose passes have run", hint="omit --dim"
        )
    sizes: dict[Any, int] = sizes_of(words)
    module = BindSymbolicVars(sizes)(source.module())
    return compile(module, target, relax_pipeline=pipeline or "default")


def _function(executable: Executable, name: str | None) -> EntryPoint:
    """The function of this name, or `main`, or the only one."""
    only = next(iter(executable)) if len(executable) == 1 else "main"
    if name is None and only not in executable and len(executable) > 0:
        raise UsageError(
            f"there is no function main, expected the name of one of {', '.join(executable)}",
            hint=f"write --function {next(iter(executable))}",
        )
    return executable[name or only]


def _is_same_file(one: str, other: str) -> bool:
    return Path(other).exists() and Path(one).samefile(other)


def _write(program: IRModule | BaseFunc, output: str | None) -> None:
    """Print a program, or write it to a file: as JSON if its name ends so."""
    if output is None or output == programs.STDIN:
        program.show()
    elif output.endswith(".json"):
        from relaxpy.ir.serialize import save_json

        with writing(output):
            Path(output).write_text(save_json(program), encoding="utf-8")
    else:
        from relaxpy.script.printer.document import OMITTED

        text = program.script()
        with writing(output):
            Path(output).write_text(f"{text}\n", encoding="utf-8")
        if text.endswith(OMITTED):
            warn(
                Diagnostic(
                    f"{output} has no large constants, so it cannot be read again",
                    hint="-o with a name that ends in .json writes them, too",
                )
            )


def _print_columns(title: str, rows: Iterable[tuple[str, str]]) -> None:
    entries = list(rows)
    width = max(len(name) for name, _ in entries)
    print(f"{title}:")
    for name, text in entries:
        print(f"  {name.ljust(width)}  {text}".rstrip())
