"""Puts calls that patterns match into functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from relaxpy.dataclass import dataclass
from relaxpy.errors import MisuseError
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relay import expr as rl
from relaxpy.ir.relay.dataflow_pattern import DFPattern
from relaxpy.ir.relay.infer.module import infer_module
from relaxpy.ir.relay.module import RelayModule
from relaxpy.ir.relay.transform.passes import RelayPass, map_functions


@dataclass(frozen=True)
class MergeComposite(RelayPass):
    """Put what patterns match into functions with the attribute `Composite`, which are called.

    `pattern_table` is a list of names and patterns of `relay.dataflow_pattern`, each with a
    function, if it has one, that tells of what was matched whether it is taken. Patterns that
    stand before others are preferred, and what they match is not matched again.

    Errors:
        MisuseError (also TypeError): an entry of the table is not of these.
    """

    pattern_table: Sequence[tuple[Any, ...]]

    def __post_init__(self) -> None:
        table = self.pattern_table
        for entry in table if isinstance(table, Sequence) else [table]:
            match entry:
                case (str(), DFPattern()):
                    continue
                case (str(), DFPattern(), check) if callable(check):
                    continue
                case _:
                    raise MisuseError(
                        "an entry of a pattern table is a name, a pattern and perhaps a function,"
                        f" found {entry!r:.60}",
                        about=entry,
                    )

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        for name, pattern, *check in self.pattern_table:

            def merged(
                function: rl.Function, pattern: Any = pattern, name: str = name, check: Any = check
            ) -> rl.RelayExpr:
                inside = {
                    id(part)
                    for node in walk(function)
                    if isinstance(node, rl.Function) and "Composite" in node.attrs
                    for part in walk(node)
                }

                def accepts(expr: rl.RelayExpr) -> bool:
                    return id(expr) not in inside and all(accept(expr) for accept in check)

                result: rl.RelayExpr = pattern.partition(function, {"Composite": name}, accepts)
                return result

            mod = infer_module(mod)
            mod = map_functions(mod, merged)
        return mod
