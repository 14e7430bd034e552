"""The JSON form of a compiled program, for the disk cache and for files; and its way back."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from relaxpy.errors import MisuseError, RelaxpyError, Span
from relaxpy.exec.native.calls.called import CalledKernel
from relaxpy.exec.native.calls.entry_table import EntryTable
from relaxpy.exec.native.values.packing import Joined, Packing
from relaxpy.exec.program.graph.link import NativeFunction
from relaxpy.exec.program.graph.program import Constant
from relaxpy.exec.program.graph.sessions import Session
from relaxpy.exec.program.table import CompiledProgram
from relaxpy.exec.runtime.checks import public_signatures
from relaxpy.exec.runtime.registry import still_hold
from relaxpy.exec.runtime.report import ReportRow
from relaxpy.ir.core.dtype import Array
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.serialize import load_table, save_table

if TYPE_CHECKING:
    from relaxpy.exec.api.lowered import Lowered


def saved_program(
    program: CompiledProgram,
    number: Callable[[Array], int],
    locate: Callable[[Span], int | None],
    signatures: IRModule | None,
) -> dict[str, Any]:
    """The JSON form of a program without its code.

    The arrays of constants and the positions are those that `number` and `locate` return.
    `signatures` is a module of functions with the signatures of the program, if those of the module
    for which it is loaded differ.

    Errors:
        MisuseError: the program refers to something that has no JSON form, or has a problem.
    """
    if program.problem:
        raise MisuseError(program.problem)
    text = None
    if program.text is not None:
        from relaxpy.exec.program.saved_text import saved_text  # and all that writes source

        text = saved_text(program.text, number, locate)
    return {
        "functions": [
            {
                "name": name,
                "python_name": program.python_names[name],
                "symbol": function.symbol,
                "entry": astuple(function.entry),
                "written": function.written,
                "sessions": [astuple(session) for session in function.sessions],
                "constants": [
                    (number(c.literal.memory(aligned=False)), c.packing and astuple(c.packing))
                    for c in function.constants
                ],
            }
            for name, function in program.functions.items()
        ],
        "kernels": [(k.name, k.symbol, astuple(k.entry), k.kept) for k in program.kernels],
        "reports": program.reports,
        "text": text,
        "rows": [astuple(row) for row in program.rows],
        "private": sorted(program.private),
        "answers": program.answers,
        "signatures": None if signatures is None else save_table(signatures, number, locate),
    }


def program_of_saved(
    table: Mapping[str, Any],
    code: bytes,
    literals: Sequence[rx.Constant],
    module: Callable[[], IRModule],
    lowered: Callable[[], Lowered],
    located: Callable[[int], Span | None] = lambda number: None,
) -> CompiledProgram | None:
    """The program of a `saved_program` with its code; what it lacks is in its lowered form.

    Without saved signatures it has those of the `module`. It is None if the registry of packed
    functions has answered otherwise than it does now.

    Errors:
        One of NOT_A_PROGRAM: the table is not one.
    """
    functions = {
        entry["name"]: NativeFunction(
            entry["symbol"],
            [Constant(literals[n], _packing(how)) for n, how in entry["constants"]],
            EntryTable(*entry["entry"]),
            entry["written"],
            [Session.loaded(*session) for session in entry["sessions"]],
        )
        for entry in table["functions"]
    }
    if not still_hold(table["answers"]):
        return None
    arrays, text, saved = _Arrays(literals), None, table["signatures"]
    if table["text"] is not None:
        # Imported here, since it needs the planner of kernels, and native programs do not.
        from relaxpy.exec.program.saved_text import text_of_saved

        text = text_of_saved(table["text"], arrays, located, lowered)
    return CompiledProgram(
        functions=functions,
        python_names={entry["name"]: entry["python_name"] for entry in table["functions"]},
        kernels=[
            CalledKernel(name, symbol, EntryTable(*entry), kept)
            for name, symbol, entry, kept in table["kernels"]
        ],
        code=code,
        reports=table["reports"],
        text=text,
        public=public_signatures(module() if saved is None else load_table(saved, arrays, located)),
        private=frozenset(table["private"]),
        rows=tuple(ReportRow(*row) for row in table["rows"]),
        answers=table["answers"],
    )


NOT_A_PROGRAM: Final = (
    *(RelaxpyError, LookupError, AttributeError, TypeError, ValueError),
    *(OverflowError, struct.error),  # numbers that do not fit
    *(SyntaxError, NameError),  # a text that is not the source of functions
)
"""The errors of reading and linking a table that is not one of a program."""


class _Arrays(Sequence[Any]):
    """The arrays of literals, which are read when they are used."""

    def __init__(self, literals: Sequence[rx.Constant]) -> None:
        self._literals = literals

    @override
    def __len__(self) -> int:
        return len(self._literals)

    @override
    def __getitem__(self, number: Any) -> Any:
        return self._literals[number].data


def _packing(saved: Any) -> Packing | None:
    if saved is None:
        return None
    width, over, (extent, stride), joined, dtype = saved
    return Packing(
        width, tuple((n, b) for n, b in over), (extent, stride), joined and Joined(*joined), dtype
    )
