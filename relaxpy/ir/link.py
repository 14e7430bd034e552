"""Linking of functions and their callees into a module, with renaming of clashing names."""

from __future__ import annotations

from collections.abc import Container, Mapping
from itertools import chain, count
from typing import cast

from relaxpy.ir.core.node import EMPTY_ATTRS, Node
from relaxpy.ir.core.traverse import postorder, rename, walk
from relaxpy.ir.equality.structural import structural_equal
from relaxpy.ir.relax.nodes import BaseFunc, Function, GlobalVar, Var
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import replace


def link_functions(
    functions: Mapping[str, BaseFunc],
    present: Mapping[str, BaseFunc],
    taken: Container[str],
    *,
    separator: str = "",
) -> dict[str, tuple[str, BaseFunc]]:
    """The name in a module, and the renamed function, for each of `functions`.

    A function that the module already has, perhaps under another name, is identified with that
    one. Any other function gets a free name if its name is taken; its callers then differ from
    those in the module, so that they may need free names, too. In a new name, `separator` precedes
    the number.
    """
    names: dict[str, str] = {}
    uses = {name: _mentions(func) & functions.keys() for name, func in functions.items()}
    candidates = _Candidates(present)
    for name in postorder(uses, uses.__getitem__):  # callees first
        func = functions[name]
        known = candidates.names(name, func) if uses[name] <= {name, *names} else ()
        equal = (new for new in known if _equal(present[new], _entry(func, name, new, names)))
        new_name = next(equal, None)
        if new_name is None:
            others = functions.keys() - {name}
            new_name = free_name(name, others, names.values(), taken, separator=separator)
        names[name] = new_name
    return {n: (names[n], _entry(f, n, names[n], names)) for n, f in functions.items()}


class _Candidates:
    """The functions of a module that may be equal to another one.

    These have the same name, or the same variables if they were added under another name before.
    """

    def __init__(self, present: Mapping[str, BaseFunc]) -> None:
        self.present = present
        self._by_variable: dict[Node, list[str]] | None = None

    def names(self, name: str, func: BaseFunc) -> list[str]:
        """The names of the functions that may be equal to `func`, which is called `name`."""
        if self._by_variable is None:
            self._by_variable = {}
            for other, known in self.present.items():
                self._by_variable.setdefault(_first_variable(known), []).append(other)
        same_name = [name] if name in self.present else []
        return same_name + [
            n for n in self._by_variable.get(_first_variable(func), ()) if n != name
        ]


def _first_variable(func: BaseFunc) -> Node:
    """A variable that only `func` and its renamed copies have, or `func` itself."""
    return next((node for node in walk(func) if isinstance(node, (Var, tir.Var))), func)


def _entry(func: BaseFunc, name: str, new: str, names: Mapping[str, str]) -> BaseFunc:
    """`func` as the entry `new` of a module, with its callees renamed by `names`."""
    entry = rename_callees(func, {**names, name: new})
    if new != name and func.attrs.get("global_symbol") is not None:
        entry = entry.with_attr("global_symbol", new)
    return entry


def rename_callees(func: BaseFunc, names: Mapping[str, str]) -> BaseFunc:
    """Rename the functions that `func` mentions: keys of `names` become their values."""
    changed = {old: GlobalVar(new) for old, new in names.items() if old != new}
    variables = (node for node in walk(func) if isinstance(node, GlobalVar))
    uses = {var: changed[var.name_hint] for var in variables if var.name_hint in changed}
    return rename(func, uses) if uses else func


def without_callees(func: BaseFunc) -> BaseFunc:
    """`func` without its callees."""
    return (
        replace(func, callees=EMPTY_ATTRS) if isinstance(func, Function) and func.callees else func
    )


def link_function(
    func: BaseFunc, name: str, present: Mapping[str, BaseFunc], taken: Container[str]
) -> tuple[str, dict[str, BaseFunc]]:
    """The name that `func`, added as `name`, gets in a module, and all new entries by name.

    The name gets a number as a suffix if a callee of `func` has the same name.
    """
    callees = cast("Mapping[str, BaseFunc]", func.callees) if isinstance(func, Function) else {}
    new_name, entry = free_name(name, callees), without_callees(func)
    if new_name != name and func.attrs.get("global_symbol") is not None:
        entry = entry.with_attr("global_symbol", new_name)
    entries = link_functions({new_name: entry, **callees}, present, taken)
    return entries[new_name][0], dict(entries.values())


def _mentions(func: BaseFunc) -> set[str]:
    return {node.name_hint for node in walk(func) if isinstance(node, GlobalVar)}


def _equal(a: BaseFunc, b: BaseFunc) -> bool:
    """True if callers of `a` can call `b`: equal functions may declare different results."""
    if a is b or not structural_equal(a, b):
        return a is b
    return a.struct_info is None or b.struct_info is None or a.struct_info == b.struct_info


def free_name(prefix: str, *taken: Container[str], separator: str = "") -> str:
    """`prefix`, with the first number appended that makes it free if it is taken."""
    names = chain((prefix,), (f"{prefix}{separator}{number}" for number in count(1)))
    return next(n for n in names if not any(n in others for others in taken))
