"""The programs in files: TVMScript, which is read and never run, JSON, executables, and ONNX.

Python modules are imported, and so executed, because the user asks for it. In programs with errors,
ill-formed statements become placeholders.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from importlib.machinery import ModuleSpec
from os import PathLike, fspath
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, ClassVar, Final

from typing_extensions import override

from relaxpy.errors import (
    Diagnostic,
    MisuseError,
    RelaxpyError,
    Source,
    Span,
    WellFormedError,
    warn,
)
from relaxpy.plugins.cli.show import UsageError
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.missing import nearest

if TYPE_CHECKING:
    from relaxpy.exec.api.cross import Native
    from relaxpy.exec.api.executable import Executable
    from relaxpy.exec.store.container import Container
    from relaxpy.ir.module import IRModule
    from relaxpy.ir.relax.nodes import BaseFunc

SUFFIX: Final = ".py"
"""The end of the name of a file of TVMScript or Python."""


class FailedImportError(RelaxpyError, ImportError):
    """The code of a module raised an exception while it was imported."""


def is_reference(text: str) -> bool:
    """True if `text` is `module:attribute` or `file.py:attribute`, and not an existing file."""
    module, colon, attribute = text.rpartition(":")
    names = (*module.removesuffix(SUFFIX).split("."), *attribute.split("."))
    is_name = module.endswith(SUFFIX) or all(name.isidentifier() for name in names)
    return bool(colon) and is_name and not Path(text).exists()


def import_program(text: str) -> IRModule | BaseFunc:
    """Import a module, given by its name or file, and return the program that `text` names.

    Without `:attribute` that is the only module in it, or all of its functions as one.

    Errors:
        UsageError: there is no such file, module or program, or there are several.
        FailedImportError: the code of the module raised an exception.
        RelaxpyError: a program in it is wrong.
    """
    from relaxpy.ir.module import IRModule
    from relaxpy.ir.relax.nodes import BaseFunc

    path, _, attribute = text.rpartition(":") if is_reference(text) else (text, "", "")
    module = _import(path)
    programs = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, (IRModule, BaseFunc)) and not name.startswith("__")
    }
    if attribute:
        return _attribute(module, path, attribute, programs)
    modules = {name: value for name, value in programs.items() if isinstance(value, IRModule)}
    distinct = {id(value): value for value in modules.values()}
    if len(distinct) > 1:
        raise UsageError(
            f"{path} has several modules: {', '.join(modules)}",
            hint=f"name one of them: {path}:{next(iter(modules))}",
        )
    if modules:
        return next(iter(modules.values()))
    functions = {name: value for name, value in programs.items() if isinstance(value, BaseFunc)}
    if not functions:
        raise UsageError(
            f"{path} has no program",
            hint="a program is a module-level name of an @I.ir_module, @R.function or @T.prim_func",
        )
    if len(functions) == 1:
        return next(iter(functions.values()))
    return IRModule({str(f.attrs.get("global_symbol", n)): f for n, f in functions.items()})


def _attribute(
    module: ModuleType, path: str, attribute: str, programs: dict[str, IRModule | BaseFunc]
) -> IRModule | BaseFunc:
    from relaxpy.ir.module import IRModule
    from relaxpy.ir.relax.nodes import BaseFunc

    value: object = module
    for name in attribute.split("."):
        if not hasattr(value, name):
            close = nearest(name, programs)
            listed = ", ".join(close or programs) or "none"
            raise UsageError(
                f"{path} has no {attribute!r}",
                hint=f"did you mean {listed}?" if close else f"its programs are: {listed}",
            )
        value = getattr(value, name)
    if not isinstance(value, (IRModule, BaseFunc)):
        raise UsageError(f"{path}:{attribute} is a {type(value).__name__}, not a program")
    return value


def _import(path: str) -> ModuleType:
    """Import a file or a module, with its folder, or the current one, first in `sys.path`.

    A file of a package is imported as its module. What the code prints goes to standard error.
    """
    file = Path(path)
    is_file = path.endswith(SUFFIX) or file.is_file()
    spec, folder, imported = None, Path.cwd(), path
    if is_file:
        file.stat()
        folder, imported = _place(file.resolve())
    if not imported:
        name = f"_{file.stem}" if file.stem in sys.modules else file.stem
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None:
            raise UsageError(f"{path} is not a Python file", hint="its name has to end in .py")
    sys.path.insert(0, str(folder))
    try:
        with redirect_stdout(sys.stderr):
            return importlib.import_module(imported) if spec is None else _executed(spec)
    except RelaxpyError:
        raise
    except ModuleNotFoundError as error:
        if not is_file and error.name is not None and f"{path}.".startswith(f"{error.name}."):
            raise UsageError(
                f"there is no module {error.name!r} here",
                hint=f"write the path of a file, or the name of a module: {file.stem}.py",
            ) from None
        raise _failed(path, error) from error
    except (Exception, SystemExit) as error:
        raise _failed(path, error) from error


def _place(file: Path) -> tuple[Path, str]:
    """The folder from which to import a file, and the name of its module if it is of a package."""
    top = file.parent
    while (top / "__init__.py").is_file() and top != top.parent:
        top = top.parent
    *packages, name = file.relative_to(top).with_suffix("").parts
    if not packages or not all(part.isidentifier() for part in (*packages, name)):
        return file.parent, ""
    known = getattr(sys.modules.get(packages[0]), "__file__", None)
    if known not in (None, str(top / packages[0] / "__init__.py")):  # another of the same name
        return file.parent, ""
    return top, ".".join(packages if name == "__init__" else (*packages, name))


def _executed(spec: ModuleSpec) -> ModuleType:
    """The module of a file after its code ran, known by its name as after an import."""
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    assert spec.loader is not None
    spec.loader.exec_module(module)
    return module


def _failed(path: str, error: BaseException) -> FailedImportError:
    """The error of a module whose code raised, at the last line that is not of a library."""
    kind = type(error).__name__
    message = f"{path} cannot be imported: {kind}{': ' if str(error) else ''}{error}"
    return FailedImportError([Diagnostic(message, span=_last_span(error, Path(path)))])


def _last_span(error: BaseException, file: Path) -> Span | None:
    """The line of the file, or of one below its folder, that ran last before the error."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return _line(error.filename, error.lineno, error.offset or 1)
    folder = str(file.parent.resolve())
    trace: TracebackType | None = error.__traceback__
    span = None
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name.startswith(folder) and "site-packages" not in name and "<" not in name:
            span = _line(name, trace.tb_lineno, None)
        trace = trace.tb_next
    return span


