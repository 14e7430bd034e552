"""The kinds of types (RLY-17, RLY-67)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relaxpy.errors import Diagnostic, RelayTypeError, counted
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children
from relaxpy.plugins.relay.ty import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeData,
    TypeKind,
    TypeRelation,
    TypeVar,
)
from relaxpy.support.entry import user_facing

if TYPE_CHECKING:
    from relaxpy.plugins.relay.module import RelayModule


@user_facing
def check_kind(t: Type, mod: RelayModule | None = None) -> TypeKind:
    """Return the kind of a type.

    Errors:
        RelayTypeError: a component is of another kind than is needed there, or a data type is
            unknown to `mod` or applied to the wrong number of types.
    """
    errors = kind_errors(t, mod)
    if errors:
        raise RelayTypeError([Diagnostic(message, rule, t.span) for rule, message in errors])
    return kind_of(t)


def kind_of(ty: Node) -> TypeKind:
    """Return the kind of a type whose components are right."""
    match ty:
        case TypeVar(kind=kind) | IncompleteType(kind=kind):
            return kind
        case GlobalTypeVar():
            return TypeKind.AdtHandle
        case TypeData():
            return TypeKind.TypeData
        case TypeRelation():
            return TypeKind.Constraint
        case _:
            return TypeKind.Type


def kind_errors(
    root: Type, module: RelayModule | None, checked: dict[int, Node] | None = None
) -> list[tuple[str, str]]:
    """Return the rule and the message of each wrong kind in a type.

    `checked` are types without errors, by identity; it receives those in `root`.
    """
    errors: list[tuple[str, str]] = []
    known = {} if checked is None else checked
    visited: dict[int, Node] = {}
    stack: list[Node] = [root]
    while stack:
        ty = stack.pop()
        if id(ty) in visited or id(ty) in known:
            continue
        visited[id(ty)] = ty
        for part in _types_in(ty):
            kind = kind_of(part)
            if kind is not TypeKind.Type:
                text = f"expected a type, found {part}, which is of kind {kind.name}"
                errors.append(("RLY-17", text))
        if isinstance(ty, TypeCall):
            errors += _call_errors(ty, module)
        if not isinstance(ty, (TypeVar, TensorType)):
            stack += children(ty)
    if not errors:
        known.update(visited)
    return errors


def _types_in(ty: Node) -> tuple[Node, ...]:
    """Return the components of a type that have to be of kind Type."""
    match ty:
        case TupleType(fields=fields):
            return fields
        case FuncType(arg_types=args, ret_type=result):
            return (*args, result)
        case RefType(value=value):
            return (value,)
        case TypeCall(args=args):
            return args
        case TypeData(constructors=constructors):
            return tuple(field for constructor in constructors for field in constructor.inputs)
        case _:
            return ()


def _call_errors(call: TypeCall, module: RelayModule | None) -> list[tuple[str, str]]:
    if module is None:
        return []
    data = module.definitions_by_name.get(call.func.name_hint)
    if data is None:
        return [("RLY-95", f"the module has no data type {call.func}")]
    if len(call.args) != len(data.type_vars):
        number = counted(len(data.type_vars), "type")
        return [("RLY-67", f"the data type {call.func} takes {number}, found {len(call.args)}")]
    return []
