"""Unified diffs of the texts of programs."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import unified_diff

from relaxpy.errors import RelaxpyError
from relaxpy.ir.equality.structural import structural_equal
from relaxpy.ir.function import BaseFunc
from relaxpy.ir.module import IRModule
from relaxpy.script.printer.show import script


def program_diff(before: object, after: object, labels: tuple[str, str]) -> str:
    """The texts of two programs as a unified diff, of those functions that differ structurally.

    It is empty if the texts are equal, if one of the two is neither a module nor a function, or if
    one has no text, since it is ill-formed or larger than what is printed.
    """
    old, new = _functions(before), _functions(after)
    lines: list[str] = []
    for name in {**old, **new}:
        if structural_equal(old.get(name), new.get(name)):
            continue
        try:
            texts = _lines(name, old.get(name)), _lines(name, new.get(name))
        except RelaxpyError:
            continue
        one, other = (f"{name} {label}".strip() for label in labels)
        lines += unified_diff(*texts, one, other, lineterm="")
    return "\n".join(lines)


def _functions(program: object) -> Mapping[str, BaseFunc]:
    """The functions of a module by name; a function alone has the name ""."""
    if isinstance(program, IRModule):
        return program.functions_by_name
    return {"": program} if isinstance(program, BaseFunc) else {}


def _lines(name: str, func: BaseFunc | None) -> list[str]:
    """The lines of the text of a function, without the imports; none for None."""
    lines = [] if func is None else script(func, **({"name": name} if name else {})).splitlines()
    return [line for line in lines if not line.startswith("# from ")]