def _line(name: str, line: int, column: int | None) -> Span | None:
    """The text of a line from its first character, or the character at `column`."""
    try:
        source = Source(name, Path(name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None
    text = source.line(line)
    first = len(text) - len(text.lstrip()) + 1
    if column is not None:
        return Span(source, line, column, line, column + 1)
    return Span(source, line, first, line, len(text.rstrip()) + 1)


STDIN: Final = "-"
STDIN_NAME: Final = "<stdin>"
_IMPORT: Final = "--import"
PROGRAM_MARKS: Final = ("R.function", "T.prim_func", "I.ir_module", "R.rewriter")
"""A file with a program contains one of these."""
_READ_IMPORTS: Final = ("relaxpy.script", "tvm.script", "typing", "__future__")
_OF_PYTORCH: Final = (".pt", ".pth", ".pt2")


def program_source(path: str, imported: bool = False) -> ProgramSource:
    """The source that the command line names: a file that is read, or a module that is imported.

    A module is imported if `imported`, or if it is named as `module:attribute`.

    Errors:
        UsageError: the file is one of PyTorch, or standard input is to be imported; and as for
            `read_file`.
    """
    if imported and path == STDIN:
        raise UsageError(
            "standard input is read, not imported",
            hint=f"save the text as a file, and write its name after {_IMPORT}",
        )
    if imported or is_reference(path):
        return ImportedFile(path)
    if path.endswith(_OF_PYTORCH):
        raise UsageError(
            f"{path}: files of PyTorch are not read here, as reading them may run what is in them",
            hint="save the program in Python: relaxpy.compile(model).save('model.rxp'), where the "
            "model is torch.export.load(path), or a torch module with args=(x,)",
        )
    if path.endswith(".gguf") or (Path(path) / "config.json").exists():
        raise UsageError(
            f"{path} is a language model, not a program",
            hint="relaxpy generate, chat, serve, profile and export take one",
        )
    return OnnxFile(path) if path.endswith(".onnx") else read_file(path)


def read_file(path: str) -> ProgramFile:
    """The contents of a file, or of standard input for `-`.

    Errors:
        OSError: the file cannot be read.
        UsageError: it is not text, or `path` is not a path.
    """
    name = STDIN_NAME if path == STDIN else path
    if path == STDIN and sys.stdin is None:
        raise UsageError("standard input is closed")
    try:
        saved = _saved(path, name)
        if saved is not None:
            return ProgramFile(name, "", saved)
        text = sys.stdin.read() if path == STDIN else Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(
            f"{name} is not a text in UTF-8",
            hint="a program is TVMScript, JSON, a saved executable, or an ONNX model in a file "
            "whose name ends in .onnx",
        ) from None
    except MisuseError as error:
        raise UsageError(error.diagnostics) from None
    except ValueError as error:
        raise UsageError(f"{path!r:.60} is not the path of a file: {error}") from None
    return ProgramFile(name, text.removeprefix("\ufeff"))


def file_program(path: str | PathLike[str]) -> IRModule | BaseFunc:
    """The program in a file that `relaxpy.load` gets.

    Errors:
        OSError: the file cannot be read.
        RelaxpyError: there is no program in it, or it is wrong.
    """
    way = "import it, and pass the module or function"
    return replace(read_file(fspath(path)), way=way).program()


def _saved(path: str, name: str) -> Container | None:
    """The saved executable in a file; None if it is something else."""
    from relaxpy.exec.api.as_module import SAVED
    from relaxpy.exec.store.container import Container, is_container

    if path == STDIN:
        stream = getattr(sys.stdin, "buffer", None)
        if stream is None or not is_container(stream.peek(64)):
            return None
        return Container.of_memory(stream.read(), name)
    with open(path, "rb") as file:
        start = file.read(64)
    is_saved = is_container(start) or path.lower().endswith(SAVED)
    return Container.read(Path(path)) if is_saved else None


def is_of_a_program(statement: ast.stmt) -> bool:
    """True if a text that is only read may have the statement at its top level."""
    match statement:
        case ast.FunctionDef() | ast.ClassDef() | ast.Expr(value=ast.Constant()):
            return True
        case ast.ImportFrom(module=module):
            return (module or "").startswith(_READ_IMPORTS)
        case ast.Pass() | ast.Assign(targets=[ast.Name(id="metadata")]):
            return True
        case ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar"))):
            return True
        case _:
            return False


def _is_helper(statement: ast.stmt) -> bool:
    """True if a statement defines a function or class of Python, without decorators."""
    kinds = ast.FunctionDef, ast.ClassDef
    return isinstance(statement, kinds) and not statement.decorator_list


def _without_python(text: str) -> tuple[str, Sequence[int]]:
    """Blank the statements that only Python executes; return the text and their first lines.

    Imports are not counted. A text without programs is unchanged.
    """
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text, ()
    programs = [s for s in body if getattr(s, "decorator_list", ())]
    others = [s for s in body if not is_of_a_program(s) or _is_helper(s)]
    if not programs or not others:
        return text, ()
    lines = text.split("\n")
    kept = {n for s in body if s not in others for n in range(s.lineno, (s.end_lineno or 0) + 1)}
    skipped = [s for s in others if kept.isdisjoint(range(s.lineno, (s.end_lineno or 0) + 1))]
    for statement in skipped:
        count = (statement.end_lineno or statement.lineno) - statement.lineno + 1
        lines[statement.lineno - 1 : statement.end_lineno] = [""] * count
    first = [s.lineno for s in skipped if not isinstance(s, (ast.Import, ast.ImportFrom))]
    return "\n".join(lines), first


def files_in(path: str) -> Iterator[str]:
    """The path itself; of a folder, the files in and below it that have programs.

    These are files of TVMScript and JSON that contain one, ONNX models and executables. Hidden
    folders are left out.
    """
    if path == STDIN or is_reference(path) or not Path(path).is_dir():
        yield path
        return
    for file in sorted(Path(path).rglob("*")):
        inside = file.relative_to(path).parts
        if any(part.startswith(".") for part in inside) or not file.is_file():
            continue
        if file.suffix in _MODELS or (file.suffix in _MARKS and _is_marked(file)):
            yield str(file)


_MODELS: Final = (".onnx", ".rxp")
_MARKS: Final = {SUFFIX: tuple(f"@{mark}" for mark in PROGRAM_MARKS), ".json": ("relaxpy-ir",)}
"""The texts of which a file with a program contains one, by the suffix of its name."""


def _is_marked(file: Path) -> bool:
    """True if a file contains a program; a module in JSON begins with its mark."""
    with file.open(encoding="utf-8", errors="replace") as lines:
        text = lines.read(1024 if file.suffix != SUFFIX else -1)
    return any(mark in text for mark in _MARKS[file.suffix])


class ProgramSource(ABC):
    """The source of a program, with its name for errors without a position."""

    __slots__ = ()

    name: str
    draws_inputs: ClassVar[bool] = False
    """True if a call without inputs has random ones."""

    @abstractmethod
    def program(self) -> IRModule | BaseFunc:
        """The well-formed module or function.

        Errors:
            ParseError, StructInfoError, WellFormedError: with all diagnostics of the program.
            UsageError: there is no program.
        """

    def sketch(self) -> tuple[IRModule | BaseFunc, list[Diagnostic]]:
        """The readable part of the program, and its diagnostics.

        Errors:
            As for `program`, if nothing can be read.
        """
        return self.program(), []

    def module(self) -> IRModule:
        """The program as a module, which a single function is made. Errors: as for `program`."""
        from relaxpy.ir.module import IRModule

        program = self.program()
        return program if isinstance(program, IRModule) else IRModule.from_expr(program)

    def executable(
        self, target: str | list[Native] | None = None, pipeline: str | None = None
    ) -> Executable:
        """The program compiled for `target`.

        Errors:
            As for `program` and `relaxpy.compile`.
        """
        from relaxpy.exec.api.compile import compile

        return compile(self.program(), target, relax_pipeline=pipeline or "default")


@dataclass(frozen=True, slots=True)
class ProgramFile(ProgramSource):
    """The text of a file, which is JSON if it begins with a brace, or a saved executable.

    Hints say how Python would run it: `way` is an option of the command line, or a statement.
    """

    name: str
    text: str
    saved: Container | None = None
    way: str = f"write {_IMPORT}"

    @property
    def needs_python(self) -> bool:
        """True if the text has statements that only Python executes."""
        try:
            statements = ast.parse(self.text).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
        return not all(is_of_a_program(statement) for statement in statements)

    def _note(self) -> str | None:
        """The hint for a text with statements that only Python executes; else None."""
        if not self.needs_python:
            return None
        way = f"to import {self._as_file} as Python does, {self.way}"
        named = "" if self.name == STDIN_NAME else f", or {self.name}:NAME for one of its programs"
        return f"{self.name} is read, not executed; {way}{named}"

    @property
    def _as_file(self) -> str:
        """The name, in a hint, of the file to import; standard input has none."""
        return "a file with this text" if self.name == STDIN_NAME else "it"

    @property
    def is_json(self) -> bool:
        """True if this is a module in JSON."""
        return self.text.lstrip().startswith("{")

    @override
    def program(self) -> IRModule | BaseFunc:
        """The well-formed module or function; of a saved executable, the module that runs.

        Errors:
            ParseError, StructInfoError, WellFormedError: with all diagnostics of the program.
            MisuseError: the JSON is not a program of this version.
            UsageError: the file has something else, such as a rewriter.
        """
        from relaxpy.ir.relax.analysis.well_formed import check_well_formed

        program = self._read()
        diagnostics = check_well_formed(program) if self.is_json else []
        if diagnostics:
            raise WellFormedError(diagnostics)
        return program

    @override
    def sketch(self) -> tuple[IRModule | BaseFunc, list[Diagnostic]]:
        from relaxpy.ir.relax.analysis.well_formed import check_well_formed
        from relaxpy.plugins.cli.sketch import sketch

        if self.saved is None and not self.is_json:
            program, found = sketch(_without_python(self.text)[0], self.name)
            if program is not None:
                return program, found or check_well_formed(program)
        program = self._read()
        return program, check_well_formed(program)

    def _read(self) -> IRModule | BaseFunc:
        """The program, which is well-formed unless it is in JSON."""
        from relaxpy.ir.module import IRModule
        from relaxpy.ir.relax.nodes import BaseFunc
        from relaxpy.script.read import from_source

        if self.saved is not None:
            from relaxpy.exec.api.compile import saved_module

            return saved_module(self.saved, self.name)
        if self.is_json:
            from relaxpy.ir.serialize import load_json

            try:
                program = load_json(self.text)
            except RelaxpyError as error:
                raise error.noted(f"the file is {self.name}") from None
        else:
            text, skipped = _without_python(self.text)
            try:
                program = from_source(text, filename=self.name)
            except RelaxpyError as error:
                has_name = error.diagnostic.span is not None
                note = self._note() or (None if has_name else f"the file is {self.name}")
                raise error.noted(note) from None
            if skipped:
                where = f"{self.name}:{skipped[0]}"
                several = f"{len(skipped)} statements outside of programs, from here on, are"
                code = several if len(skipped) > 1 else "1 statement outside of programs is"
                hint = f"to import {self._as_file} as Python does, {self.way}"
                warn(Diagnostic(f"{where}: {code} not executed", hint=hint))
        if not isinstance(program, (IRModule, BaseFunc)):
            raise UsageError(f"{self.name} has a {type(program).__name__}, not a program")
        return program

    @override
    def executable(
        self, target: str | list[Native] | None = None, pipeline: str | None = None
    ) -> Executable:
        """The program compiled for `target`; a saved executable has its own target.

        Errors:
            UsageError: a saved executable is given a target or a pipeline.
            As for `program` and `relaxpy.compile`.
        """
        from relaxpy.exec.api.compile import load_saved

        if self.saved is None:
            return ProgramSource.executable(self, target, pipeline)
        if isinstance(target, list) and pipeline is None:
            from relaxpy.exec.api.cross import with_code_for

            return with_code_for(load_saved(self.saved, self.name), target)
        if target is not None or pipeline is not None:
            raise UsageError(
                f"{self.name} is a saved executable, which is compiled for its own target",
                hint="omit --target and --pipeline",
            )
        return load_saved(self.saved, self.name)


@dataclass(frozen=True, slots=True)
class ImportedFile(ProgramSource):
    """A Python module, by its file or name, that is imported when its program is needed."""

    name: str

    @override
    def program(self) -> IRModule | BaseFunc:
        return import_program(self.name)


@dataclass(frozen=True, slots=True)
class OnnxFile(ProgramSource):
    """An ONNX model, which is imported by `from_onnx`; its inputs may be drawn at random."""

    name: str
    draws_inputs: ClassVar[bool] = True

    @override
    def program(self) -> IRModule:
        """The module.

        Errors:
            FrontendError: the file is damaged, or nodes cannot be imported.
            OSError: the file cannot be read.
            UsageError: the package onnx is not installed.
        """
        with open(self.name, "rb"):  # whose error is that of all files, not of ONNX
            try:
                from relaxpy.plugins.onnx.importer import from_onnx
            except ImportError as error:
                raise UsageError(str(error)) from None
            return from_onnx(self.name)


#: How often a text is read again after statements were replaced.
