"""Renaming of variables and buffers in place."""

from __future__ import annotations

from typing import Any

from relaxpy.errors import check_type, unexpected
from relaxpy.ir.relax.nodes import Var as GraphVar
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import Var
from relaxpy.ir.tir.iteration import IterVar


def set_name(node: Any, name: str) -> None:
    """Set the name of a variable or buffer of a program that is being built.

    Names are hints and do not affect the meaning of a program. The variables of a buffer that are
    named after it are renamed, too.

    Errors:
        MisuseError (also TypeError): `node` is neither, or `name` is not a string.
    """
    check_type(name, str, "a variable is named by a string")
    match node:
        case IterVar(var=var):
            set_name(var, name)
        case Buffer():
            for field, suffix in ((node.data, ""), (node.elem_offset, "_elem_offset")):
                if isinstance(field, Var) and field.name == node.name + suffix:
                    set_name(field, name + suffix)
            object.__setattr__(node, "name", name)
        case Var():
            object.__setattr__(node, "name", name)
        case GraphVar():
            object.__setattr__(node, "name_hint", name)
        case _:
            raise unexpected(node, "expected a variable or a buffer to rename")
