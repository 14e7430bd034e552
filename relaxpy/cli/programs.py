"""The programs in files: TVMScript, which is read and never run, JSON, and saved executables."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from relaxpy.cli.usage import UsageError
from relaxpy.dataclass import dataclass
from relaxpy.errors import WellFormedError

if TYPE_CHECKING:
    from relaxpy.exec.executable import Executable
    from relaxpy.ir.module import IRModule
    from relaxpy.ir.relax.nodes import BaseFunc

STDIN = "-"


def read_file(path: str) -> ProgramFile:
    """The contents of a file, or of standard input for `-`.

    Errors:
        OSError: the file cannot be read.
        UsageError: it is not text, or `path` is not a path.
    """
    name = "<stdin>" if path == STDIN else path
    if path == STDIN and sys.stdin is None:
        raise UsageError("standard input is closed")
    try:
        text = sys.stdin.read() if path == STDIN else Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(
            f"{name} is not a text in UTF-8",
            hint="a program is TVMScript, JSON or a saved executable",
        ) from None
    except ValueError as error:
        raise UsageError(f"{path!r:.60} is not the path of a file: {error}") from None
    return ProgramFile(name, text.removeprefix("\ufeff"))


@dataclass(frozen=True, slots=True)
class ProgramFile:
    """The text of a file, whose first character decides what it is: JSON begins with a brace."""

    name: str
    text: str

    @property
    def is_json(self) -> bool:
        """Whether this is a module in JSON or a saved executable."""
        return self.text.lstrip().startswith("{")

    def saved(self) -> str | None:
        """The JSON text of the module in a saved executable; None if it is not one."""
        try:
            table = json.loads(self.text) if self.is_json else None
        except (ValueError, RecursionError):
            return None
        if isinstance(table, dict) and table.get("format") == "relaxpy-executable":
            module = table.get("module")
            return module if isinstance(module, str) else None
        return None

    def program(self) -> IRModule | BaseFunc:
        """The well-formed module or function; of a saved executable, the module that runs.

        Errors:
            ParseError, StructInfoError, WellFormedError: with all diagnostics of the program.
            MisuseError: the JSON is not a program of this version.
            UsageError: the file has something else, such as a rewriter.
        """
        from relaxpy.ir.module import IRModule
        from relaxpy.ir.relax.analysis.well_formed import check_well_formed
        from relaxpy.ir.relax.nodes import BaseFunc

        if self.is_json:
            from relaxpy.ir.serialize import load_json

            saved = self.saved()
            program = load_json(self.text if saved is None else saved)
        else:
            from relaxpy.script.read import from_source

            program = from_source(self.text, filename=self.name)
        if not isinstance(program, (IRModule, BaseFunc)):
            raise UsageError(f"{self.name} has a {type(program).__name__}, not a program")
        diagnostics = check_well_formed(program) if self.is_json else []
        if diagnostics:
            raise WellFormedError(diagnostics)
        return program

    def module(self) -> IRModule:
        """The program as a module, which a single function is made. Errors: as for `program`."""
        from relaxpy.ir.module import IRModule

        program = self.program()
        return program if isinstance(program, IRModule) else IRModule.from_expr(program)

    def executable(self, target: str | None = None, pipeline: str | None = None) -> Executable:
        """The program compiled for `target`; a saved executable has its own target.

        Errors:
            UsageError: a saved executable is given a target or a pipeline.
            As for `program` and `relaxpy.compile`.
        """
        from relaxpy.exec.compile import compile, executable_of_text

        if self.saved() is None:
            return compile(self.program(), target, relax_pipeline=pipeline or "default")
        if target is not None or pipeline is not None:
            raise UsageError(
                f"{self.name} is a saved executable, which is compiled for its own target",
                hint="omit --target and --pipeline",
            )
        return executable_of_text(self.text)
