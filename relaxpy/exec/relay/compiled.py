"""The functions of a Relay module that run compiled, as functions of Relax."""

from __future__ import annotations

from collections.abc import Iterator

from typing_extensions import override

from relaxpy.dataclass import dataclass
from relaxpy.errors import Diagnostic
from relaxpy.exec.compile import compile
from relaxpy.exec.relay.recursion import nesting_functions
from relaxpy.exec.relay.values import FunctionValue
from relaxpy.ir.core.orders import reached
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relay import expr as rl
from relaxpy.ir.relay.module import RelayModule, global_names
from relaxpy.ir.relay.to_relax.translation import ModuleTranslation
from relaxpy.ir.relay.ty import FuncType
from relaxpy.screen import Table


@dataclass(frozen=True, slots=True)
class FunctionRow:
    """How a function runs, "compiled" or "evaluated", with the reasons if it is not compiled."""

    function: str
    method: str
    reasons: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True)
class FunctionReport:
    """How each function runs that an entry refers to; `str` is a table."""

    rows: tuple[FunctionRow, ...]

    def __iter__(self) -> Iterator[FunctionRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @override
    def __str__(self) -> str:
        rows = tuple(
            (row.function, row.method, "; ".join(f"{d.where}{d.message}" for d in row.reasons))
            for row in self.rows
        )
        return str(Table(("function", "runs", "because"), rows, text_columns=3))


def reachable(module: RelayModule, entry: str) -> list[str]:
    """Return the names of the functions that a function refers to, itself first."""
    return [*reached([entry], lambda name: _called(module, name))]


def _called(module: RelayModule, name: str) -> list[str]:
    return [called for called in sorted(global_names(module[name])) if called in module]


def report_of(module: RelayModule, entry: str) -> tuple[ModuleTranslation, FunctionReport]:
    """Return the translation of the functions that an entry refers to, and how each will run."""
    translation = ModuleTranslation(module)
    names = reachable(module, entry)
    try:
        for name in names:
            translation.require(name)
    except RecursionError:
        message = "a function or a type is nested too deeply for Python's stack"
        deep = Diagnostic(message, "RLY-5", module[entry].span)
        rows = [FunctionRow(name, "evaluated", (deep,)) for name in names]
        return translation, FunctionReport(tuple(rows))
    refused = translation.obstacles_by_name()
    nesting = nesting_functions(module)
    rows = []
    for name in names:
        reasons = refused.get(name, ())
        if not reasons and _takes_functions(module[name]):
            message = "it takes or returns functions, which are closures of the evaluator"
            reasons = (Diagnostic(message, "RLY-10", module[name].span),)
        if not reasons and name in nesting:
            message = "its calls may nest more deeply than Python's stack allows"
            reasons = (Diagnostic(message, "RLY-14", module[name].span),)
        rows.append(FunctionRow(name, "evaluated" if reasons else "compiled", reasons))
    return translation, FunctionReport(tuple(rows))


def _takes_functions(function: rl.Function) -> bool:
    """Return whether a parameter or the result of a function contains a function."""
    ty = function.checked_type
    assert isinstance(ty, FuncType)
    parts = (*ty.arg_types, ty.ret_type)
    return any(isinstance(part, FuncType) for root in parts for part in walk(root))


def compiled_functions(module: RelayModule, entry: str) -> dict[str, FunctionValue]:
    """Return the functions that an entry refers to and that run compiled, as values by name."""
    translation, report = report_of(module, entry)
    names = [row.function for row in report if row.method == "compiled"]
    if not names:
        return {}
    executable = compile(translation.result())

    def value(name: str) -> FunctionValue:
        call = executable[name]
        return FunctionValue(f"@{name}", module[name].checked_type, lambda args: call(*args))

    return {name: value(name) for name in names}
