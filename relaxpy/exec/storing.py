"""Stores compiled programs in the disk cache, from which `stored.py` loads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import astuple
from typing import Any

import numpy as np

from relaxpy.errors import MisuseError, RelaxpyError, Span
from relaxpy.exec.container import Container, Sections
from relaxpy.exec.lower.python_module import LoweredModule
from relaxpy.exec.report import ReportRow
from relaxpy.exec.runtime.registry import Answer, answers_in
from relaxpy.exec.stored import Source, place_of
from relaxpy.exec.tuning import Kept
from relaxpy.ir.core.dtype import Array
from relaxpy.ir.module import IRModule
from relaxpy.ir.serialize import save_table


def store_program(
    source: Source,
    lowered: LoweredModule,
    rows: Iterable[ReportRow],
    private_names: Iterable[str],
    signatures: IRModule | None,
    reads: Set[object],
) -> str:
    """Store the compiled form of `source`; the reason if it cannot be stored, or else empty.

    Compilation adds to `reads` the elements of literals that it reads, and answers of the registry.
    """
    constants = source.literals
    sources: dict[object, tuple[int, Array]] = {}
    sections, folded = Sections(), 0
    sections.add(np.frombuffer(code_of(lowered), np.uint8))

    def find_constants() -> None:
        """Note where the constants are; they move once if a reader needs them aligned."""
        for index, literal in enumerate(constants):
            array = literal.memory(aligned=False)
            sources[place_of(array)] = index, array

    def number(data: Array) -> int:
        """That of a constant of the program, or after them of a section."""
        nonlocal folded
        place = place_of(data)
        if place not in sources:
            find_constants()
        if place in sources:
            return sources[place][0]
        folded += data.nbytes
        if folded > Kept.FOLDED:
            raise MisuseError(f"passes have computed more than {Kept.FOLDED >> 20} MiB")
        return len(constants) + sections.add(data)

    find_constants()
    try:
        names = private_names, answers_in(reads)
        table = program_table(lowered, number, rows, *names, source.numbers.get, signatures)
    except RelaxpyError as error:
        return error.diagnostic.message
    return source.store(Container.of(table, sections).chunks(), reads)


def code_of(lowered: LoweredModule) -> bytes:
    """The machine code of a module, after it was linked; empty if that failed."""
    backend = lowered.backend.native
    assert backend is not None
    has_code = not lowered.problem and (backend.graphs or backend.called)
    return backend.library().code if has_code else b""


def program_table(
    lowered: LoweredModule,
    number: Callable[[Array], int],
    rows: Iterable[ReportRow],
    private_names: Iterable[str],
    answers: Sequence[Answer],
    locate: Callable[[Span], int | None],
    signatures: IRModule | None = None,
) -> dict[str, Any]:
    """The JSON form of a compiled module without its code, which depends on answers.

    The arrays of constants and the positions are those that `number` and `locate` return.

    Errors:
        MisuseError: the module refers to something that has no JSON form.
    """
    backend = lowered.backend.native
    assert backend is not None
    if problem := lowered.problem or backend.problem:
        raise MisuseError(problem)
    return {
        "functions": [
            {
                "name": name,
                "python_name": lowered.lowering.python_name(name),
                "symbol": graph.symbol,
                "exports": graph.exports,
                "entry": astuple(graph.entry),
                "written": graph.written,
                "sessions": [astuple(session) for session in graph.sessions],
                "constants": [
                    (number(c.literal.memory(aligned=False)), c.packing and astuple(c.packing))
                    for c in graph.constants
                ],
            }
            for name, graph in backend.graphs.items()
        ],
        "kernels": [(k.name, k.symbol, astuple(k.entry), k.kept) for k in backend.called],
        "reports": bool(backend.failures.entries and (backend.graphs or backend.called)),
        "python": _python_functions(lowered, number, locate),
        "rows": [astuple(row) for row in rows],
        "private_names": sorted(private_names),
        "answers": answers,
        "signatures": None if signatures is None else save_table(signatures, number, locate),
    }


def _python_functions(
    lowered: LoweredModule, number: Callable[[Array], int], locate: Callable[[Span], int | None]
) -> dict[str, object] | None:
    """The JSON form of the functions that run in Python, and of function values, if any."""
    if not lowered.has_python_part:
        return None
    from relaxpy.exec.lower.saved import saved_functions  # and all that writes source

    return saved_functions(lowered, number, locate)
