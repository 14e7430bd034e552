"""Type relations: constraints between the types of operands and results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from relaxpy.errors import MisuseError
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import Attrs
from relaxpy.plugins.relay import ty as types

if TYPE_CHECKING:
    from relaxpy.plugins.relay.infer.solver import Solver


class RelationError(Exception):
    """A relation fails; the message says why."""


class ProjectionError(RelationError):
    """A value is not a tuple, or has no such field (RLY-41)."""


Relation: TypeAlias = "Callable[[Solver, tuple[types.Type, ...], Attrs], bool]"
"""True if the relation holds; False if it cannot tell yet (RLY-100)."""

RELATIONS: Final[dict[str, Relation]] = {}


def register_relation(name: str, relation: Relation) -> None:
    """Register a type relation under a name that `where` clauses may use (RLY-25).

    Errors:
        MisuseError: the name is taken.
    """
    if name in RELATIONS:
        raise MisuseError(f"a type relation is already called {name}", about=name)
    RELATIONS[name] = relation


def relation_of(function: Callable[[Sequence[types.Type], Attrs], types.Type | None]) -> Relation:
    """The relation of a function from the types of operands to that of the result.

    The function is asked once all operand types are known; it returns None if it cannot tell.
    """

    def relation(solver: Solver, args: tuple[types.Type, ...], attrs: Attrs) -> bool:
        inputs = [solver.complete(arg) for arg in args[:-1]]
        if any(solver.holes(ty) for ty in inputs):
            return False
        try:
            result = function(inputs, attrs)
        except (TypeError, ValueError) as error:
            raise RelationError(str(error)) from None
        if result is None:
            return False
        if not isinstance(result, types.Type):
            raise RelationError(f"the relation returned {result!r:.60}, which is not a type")
        solver.unify(args[-1], result)
        return True

    return relation


def tensor(ty: types.Type) -> types.TensorType | None:
    """A resolved type if it is a tensor, None if it is a hole.

    Errors:
        RelationError: it is anything else.
    """
    if isinstance(ty, types.IncompleteType):
        return None
    if not isinstance(ty, types.TensorType):
        raise RelationError(f"expected a tensor, found {ty}")
    return ty


def broadcast_dims(one: types.Dim, other: types.Dim) -> types.Dim | None:
    """The dimension of a broadcast result (RLY-24, RLY-103), None if it is not known yet.

    Errors:
        RelationError: the dimensions do not match.
    """
    if isinstance(one, types.IncompleteType) or isinstance(other, types.IncompleteType):
        return None
    if one == 1:
        return other
    if other == 1 or one == other:
        return one
    if isinstance(one, types.UnknownDim) or isinstance(other, types.UnknownDim):
        return other if isinstance(one, types.UnknownDim) else one
    raise RelationError(f"the dimensions {one} and {other} are neither equal nor 1")


def broadcast_shapes(one: types.TensorType, other: types.TensorType) -> object:
    """The broadcast shape of two tensors, or None if it is not known yet.

    Errors:
        RelationError: the shapes do not match.
    """
    shapes = one.shape, other.shape
    if any(isinstance(shape, types.IncompleteType) for shape in shapes):
        return None
    for shape, rest in (shapes, shapes[::-1]):
        if isinstance(shape, types.TypeVar):
            if rest is shape or rest == ():
                return shape
            raise RelationError(f"{one} and {other} do not broadcast for every shape {shape}")
    left, right = map(tuple, shapes)  # type: ignore[arg-type]
    width = max(len(left), len(right))
    left = (1,) * (width - len(left)) + left
    right = (1,) * (width - len(right)) + right
    dims = []
    for a, b in zip(left, right, strict=True):
        dim = broadcast_dims(a, b)
        if dim is None:
            return None
        dims.append(dim)
    return tuple(dims)


def _broadcast(solver: Solver, args: tuple[types.Type, ...], dtype: DataType | None) -> bool:
    if len(args) != 3:
        raise RelationError(f"broadcasting relates two operands and a result, found {len(args)}")
    one, other = (tensor(solver.resolve(arg)) for arg in args[:2])
    if one is None or other is None:
        return False
    solver.unify(one.dtype, other.dtype)
    shape = broadcast_shapes(one, other)
    if shape is None:
        return False
    solver.unify(args[2], types.TensorType(shape, dtype or one.dtype))  # type: ignore[arg-type]
    return True


def broadcast(solver: Solver, args: tuple[types.Type, ...], attrs: Attrs) -> bool:
    """Tensors of one datatype with shapes that broadcast, and the result of both (RLY-24)."""
    return _broadcast(solver, args, None)


def broadcast_comp(solver: Solver, args: tuple[types.Type, ...], attrs: Attrs) -> bool:
    """`Broadcast` with a Boolean result (RLY-102)."""
    return _broadcast(solver, args, DataType("bool"))


def identity(solver: Solver, args: tuple[types.Type, ...], attrs: Attrs) -> bool:
    """All types are equal (RLY-102)."""
    for arg in args[1:]:
        solver.unify(args[0], arg)
    return True


def identity_of_tensors(solver: Solver, args: tuple[types.Type, ...], attrs: Attrs) -> bool:
    """All types are equal, and those of tensors: `Identity` of an operator, perhaps of an axis.

    It waits for a type that is not known, so that it is not generalised to one of anything.
    """
    identity(solver, args, attrs)
    known, axis = tensor(solver.resolve(args[0])), attrs.get("axis")
    if known is None:
        return False
    if axis is not None and isinstance(known.shape, tuple):
        rank = len(known.shape)
        if not -rank <= axis < rank:
            raise RelationError(f"axis {axis} is out of range for rank {rank}")
    return True


register_relation("Broadcast", broadcast)
register_relation("BroadcastComp", broadcast_comp)
register_relation("Identity", identity)
