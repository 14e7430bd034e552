"""The text of types, for messages and for the printer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, TypeVar as TypingVar

from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import preorder
from relaxpy.plugins.relay.ty import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    TypeCall,
    TypeData,
    TypeKind,
    TypeRelation,
    TypeVar,
)

T = TypingVar("T")
NameOf: TypeAlias = Callable[[TypeVar], str]
_Piece: TypeAlias = "str | Node"
MAX_PIECES = 2_000
"""The text of a message stops here: shared components of a type would be printed at each use."""


def _hint(variable: TypeVar) -> str:
    return variable.name_hint


def type_text(ty: Node, name_of: NameOf = _hint, limit: int | None = MAX_PIECES) -> str:
    """Return the text of a type as TVM prints it (RLY-66).

    `name_of` names type parameters. With a `limit`, a longer text ends in an ellipsis.
    """
    pieces: list[str] = []
    roots: list[_Piece] = [ty]
    for piece in preorder(roots, lambda p: () if isinstance(p, str) else _pieces(p, name_of)):
        if isinstance(piece, str):
            pieces.append(piece)
        if limit is not None and len(pieces) > limit:
            pieces.append("…")
            break
    return "".join(pieces)


def parameter_text(variable: TypeVar, name_of: NameOf) -> str:
    """Return a type parameter as a list of parameters declares it, with its kind (RLY-74)."""
    kind = variable.kind
    name = name_of(variable)
    return name if kind is TypeKind.Type else f"{name}: {kind.name}"


def listed(items: Iterable[T], single: str = "") -> list[T | str]:
    """Return items with commas between them; a single one is followed by `single`."""
    out: list[T | str] = []
    for item in items:
        out += (", ", item) if out else (item,)
    return [*out, single] if len(out) == 1 else out


def _pieces(ty: Node, name_of: NameOf) -> Sequence[_Piece]:
    """Return the text of a type in which its components stand as nodes."""
    match ty:
        case TensorType(shape=()):
            return [ty.dtype if isinstance(ty.dtype, str) else _scalar(ty.dtype, name_of)]
        case TensorType(shape=shape, dtype=dtype):
            dims: list[_Piece] = [shape] if isinstance(shape, Node) else []
            if isinstance(shape, tuple):
                dims = ["(", *listed((_dim(d) for d in shape), ","), ")"]
            return ["Tensor[", *dims, ", ", str(dtype) if isinstance(dtype, str) else dtype, "]"]
        case TupleType(fields=fields):
            return ["(", *listed(fields, ","), ")"]
        case FuncType():
            names = [parameter_text(p, name_of) for p in ty.type_params]
            params = f"[{', '.join(names)}]" if names else ""
            where = [" where ", *listed(ty.type_constraints)] if ty.type_constraints else []
            return [f"fn {params}(", *listed(ty.arg_types), ") -> ", ty.ret_type, *where]
        case RefType(value=value):
            return ["ref(", value, ")"]
        case TypeCall(func=func, args=args):
            return [func.name_hint, "[", *listed(args), "]"]
        case TypeRelation(func=func, args=args):
            return [func, "(", *listed(args), ")"]
        case TypeVar():
            return [name_of(ty)]
        case GlobalTypeVar(name_hint=name):
            return [name]
        case IncompleteType(kind=kind):
            return ["?" if kind is TypeKind.ShapeVar else "_"]
        case TypeData():
            return [ty.header.name_hint]
        case _:
            return [str(ty)]


def _scalar(dtype: Node, name_of: NameOf) -> str:
    name = name_of(dtype) if isinstance(dtype, TypeVar) else "_"
    return f"Tensor[(), {name}]"


def _dim(dim: object) -> _Piece:
    return dim if isinstance(dim, Node) else str(dim)
