"""Programs of Python modules, which are imported, and so executed, because the user asks for it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from contextlib import redirect_stdout
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Final

from relaxpy.errors import Diagnostic, RelaxpyError, Source, Span
from relaxpy.plugins.cli.usage import UsageError
from relaxpy.support.nearest import nearest

if TYPE_CHECKING:
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

    Errors:
        OSError: the file cannot be read.
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
