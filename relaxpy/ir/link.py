"""Functions that enter a module together with those they call, under names of their own."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from typing import cast

from relaxpy.ir.core.node import EMPTY_ATTRS
from relaxpy.ir.core.traverse import rename, walk
from relaxpy.ir.equality.structural import structural_equal
from relaxpy.ir.relax.nodes import BaseFunc, Function, GlobalVar


def linked(
    functions: Mapping[str, BaseFunc],
    present: Callable[[str], BaseFunc | None],
    taken: Container[str],
) -> dict[str, tuple[str, BaseFunc]]:
    """By its name here, each of `functions` under the name that it has in a module.

    A function that the module has already is that one. Another one whose name is taken gets a free
    name, and so do those that call it: they are not what the module has under their names.
    """
    uses = {name: _mentions(func) for name, func in functions.items()}
    renamed = {n for n, f in functions.items() if n in taken and not _same(present(n), f)}
    grown = True
    while grown:
        callers = {n for n in functions if n in taken and not renamed.isdisjoint(uses[n])}
        grown = not callers <= renamed
        renamed |= callers
    names: dict[str, str] = {}
    for name in functions:
        names[name] = name
        if name in renamed:
            names[name] = _free_name(name, {*functions, *names.values()}, taken)
    found = {name: (names[name], renamed_in(func, names)) for name, func in functions.items()}
    for old in renamed:
        new, func = found[old]
        if func.attrs.get("global_symbol") is not None:
            found[old] = new, func.with_attr("global_symbol", new)
    return found


def renamed_in(func: BaseFunc, names: Mapping[str, str]) -> BaseFunc:
    """`func`, which mentions functions by the keys of `names`, with their new names."""
    changed = {old: GlobalVar(new) for old, new in names.items() if old != new}
    variables = (node for node in walk(func) if isinstance(node, GlobalVar))
    uses = {var: changed[var.name_hint] for var in variables if var.name_hint in changed}
    return rename(func, uses) if uses else func


def alone(func: BaseFunc) -> BaseFunc:
    """`func` as a function of a module, which has those that it calls."""
    return (
        replace(func, callees=EMPTY_ATTRS) if isinstance(func, Function) and func.callees else func
    )


def with_callees(func: BaseFunc, name: str) -> tuple[str, dict[str, BaseFunc]]:
    """`func` and its callees by the names that they call each other; first the name of `func`.

    That is `name` with a number behind it where `func` calls another function so.
    """
    callees = cast("Mapping[str, BaseFunc]", func.callees) if isinstance(func, Function) else {}
    own, entry = _free_name(name, callees), alone(func)
    if own != name and func.attrs.get("global_symbol") is not None:
        entry = entry.with_attr("global_symbol", own)
    return own, {own: entry, **callees}


def _mentions(func: BaseFunc) -> set[str]:
    return {node.name_hint for node in walk(func) if isinstance(node, GlobalVar)}


def _same(found: BaseFunc | None, func: BaseFunc) -> bool:
    return found is func or (found is not None and structural_equal(found, func))


def _free_name(prefix: str, *taken: Container[str]) -> str:
    name, count = prefix, 0
    while any(name in names for names in taken):
        count += 1
        name = f"{prefix}{count}"
    return name
