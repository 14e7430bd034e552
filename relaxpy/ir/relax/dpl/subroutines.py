"""The functions that replacements call, which are added to the module under free names."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.dataclass import replace
from relaxpy.ir.link import link_functions
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.call_graph import mentioned_globals
from relaxpy.ir.relax.dpl.from_function import Instantiate
from relaxpy.ir.relax.dpl.rules import ExprRule, Rule
from relaxpy.ir.relax.dpl.tuple_rule import TupleRule
from relaxpy.ir.relax.nodes import BaseFunc, Expr


class Subroutines:
    """The subroutines of rules by the names that they get in a module, and the renamed rules."""

    def __init__(self, rules: Sequence[Rule], mod: IRModule) -> None:
        self.mod = mod
        self.functions: dict[str, BaseFunc] = {}
        self.rules = [self._renamed(rule) for rule in rules]

    def _renamed(self, rule: Rule) -> Rule:
        """The rule, whose replacements call subroutines by their names in the module."""
        if not isinstance(rule, (ExprRule, TupleRule)) or not isinstance(rule.func, Instantiate):
            return rule
        present = {**self.mod.functions_by_name, **self.functions}
        entries = link_functions(rule.subroutines, present, present, separator="_")
        self.functions.update(func for func in entries.values() if func[0] not in self.mod)
        names = {name: new_name for name, (new_name, _) in entries.items()}
        return replace(rule, func=rule.func.with_names(names))

    def called_in(self, mod: IRModule) -> dict[str, BaseFunc]:
        """The subroutines that the rewritten functions of the module call, directly or not."""
        called: dict[str, BaseFunc] = {}
        before = self.mod.functions_by_name
        waiting = [f for name, f in mod.functions_by_name.items() if f is not before[name]]
        while waiting:
            for name in mentioned_globals(waiting.pop()):
                if name in self.functions and name not in called:
                    called[name] = self.functions[name]
                    waiting.append(called[name])
        return called


def called_subroutines(expr: Expr, rules: Sequence[Rule]) -> list[str]:
    """The names of the subroutines of rules that an expression calls."""
    names = mentioned_globals(expr)
    return [name for name in names if any(name in rule.subroutines for rule in rules)]
