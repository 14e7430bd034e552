"""The one place where a variable, or a buffer, gets another name."""

from __future__ import annotations

from typing import Any

from relaxpy.errors import MisuseError
from relaxpy.ir.relax.nodes import Var as GraphVar
from relaxpy.ir.tir.buffer import Buffer, IterVar
from relaxpy.ir.tir.expr import Var


def set_name(node: Any, name: str) -> None:
    """Call a variable or buffer of a program that is being built `name`.

    Names are hints: they say nothing of what a program means, and which variable is which does not
    rest on them. The variables of a buffer that have its name follow it.

    Errors:
        MisuseError (also TypeError): it is neither, or the name is no string.
    """
    if not isinstance(name, str):
        raise MisuseError(f"a variable is named by a string, found {name!r:.60}", about=name)
    match node:
        case IterVar(var=var):
            set_name(var, name)
        case Buffer():
            for part, ending in ((node.data, ""), (node.elem_offset, "_elem_offset")):
                if isinstance(part, Var) and part.name == node.name + ending:
                    set_name(part, name + ending)
            object.__setattr__(node, "name", name)
        case Var():
            object.__setattr__(node, "name", name)
        case GraphVar():
            object.__setattr__(node, "name_hint", name)
        case _:
            raise MisuseError(
                f"variables and buffers have names to set, found {node!r:.60}", about=node
            )
