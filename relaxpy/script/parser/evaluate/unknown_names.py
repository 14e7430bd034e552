"""Errors for unknown names and attributes, with suggestions."""

from __future__ import annotations

import ast
import inspect

from relaxpy.errors import ParseError, close_names
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.nodes import Expr, TupleStructInfo
from relaxpy.script.language.namespaces import offers, public_names
from relaxpy.script.language.wording import attribute_hint, describe, member_hint, operators_called
from relaxpy.script.parser.source.scope import ModuleRef, Scope
from relaxpy.script.parser.source.text import Program
from relaxpy.support.entry import last_name

#: Replacements for methods that change a list: lists of values are tuples of the program.
_MUTATORS = {
    "append": "a tuple does not change: write {0} = [*{0}, value]",
    "extend": "a tuple does not change: write {0} = [*{0}, *values]",
    "insert": "a tuple does not change: write {0} = [value, *{0}]",
}


def namespace_hint(scope: Scope, name: str) -> str | None:
    """Return a replacement for a name that a namespace has, or that methods have."""
    if name in ("self", "cls"):
        return "functions of a module are called by the name of the class, or by `cls = ...`"
    spaces = {known: scope.find(known) for known in ("R", "T", "I")}
    paths = [
        f"{known}.{name}"
        for known, space in spaces.items()
        if name in getattr(space, "__all__", ()) or offers(space, name)
    ]
    paths = paths or operators_called(name)
    return f"did you mean {' or '.join(f'`{f}`' for f in paths[:2])}?" if paths else None


def unknown_attribute(program: Program, owner: object, node: ast.Attribute) -> ParseError:
    """Create the error for an attribute that `owner` does not have, located at its name."""
    known = {name for name in dir(owner) if not name.startswith("_")}
    display_name = ast.unparse(node.value)
    if isinstance(owner, ModuleRef):
        return program.error(
            last_name(node),
            f"the module has no function {node.attr!r}",
            rule="SC-1",
            hint=close_names(node.attr, known) or f"it has {', '.join(sorted(known)[:9])}",
        )
    is_space = inspect.ismodule(owner) or hasattr(owner, "_public_names")
    if is_space:
        known = set(getattr(owner, "__all__", known)) | set(public_names(owner))
        hint = attribute_hint(display_name, node.attr, known)
    elif isinstance(owner, Expr):
        in_place = node.attr in _MUTATORS and isinstance(owner.struct_info, TupleStructInfo)
        name = display_name
        hint = _MUTATORS[node.attr].format(name) if in_place else member_hint(node.attr, name)
    elif isinstance(owner, IRModule) and node.attr in owner:
        hint = f'write {display_name}["{node.attr}"]'
    else:
        hint = close_names(node.attr, known)
    subject = f"{display_name} has" if is_space else f"{describe(owner)} has"
    return program.error(last_name(node), f"{subject} no attribute {node.attr!r}", hint=hint)
