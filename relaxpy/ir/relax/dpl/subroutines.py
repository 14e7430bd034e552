"""The functions that replacements call, which are added to the module under free names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from relaxpy.ir.core.traverse import rename, walk
from relaxpy.ir.equality.structural import structural_equal
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.call_graph import mentioned_globals
from relaxpy.ir.relax.dpl.from_function import Instantiate
from relaxpy.ir.relax.dpl.pattern import DFPattern
from relaxpy.ir.relax.dpl.rules import ExprRule, Rule
from relaxpy.ir.relax.dpl.tuple_rule import TupleRule
from relaxpy.ir.relax.nodes import BaseFunc, Expr, GlobalVar

F = TypeVar("F", bound=Expr)


class Subroutines:
    """The subroutines of rules, as functions of one module.

    `functions` are those that were called so far, by their names in the module.
    """

    def __init__(self, rules: Sequence[Rule], mod: IRModule) -> None:
        self.mod = mod
        self.functions: dict[str, BaseFunc] = {}
        self.variables: list[GlobalVar] = []
        self._variables_by_name: dict[tuple[int, str], GlobalVar] = {}
        self.rules = [self._with_names_in_module(rule) for rule in rules]

    def _with_names_in_module(self, rule: Rule) -> Rule:
        """The rule, whose replacements call subroutines by their names in this module."""
        if not isinstance(rule, (ExprRule, TupleRule)) or not isinstance(rule.func, Instantiate):
            return rule
        func, table = rule.func, rule.subroutines
        named: list[Instantiate] = []  # only if it is called, as this adds the subroutines

        def rewriter(expr: Expr, matches: Mapping[DFPattern, Expr]) -> Expr:
            if not named:
                named.append(replace(func, func=self._with_names(func.func, table)))
            return named[0](expr, matches)

        return replace(rule, func=rewriter)

    def _with_names(self, node: F, table: Mapping[str, BaseFunc]) -> F:
        called = (n for n in walk(node) if isinstance(n, GlobalVar) and n.name_hint in table)
        return rename(node, {var: self._variable(var.name_hint, table) for var in called})

    def _variable(self, name: str, table: Mapping[str, BaseFunc]) -> GlobalVar:
        """The variable in the module of a subroutine, which is added if it is not there."""
        key = id(table), name
        var = self._variables_by_name.get(key)
        if var is None:
            new_name = self._free_name(name, table)
            if new_name in self.mod:
                var = self._variables_by_name[key] = self.mod.get_global_var(new_name)
            else:
                var = self._variables_by_name[key] = GlobalVar(new_name)
                self.functions[new_name] = table[name]
                self.variables.append(var)
                self.functions[new_name] = self._with_names(table[name], table)
        return var

    def _free_name(self, name: str, table: Mapping[str, BaseFunc]) -> str:
        """A name that the module does not have, or has for an equal function."""
        candidate, count = name, 0
        while candidate in self.functions or (
            candidate in self.mod and not self._is_there(candidate, name, table)
        ):
            count += 1
            candidate = f"{name}_{count}"
        return candidate

    def _is_there(self, candidate: str, name: str, table: Mapping[str, BaseFunc]) -> bool:
        """Whether the module has a function, and the functions that it calls."""
        waiting, seen = [(candidate, name)], {name}
        while waiting:
            in_module, name = waiting.pop()
            if in_module not in self.mod or not structural_equal(self.mod[in_module], table[name]):
                return False
            called = {n for n in mentioned_globals(table[name]) if n in table} - seen
            seen |= called
            waiting += ((n, n) for n in called)
        return True


def called_subroutines(expr: Expr, rules: Sequence[Rule]) -> list[str]:
    """The names of the subroutines of rules that an expression calls."""
    names = mentioned_globals(expr)
    return [name for name in names if any(name in rule.subroutines for rule in rules)]
