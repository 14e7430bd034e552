"""Holes of types, their unification, and the queue of type relations (RLY-87, RLY-100)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

import numpy as np

from relaxpy.errors import Span
from relaxpy.ir.core.budget import Budget
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.node import EMPTY_ATTRS, Attrs, Node
from relaxpy.ir.core.traverse import children, map_children
from relaxpy.plugins.relay.expr import Literal
from relaxpy.plugins.relay.op.relations import Relation, RelationError
from relaxpy.plugins.relay.ty import (
    FuncType,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeKind,
    TypeVar,
    UnknownDim,
)
from relaxpy.support.dataclass import dataclass

Component: TypeAlias = Any
"""A type, or a component of a tensor type: a shape, a dimension or a datatype."""


class UnifyError(RelationError):
    """Two types, or components of them, differ."""


class OccursError(UnifyError):
    """A type would contain itself."""


@dataclass(slots=True, eq=False)
class OpenRelation:
    """A relation that is to be asked: about `args`, at a position of the program.

    `describe` returns the words that begin a message about it.
    """

    name: str
    relation: Relation
    args: tuple[Type, ...]
    attrs: Attrs = EMPTY_ATTRS
    span: Span | None = None
    describe: Callable[[], str] | None = None
    error: RelationError | None = field(default=None)


class Solver:
    """The holes that are filled so far, and the relations that wait for others.

    `levels` number the nested functions in which holes were created, as in Remy's algorithm: a
    function that is generalised owns the holes of its level. A `budget` limits the nodes of
    types that are visited.
    """

    def __init__(self, budget: Budget | None = None) -> None:
        self.budget = budget
        self.filled: dict[IncompleteType, Component] = {}
        self.levels: dict[IncompleteType, int] = {}
        self.literals: dict[IncompleteType, tuple[int | float, ...]] = {}
        self.waiting: dict[IncompleteType, list[OpenRelation]] = {}
        self.ready: list[OpenRelation] = []
        self.open: dict[OpenRelation, None] = {}
        self.given: list[tuple[str, tuple[Type, ...]]] = []
        self.level = 0
        self._closed: dict[int, Node] = {}

    def visit(self, count: int) -> None:
        """Count nodes of types that were visited."""
        if self.budget is not None:
            self.budget.spend_type_nodes(count)

    def hole(self, kind: TypeKind = TypeKind.Type, span: Span | None = None) -> IncompleteType:
        """A new hole of the current level."""
        hole = IncompleteType(kind, span=span)
        self.levels[hole] = self.level
        return hole

    def literal(self, value: float) -> IncompleteType:
        """The hole for the datatype of an open literal (RLY-63)."""
        hole = self.hole(TypeKind.BaseType)
        self.literals[hole] = (value,)
        return hole

    def resolve(self, value: Component) -> Component:
        """A type or component with its outermost hole filled if it is known."""
        path = []
        while isinstance(value, IncompleteType):
            known = self.filled.get(value)
            if known is None:
                break
            path.append(value)
            value = known
        for hole in path[:-1]:
            self.filled[hole] = value
        return value

    def holes(self, value: Component) -> list[IncompleteType]:
        """The holes that are left in a type or component.

        Types without any are not searched again, since types contain each other: a function that
        binds a pair of a pair in each let has as many types as lets.
        """
        found: dict[IncompleteType, None] = {}
        visited: dict[int, Node] = {}
        stack = [value]
        while stack:
            current = self.resolve(stack.pop())
            if isinstance(current, IncompleteType):
                found[current] = None
            elif isinstance(current, Node):
                if id(current) not in visited and id(current) not in self._closed:
                    visited[id(current)] = current
                    stack += children(current)
            elif isinstance(current, tuple):
                stack += current
        self.visit(1 + len(visited))
        if not found:
            self._closed.update(visited)
        return list(found)

    def complete(self, root: Component) -> Component:
        """A type or component with all its filled holes replaced."""
        return Completion(self)(root)

    def substitute(self, ty: Any, table: Mapping[Any, Component], *, bound: bool = False) -> Any:
        """A type with type parameters replaced, as `substitute` does."""
        return substitute(ty, table, bound=bound, visit=self.visit)

    def unify(self, one: Component, other: Component) -> None:
        """Make two types, or components of types, equal by filling holes.

        Errors:
            UnifyError: they differ, or a hole would contain itself.
        """
        visited: set[tuple[int, int]] = set()
        stack: list[tuple[Component, Component]] = [(one, other)]
        while stack:
            a, b = stack.pop()
            a, b = self.resolve(a), self.resolve(b)
            if a is b or (id(a), id(b)) in visited:
                continue
            visited.add((id(a), id(b)))
            if isinstance(a, IncompleteType):
                self._fill(a, b)
            elif isinstance(b, IncompleteType):
                self._fill(b, a)
            else:
                stack += reversed(self._pairs(a, b))
        self.visit(len(visited))

    def _pairs(self, a: Component, b: Component) -> list[tuple[Component, Component]]:
        """The pairs of components that must be equal for two types to be so."""
        match a, b:
            case TensorType(), TensorType():
                return [(a.shape, b.shape), (a.dtype, b.dtype)]
            case TupleType(fields=left), TupleType(fields=right) if len(left) == len(right):
                return list(zip(left, right, strict=True))
            case RefType(value=left), RefType(value=right):
                return [(left, right)]
            case TypeCall(), TypeCall() if a.func == b.func and len(a.args) == len(b.args):
                return list(zip(a.args, b.args, strict=True))
            case FuncType(), FuncType() if len(a.arg_types) == len(b.arg_types):
                return self._function_pairs(a, b)
            case tuple(), tuple() if len(a) == len(b):
                return list(zip(a, b, strict=True))
            case _:
                pass
        if isinstance(a, UnknownDim) and isinstance(b, (int, UnknownDim, TypeVar)):
            return []
        if isinstance(b, UnknownDim) and isinstance(a, (int, TypeVar)):
            return []
        if isinstance(a, (int, str)) and type(a) is type(b) and a == b:
            return []
        raise UnifyError(f"{_text(a)} is not {_text(b)}")

    def _function_pairs(self, a: FuncType, b: FuncType) -> list[tuple[Component, Component]]:
        if len(a.type_params) != len(b.type_params):
            raise UnifyError(f"{a} is not {b}")
        if a.type_params:
            if [p.kind for p in a.type_params] != [p.kind for p in b.type_params]:
                raise UnifyError(f"{a} is not {b}")
            renaming = dict(zip(b.type_params, a.type_params, strict=True))
            b = self.substitute(b, renaming, bound=True)
        if a.type_constraints != b.type_constraints:
            raise UnifyError(f"{a} is not {b}")
        pairs = list(zip(a.arg_types, b.arg_types, strict=True))
        return [*pairs, (a.ret_type, b.ret_type)]

    def _fill(self, hole: IncompleteType, value: Component) -> None:
        """Fill a hole with a type or component of its kind."""
        if _kind(value) is not hole.kind:
            raise UnifyError(f"{_text(value)} is not of kind {hole.kind.name}")
        level = self.levels.setdefault(hole, 0)
        for inner in self.holes(value):
            if inner is hole:
                raise OccursError(f"the type would contain itself: {_text(value)}")
            self.levels[inner] = min(self.levels.get(inner, level), level)
        literals = self.literals.get(hole, ())
        if literals and isinstance(value, IncompleteType):
            self.literals[value] = self.literals.get(value, ()) + literals
        elif literals:
            for number in literals:
                check_literal(number, value)
        self.literals.pop(hole, None)
        self.filled[hole] = value
        self.ready += self.waiting.pop(hole, ())

    def relate(self, relation: OpenRelation) -> None:
        """Add a relation, to be asked at the next `solve`."""
        self.open[relation] = None
        self.ready.append(relation)

    def solve(self) -> Iterator[OpenRelation]:
        """Ask the relations whose types have changed; yield those that fail (RLY-100)."""
        while self.ready:
            relation = self.ready.pop()
            if relation not in self.open:
                continue
            try:
                holds = self._is_given(relation) or relation.relation(
                    self, tuple(map(self.resolve, relation.args)), relation.attrs
                )
            except RelationError as error:
                relation.error = error
                del self.open[relation]
                yield relation
                continue
            if holds:
                del self.open[relation]
                continue
            for hole in {h for arg in relation.args for h in self.holes(arg)}:
                self.waiting.setdefault(hole, []).append(relation)

    def _is_given(self, relation: OpenRelation) -> bool:
        """Take the result of a relation of an enclosing `where` clause (RLY-99)."""
        if not self.given:
            return False
        inputs = tuple(self.complete(arg) for arg in relation.args[:-1])
        for name, args in self.given:
            if name == relation.name and len(args) == len(relation.args):
                known = tuple(self.complete(arg) for arg in args[:-1])
                if inputs == known:
                    self.unify(relation.args[-1], args[-1])
                    return True
        return False


class Completion:
    """The types in which all filled holes are replaced; shared types stay shared."""

    def __init__(self, solver: Solver) -> None:
        self.solver = solver
        self.done: dict[int, Any] = {}
        self.alive: list[object] = []

    def __call__(self, root: Component) -> Component:
        """The completed type or component."""
        done = self.done
        known = len(done)
        stack: list[tuple[Any, bool]] = [(root, False)]
        while stack:
            value, ready = stack.pop()
            if id(value) in done:
                continue
            target = self.solver.resolve(value)
            parts = _parts(value) if target is value else (target,)
            if not ready and any(id(part) not in done for part in parts):
                stack.append((value, True))
                stack += [(part, False) for part in parts]
                continue
            done[id(value)] = _rebuilt(value, done) if target is value else done[id(target)]
            self.alive.append(value)
        self.solver.visit(len(done) - known)
        return done[id(root)]


def _parts(value: object) -> Sequence[object]:
    if isinstance(value, Node):
        if isinstance(value, (TypeVar, IncompleteType)):
            return ()
        if isinstance(value, TensorType):
            return [c for c in (value.shape, value.dtype) if not isinstance(c, str)]
        return list(children(value))
    return [v for v in value if isinstance(v, Node)] if isinstance(value, tuple) else ()


def _rebuilt(value: Any, done: dict[int, Any]) -> Any:
    if isinstance(value, TensorType):
        shape = done[id(value.shape)]
        dtype = value.dtype if isinstance(value.dtype, str) else done[id(value.dtype)]
        same = shape is value.shape and dtype is value.dtype
        return value if same else TensorType(shape, dtype, span=value.span)
    if isinstance(value, tuple):
        items = tuple(done[id(v)] if isinstance(v, Node) else v for v in value)
        return value if all(a is b for a, b in zip(items, value, strict=True)) else items
    if isinstance(value, Node):
        return map_children(lambda child: done[id(child)], value)
    return value


def _kind(value: Component) -> TypeKind:
    if isinstance(value, (TypeVar, IncompleteType)):
        return value.kind
    if isinstance(value, Type):
        return TypeKind.Type
    if isinstance(value, tuple):
        return TypeKind.Shape
    return TypeKind.BaseType if isinstance(value, str) else TypeKind.ShapeVar


def _text(value: Component) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))}{',' * (len(value) == 1)})"
    return str(value)


def default_dtype(numbers: Sequence[float]) -> DataType:
    """The datatype that literals of one type have if nothing else decides it (RLY-63)."""
    kinds = [Literal(number).default_dtype for number in numbers]
    floats = [dtype for dtype in kinds if dtype.family == "float"]
    return floats[0] if floats else max(kinds, key=lambda dtype: dtype.bits)


def check_literal(number: float, dtype: object) -> None:
    """Check that a literal may have a datatype (RLY-62, RLY-63).

    Errors:
        UnifyError: it may not.
    """
    if not isinstance(dtype, DataType):
        raise UnifyError(f"the literal {number} has a numeric datatype, not {dtype}")
    fits = True
    if dtype.family in ("int", "uint") and dtype != "bool":
        low = -(1 << dtype.bits - 1) if dtype.family == "int" else 0
        high = 1 << (dtype.bits - (dtype.family == "int"))
        fits = isinstance(number, int) and low <= number < high
    elif dtype == "bool":
        raise UnifyError(f"the literal {number} is not a Boolean: write True or False")
    else:
        with np.errstate(over="ignore"):
            rounded = np.array(float(number), str(dtype)).astype("float64")
        fits = bool(np.isfinite(rounded))
    if not fits:
        raise UnifyError(f"the literal {number} does not fit {dtype}")


def substitute(
    ty: Any,
    table: Mapping[Any, Component],
    *,
    bound: bool = False,
    visit: Callable[[int], None] | None = None,
) -> Any:
    """A type with type parameters replaced; with `bound`, where a function binds them too.

    Shared types stay shared. `visit` receives the number of nodes that were visited.
    """
    if not table:
        return ty
    done: dict[int, Any] = {id(old): new for old, new in table.items()}
    keep: list[object] = []
    stack: list[tuple[Any, bool]] = [(ty, False)]
    while stack:
        value, ready = stack.pop()
        if id(value) in done:
            continue
        parts = _parts(value)
        if isinstance(value, FuncType) and not bound:
            parts = [p for p in parts if p not in value.type_params]
        if not ready and any(id(p) not in done for p in parts):
            stack.append((value, True))
            stack += [(p, False) for p in parts]
            continue
        for param in value.type_params if isinstance(value, FuncType) else ():
            done.setdefault(id(param), param)
        done[id(value)] = _rebuilt(value, done)
        keep.append(value)
    if visit is not None:
        visit(len(done))
    return done[id(ty)]
