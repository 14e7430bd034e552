"""Puts calls that patterns match into functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from relaxpy.dataclass import dataclass
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relay import expr as rl
from relaxpy.ir.relay.infer.module import infer_module
from relaxpy.ir.relay.module import RelayModule
from relaxpy.ir.relay.transform.passes import RelayPass, map_functions


@dataclass(frozen=True)
class MergeComposite(RelayPass):
    """Put what patterns match into functions with the attribute `Composite`, which are called.

    `pattern_table` is a list of names and patterns of `relay.dataflow_pattern`, each with a
    function, if it has one, that tells of what was matched whether it is taken. Patterns that
    stand before others are preferred, and what they match is not matched again.
    """

    pattern_table: Sequence[tuple[Any, ...]]

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
