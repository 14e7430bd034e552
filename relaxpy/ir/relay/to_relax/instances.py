"""Instances of polymorphic functions."""

from __future__ import annotations

from typing import Any

from relaxpy.dataclass import replace
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rename
from relaxpy.ir.relay import expr as rl
from relaxpy.ir.relay.transform.lets import with_fresh_variables
from relaxpy.ir.relay.ty import TypeKind


def instance_of(function: rl.Function, args: tuple[Any, ...]) -> rl.Function:
    """Return a copy of a function, with variables of its own, for these type arguments."""
    types: dict[Node, Node] = {
        param: arg
        for param, arg in zip(function.type_params, args, strict=True)
        if param.kind is TypeKind.Type
    }
    rest = tuple(param for param in function.type_params if param not in types)
    mono = rename(replace(function, type_params=rest, checked_type_=None), types)
    return with_fresh_variables(mono)


def other_type_args(function: rl.Function, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of the type parameters that an instance still has."""
    pairs = zip(function.type_params, args, strict=True)
    return tuple(arg for param, arg in pairs if param.kind is not TypeKind.Type)
